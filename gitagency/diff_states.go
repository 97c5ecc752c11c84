package gitagency

import (
	"context"
	"errors"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// livesInSandbox reports whether a state is known only there.
func livesInSandbox(state string) bool { return state == DiffWork || state == DiffHead }

// comparison is one that is being made.
type comparison struct {
	r      *Repository
	inv    Invocation
	site   *site // of the sandbox, when something of it is compared
	mirror *git.Mirror

	snapshots func() ([]Snapshot, error) // all that there are
	secrets   bool
	leftOut   []LeftOut
}

// enter makes sure that the sandbox stays, and that what was committed behind its walls can be seen outside.
func (c *comparison) enter(ctx context.Context) error {
	if _, err := c.inv.Path(); err != nil {
		return err
	}
	s := c.r.sandboxOf(c.inv.ID)
	if err := s.bringOut(ctx); err != nil {
		return err
	}
	var err error
	c.site, err = s.open(ctx)
	return err
}

func (c *comparison) close() error {
	var errs []error
	if c.site != nil {
		errs = append(errs, c.site.close())
	}
	if c.mirror != nil {
		errs = append(errs, c.mirror.Close())
	}
	return errors.Join(errs...)
}

// states finds both at the same time.
func (c *comparison) states(ctx context.Context, from, to string) (fromID, toID string, err error) {
	if from == to { // also where that is written down
		fromID, err = c.state(ctx, from)
		return fromID, fromID, err
	}
	other := proc.Meanwhile(func() (string, error) { return c.state(ctx, from) })
	toID, toErr := c.state(ctx, to)
	if fromID, err = other(); err == nil {
		err = toErr
	}
	return fromID, toID, err
}

// state is the commit or the tree that a word stands for.
func (c *comparison) state(ctx context.Context, name string) (string, error) {
	switch name {
	case DiffBase:
		return c.inv.BaseCommit, nil
	case DiffHead:
		return c.r.git.Head(ctx, c.subject())
	case DiffWork:
		return c.work(ctx)
	case DiffIntegration:
		return c.integration(ctx)
	}
	all, err := c.snapshots()
	if err != nil {
		return "", err
	}
	snapshot, err := pickSnapshot(all, name)
	return snapshot.ID, err
}

func (c *comparison) subject() git.Subject {
	return git.Subject{Name: c.inv.ID, Tree: c.r.sandboxOf(c.inv.ID).tree, Branch: sandboxRef(c.inv.ID), Base: c.inv.BaseCommit}
}

// work is what is in the sandbox now, as a tree that nobody but the mirror sees.
func (c *comparison) work(ctx context.Context) (string, error) {
	subject, err := c.r.capturable(c.subject())
	if err != nil {
		return "", err
	}
	if !c.secrets {
		subject.Secrets = c.r.SecretPatterns()
	}
	tree, left, err := c.mirror.WorkTree(ctx, subject)
	c.leftOut = leftOut(left)
	return tree, err
}

// integration is what a sandbox of the same worktree would start from now.
func (c *comparison) integration(ctx context.Context) (string, error) {
	if !ids.Valid(c.inv.WorktreeID) { // it is a word in a file, and becomes a path
		return "", &NotFoundError{Kind: "worktree", Query: c.inv.WorktreeID}
	}
	wt := c.r.worktree(c.r.store.Worktree(c.r.ID, c.inv.WorktreeID, nil))
	name := heads + wt.Branch
	if wt.Branch == "" {
		if err := wt.Err(); err != nil {
			return "", err
		}
		listing, err := c.r.git.Worktrees(ctx)
		if err != nil {
			return "", err
		}
		if name, err = c.r.integrationTip(wt, listing); err != nil {
			return "", err
		}
	}
	found, err := c.r.git.Lookup(ctx, name+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return "", &NoCommitError{Name: short(name)}
	}
	return found[0].OID, nil
}

// compare has git compare, and completes what it says.
func (c *comparison) compare(ctx context.Context, asked git.Comparison) (d treediff.Diff, err error) {
	text, err := c.mirror.Compare(ctx, asked)
	if err != nil {
		return d, err
	}
	parse := treediff.ParsePatch
	if asked.Detail != git.Patches {
		parse = treediff.ParseCounts
	}
	if d, err = parse(text); err != nil {
		return d, err
	}
	var blobs []string
	d.Each(func(f *DiffFile) {
		if f.IsBinary() {
			blobs = append(blobs, f.Before, f.After)
		}
	})
	blobs = slices.DeleteFunc(blobs, func(oid string) bool { return oid == "" })
	sizes, err := c.mirror.Sizes(ctx, blobs...)
	d.Each(func(f *DiffFile) { f.OldSize, f.NewSize = sizes[f.Before], sizes[f.After] })
	return d, err
}

// explained says which state is not there any more, if that is why git failed.
func (c *comparison) explained(ctx context.Context, err error, req DiffRequest, asked git.Comparison) error {
	found, lookErr := c.r.git.Lookup(ctx, asked.From+"^{tree}", asked.To+"^{tree}")
	for i, name := range []string{req.From, req.To} {
		if lookErr == nil && name != DiffWork && found[i].Missing() {
			return &NoCommitError{Name: name}
		}
	}
	return err
}
