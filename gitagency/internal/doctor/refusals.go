package doctor

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Refusals returns why the last commands did not import the commits of a sandbox, or did not read its files, and the
// commands to type. It reads only the reasons that they saved, and returns none for an invocation that has ended.
func Refusals(r *core.Repository, id string) (reasons []string) {
	add := func(what string, err error) {
		advice := "remove this content, or type: git agency discard " + id
		switch {
		case fault.Is[*fault.ReadLimitError](err):
			reasons = append(reasons, fmt.Sprintf("%s: %v; raise %s, %s", what, err, settings.ReadLimitsKey, advice))
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v; %s", what, err, advice))
		}
	}
	add("its new commits are not imported", handoff.SavedRefusal(r, id))
	add("its files cannot be read", status.SavedVerdict(r.Git, id))
	return reasons
}

// warnRefused names the sandboxes whose commits were not imported or whose files were not read. They are no findings:
// nothing is broken, and commands on other sandboxes work.
func (x *checkRun) warnRefused() {
	for _, e := range x.invocations {
		for _, reason := range Refusals(x.Repository, e.ID) {
			x.Warn("sandbox %s: %s", e.ID, reason)
		}
	}
}
