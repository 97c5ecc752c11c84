package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Conflict is a path that could not be merged automatically.
type Conflict struct {
	Path   string          `json:"path"`
	Kinds  []string        `json:"kinds"`  // git's names: "contents", "modify/delete", "rename/rename" and so on
	Stages []ConflictStage `json:"stages"` // the stages that exist
}

// ConflictStage is one side of a conflict: 1 is the merge base, 2 ours (the sandbox's in a sync), 3 theirs.
type ConflictStage struct {
	Stage int    `json:"stage"`
	Mode  string `json:"mode"`
	OID   string `json:"oid"`
}

// ConvertConflicts converts the conflicts of package git/merge.
func ConvertConflicts(found []merge.Conflict) []Conflict {
	all := make([]Conflict, len(found))
	for i, c := range found {
		all[i] = Conflict{Path: c.Path, Kinds: append([]string{}, c.Kinds...), Stages: []ConflictStage{}}
		for _, s := range c.Stages {
			all[i].Stages = append(all[i].Stages, ConflictStage{Stage: s.Number, Mode: s.Mode, OID: s.OID})
		}
	}
	return all
}

// ConflictsError reports conflicts between a sandbox and its integration branch. Nothing has changed, unless
// UnfinishedIn names the sandbox that holds the unfinished merge.
type ConflictsError struct {
	ID            string
	Conflicts     []Conflict
	UnfinishedIn  string   // path of the sandbox that holds the unfinished merge; empty if there is none
	StoppedAt     string   // commit of the sandbox at which a rebase stopped; empty for other strategies
	Unlanding     bool     // an unland conflicts with later commits
	RevertArgs    string   // arguments for git revert, if Unlanding
	Branch        string   // branch to revert on, if Unlanding
	Tree          string   // worktree that has this branch checked out; empty where none has
	AlreadyLanded []string // ids that the same command landed earlier
	Worktree      string   // name of the worktree whose branch conflicts with Branch, its parent branch; Tree is its path
	Directories   bool     // the sandbox is over plain directories, which have changed since it was started
}

func (e *ConflictsError) Error() string {
	paths := fmt.Sprintf("%d paths", len(e.Conflicts))
	if len(e.Conflicts) == 1 {
		paths = "1 path"
	}
	if e.UnfinishedIn != "" {
		return fmt.Sprintf("sandbox %s conflicts with its integration branch in %s; the unfinished merge is in %s", e.ID, paths, e.UnfinishedIn)
	}
	if e.Worktree != "" {
		return fmt.Sprintf("its branch conflicts with %s in %s; nothing changed", e.Branch, paths)
	}
	if e.Directories {
		return fmt.Sprintf("sandbox %s conflicts with what its directories are now in %s; nothing changed", e.ID, paths)
	}
	if e.Unlanding {
		return fmt.Sprintf("reverting the landing of %s conflicts with later commits in %s; nothing changed", e.ID, paths)
	}
	return fmt.Sprintf("sandbox %s conflicts with its integration branch in %s; %s", e.ID, paths, describeUnchanged(e.AlreadyLanded, "nothing changed"))
}

// OtherModulesError reports repositories of submodules in a sandbox that hold, or may hold, commits that are kept nowhere else.
type OtherModulesError struct {
	ID     string
	Names  []string
	Nested bool // the submodules called Names have submodules of their own with such repositories
}

func (e *OtherModulesError) Error() string {
	if e.Nested {
		return fmt.Sprintf("submodules inside of submodule %s have repositories whose content is kept nowhere else; nothing changed", strings.Join(e.Names, ", "))
	}
	return fmt.Sprintf("it has repositories of submodules whose content is kept nowhere else: %s; nothing changed", strings.Join(e.Names, ", "))
}

// SetAlreadyLanded adds the ids that landed earlier to a *ConflictsError or *KeepsMovingError.
func SetAlreadyLanded(err error, landed []string) {
	var conflicts *ConflictsError
	var moving *KeepsMovingError
	if errors.As(err, &conflicts) {
		conflicts.AlreadyLanded = landed
	}
	if errors.As(err, &moving) {
		moving.AlreadyLanded = landed
	}
}

// describeUnchanged returns unchanged, or, if earlier ids of the command landed, names them and says that nothing else
// changed.
func describeUnchanged(landed []string, unchanged string) string {
	switch len(landed) {
	case 0:
		return unchanged
	case 1:
		return landed[0] + " has landed, and nothing else changed"
	}
	return strings.Join(landed[:len(landed)-1], ", ") + " and " + landed[len(landed)-1] + " have landed, and nothing else changed"
}

// NotSubmittedError reports work that must not land before it was submitted for review, because agency.requireReview
// is set.
type NotSubmittedError struct {
	ID    string
	State string // landing state of the work: "" or "rejected"; "review" if Moved
	Moved bool   // the sandbox has changed since it was submitted
}

func (e *NotSubmittedError) Error() string {
	switch {
	case e.Moved:
		return fmt.Sprintf("invocation %s has changed since it was submitted; submit it again", e.ID)
	case e.State != "":
		return fmt.Sprintf("invocation %s was %s, and has not been submitted again", e.ID, e.State)
	}
	return fmt.Sprintf("invocation %s was not submitted for review, and agency.requireReview is set", e.ID)
}

// NotInReviewError reports an invocation that cannot be rejected, because it is not in review.
type NotInReviewError struct {
	ID    string
	State string // landing state of the invocation; empty if it was neither submitted nor ended
}

func (e *NotInReviewError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("invocation %s is not in review: its work was not submitted", e.ID)
	}
	return fmt.Sprintf("invocation %s is not in review: it was %s", e.ID, e.State)
}

// BaseMovedError reports an integration branch with commits that the sandbox to land does not contain.
type BaseMovedError struct {
	ID     string
	Branch string
	Base   string // start commit of the sandbox
	At     string // commit of the branch
}

func (e *BaseMovedError) Error() string {
	return fmt.Sprintf("%s is at %s, and has commits that sandbox %s lacks", e.Branch, e.At, e.ID)
}

// HeadLacksBranchError reports a sandbox whose HEAD is not on its own branch, and lacks commits of that branch.
type HeadLacksBranchError struct {
	ID     string
	On     string // the branch that is checked out, or "detached"
	Branch string // the sandbox's own branch
}

func (e *HeadLacksBranchError) Error() string {
	if e.On == git.DetachedHead {
		return fmt.Sprintf("HEAD of sandbox %s is detached, and lacks commits that are on %s", e.ID, e.Branch)
	}
	return fmt.Sprintf("HEAD of sandbox %s is on %s, and lacks commits that are on %s", e.ID, e.On, e.Branch)
}

// UnnamedGitlinkError reports a nested repository in a sandbox that was added as a gitlink without an entry in
// .gitmodules.
type UnnamedGitlinkError struct {
	ID, Path string
	Finished FinishedWorktree
}

func (e *UnnamedGitlinkError) Error() string {
	return fmt.Sprintf("%s adds the repository %s as a submodule that .gitmodules does not name; its files would not land", e.Finished.orSandbox(e.ID), e.Path)
}

// FinishedWorktree is the integration worktree whose work an error is about; the zero value if it is the work of a sandbox.
type FinishedWorktree struct{ Name, Tree string }

// orSandbox names the worktree, or else a sandbox.
func (f FinishedWorktree) orSandbox(id string) string {
	if f.Name != "" {
		return fmt.Sprintf("worktree %q", f.Name)
	}
	return "sandbox " + id
}

// SubmoduleCommitError reports a sandbox that has a submodule at a commit which the user has nowhere else.
type SubmoduleCommitError struct {
	ID, Path, Commit string
	Where            submodule.Presence // never submodule.Referenced
	Tree             string             // worktree that has the integration branch checked out; empty: none
	GitDir           string             // repository of the submodule in the user's repository; it may not exist
	New              bool               // the integration branch does not have the submodule
	URL              string             // as .gitmodules of the sandbox has it
	Finished         FinishedWorktree
}

// IsKept reports whether a ref of git-agency keeps the commit in GitDir.
func (e *SubmoduleCommitError) IsKept() bool { return e.Where == submodule.KeptOnly }

// HasRepository reports whether GitDir exists.
func (e *SubmoduleCommitError) HasRepository() bool { return e.Where != submodule.NoRepository }

func (e *SubmoduleCommitError) Error() string {
	said := fmt.Sprintf("%s has the submodule %s at commit %s, ", e.Finished.orSandbox(e.ID), quote.Path(e.Path), e.Commit)
	switch e.Where {
	case submodule.KeptOnly:
		return said + "which no branch, tag or remote-tracking branch of the submodule has; others could not check out what would land"
	case submodule.NoRepository:
		return said + "and the submodule is not initialised in the repository, so that it is unknown whether the commit exists"
	default:
		return said + "which does not exist in " + e.GitDir
	}
}

// InvalidObjectError reports a sandbox with malformed commits or trees, which must not land. Err is an *InvalidTreeError or
// *InvalidCommitError.
type InvalidObjectError struct {
	ID   string
	Base string // a commit that can land, to make new commits on top of
	Path string // offending path from the top of the tree; empty where the commit itself is malformed
	Err  error

	Finished FinishedWorktree
}

func (e *InvalidObjectError) Error() string { return e.Err.Error() }

func (e *InvalidObjectError) Unwrap() error { return e.Err }

// SandboxOperationError reports a git operation that is in progress in a sandbox.
type SandboxOperationError struct {
	ID       string
	What     string // git command of the operation: "merge", "rebase"; "conflicts" where the operation is unknown
	Path     string // path of the sandbox, if a git outside of its walls has begun the operation; empty if one inside has
	Unstaged bool   // nothing of the merge is staged: committing it now would drop the other side's changes
	Merged   bool   // the branch has the merged commit: a git outside of the walls has merged it again
	Commit   string // commit that a git outside of the walls has made since the merge began, and that does not merge; else empty
}

func (e *SandboxOperationError) Error() string {
	switch {
	case e.What == "conflicts":
		return fmt.Sprintf("there are conflicts in sandbox %s", e.ID)
	case e.Merged:
		return fmt.Sprintf("a merge is still in progress behind the walls of sandbox %s, although its branch has the merged commit", e.ID)
	case e.Commit != "":
		return fmt.Sprintf("a merge is still in progress behind the walls of sandbox %s; commit %.10s was made outside of them, where git does not know of the merge", e.ID, e.Commit)
	}
	return fmt.Sprintf("a %s is in progress in sandbox %s", e.What, e.ID)
}

// StuckLandingError reports an interrupted landing that can neither be finished nor undone, because its branch,
// worktree or sandbox has changed since.
type StuckLandingError struct {
	ID   string
	Path string // path of landing.json, which describes the landing
	Err  error
}

func (e *StuckLandingError) Error() string {
	return fmt.Sprintf("a landing of %s was interrupted, and can be neither finished nor undone: %v", e.ID, e.Err)
}

func (e *StuckLandingError) Unwrap() error { return e.Err }

// NoLongerLandedError reports work that has landed and is no longer on the integration branch.
type NoLongerLandedError struct {
	ID            string
	Commit        string // commit of the landing
	Branch        string
	UnlandedBy    string // commit of the unland; empty where it was not undone by unland
	Reverted      bool   // the branch contains the landing, but later commits undid all of its changes
	RestoreArgs   string // git arguments that restore the work; empty where merging RestoreCommit does
	Ref           string // trash ref with the sandbox's commits; empty if it was pruned
	RestoreCommit string // revision to merge to restore the work: Ref, or the landed commit where Ref holds more than had landed
	Tree          string // worktree that has the branch checked out; empty where none has
}

func (e *NoLongerLandedError) Error() string {
	if e.UnlandedBy != "" {
		return fmt.Sprintf("%s had landed on %s, and was reverted by %s", e.ID, e.Branch, e.UnlandedBy)
	}
	if e.Reverted {
		return fmt.Sprintf("%s had landed on %s, and later commits reverted all of its changes", e.ID, e.Branch)
	}
	return fmt.Sprintf("%s had landed as %s, which is not on %s any more", e.ID, e.Commit, e.Branch)
}

// NotLandedError reports an invocation without a landing to revert.
type NotLandedError struct {
	ID       string
	Landing  string // landing state; "landed" if it was merged without git-agency
	Reverted bool   // it has landed, but later commits undid all of its changes

	RestoredFrom string // invocation that it was restored from, if that has landed and was not reverted; else empty
}

func (e *NotLandedError) Error() string {
	switch {
	case e.Reverted:
		return "later commits reverted all changes of the landing of " + e.ID
	case e.Landing == "landed":
		return e.ID + " was merged without git-agency; there is no landing to revert"
	}
	return e.ID + " has not landed"
}

// KeepsMovingError reports an integration branch or sandbox that moved during every attempt to land.
type KeepsMovingError struct {
	ID     string
	Branch string
	Times  int

	Verifying bool // the attempts were verifications of the landing
	Unlanding bool // the attempts were to revert a landing

	AlreadyLanded []string // ids that the same command landed earlier
}

func (e *KeepsMovingError) Error() string {
	switch {
	case e.Verifying:
		return fmt.Sprintf("%s or sandbox %s moved during each of %d verifications; %s", e.Branch, e.ID, e.Times, describeUnchanged(e.AlreadyLanded, "nothing has landed"))
	case e.Unlanding:
		return fmt.Sprintf("%s moved during each of %d attempts to revert the landing of %s; nothing changed", e.Branch, e.Times, e.ID)
	}
	return fmt.Sprintf("%s or sandbox %s moved during each of %d attempts to land; %s", e.Branch, e.ID, e.Times, describeUnchanged(e.AlreadyLanded, "nothing has landed"))
}

// TemporarySandboxError reports a temporary sandbox, which exists only to verify a landing and cannot land itself.
type TemporarySandboxError struct {
	ID       string
	Verifies string // id of the invocation that it verifies
}

func (e *TemporarySandboxError) Error() string {
	return fmt.Sprintf("sandbox %s exists only to verify %s, and cannot land", e.ID, e.Verifies)
}
