package core

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// BranchNamespace is the prefix of all branches of git-agency.
const BranchNamespace = "agency"

// AgencyHeads starts the refs of all branches of git-agency.
const AgencyHeads = HeadsPrefix + BranchNamespace + "/"

// SandboxHeads starts the refs of the branches of sandboxes.
const SandboxHeads = AgencyHeads + "sandbox-"

// HeadsPrefix is the prefix of full names of branches.
const HeadsPrefix = "refs/heads/"

// worktreeRef returns the branch of a created integration worktree.
func worktreeRef(name, id string) string {
	return fmt.Sprintf("%s%s/%s-%s", HeadsPrefix, BranchNamespace, name, ids.Suffix(id))
}

// SandboxRef returns the branch of a sandbox.
func SandboxRef(id string) string { return SandboxHeads + id }

// isSandboxRef reports whether a ref has the form of the branch of a sandbox.
func isSandboxRef(ref string) bool {
	id, found := strings.CutPrefix(ref, SandboxRef(""))
	return found && ids.Valid(id)
}

// branchRef returns the full ref of a branch; empty for an empty name.
func branchRef(name string) string {
	if name == "" {
		return ""
	}
	return HeadsPrefix + name
}

// TrashRef returns the ref that keeps the content of a removed tree.
func TrashRef(id string) string { return "refs/agency/trash/" + id }

// SubmoduleRef returns the ref, in the repository of a submodule, that keeps commits made in a sandbox.
func SubmoduleRef(id string) string { return submodulesPrefix + id }

const submodulesPrefix = "refs/agency/submodules/"

// AllSnapshotsPrefix is the ref prefix of the snapshots of all sandboxes.
const AllSnapshotsPrefix = "refs/agency/snapshots/"

// SnapshotsPrefix returns the ref prefix of the snapshots of one sandbox.
func SnapshotsPrefix(id string) string { return AllSnapshotsPrefix + id + "/" }

// SnapshotRef returns the ref of a snapshot; they are numbered from 1.
func SnapshotRef(id string, n int) string { return SnapshotsPrefix(id) + strconv.Itoa(n) }

// SnapshotNumber parses the number of a snapshot from its ref; 0 if it is not a snapshot ref of this sandbox.
func SnapshotNumber(id, ref string) int {
	const most = 9 // digits
	n, err := strconv.Atoi(strings.TrimPrefix(ref, SnapshotsPrefix(id)))
	if err != nil || n < 1 || SnapshotRef(id, n) != ref || len(ref) > len(SnapshotsPrefix(id))+most {
		return 0
	}
	return n
}

// ShortBranch returns a branch name without refs/heads/, as users and records write it.
func ShortBranch(ref string) string { return strings.TrimPrefix(ref, HeadsPrefix) }
