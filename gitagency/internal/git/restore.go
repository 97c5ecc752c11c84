package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Restoration takes a worktree from one frozen state to another: its files, its index, its branch and HEAD, and what
// git had under way. Nobody works in it meanwhile.
//
// The files go by git's own two-way merge, from an index that is exactly what is on disk, to the other state: so only
// what the first state holds is ever overwritten or removed. What else is there has to be out of the way: see InTheWay.
// Every part may be done again, from whatever state one that was killed has left.
type Restoration struct {
	From, To State
	Began    State  // what one that was killed left, when this one finishes it
	Again    bool   // one that was killed may have left a lock on the branch; set by the caller
	Strayed  string // the branch that HEAD was on, when that is elsewhere now; HEAD is detached then
	Unstaged bool   // what was staged is not known; it is taken to be what HEAD has

	repo    *Repo
	s       Subject
	p       place // a git directory of our own, with an index of what is on disk
	under   Underway
	changes []treeChange
	trees   [2]string // from and to, without what is not checked out
	skipped []string  // which that is
	present []string  // what is there, although git was told not to check it out
	assumed []string  // what git does not look at
	closed  []string  // directories of the tree in which nothing can be written, and that are ours to open
	draft   *IndexDraft
}

// Restore prepares to take a worktree from the state that it is in, which was frozen a moment ago, to another, and
// changes nothing yet. It refuses when not all of it could be done. Where it is to finish one that was killed, began is
// the state from which that came, else nothing.
func (r *Repo) Restore(ctx context.Context, s Subject, from, to, began State) (_ *Restoration, err error) {
	if r, err = r.inside(ctx, s); err != nil {
		return nil, err
	}
	x := &Restoration{repo: r, s: s, From: from, To: to, Began: began}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	if err := r.sound(ctx, to.Tree, from.Tree); err != nil {
		return nil, err
	}
	if to.Index != "" {
		if err := r.sound(ctx, to.Index, to.Tree); err != nil {
			return nil, err
		}
	}
	if x.under, err = r.ReadUnderway(ctx, to); err != nil {
		return nil, err
	}
	if x.changes, err = r.treeChanges(ctx, place{}, from.Tree, to.Tree); err != nil {
		return nil, err
	}
	if err := x.fill(ctx); err != nil {
		return nil, err
	}
	if err := x.filtered(ctx); err != nil {
		return nil, err
	}
	if err := x.complete(ctx); err != nil {
		return nil, err
	}
	if err := x.writable(); err != nil {
		return nil, err
	}
	if err := x.merge(ctx, "--dry-run"); err != nil {
		return nil, err
	}
	return x, nil
}

// Stamp is what the index of a worktree looks like: as long as it does, nobody has staged anything.
func (r *Repo) Stamp(name string) string {
	fi, err := os.Lstat(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return ""
	}
	return durable.Stamp(fi)
}

// Lock keeps every git from writing the index until it is closed. The error is a *LockedError when one does, and a
// *ChangingError when somebody has staged or committed something since the index had that stamp, which was before the
// first state was frozen: that state would not hold it.
func (x *Restoration) Lock(ctx context.Context, stamp string) (err error) {
	r := x.repo
	if x.draft, err = r.DraftIndex(x.s.Name); err != nil {
		return err
	}
	if err := x.draft.Lock(); err != nil {
		return err
	}
	tip, err := r.Tip(ctx, x.s.Branch)
	if err != nil {
		return err
	}
	head, err := readSmall(r.AdminDir(x.s.Name), "HEAD")
	if err != nil {
		return err
	}
	at := strings.TrimSpace(string(head))
	if on, is := strings.CutPrefix(at, "ref: "); is {
		if at, err = r.Tip(ctx, on); err != nil {
			return err
		}
	}
	if tip != "" && tip != x.From.Tip || at != "" && at != x.From.Head || r.on(x.s) != x.From.On {
		return &ChangingError{Path: "HEAD"}
	}
	if x.From.On != x.s.Branch { // else nobody can have it checked out
		if free, err := x.nobodyElseHas(ctx, x.s.Branch); err != nil || !free {
			return errors.Join(err, &InTheWayError{Path: strings.TrimPrefix(x.s.Branch, "refs/heads/"), What: "the branch is checked out elsewhere"})
		}
	}
	if r.Stamp(x.s.Name) == stamp {
		return nil
	}
	now, err := r.stagedNow(ctx, x.s, x.p)
	if err == nil && now != x.From.Index { // a git that only looks writes the index too
		err = &ChangingError{Path: "the index"}
	}
	return err
}

// stagedNow is the tree of what is staged; empty when none can be written.
func (r *Repo) stagedNow(ctx context.Context, s Subject, p place) (string, error) {
	dir := filepath.Join(p.gitDir, "now")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	_, err := r.fillScratch(s, "", dir) // what it returns is in p
	if err := errors.Join(err, r.copyIndex(s.Name, dir)); err != nil {
		return "", err
	}
	p.gitDir = dir
	tree, err := r.writeTree(ctx, p)
	if exitedWith(err, 128) {
		return "", nil
	}
	return tree, err
}

// Close takes away what was needed for it. Nothing of the worktree stays locked.
func (x *Restoration) Close() error {
	if x == nil {
		return nil
	}
	err := x.draft.Drop()
	if x.p.gitDir != "" {
		err = errors.Join(err, durable.RemoveTree(x.p.gitDir))
	}
	return err
}

// Changed says how many files are made, changed and removed.
func (x *Restoration) Changed() (added, changed, removed int) {
	for _, c := range x.changes {
		switch c.status {
		case 'A':
			added++
		case 'D':
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}
