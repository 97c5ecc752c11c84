package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// submoduleReason returns the reason why a submodule cannot land.
func submoduleReason(e *fault.SubmoduleCommitError) reason.Reason {
	switch {
	case e.IsKept():
		return reason.SubmoduleKept
	case e.HasRepository():
		return reason.SubmoduleGone
	case e.New:
		return reason.SubmoduleNew
	}
	return reason.SubmoduleNoGit
}
