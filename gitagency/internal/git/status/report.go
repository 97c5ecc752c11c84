package status

import (
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
)

// Report is the state of a worktree: where HEAD is, and which files are not committed.
type Report struct {
	Head      string // commit of HEAD
	Branch    string // branch that HEAD names, a full ref; git.DetachedHead: none; empty: unknown
	BranchTip string // commit of the worktree's own branch; empty: the branch does not exist
	HeadTree  string // tree of Head
	DiskTree  string // tree of the files on disk; the mirror has it if it is not HeadTree

	Uncommitted []string        // files that differ from Head, on disk or in the index
	IgnoredDirs []string        // ignored directories that were not scanned; not those inside of another
	LeftOut     []LeftOut       // files that are in neither DiskTree nor Uncommitted
	RuleFiles   []fsck.RuleFile // uncommitted files that fsck.CheckRuleFiles checks
	InProgress  OngoingOperation
}

// OngoingOperation is a git operation in progress in a worktree.
type OngoingOperation struct {
	Command        string // git command, such as "merge" or "rebase"; "conflicts": unmerged entries only; empty: none
	OutsideWalls   bool   // a git inside the sandbox's walls does not see the operation
	IndexUnchanged bool   // the index equals HEAD: committing a merge now would take over nothing of it
}

// ConflictsOnly is the Command of an OngoingOperation of which only unmerged index entries are left.
const ConflictsOnly = "conflicts"

// DetectOperation returns the operation in progress in the git directory that a git in the worktree uses.
func DetectOperation(r *git.Repo, s git.WorktreeSpec) OngoingOperation {
	return OngoingOperation{Command: git.OperationIn(r.WorktreeAdminDir(s)), OutsideWalls: s.UpperDir != "" && r.WorktreeAdminDir(s) == r.AdminDir(s.Name)}
}
