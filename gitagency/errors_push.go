package gitagency

import (
	"fmt"
	"strings"
)

// NoRemoteError is a push to where there is nothing. Nothing has changed.
type NoRemoteError struct {
	Remote  string   // that was asked for; empty when any would have done
	Remotes []string // those there are
}

func (e *NoRemoteError) Error() string {
	if e.Remote == "" {
		return "no remote to push to: there is neither a local nor an origin"
	}
	return fmt.Sprintf("no remote to push to: there is none called %q", e.Remote)
}

// UpstreamError is a branch that follows one of another name, to which git would not push it either. Nothing has changed.
type UpstreamError struct{ Branch, Remote, Upstream string }

func (e *UpstreamError) Error() string {
	return fmt.Sprintf("%s follows %s of remote %s: it is not clear which of the two a push is for; nothing changed", e.Branch, e.Upstream, e.Remote)
}

// DistrustedRemoteError is a remote on this machine that would run hooks, while somebody in a sandbox without walls could
// have named any. Nothing has changed.
type DistrustedRemoteError struct {
	Remote, URL string
	Hooks       []string
}

func (e *DistrustedRemoteError) Error() string {
	return fmt.Sprintf("remote %s is %s, says a setting that a sandbox without walls can write; a push would run:\n%s", e.Remote, e.URL, someOf(e.Hooks))
}

// NotPushedError is an integration branch that could not be pushed. What has landed on it stands.
type NotPushedError struct {
	PushPlan
	IDs       []string   // what has landed
	Tries     int        // how often it was sent
	Tree      string     // where the branch is checked out, if anywhere and that is known
	Conflicts []Conflict // of the branch with what others have pushed
	Err       error      // nil when there are such
	Unknown   bool       // it was on its way: it may have arrived
	Back      bool       // a landing was taken back
}

func (e *NotPushedError) Error() string {
	because := fmt.Sprint(e.Err)
	if len(e.Conflicts) > 0 {
		paths := make([]string, len(e.Conflicts))
		for i, c := range e.Conflicts {
			paths[i] = c.Path
		}
		because = "it conflicts with what others have pushed:\n" + someOf(paths)
	}
	stands := fmt.Sprintf("what has landed on %s stands", e.Branch)
	if e.Back {
		stands = fmt.Sprintf("the landing is taken back from %s", e.Branch)
	}
	if e.Unknown {
		return fmt.Sprintf("%s; whether it was pushed to %s is not known: %s", stands, e.Remote, because)
	}
	return fmt.Sprintf("%s, but was not pushed to %s: %s", stands, e.Remote, because)
}

func (e *NotPushedError) Unwrap() error { return e.Err }

// RejectedError is a remote that does not want what is pushed, for another reason than that it would lose something.
type RejectedError struct{ Words string } // its own

func (e *RejectedError) Error() string {
	first, rest, more := strings.Cut(e.Words, "\n")
	if !more {
		return first
	}
	return first + "\n  " + strings.ReplaceAll(rest, "\n", "\n  ")
}

// OutpacedError is a remote that others have pushed to each time before we could.
type OutpacedError struct{ Tries int }

func (e *OutpacedError) Error() string {
	if e.Tries == 1 {
		return "others were faster; it was tried once"
	}
	return fmt.Sprintf("others were faster; it was tried %d times", e.Tries)
}
