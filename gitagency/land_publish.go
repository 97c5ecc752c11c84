package gitagency

import (
	"context"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// publishLanding moves the integration branch to the new commit, records the landing and removes the sandbox. With DryRun
// it only checks whether that is possible.
func (l *landing) publish(ctx context.Context) (landed Landed, err error) {
	r := l.r
	landed = l.outcome()
	advance, err := l.advance(ctx)
	if err != nil {
		return Landed{}, err
	}
	if !l.req.DryRun {
		landed.TrashRef, landed.Aside = trashRef(l.s.ID), l.req.Later
	}
	done, err := r.carryOut(ctx, publication{
		merger: l.merger, advance: advance, dry: l.req.DryRun,
		record: func() error {
			l.endMerger() // no more reads from here on
			return r.recordLanding(landed, l.began)
		},
		then: l.settle(context.WithoutCancel(ctx)),
		note: store.Landing{InvocationID: l.s.ID, Verb: verbLand, Strategy: landed.Strategy, Tip: l.tip},
	})
	switch {
	case err == nil:
		return landed, nil
	case !done:
		return Landed{}, err
	}
	return landed, &CleanupError{Kind: "invocation", ID: l.s.ID, Done: store.Landed, Err: err}
}

// plannedResult returns the result that the landing has if it succeeds.
func (l *landing) outcome() Landed {
	landed := Landed{
		Invocation: l.s.ID, Commit: l.result, Before: l.target.at, Branch: short(l.target.branch), Strategy: l.req.Strategy, Tip: l.tip,
		Commits: l.made, DryRun: l.req.DryRun, LeftOut: leftOut(l.looked.LeftOut),
		Unsaid: l.req.CommitAll && len(l.looked.Uncommitted) == 0,
	}
	if l.result == "" {
		landed.Commit, landed.Strategy, landed.Commits, landed.Already = l.target.at, "", 0, true
	}
	return landed
}

// planUpdate returns the ref updates of the landing: the integration branch with its worktree and, in the same ref
// transaction, the trash ref and the deletion of the sandbox's branch. If the branch has all of the work already, it does
// not move.
func (l *landing) advance(ctx context.Context) (git.Advance, error) {
	kept, err := l.kept(ctx)
	if err != nil {
		return git.Advance{}, err
	}
	zeroOID := strings.Repeat("0", len(l.target.at))
	was := l.trash
	if was == "" {
		was = zeroOID
	}
	a := git.Advance{
		Branch: l.target.branch, Old: l.target.at, New: l.result, Reason: "agency: land " + l.s.ID,
		GitDir: l.target.gitDir, Tree: l.target.tree, Trusted: l.merger.Trusted,
		Also: []git.RefMove{{Ref: trashRef(l.s.ID), Old: was, New: kept}},
	}
	if l.result == "" {
		a.New, a.GitDir, a.Tree = a.Old, "", ""
	}
	if free, err := l.branchFree(); err != nil || !free || l.looked.Tip == "" {
		return a, err
	}
	a.Also = append(a.Also, git.RefMove{Ref: sandboxRef(l.s.ID), Old: l.looked.Tip, New: zeroOID})
	return a, nil
}

// trashCommit returns the commit for the trash ref: the tip, or a capture of the sandbox if it holds more than the tip
// leads to. A dry run always gets the tip.
func (l *landing) kept(ctx context.Context) (string, error) {
	subject, err := l.r.capturable(l.s.subject(l.place.base, "what was in the sandbox when it landed"))
	if err != nil {
		return "", err
	}
	known := map[string]bool{l.tip: true, l.place.base: true, l.target.at: true}
	for _, c := range l.commits {
		known[c.OID] = true
	}
	if len(l.looked.LeftOut) == 0 && l.repo.NothingForgotten(subject, known) && (l.trash == "" || known[l.trash]) {
		return l.tip, nil
	}
	if l.req.DryRun {
		return l.tip, nil
	}
	if err := l.s.emptyLayer(ctx, l.repo, l.place.prims, l.place.occupied); err != nil {
		return "", err
	}
	subject.Onto = l.trash
	l.merger.Captured = true
	captured, err := l.repo.Capture(ctx, subject)
	if err != nil || l.tip == l.looked.Head {
		return captured.Commit, err
	}
	found, err := l.repo.Lookup(ctx, captured.Commit+"^{tree}")
	if err != nil {
		return "", err
	}
	// The uncommitted work is in the tip, and left-out files are in the tree of the capture: keep both.
	return l.merger.Commit(ctx, git.NewCommit{
		Tree: found[0].OID, Parents: []string{l.tip, captured.Commit}, Author: toolSignature(l.r.opts.Now()), Committer: toolSignature(l.r.opts.Now()), Message: subject.Message,
	})
}

// canDeleteBranch reports whether the sandbox's branch can be deleted: no other worktree has it checked out.
func (l *landing) branchFree() (bool, error) {
	entries, err := l.repo.Entries()
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name != l.s.ID && e.Branch == sandboxRef(l.s.ID) {
			l.r.warn("branch %s is checked out at %s; it stays", short(e.Branch), e.Path)
			return false, nil
		}
	}
	return true, nil
}

// cleanupSteps returns the steps that remove the sandbox after the landing.
func (l *landing) settle(ctx context.Context) []step {
	spec := l.r.sandboxSpec(l.s.ID)
	return []step{
		{"aside", func() error {
			l.depart() // commands that lock the sandbox from now on are told that it has landed
			return setAside(spec.Tree)
		}},
		{"registration", func() error {
			if l.req.Later {
				return backend(l.repo).Withdraw(spec)
			}
			return backend(l.repo).Unregister(spec)
		}},
		{"leftovers", func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{"tree", func() error {
			if l.req.Later {
				return nil
			}
			return l.r.endLanded(ctx, l.repo, l.s.ID)
		}},
	}
}

// recordLanding writes the landing to the record and the event log of the invocation. A zero looked leaves the time of the
// last scan as it is.
func (r *Repository) recordLanding(landed Landed, looked time.Time) error {
	now := r.now()
	if err := r.store.UpdateInvocationMeta(r.ID, landed.Invocation, func(m *store.InvocationMeta) {
		m.Landing, m.FinishedAt, m.LandedAt = store.Landed, &now, &now
		m.LandedCommit, m.LandedBefore, m.LandedBranch, m.LandedStrategy, m.LandedTip = landed.Commit, landed.Before, landed.Branch, landed.Strategy, landed.Tip
		if !looked.IsZero() {
			m.LookedAt = &looked
		}
	}); err != nil {
		return err
	}
	r.record(landed.Invocation, landEvent{now, verbLand, landed.Commit, landed.Before, landed.Branch, landed.Strategy, landed.Tip})
	return nil
}

type landEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Commit   string    `json:"commit"`
	Before   string    `json:"before"`
	Branch   string    `json:"branch"`
	Strategy string    `json:"strategy"`
	Tip      string    `json:"tip"`
}
