package gitagency

import "fmt"

// BaseMovedError is an integration branch that has commits which a sandbox that is to land has not.
type BaseMovedError struct {
	ID     string
	Branch string
	Base   string // what the sandbox started from
	At     string // where the branch is
}

func (e *BaseMovedError) Error() string {
	return fmt.Sprintf("%s has moved to %s since sandbox %s had all of it", e.Branch, e.At, e.ID)
}

// ElsewhereError is a sandbox in which something else than its own branch is checked out, while that has commits of its
// own.
type ElsewhereError struct {
	ID     string
	On     string // what is checked out: a branch, or "detached"
	Branch string // the sandbox's own
}

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("HEAD of sandbox %s is on %s, and lacks commits that are on %s", e.ID, e.On, e.Branch)
}

// NoBranchError is an integration worktree that is on no branch, so that nothing can land there.
type NoBranchError struct{ Worktree, Path string }

func (e *NoBranchError) Error() string {
	return fmt.Sprintf("worktree %q is on no branch; there is nothing to land on", e.Worktree)
}

// StrayGitlinkError is a repository inside of a sandbox that was added as if it were a submodule.
type StrayGitlinkError struct{ ID, Path string }

func (e *StrayGitlinkError) Error() string {
	return fmt.Sprintf("sandbox %s adds the repository %s as a submodule that .gitmodules does not name; its files would not land", e.ID, e.Path)
}

// SandboxUnderWayError is a sandbox in which git is in the middle of something.
type SandboxUnderWayError struct {
	ID   string
	What string // as the commands of git are called: "merge", "rebase"
}

func (e *SandboxUnderWayError) Error() string {
	return fmt.Sprintf("a %s is under way in sandbox %s", e.What, e.ID)
}

// StuckLandingError is a landing that was interrupted and that can neither be finished nor undone: somebody has changed
// what it is about.
type StuckLandingError struct {
	ID   string
	Path string // of the note of it
	Err  error
}

func (e *StuckLandingError) Error() string {
	return fmt.Sprintf("a landing of %s was interrupted, and cannot be finished: %v", e.ID, e.Err)
}

func (e *StuckLandingError) Unwrap() error { return e.Err }

// NotLandedError is an invocation of which there is no landing to take back.
type NotLandedError struct {
	ID       string
	Landing  string // what it is instead; "landed" when it landed in another way than by us
	Reverted bool   // it has landed, and nothing of that is left
}

func (e *NotLandedError) Error() string {
	switch {
	case e.Reverted:
		return "nothing of the landing of " + e.ID + " is left; somebody has taken it back"
	case e.Landing == "landed":
		return e.ID + " was merged by somebody else; there is no landing of ours to take back"
	}
	return e.ID + " has not landed"
}
