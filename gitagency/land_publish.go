package gitagency

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// publish is the transaction. Until the refs have moved whatever fails or is cancelled is undone, last step first; from
// then on it has landed, and every step only goes on, and may be done again by whoever finds the note of it.
func (l *landing) publish(ctx context.Context) (landed Landed, err error) {
	r := l.r
	landed = l.outcome()
	advance, err := l.advance(ctx)
	if err != nil {
		return Landed{}, err
	}
	// 1. Whatever could stop it stops it here.
	moving, err := l.merger.Advance(ctx, advance)
	if err != nil {
		return Landed{}, err
	}
	defer func() {
		if closeErr := moving.Close(); closeErr != nil {
			r.warn("%s: %v", l.target.tree, closeErr)
		}
	}()
	if l.req.DryRun {
		return landed, nil
	}
	note := store.Landing{InvocationID: l.s.ID, Verb: verbLand, Strategy: landed.Strategy, Tip: l.tip, Worktree: l.target.worktree.ID}
	if err := r.advance(ctx, verbLand, l.merger, moving, r.noteOf(note, advance)); err != nil {
		return Landed{}, err
	}
	landed.TrashRef, landed.Aside = trashRef(l.s.ID), l.req.Later
	// 8.–11. Each of them may have been done before.
	if err := l.settle(context.WithoutCancel(ctx), moving, landed); err != nil {
		return landed, &CleanupError{Kind: "invocation", ID: l.s.ID, Done: store.Landed, Err: err}
	}
	return landed, nil
}

// advance moves a branch, and all that goes with it: what landing, taking one back and
// merging what others have pushed have in common.
func (r *Repository) advance(ctx context.Context, verb string, merger *git.Merger, moving *git.Advancing, note store.Landing) (err error) {
	tx := r.begin(verb)
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	var stuck error // by what it could not be undone
	// 2. What nobody has seen yet becomes part of the repository.
	if err := tx.Step(ctx, "objects", func() error { return merger.Keep(ctx) }); err != nil {
		return err
	}
	// 3. The note, in case we do not live to finish it.
	if err := tx.Step(ctx, "note", func() error {
		tx.Undo("note", func(context.Context) error {
			if stuck != nil {
				return nil // who comes next tries again
			}
			return r.store.RemoveLanding(r.ID)
		})
		return r.store.WriteLanding(r.ID, note)
	}); err != nil {
		return err
	}
	// 4. No git of the person's writes the index any more.
	if err := tx.Step(ctx, "lock", func() error {
		tx.Undo("lock", func(ctx context.Context) error {
			err := moving.Undo(ctx)
			if !onlyStranded(err) { // of which only the person knows what is right
				stuck = err
			}
			return err
		})
		return moving.Lock(ctx)
	}); err != nil {
		return err
	}
	for _, s := range []step{
		{"prepare", func() error { return moving.Prepare(ctx) }}, // 5. The branch is where it was, and stays there.
		{"files", func() error { return moving.Files(ctx) }},     // 6. The person's files, and beside it the new index.
	} {
		if err := tx.Step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	// 7. The commit point. What goes wrong behind it is no reason to undo anything, nor to stop.
	landed := false
	if err := tx.Step(ctx, "commit", func() error {
		if err := context.Cause(ctx); err != nil {
			return err // the last moment to turn back
		}
		err := moving.Commit(ctx)
		landed = err == nil
		return err
	}); err != nil && !landed {
		return err
	}
	tx.Commit()
	if b := moving.Behind(); b != nil {
		r.warn("%v; to bring it along: git -C %s read-tree -m -u %s %s", b, ShellWord(b.Tree), b.Old, b.New)
	}
	return nil
}

// onlyStranded reports whether nothing else is wrong than that somebody has written to paths.
func onlyStranded(err error) bool {
	switch e := err.(type) {
	case nil, *git.StrandedError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(part error) bool { return !onlyStranded(part) })
	}
	return false
}

// outcome is what it will have been.
func (l *landing) outcome() Landed {
	landed := Landed{
		Invocation: l.s.ID, Commit: l.result, Before: l.target.at, Branch: short(l.target.branch), Strategy: l.req.Strategy, Tip: l.tip,
		Commits: l.made, DryRun: l.req.DryRun, LeftOut: leftOut(l.looked.LeftOut),
	}
	if l.result == "" {
		landed.Commit, landed.Strategy, landed.Commits, landed.Already = l.target.at, "", 0, true
	}
	return landed
}

// advance is what moves: the integration branch with its worktree, and, in the same breath, the ref that keeps the work of
// the sandbox. Where the branch has all of it already only that.
func (l *landing) advance(ctx context.Context) (git.Advance, error) {
	kept, err := l.kept(ctx)
	if err != nil {
		return git.Advance{}, err
	}
	nowhere := strings.Repeat("0", len(l.target.at))
	was := l.trash
	if was == "" {
		was = nowhere
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
	a.Also = append(a.Also, git.RefMove{Ref: sandboxRef(l.s.ID), Old: l.looked.Tip, New: nowhere})
	return a, nil
}

// kept is the commit that the trash ref is to point at: the tip, unless there is more in the sandbox than it leads to.
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
	// What was committed just now is there in another commit.
	return l.merger.Commit(ctx, git.NewCommit{
		Tree: l.looked.Work, Parents: []string{l.tip, captured.Commit}, Author: toolSignature(l.r.opts.Now()), Committer: toolSignature(l.r.opts.Now()), Message: subject.Message,
	})
}

// branchFree reports whether the sandbox's branch can go: nobody else has it checked out.
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

// The verbs by which the integration branch moves.
const (
	verbLand   = "land"
	verbUnland = "unland"
	verbPush   = "push" // what somebody else has pushed is merged
)

// noteOf completes what somebody who finds it half done has to know.
func (r *Repository) noteOf(note store.Landing, a git.Advance) store.Landing {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // it is made of strings
	}
	note.Advance, note.PID, note.StartedAt = data, os.Getpid(), r.now()
	return note
}

// settle writes down that it has landed, and takes the sandbox away.
func (l *landing) settle(ctx context.Context, moving *git.Advancing, landed Landed) error {
	r, id := l.r, l.s.ID
	spec := r.sandboxSpec(id)
	return r.forward(ctx, verbLand, []step{
		{"index", func() error { return moving.Publish(ctx) }},
		{"record", func() error { return r.recordLanding(landed, l.began) }},
		{"done", func() error { return r.store.RemoveLanding(r.ID) }},
		{"aside", func() error {
			l.depart() // who enters now is told that it has landed
			return setAside(spec.Tree)
		}},
		{"registration", func() error { return backend(l.repo).Unregister(spec) }},
		{"leftovers", func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{"tree", func() error {
			if l.req.Later {
				return nil
			}
			return r.endLanded(ctx, l.repo, id)
		}},
	})
}

// recordLanding writes down that an invocation has landed.
func (r *Repository) recordLanding(landed Landed, looked time.Time) error {
	now := r.now()
	if err := r.store.UpdateInvocationMeta(r.ID, landed.Invocation, func(m *store.InvocationMeta) {
		m.Landing, m.FinishedAt = store.Landed, &now
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
