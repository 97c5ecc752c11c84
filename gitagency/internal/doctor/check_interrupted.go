package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// findInterruptedRollback reports a rollback or sync that was killed.
func (x *checkRun) findInterruptedRollback(s treeInfo) {
	sb := sandbox.Of(x.Repository, s.id)
	if !sb.HasRollbackJournal() || x.changing {
		return
	}
	f := Finding{
		Code: "interrupted-rollback", ID: s.id, Path: x.Store.RollbackJournalPath(x.ID, s.id), AtRisk: true,
		Problem: "a rollback of the sandbox was interrupted; the next command that uses the sandbox finishes it",
	}
	note, err := x.Store.ReadRollbackJournal(x.ID, s.id)
	if err != nil {
		f.Problem = err.Error()
	} else if note == nil {
		return
	} else if note.Verb == sandbox.SyncVerb {
		f.Problem = "a sync of the sandbox was interrupted; the next command that uses the sandbox finishes it"
	}
	x.addFinding(f, func(ctx context.Context) error {
		err := sb.FinishRollback(ctx, x.repo)
		if fault.Is[*fault.LostRollbackError](err) {
			x.Warn("%v; the sandbox was left as it is; a snapshot can save its state", err)
			return x.Store.RemoveRollbackJournal(x.ID, s.id)
		}
		return err
	})
}

// findAbandonedVerification reports a sandbox whose verification was killed.
func (x *checkRun) findAbandonedVerification(s treeInfo, e store.Entry[store.InvocationMeta]) {
	if x.changing || !discard.IsAbandonedVerification(x.Repository, e) {
		return
	}
	x.addFinding(Finding{Code: "interrupted-verify", ID: s.id, Path: s.tree, Problem: "the verification of the landing of " + e.Record.VerifiesInvocation + " in this sandbox was interrupted"},
		func(ctx context.Context) error {
			_, err := discard.EndAbandoned(ctx, x.Repository, x.repo, e, core.TrashOptions{Archive: true})
			return err
		})
}

// checkProbes reports probes whose process was killed. It does not ask the engine whether their jobs still exist; prune does.
func (x *checkRun) checkProbes(context.Context) error {
	all, err := x.Store.Probes(x.ID)
	for _, p := range all {
		if p.Err == nil && procfs.IsAlive(p.PID, p.PIDStarted) {
			continue
		}
		f := Finding{
			Code: "interrupted-probe", ID: p.ID, Path: x.Store.ProbePath(x.ID, p.ID), FixCommand: "git agency prune",
			Problem: "a probe of the platform " + p.Platform + " was interrupted; its job and refs in the hub may be left",
		}
		if p.Err != nil {
			f.Problem, f.FixCommand = "the record of a probe cannot be read; a job and refs in the hub with its id may be left: "+p.Err.Error(), "rm -r "+quote.Shell(f.Path)
		}
		x.addFinding(f, nil)
	}
	return err
}
