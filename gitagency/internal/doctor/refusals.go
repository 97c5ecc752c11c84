package doctor

import (
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Refusal reports commits or files of a sandbox that a command refused.
type Refusal struct {
	ID     string `json:"invocation_id"`
	What   string `json:"what"` // RefusedCommits or RefusedFiles
	Reason string `json:"reason"`
	Remedy string `json:"remedy"` // commands to type
}

// What a sandbox has that was refused.
const (
	RefusedCommits = "commits"
	RefusedFiles   = "files"
)

// Refusals returns what was refused of a sandbox. It reads only the reasons that the commands saved, and returns none for
// an invocation that has ended.
func Refusals(r *core.Repository, id string) (refusals []Refusal, err error) {
	if refused, err := handoff.SavedRefusal(r, id); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, err)
	} else if refused != nil {
		refusals = append(refusals, Refusal{id, RefusedCommits, refused.Err.Error(), commitsRemedy(refused)})
	}
	files := status.SavedVerdict(r.Git, id)
	if files == nil {
		files = r.RefusedFiles(id)
	}
	var invalid *fault.InvalidTreeError
	switch {
	case errors.As(files, &invalid):
		reason := fmt.Sprintf("%q: %s", invalid.Path, invalid.Why)
		refusals = append(refusals, Refusal{id, RefusedFiles, reason, "change or remove this file, or type: git agency discard " + id})
	case files != nil:
		refusals = append(refusals, Refusal{id, RefusedFiles, files.Error(), limitRemedy(id)})
	}
	return refusals, nil
}

// commitsRemedy says what to type about commits that are not imported.
func commitsRemedy(e *fault.ImportError) string {
	inside := "git agency exec " + e.ID + " -- git "
	switch {
	case fault.Is[*fault.ReadLimitError](e):
		return limitRemedy(e.ID)
	case e.Tip != "":
		return "'git agency submit " + e.ID + "' says how to commit the same files again without it; or type: git agency discard " + e.ID
	case e.Diverged:
		return "merge them as the reason says, or type: git agency discard " + e.ID
	}
	return "repair the commits (to list damaged objects, type: " + inside + "fsck), or type: git agency discard " + e.ID
}

func limitRemedy(id string) string {
	return "raise " + settings.ReadLimitsKey + ", remove this content, or type: git agency discard " + id
}

// refused returns what was refused of all sandboxes. These are no findings: nothing is broken, and commands on other
// sandboxes work.
func (x *checkRun) refused() []Refusal {
	all := []Refusal{}
	for _, e := range x.invocations {
		refusals, err := Refusals(x.Repository, e.ID)
		if err != nil {
			x.Warn("%v", err)
		}
		all = append(all, refusals...)
	}
	return all
}
