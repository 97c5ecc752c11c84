package gitagency

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// branchRoot is the name below which every branch of ours lives.
const branchRoot = "agency"

const heads = "refs/heads/"

// worktreeRef is the branch of an integration worktree that was made here.
func worktreeRef(name, id string) string {
	return fmt.Sprintf("%s%s/%s-%s", heads, branchRoot, name, ids.Suffix(id))
}

// sandboxRef is the branch of a sandbox.
func sandboxRef(id string) string { return heads + branchRoot + "/sandbox-" + id }

// trashRef is the ref that keeps what was in a tree that is gone.
func trashRef(id string) string { return "refs/agency/trash/" + id }

// snapshotRoot is the name below which the snapshots of every sandbox live.
const snapshotRoot = "refs/agency/snapshots/"

// snapshotRefs is the name below which the snapshots of one sandbox live.
func snapshotRefs(id string) string { return snapshotRoot + id + "/" }

// snapshotRef is the ref of a snapshot; they are numbered from 1.
func snapshotRef(id string, n int) string { return snapshotRefs(id) + strconv.Itoa(n) }

// snapshotNumber is the number of a snapshot of a sandbox by its ref; 0 when it is not one of ours.
func snapshotNumber(id, ref string) int {
	const most = 9 // digits
	n, err := strconv.Atoi(strings.TrimPrefix(ref, snapshotRefs(id)))
	if err != nil || n < 1 || snapshotRef(id, n) != ref || len(ref) > len(snapshotRefs(id))+most {
		return 0
	}
	return n
}

// short is a branch as people and records call it.
func short(ref string) string { return strings.TrimPrefix(ref, heads) }
