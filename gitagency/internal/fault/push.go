package fault

import (
	"fmt"
	"strings"
)

// NoRemoteError reports that there is no remote to push to. Nothing has changed.
type NoRemoteError struct {
	Remote  string   // requested remote; empty if none was requested
	Remotes []string // existing remotes
}

func (e *NoRemoteError) Error() string {
	if e.Remote == "" {
		return `no remote to push to: there is neither "local" nor "origin"`
	}
	return fmt.Sprintf("no remote to push to: there is none called %q", e.Remote)
}

// UpstreamError reports a branch whose upstream has another name; as in git, it is unclear which branch to push to.
// Nothing has changed.
type UpstreamError struct{ Branch, Remote, Upstream string }

func (e *UpstreamError) Error() string {
	return fmt.Sprintf("the upstream of %s is %s of remote %s: it is not clear to which of the two branches to push; nothing changed", e.Branch, e.Upstream, e.Remote)
}

// UntrustedRemoteError reports a remote on this machine whose hooks a push would run, while a sandbox without walls
// could have configured its URL. Nothing has changed.
type UntrustedRemoteError struct {
	Remote, URL string
	Hooks       []string
}

func (e *UntrustedRemoteError) Error() string {
	return fmt.Sprintf("the URL of remote %s, %s, is in a config file that a sandbox without walls can write; a push would run these hooks:\n%s", e.Remote, e.URL, ListPaths(e.Hooks))
}

// RejectedError reports a push that the remote rejected, for another reason than that it was no fast-forward.
type RejectedError struct{ Message string } // message of the remote

func (e *RejectedError) Error() string {
	first, rest, more := strings.Cut(e.Message, "\n")
	if !more {
		return first
	}
	return first + "\n  " + strings.ReplaceAll(rest, "\n", "\n  ")
}

// PushRaceError reports a remote that received other pushes before every one of our attempts.
type PushRaceError struct{ Tries int }

func (e *PushRaceError) Error() string {
	if e.Tries == 1 {
		return "other pushes reached the remote first; tried once"
	}
	return fmt.Sprintf("other pushes reached the remote first; tried %d times", e.Tries)
}
