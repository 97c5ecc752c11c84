package gitagency

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// branchNamespace is the prefix of all branches of git-agency.
const branchNamespace = "agency"

const headsPrefix = "refs/heads/"

// worktreeRef returns the branch of a created integration worktree.
func worktreeRef(name, id string) string {
	return fmt.Sprintf("%s%s/%s-%s", headsPrefix, branchNamespace, name, ids.Suffix(id))
}

// sandboxRef returns the branch of a sandbox.
func sandboxRef(id string) string { return headsPrefix + branchNamespace + "/sandbox-" + id }

// trashRef returns the ref that keeps the content of a removed tree.
func trashRef(id string) string { return "refs/agency/trash/" + id }

// allSnapshotsPrefix is the ref prefix of the snapshots of all sandboxes.
const allSnapshotsPrefix = "refs/agency/snapshots/"

// snapshotsPrefix returns the ref prefix of the snapshots of one sandbox.
func snapshotsPrefix(id string) string { return allSnapshotsPrefix + id + "/" }

// snapshotRef returns the ref of a snapshot; they are numbered from 1.
func snapshotRef(id string, n int) string { return snapshotsPrefix(id) + strconv.Itoa(n) }

// snapshotNumber parses the number of a snapshot from its ref; 0 if it is not a snapshot ref of this sandbox.
func snapshotNumber(id, ref string) int {
	const most = 9 // digits
	n, err := strconv.Atoi(strings.TrimPrefix(ref, snapshotsPrefix(id)))
	if err != nil || n < 1 || snapshotRef(id, n) != ref || len(ref) > len(snapshotsPrefix(id))+most {
		return 0
	}
	return n
}

// shortBranch returns a branch name without refs/heads/, as users and records write it.
func shortBranch(ref string) string { return strings.TrimPrefix(ref, headsPrefix) }
