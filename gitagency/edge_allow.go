package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// allowView is refusedView for errors of Allow.
func allowView(err error) error {
	switch e := err.(type) {
	case *fault.AllowInsideError:
		return &RefusedError{Reason: reason.AllowInside, ID: e.ID, Other: e.Inside, Err: err}
	case *fault.GrantError:
		return &RefusedError{Reason: reason.Grant, ID: e.ID, Path: e.Path, Name: e.Flag, Other: e.Remedy, Err: err}
	}
	return nil
}
