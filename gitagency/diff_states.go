package gitagency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// livesInSandbox reports whether a state is known only there.
func livesInSandbox(state string) bool { return state == DiffWork || state == DiffHead }

// comparison is one that is being made, of states of one tree.
type comparison struct {
	r       *Repository
	of      string                                           // the tree, as messages call it
	words   map[string]func(context.Context) (string, error) // the states there are besides snapshots
	subject git.Subject                                      // what belongs to the state that the tree is in now
	like    string                                           // any object there is
	secrets bool                                             // those in the tree are compared too

	site      *site // of the sandbox, when something of it is compared
	mirror    *git.Mirror
	snapshots func() ([]Snapshot, error) // all that there are
	leftOut   []LeftOut
}

// comparisonOf is one of states of a sandbox.
func (r *Repository) comparisonOf(inv Invocation) *comparison {
	c := &comparison{
		r: r, of: inv.ID, like: inv.BaseCommit,
		subject: git.Subject{Name: inv.ID, Tree: r.sandboxOf(inv.ID).tree, Branch: sandboxRef(inv.ID), Base: inv.BaseCommit},
	}
	c.words = map[string]func(context.Context) (string, error){
		DiffBase:        func(ctx context.Context) (string, error) { return r.baseOf(ctx, inv) },
		DiffHead:        func(ctx context.Context) (string, error) { return r.git.Head(ctx, c.subject) },
		DiffWork:        c.work,
		DiffIntegration: func(ctx context.Context) (string, error) { return r.integration(ctx, inv) },
	}
	return c
}

// visit makes sure that a sandbox stays, and that what was committed behind its walls can be seen outside.
func (r *Repository) visit(ctx context.Context, inv Invocation) (*site, error) {
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	s := r.sandboxOf(inv.ID)
	if err := s.bringOut(ctx); err != nil {
		return nil, err
	}
	return s.open(ctx)
}

// difference finds both states and compares them.
func (c *comparison) difference(ctx context.Context, req DiffRequest) (_ Diff, err error) {
	c.secrets = req.Secrets
	c.snapshots = sync.OnceValues(func() ([]Snapshot, error) { return snapshots(ctx, c.r.git) })
	if c.mirror, err = c.r.git.Mirror(c.like); err != nil {
		return Diff{}, err
	}
	asked := git.Comparison{Paths: req.Paths, Detail: git.Detail(req.Detail), Binary: req.Binary, Limit: DiffLimit}
	if asked.From, asked.To, err = c.states(ctx, req.From, req.To); err != nil {
		return Diff{}, err
	}
	d, err := c.compare(ctx, asked)
	switch {
	case errors.Is(err, git.ErrTooLong):
		return Diff{}, &TooMuchError{What: "the difference", Limit: DiffLimit}
	case err != nil:
		return Diff{}, fmt.Errorf("diff of %s: %w", c.of, c.explained(ctx, err, req, asked))
	}
	if req.Words {
		d.Each((*DiffFile).FindWords)
	}
	return Diff{Added: d.Added, Removed: d.Removed, Changed: d.Changed, LeftOut: leftOutOf(c.leftOut, req.Paths)}, nil
}

// leftOutOf is what was left out of these paths: what is one of them, or below or above one.
func leftOutOf(all []LeftOut, paths []string) []LeftOut {
	if len(paths) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(l LeftOut) bool {
		return !slices.ContainsFunc(paths, func(p string) bool {
			return strings.HasPrefix(l.Path+"/", p+"/") || strings.HasPrefix(p+"/", l.Path+"/")
		})
	})
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
	if find, is := c.words[name]; is {
		return find(ctx)
	}
	all, err := c.snapshots()
	if err != nil {
		return "", err
	}
	snapshot, err := pickSnapshot(all, name)
	return snapshot.ID, err
}

// work is what is in the tree now, as an object that nobody but the mirror sees.
func (c *comparison) work(ctx context.Context) (string, error) {
	subject, err := c.r.capturable(c.subject)
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
