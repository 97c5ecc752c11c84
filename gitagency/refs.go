package gitagency

import (
	"fmt"
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

// short is a branch as people and records call it.
func short(ref string) string { return strings.TrimPrefix(ref, heads) }
