package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Values of Status, of an invocation and of a RunResult.
const (
	StatusStarting = store.StatusStarting // no agent has run yet
	StatusRunning  = store.StatusRunning
	StatusFinished = store.StatusFinished
	StatusFailed   = store.StatusFailed
	StatusBlocked  = store.StatusBlocked // the agent waits for an answer
	StatusStopped  = store.StatusStopped // the user ended it
	StatusTimedOut = store.StatusTimedOut
)

// StoppedReason is the Reason of a run that the user stopped and of which nothing else is known.
const StoppedReason = runs.StoppedReason

// Values of State of an invocation, besides the Status of a run that has ended or waits for an answer. Landing is empty or
// one of StateReview, StateRejected, StateLanded and StateDiscarded.
const (
	StateIdle      = core.StateIdle
	StateRunning   = core.StateRunning
	StateReview    = store.Review
	StateRejected  = store.Rejected
	StateLanded    = store.Landed
	StateUnlanded  = core.StateUnlanded
	StateDiscarded = store.Discarded
	StateBroken    = core.StateBroken
)

// Values of Mode.
const (
	ModeHeaded   = store.ModeHeaded // the agent runs on a terminal
	ModeHeadless = store.ModeHeadless
)
