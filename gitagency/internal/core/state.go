package core

import (
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// States of an invocation, as 'ls' shows them. Those of review and landing have the names of store, and those of a run
// are in EndedStatuses.
const (
	StateIdle     = "idle"
	StateRunning  = store.StatusRunning
	StateUnlanded = "unlanded"
	StateBroken   = "broken"
)

// EndedStatuses are the values of status that say how a run ended or why it waits.
var EndedStatuses = []string{store.StatusFinished, store.StatusFailed, store.StatusBlocked, store.StatusStopped, store.StatusTimedOut}

// SetState sets State from the other fields. What an invocation ended as comes first, then whether its agent asks,
// then whether a command runs in it, then its review, then its run.
func (i *Invocation) SetState() {
	switch ended := i.Landing == store.Landed || i.Landing == store.Discarded; {
	case i.Broken:
		i.State = StateBroken
	case i.UnlandedCommit != "":
		i.State = StateUnlanded
	case ended:
		i.State = i.Landing
	case i.AsksWhileRunning():
		i.State = store.StatusBlocked
	case i.Running || i.Status == store.StatusRunning:
		i.State = StateRunning
	case i.Landing == store.Review || i.Landing == store.Rejected:
		i.State = i.Landing
	case slices.Contains(EndedStatuses, i.Status):
		i.State = i.Status
	default:
		i.State = StateIdle
	}
}
