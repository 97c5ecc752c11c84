package gitagency

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// branchNamespace is the prefix of all branches of git-agency.
const branchRoot = "agency"

const heads = "refs/heads/"

// worktreeRef returns the branch of a created integration worktree.
func worktreeRef(name, id string) string {
	return fmt.Sprintf("%s%s/%s-%s", heads, branchRoot, name, ids.Suffix(id))
}

// sandboxRef returns the branch of a sandbox.
func sandboxRef(id string) string { return heads + branchRoot + "/sandbox-" + id }

// trashRef returns the ref that keeps the content of a removed tree.
func trashRef(id string) string { return "refs/agency/trash/" + id }

// allSnapshotsPrefix is the ref prefix of the snapshots of all sandboxes.
const snapshotRoot = "refs/agency/snapshots/"

// snapshotsPrefix returns the ref prefix of the snapshots of one sandbox.
func snapshotRefs(id string) string { return snapshotRoot + id + "/" }

// snapshotRef returns the ref of a snapshot; they are numbered from 1.
func snapshotRef(id string, n int) string { return snapshotRefs(id) + strconv.Itoa(n) }

// snapshotNumber parses the number of a snapshot from its ref; 0 if it is not a snapshot ref of this sandbox.
func snapshotNumber(id, ref string) int {
	const most = 9 // digits
	n, err := strconv.Atoi(strings.TrimPrefix(ref, snapshotRefs(id)))
	if err != nil || n < 1 || snapshotRef(id, n) != ref || len(ref) > len(snapshotRefs(id))+most {
		return 0
	}
	return n
}

// shortBranch returns a branch name without refs/heads/, as users and records write it.
func short(ref string) string { return strings.TrimPrefix(ref, heads) }
