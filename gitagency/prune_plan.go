package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// prunePlan is the making of a plan: it looks, and changes nothing.
type prunePlan struct {
	r    *Repository
	repo *git.Repo // holding the repository lock
	expiring

	things []Pruned
	failed []error // what could not be looked at; it is kept

	known      bool                        // there are records of the repository
	refs       map[string]string           // refs that keep work, and branches of ours
	snapshots  map[string][]PrunedSnapshot // by id
	registered map[string]string           // what git has of linked worktrees
	checkedOut []git.Worktree              // asked for when it matters
	needed     map[string]string           // whose snapshots a rollback that was interrupted goes back to, and of whom that is
}

const workedIn = "it was worked in after it ended"

// everything looks at all there is.
func (p *prunePlan) everything(ctx context.Context) error {
	var err error
	p.known = p.r.store.Knows(p.r.ID)
	if err := p.list(ctx, heads+branchRoot+"/"); err != nil {
		return err
	}
	if p.registered, err = p.repo.Registered(); err != nil {
		return err
	}
	invocations, err := p.r.store.Invocations(p.r.ID, nil)
	if err != nil {
		return err
	}
	p.needed = map[string]string{}
	for _, e := range invocations {
		if note, err := p.r.store.Rollback(p.r.ID, e.ID); err == nil && note != nil {
			id, _, _ := strings.Cut(strings.TrimPrefix(note.SnapshotRef, snapshotRoot), "/")
			p.needed[id] = e.ID
		}
	}
	for _, e := range invocations {
		p.invocation(ctx, e)
	}
	worktrees, err := p.r.store.Worktrees(p.r.ID, nil)
	if err != nil {
		return err
	}
	for _, e := range worktrees {
		p.archived(ctx, p.r.worktree(e))
	}
	if err := p.trash(ctx); err != nil {
		return err
	}
	if err := p.leftovers(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// untouched looks at a repository nobody of ours has been to. It may have refs of ours all the same: a
// mirror gets them with all the others.
func (p *prunePlan) untouched(ctx context.Context) error {
	if err := p.list(ctx); err != nil {
		return err
	}
	return p.trash(ctx)
}

// list lists the refs that keep something, and more.
func (p *prunePlan) list(ctx context.Context, more ...string) (err error) {
	if p.refs, err = p.repo.Refs(ctx, append(more, trashRef(""), snapshotRoot)...); err != nil {
		return err
	}
	p.snapshots = map[string][]PrunedSnapshot{}
	for ref, commit := range p.refs {
		if name, is := strings.CutPrefix(ref, snapshotRoot); is {
			id, _, _ := strings.Cut(name, "/")
			p.snapshots[id] = append(p.snapshots[id], PrunedSnapshot{ref, commit})
		}
	}
	for id, snapshots := range p.snapshots {
		slices.SortFunc(snapshots, func(a, b PrunedSnapshot) int {
			return cmp.Or(cmp.Compare(snapshotNumber(id, a.Ref), snapshotNumber(id, b.Ref)), strings.Compare(a.Ref, b.Ref))
		})
	}
	return nil
}

func (p *prunePlan) invocation(ctx context.Context, e store.Entry[store.InvocationMeta]) {
	t := Pruned{Kind: "invocation", ID: e.ID, Action: PruneKeep, Path: p.r.store.InvocationDir(p.r.ID, e.ID), entry: e}
	p.keeps(&t)
	switch {
	case e.Broken != store.Whole:
		t.broken(string(e.Broken), e.Detail)
	case p.r.abandoned(e):
		t.Action, t.Reason, t.TrashRef, t.abandoned = PruneClean, "it was only there to verify "+e.Record.Verifies+", and nothing is verified in it any more", trashRef(e.ID), true
	case !ended(e.Record):
		t.Reason = "it is neither landed nor discarded"
	default:
		p.ended(ctx, &t)
	}
	p.things = append(p.things, t)
}

// keeps says what refs keep the work of a thing.
func (p *prunePlan) keeps(t *Pruned) {
	t.Snapshots = p.snapshots[t.ID]
	if t.kept = p.refs[trashRef(t.ID)]; t.kept != "" {
		t.TrashRef = trashRef(t.ID)
	}
}

func (t *Pruned) broken(reason, detail string) {
	t.BrokenReason, t.Reason = reason, fmt.Sprintf("it is broken (%s): %s", reason, detail)
}

// ended decides on an invocation that was landed or discarded.
func (p *prunePlan) ended(ctx context.Context, t *Pruned) {
	left, late, err := p.sandbox(ctx, t.entry, t.kept)
	t.left = left
	m := t.entry.Record
	when := "it was " + m.Landing
	if m.FinishedAt != nil {
		when += " at " + moment(*m.FinishedAt)
	}
	switch {
	case err != nil:
		p.refuse(t, err)
		return
	case late:
		t.Action, t.Reason, t.TrashRef = PruneClean, workedIn, trashRef(t.ID)
		return
	case p.needed[t.ID] != "":
		t.Reason = "a rollback of " + p.needed[t.ID] + " that was interrupted goes back to a snapshot of it"
		return
	case p.passed(m.FinishedAt):
		t.Action, t.Reason, t.TrashCommit = PruneRemove, when, t.kept
		return
	case left:
		t.Action = PruneClean
	}
	switch {
	case p.before.IsZero():
		t.Reason = "nothing expires"
	case m.FinishedAt == nil:
		t.Reason = "its record does not say when it was " + m.Landing
	default:
		t.Reason = when + ", which is not long enough ago"
	}
}

func moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// refuse keeps a thing because of an error. Where that is not a reason to keep it, but keeps us from
// knowing, it is a failure too.
func (p *prunePlan) refuse(t *Pruned, err error) {
	t.Reason = err.Error()
	if !is[*NestedRepositoryError](err) && !is[*UnsafePathError](err) && !is[*git.WaitsForeverError](err) && !is[*DistrustedFilterError](err) && !errors.Is(err, fs.ErrPermission) {
		p.failed = append(p.failed, fmt.Errorf("%s %s is kept: %w", t.Kind, t.ID, err))
	}
}

// sandbox looks at what is left of a sandbox that ended: whether there is anything that a discard would
// take away, whether it holds work that is not kept yet, and why it has to stay.
func (p *prunePlan) sandbox(ctx context.Context, e store.Entry[store.InvocationMeta], kept string) (left, late bool, err error) {
	spec := p.r.sandboxSpec(e.ID)
	if err := checkReal(spec.Scratch); err != nil {
		return false, false, err
	}
	remains, err := p.r.store.Remains(p.r.ID, e.ID)
	if err != nil {
		return false, false, err
	}
	beside, err := store.Leftovers(spec.Scratch)
	if err != nil {
		return false, false, err
	}
	branch, registered := p.refs[spec.Branch], backend(p.repo).Registered(spec, p.registered)
	switch {
	case remains.Strange != "":
		return true, false, &UnsafePathError{Path: remains.Strange, Why: "does not belong there"}
	case !remains.Any() && len(beside) == 0 && branch == "" && !registered:
		return false, false, nil
	}
	if err := removable(spec.Tree); err != nil {
		return true, false, err
	}
	unheld := false
	if branch != "" {
		if unheld, err = p.unheld(ctx, spec, branch, kept); err != nil {
			return true, false, err
		}
	}
	var looks []string
	if remains.Tree || unheld || registered && !remains.Aside {
		looks = append(looks, spec.Tree)
	}
	if remains.Aside {
		looks = append(looks, store.Aside(spec.Tree))
	}
	for _, tree := range looks {
		s := p.r.subject(e)
		s.Tree, s.Onto = tree, kept
		captured, err := p.r.rehearse(ctx, p.repo, s)
		if err != nil {
			return true, false, err
		}
		late = late || captured.Commit != kept
	}
	return true, late, nil
}

// removable refuses a tree, by whatever name it goes on its way out, that is not where it seems to be, or
// with which something would go that is mounted there.
func removable(tree string) error {
	if points := guard.MountedBelow(filepath.Dir(tree)); len(points) > 0 {
		return &UnsafePathError{Path: tree, Why: "something is mounted at " + points[0] + "; unmount it first"}
	}
	return checkReal(tree)
}

// unheld reports whether a branch that a discard would delete has commits that are not kept. One that is
// checked out is a reason to keep it all.
func (p *prunePlan) unheld(ctx context.Context, spec changeset.Spec, branch, kept string) (bool, error) {
	if p.checkedOut == nil {
		listing, err := p.repo.Worktrees(ctx)
		if err != nil {
			return false, err
		}
		p.checkedOut = listing.Worktrees
	}
	if at := elsewhere(p.checkedOut, spec); at != "" {
		return false, &UnsafePathError{Path: at, Why: "has its branch, " + short(spec.Branch) + ", checked out"}
	}
	held, err := p.repo.IsAncestor(ctx, branch, kept)
	return !held, err
}

// archived says that an archived worktree stays: its record and branch are a person's. What an
// interrupted archiving left of its tree does not.
func (p *prunePlan) archived(ctx context.Context, wt Worktree) {
	t := Pruned{Kind: "worktree", ID: wt.ID, Action: PruneKeep, Path: p.r.store.WorktreeDir(p.r.ID, wt.ID), worktree: wt}
	p.keeps(&t)
	switch {
	case wt.Broken:
		t.broken(wt.BrokenReason, wt.entry.Detail)
	case wt.State != store.Archived && t.kept == "":
		return
	case wt.State != store.Archived:
		t.Reason = "worktree " + wt.Name + " is not archived"
	default:
		t.Reason = "worktree " + wt.Name + " is archived, and its record and branch stay"
		left, late, err := p.archivedTree(ctx, wt, t.kept)
		switch {
		case err != nil:
			p.refuse(&t, err)
		case late:
			t.Action, t.TrashRef = PruneClean, trashRef(t.ID)
		case left:
			t.Action = PruneClean
		}
	}
	p.things = append(p.things, t)
}

// archivedTree looks at what is left of the tree of an archived worktree, whether it holds work that is
// not kept yet, and why it has to stay.
func (p *prunePlan) archivedTree(ctx context.Context, wt Worktree, kept string) (left, late bool, err error) {
	if wt.adopted {
		return false, false, nil
	}
	if tree, there := store.Taken(wt.TreePath); there {
		return true, false, &UnsafePathError{Path: tree, Why: "is there although the worktree is archived"}
	}
	home, aside := p.r.store.WorktreeDir(p.r.ID, wt.ID), store.Aside(wt.TreePath)
	beside, err := store.Leftovers(home)
	if err != nil {
		return false, false, err
	}
	spec := changeset.Spec{ID: wt.ID, Tree: wt.TreePath, Scratch: home}
	if _, there := store.Taken(aside, store.Done(wt.TreePath)); !there && len(beside) == 0 && !backend(p.repo).Registered(spec, p.registered) {
		return false, false, nil
	}
	if err := removable(wt.TreePath); err != nil || !store.IsDir(aside) {
		return true, false, err
	}
	s := wt.subject()
	s.Tree, s.Onto = aside, kept
	captured, err := p.r.rehearse(ctx, p.repo, s)
	return true, captured.Commit != kept && captured.Commit != captured.Branch, err
}
