package gitagency

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Conflict is a path that a merge left to a person.
type Conflict struct {
	Path   string          `json:"path"`
	Kinds  []string        `json:"kinds"`  // as git calls them: "contents", "modify/delete", "rename/rename" and so on
	Stages []ConflictStage `json:"stages"` // the sides that there are
}

// ConflictStage is one side of a conflict: 1 is what both had, 2 the sandbox's or ours, 3 theirs.
type ConflictStage struct {
	Stage int    `json:"stage"`
	Mode  string `json:"mode"`
	OID   string `json:"oid"`
}

// conflicts are those that git found.
func conflicts(found []git.Conflict) []Conflict {
	all := make([]Conflict, len(found))
	for i, c := range found {
		all[i] = Conflict{Path: c.Path, Kinds: append([]string{}, c.Kinds...), Stages: []ConflictStage{}}
		for _, s := range c.Stages {
			all[i].Stages = append(all[i].Stages, ConflictStage{Stage: s.Number, Mode: s.Mode, OID: s.OID})
		}
	}
	return all
}

// ConflictsError is a sandbox whose work and the integration branch cannot be merged without a person. Nothing has
// changed, unless Left says where the conflicts wait to be resolved.
type ConflictsError struct {
	ID        string
	Conflicts []Conflict
	Left      string   // the sandbox, when the unfinished merge is in there
	At        string   // the commit of the sandbox that does, where each is put on top of the others by itself
	Back      bool     // a landing was to be taken back, and conflicts with what came later
	Revert    string   // then, what git revert is to be told
	Branch    string   // and where
	Tree      string   // in which that is checked out; empty where none has it
	Stand     []string // what the same command has landed before it
}

func (e *ConflictsError) Error() string {
	paths := fmt.Sprintf("%d paths", len(e.Conflicts))
	if len(e.Conflicts) == 1 {
		paths = "1 path"
	}
	if e.Left != "" {
		return fmt.Sprintf("sandbox %s conflicts with its integration branch in %s; the merge waits in %s", e.ID, paths, e.Left)
	}
	if e.Back {
		return fmt.Sprintf("what has landed since conflicts with taking back %s in %s; nothing changed", e.ID, paths)
	}
	return fmt.Sprintf("sandbox %s conflicts with its integration branch in %s; %s", e.ID, paths, nothingElse(e.Stand, "nothing changed"))
}

// tellStanding has an error say which landings before it stand.
func tellStanding(err error, stand []string) {
	var conflicts *ConflictsError
	var moving *MovingError
	if errors.As(err, &conflicts) {
		conflicts.Stand = stand
	}
	if errors.As(err, &moving) {
		moving.Stand = stand
	}
}

// nothingElse says that nothing has changed but what has landed before.
func nothingElse(stand []string, nothing string) string {
	switch len(stand) {
	case 0:
		return nothing
	case 1:
		return stand[0] + " has landed, and nothing else changed"
	}
	return strings.Join(stand[:len(stand)-1], ", ") + " and " + stand[len(stand)-1] + " have landed, and nothing else changed"
}

// UncommittedError is a sandbox with work that is in no commit.
type UncommittedError struct {
	ID    string
	Path  string   // of the sandbox
	Files []string // from its top

	LeftOut   []LeftOut // what does not count as such, and is not in Files
	Tracked   bool      // only what git tracks counts
	CommitAll bool      // it can land as it is, with LandRequest.CommitAll
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("there is work in %s that is in no commit:\n%s", e.Path, someOf(e.Files))
}

// someOf lists paths, one a line whatever is in its name, and how many more there are.
func someOf(paths []string) string {
	const most = 20
	lines := []string{}
	for _, path := range paths[:min(len(paths), most)] {
		lines = append(lines, "  "+QuotedPath(path))
	}
	if more := len(paths) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// NothingToLandError is a sandbox without any work.
type NothingToLandError struct {
	ID      string
	Void    bool      // it has commits, which change nothing all together
	LeftOut []LeftOut // what is there all the same, and in no commit
}

func (e *NothingToLandError) Error() string {
	text := "there is nothing to land: the sandbox has no commit that it did not start from"
	if e.Void {
		text = "there is nothing to land: all together, the commits of the sandbox change nothing"
	}
	for i, l := range e.LeftOut {
		text += map[bool]string{true: "; left out: ", false: ", "}[i == 0] + QuotedPath(l.Path)
	}
	return text
}

// NotSubmittedError is work that must not land before it was submitted for review, because agency.requireReview says so.
type NotSubmittedError struct {
	ID    string
	State string // what became of the work so far: "" or "rejected"; "review" when it has moved
	Moved bool   // it was submitted, and is not what it was then
}

func (e *NotSubmittedError) Error() string {
	switch {
	case e.Moved:
		return fmt.Sprintf("invocation %s has changed since it was submitted; submit it again", e.ID)
	case e.State != "":
		return fmt.Sprintf("invocation %s was %s, and has not been submitted again", e.ID, e.State)
	}
	return fmt.Sprintf("invocation %s was not submitted for review, which agency.requireReview asks for", e.ID)
}

// NotInReviewError is work that cannot be rejected, as nobody waits for its review.
type NotInReviewError struct {
	ID    string
	State string // what became of it; empty when it is only being worked on
}

func (e *NotInReviewError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("invocation %s is not in review; it is active", e.ID)
	}
	return fmt.Sprintf("invocation %s is not in review; it was %s", e.ID, e.State)
}

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

// UnsoundWorkError is a sandbox with commits that must not land, as an *UnsoundError or *UnsoundCommitError says that Err is.
type UnsoundWorkError struct {
	ID   string
	Base string // a commit that can land, on top of which new ones can be made
	Path string // what must not be in them, from the top; empty where it is a commit itself
	Err  error
}

func (e *UnsoundWorkError) Error() string { return e.Err.Error() }

func (e *UnsoundWorkError) Unwrap() error { return e.Err }

// SandboxUnderWayError is a sandbox in which git is in the middle of something.
type SandboxUnderWayError struct {
	ID       string
	What     string // as the commands of git are called: "merge", "rebase"; "conflicts" where nothing says of what
	Path     string // where a git outside the walls of the sandbox has begun it; empty where one that is run in it has
	Unstaged bool   // nothing of it is staged: a merge that is committed now would take nothing over
}

func (e *SandboxUnderWayError) Error() string {
	if e.What == "conflicts" {
		return fmt.Sprintf("there are conflicts in sandbox %s", e.ID)
	}
	return fmt.Sprintf("a %s is under way in sandbox %s", e.What, e.ID)
}

func (s *Sandbox) underWay(b git.Begun, prims Primitives) error {
	e := &SandboxUnderWayError{ID: s.ID, What: b.What, Unstaged: b.Unstaged}
	if b.Outside && prims.Isolation == isolationOS {
		e.Path = s.tree
	}
	return e
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

// GoneError is work that has landed, and is not on the integration branch any more.
type GoneError struct {
	ID     string
	Commit string // by which it had landed
	Branch string
	By     string // the commit that has taken it back; empty where that was somebody else's
	Undone bool   // the branch leads to it all the same, and nothing of it is left there
	Again  string // what git has to be told to have it again, where it is not to merge Work
	Ref    string // what keeps the sandbox's own commits; empty when that was pruned
	Work   string // what to merge to have it again: Ref, or where that keeps more than had landed the commit that had
	Tree   string // where the branch is checked out; empty where it is not
}

func (e *GoneError) Error() string {
	if e.By != "" {
		return fmt.Sprintf("%s had landed on %s, and was taken back by %s", e.ID, e.Branch, e.By)
	}
	if e.Undone {
		return fmt.Sprintf("%s had landed on %s, and nothing of that is left there; somebody has taken it back", e.ID, e.Branch)
	}
	return fmt.Sprintf("%s had landed as %s, which %s does not lead to any more", e.ID, e.Commit, e.Branch)
}

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

// VerifyError is a landing that a command did not find to be good, or that could not be verified.
type VerifyError struct {
	ID       string
	Command  string
	ExitCode int // of the command; 0 when it did not run
	TimedOut bool
	After    time.Duration // how long it ran
	Limit    time.Duration // how long a command may at most, by what the sandbox was started with; 0 where that is not what bound it
	Log      string        // where lies what it wrote; empty when it wrote nothing, or nothing could be kept
	Err      error         // what kept it from running, or from being waited for; nil when it ran
	Result   ExecResult    // more on how it ended, if it ran
	Merge    string        // what others have pushed, and where to, if that was to be merged and nothing to land
}

func (e *VerifyError) Error() string {
	on := "what would land"
	if e.Merge != "" {
		on = "the merge with " + e.Merge + ", to which others have pushed"
	}
	what := fmt.Sprintf("%q failed on %s, with exit status %d", e.Command, on, e.ExitCode)
	switch {
	case e.Err != nil:
		what = fmt.Sprintf("%q could not be run on %s: %v", e.Command, on, e.Err)
	case e.TimedOut:
		what = fmt.Sprintf("%q timed out on %s, after %s", e.Command, on, e.After.Round(10*time.Millisecond))
	}
	if e.Log != "" {
		what += "; what it wrote is in " + e.Log
	}
	return what
}

func (e *VerifyError) Unwrap() error { return e.Err }

// MovingError is an integration branch that moved every time something was to land on it, or a sandbox that did.
type MovingError struct {
	ID     string
	Branch string
	Times  int

	Verifying bool // each time, what would land was being verified
	Back      bool // each time, a landing was about to be taken back

	Stand []string // what the same command has landed before it
}

func (e *MovingError) Error() string {
	switch {
	case e.Verifying:
		return fmt.Sprintf("%s or sandbox %s moved each of the %d times that what would land was being verified; %s", e.Branch, e.ID, e.Times, nothingElse(e.Stand, "nothing has landed"))
	case e.Back:
		return fmt.Sprintf("%s moved each of the %d times that the landing of %s was about to be taken back; nothing changed", e.Branch, e.Times, e.ID)
	}
	return fmt.Sprintf("%s or sandbox %s moved each of the %d times that it was about to land; %s", e.Branch, e.ID, e.Times, nothingElse(e.Stand, "nothing has landed"))
}

// ThrowAwayError is a sandbox that is there only to try a landing in.
type ThrowAwayError struct {
	ID       string
	Verifies string // whose landing
}

func (e *ThrowAwayError) Error() string {
	return fmt.Sprintf("sandbox %s is only there to verify %s, and does not land", e.ID, e.Verifies)
}
