package landing

import (
	"cmp"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Trailers of the commits that landings and unlands create.
const (
	invocationTrailer = "Agency-Invocation"
	baseTrailer       = "Agency-Base"
	tipTrailer        = "Agency-Tip"
	runnerTrailer     = "Agency-Runner"
	undoesTrailer     = "Agency-Undoes"
)

// withLandingTrailers adds the chosen trailers of a landing to a commit message. It removes trailers of the same names,
// chosen or not: an agent could have written them.
func withLandingTrailers(message string, chosen []string, m store.InvocationMeta, tip string) string {
	return withChosenTrailers(message, chosen, []trailer{
		{settings.InvocationTrailer, invocationTrailer, m.InvocationID},
		{settings.BaseTrailer, baseTrailer, m.BaseCommit},
		{settings.TipTrailer, tipTrailer, tip},
		{settings.RunnerTrailer, runnerTrailer, cmp.Or(m.Runner, "none")},
		{settings.UndoesTrailer, undoesTrailer, ""},
	})
}

// withUnlandTrailers adds the chosen trailers of the revert of a landing to a commit message.
func withUnlandTrailers(message string, chosen []string, m store.InvocationMeta) string {
	return withChosenTrailers(message, chosen, []trailer{
		{settings.InvocationTrailer, invocationTrailer, m.InvocationID},
		{settings.BaseTrailer, baseTrailer, m.BaseCommit},
		{settings.UndoesTrailer, undoesTrailer, m.LandedCommit},
	})
}

type trailer struct{ name, key, value string } // name: as agency.land.trailers has it

func withChosenTrailers(message string, chosen []string, all []trailer) string {
	var trailers [][2]string
	for _, t := range all {
		if !slices.Contains(chosen, t.name) {
			t.value = ""
		}
		trailers = append(trailers, [2]string{t.key, t.value})
	}
	return object.WithTrailers(message, trailers)
}
