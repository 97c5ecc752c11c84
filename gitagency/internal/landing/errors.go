package landing

import (
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// NothingToLandError reports a sandbox without work to land.
type NothingToLandError struct {
	ID          string
	NoNetChange bool                // there are commits, but together they change nothing
	LeftOut     []snapshots.LeftOut // uncommitted files that are left out of landings
}

func (e *NothingToLandError) Error() string {
	text := "there is nothing to land: the sandbox has no new commits"
	if e.NoNetChange {
		text = "there is nothing to land: the commits of the sandbox cancel each other out"
	}
	for i, l := range e.LeftOut {
		text += map[bool]string{true: "; left out: ", false: ", "}[i == 0] + quote.Path(l.Path)
	}
	return text
}

// VerifyError reports a landing whose verify command failed or could not be run.
type VerifyError struct {
	ID       string
	Command  string
	ExitCode int // exit status of the command; 0 if it did not run
	TimedOut bool
	After    time.Duration      // run time of the command
	Limit    time.Duration      // timeout of the sandbox; 0 where the operation timeout is shorter
	Log      string             // path of the command's output; empty if there was none, or it could not be kept
	Err      error              // reason why the command did not run or could not be awaited; nil if it ran
	Result   sandbox.ExecResult // further results of the command, if it ran
	Merge    string             // remote branch, as <remote>/<branch>, whose merge was verified; empty if a landing was
}

func (e *VerifyError) Error() string {
	on := "the files to land"
	if e.Merge != "" {
		on = "the merge with commits that others pushed to " + e.Merge
	}
	what := fmt.Sprintf("%q failed on %s, with exit status %d", e.Command, on, e.ExitCode)
	switch {
	case e.Err != nil:
		what = fmt.Sprintf("%q could not be run on %s: %v", e.Command, on, e.Err)
	case e.TimedOut:
		what = fmt.Sprintf("%q timed out on %s, after %s", e.Command, on, e.After.Round(10*time.Millisecond))
	}
	if e.Log != "" {
		what += "; its output is in " + e.Log
	}
	return what
}

func (e *VerifyError) Unwrap() error { return e.Err }

// NotPushedError reports an integration branch that could not be pushed. Earlier landings on it stand.
type NotPushedError struct {
	PushPlan
	IDs            []string         // ids of the landed invocations
	Tries          int              // number of push attempts
	Tree           string           // worktree that has the branch checked out; empty where none has, or it is unknown
	Conflicts      []fault.Conflict // conflicts of the branch with commits on the remote
	Err            error            // nil if there are Conflicts
	OutcomeUnknown bool             // the push was interrupted and may have succeeded
}

func (e *NotPushedError) Error() string {
	because := fmt.Sprint(e.Err)
	if len(e.Conflicts) > 0 {
		paths := make([]string, len(e.Conflicts))
		for i, c := range e.Conflicts {
			paths[i] = c.Path
		}
		because = "it conflicts with commits that others pushed:\n" + fault.ListPaths(paths)
	}
	stands := fmt.Sprintf("the landing on %s stands", e.Branch)
	if e.Unlanding {
		stands = fmt.Sprintf("the landing is reverted on %s", e.Branch)
	}
	if e.OutcomeUnknown {
		return fmt.Sprintf("%s; whether it was pushed to %s is not known: %s", stands, e.Remote, because)
	}
	return fmt.Sprintf("%s, but was not pushed to %s: %s", stands, e.Remote, because)
}

func (e *NotPushedError) Unwrap() error { return e.Err }
