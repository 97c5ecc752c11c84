// Package landing has the commands that submit work, reject it, land it and revert a landing, and sync, which merges the
// other way. As in package main, each command has a file named after it: its flags, the request that it passes to package
// gitagency, and the output.
package landing

import (
	"errors"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// Commands builds the commands of this package for one run of git-agency.
type Commands struct{ *program.Program }

// OnlyConflicts reports whether err says that submitted work did not land because of conflicts, and for no other reason.
func OnlyConflicts(err error) bool {
	var queue *landQueueError
	return errors.As(err, &queue) && queue.failed == 0
}

// Hints says what to type after a landing that was not pushed, or submitted work that did not land; known is false for any
// other error.
func Hints(err error) (lines []string, known bool) {
	var notPushed *gitagency.NotPushedError
	if known = errors.As(err, &notPushed); known {
		lines = notPushedHints(err, notPushed)
	}
	var queue *landQueueError
	if errors.As(err, &queue) {
		lines, known = append(lines, queue.hints()...), true
	}
	return lines, known
}

// notPushedHints returns the commands that push a landed branch.
func notPushedHints(err error, e *gitagency.NotPushedError) []string {
	to := quote.Shell(e.Address)
	if len(e.Conflicts) > 0 {
		in := "git"
		if e.Tree != "" {
			in += " -C " + quote.Shell(e.Tree)
		}
		return []string{
			"merge it yourself where " + e.Branch + " is checked out, and push that:",
			"  " + in + " pull --no-rebase " + to + " " + quote.Shell(e.RemoteBranch),
			"  " + in + " push " + to + " " + quote.Shell(e.Branch+":"+e.RemoteBranch),
		}
	}
	all := hints.For(e.Err, program.RetryOf(err)) // the cause gets the hints that it gets in a landing
	if e.Err != nil && gitagency.IsReason(e.Err, reason.Timeout) {
		return all
	}
	var unpushed *pushError
	if errors.As(err, &unpushed) {
		all = append(all, "this tries again"+unpushed.retry)
	}
	return all
}
