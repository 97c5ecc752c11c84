package diff

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// needsSandbox reports whether a state can only be read from an existing sandbox.
func needsSandbox(state string) bool { return state == Work || state == Head }

// Comparison computes one diff between states of one tree.
type Comparison struct {
	Repo           *core.Repository
	TreeName       string            // name of the tree in messages
	StateLookups   map[string]lookup // named states other than snapshots, each with its lookup
	AnyObject      string            // any existing object; its id length tells the object format
	includeSecrets bool              // compare untracked files that look like credentials too

	handles      []*sandbox.Handle // locks on the sandboxes of which a state is compared
	mirror       *git.Mirror
	allSnapshots func() ([]snapshots.Snapshot, error) // all snapshots of the repository

	mu      sync.Mutex // guards leftOut: both states may be captured at once
	leftOut []snapshots.LeftOut
}

type lookup = func(context.Context) (string, error)

// newComparison returns a comparison of states of a sandbox.
func newComparison(r *core.Repository, inv core.Invocation) *Comparison {
	c := &Comparison{Repo: r, TreeName: inv.ID, AnyObject: inv.BaseCommit}
	c.StateLookups = c.statesOf(inv)
	c.StateLookups[Integration] = func(ctx context.Context) (string, error) { return r.IntegrationCommit(ctx, inv) }
	return c
}

// statesOf returns the lookups of the states of a sandbox.
func (c *Comparison) statesOf(inv core.Invocation) map[string]lookup {
	r := c.Repo
	subject := git.WorktreeSpec{Name: inv.ID, Dir: sandbox.Of(r, inv.ID).Tree, Branch: core.SandboxRef(inv.ID), Base: inv.BaseCommit}
	return map[string]lookup{
		Base: func(ctx context.Context) (string, error) { return sandbox.WorkBase(ctx, r, inv) },
		Head: func(ctx context.Context) (string, error) { return r.Git.Head(ctx, subject) },
		Work: func(ctx context.Context) (string, error) {
			tree, err := c.CaptureWork(ctx, subject)
			return tree, r.SaveFilesRefusal(inv.ID, err, false)
		},
	}
}

// open opens the sandbox of an invocation if one of its states can only be read there.
func (c *Comparison) open(ctx context.Context, inv core.Invocation, states ...string) error {
	if slices.ContainsFunc(states, needsSandbox) {
		h, err := sandbox.ImportAndOpen(ctx, c.Repo, inv)
		if err == nil {
			c.handles = append(c.handles, h)
		}
		return err
	}
	if inv.BaseCommit == "" {
		return inv.Err()
	}
	return nil
}

// addOther adds a state of another invocation, such as "<id>/work". It does nothing for states with other names.
func (c *Comparison) addOther(ctx context.Context, name string) error {
	query, state, _ := strings.Cut(name, "/")
	if !slices.Contains(otherStates, state) || c.StateLookups[name] != nil {
		return nil
	}
	inv, err := c.Repo.Invocation(query)
	if err == nil {
		err = c.open(ctx, inv, state)
	}
	if err == nil {
		c.StateLookups[name] = c.statesOf(inv)[state]
	}
	return err
}

// Diff resolves both states and compares them.
func (c *Comparison) Diff(ctx context.Context, req Request) (_ Diff, err error) {
	c.includeSecrets = req.IncludeSecrets
	c.allSnapshots = sync.OnceValues(func() ([]snapshots.Snapshot, error) { return snapshots.List(ctx, c.Repo.Git) })
	if c.mirror, err = c.Repo.Git.NewMirror(c.AnyObject); err != nil {
		return Diff{}, err
	}
	asked := merge.CompareRequest{Paths: req.Paths, Detail: req.Form.detail(), Binary: req.Binary, Limit: Limit}
	if asked.From, asked.To, err = c.resolveStates(ctx, req.From, req.To); err != nil {
		return Diff{}, err
	}
	d, err := c.runDiff(ctx, asked)
	switch {
	case errors.Is(err, merge.ErrTooLong):
		return Diff{}, &fault.TooLargeError{What: "the difference", Limit: Limit}
	case err != nil:
		return Diff{}, fmt.Errorf("diff of %s: %w", c.TreeName, c.explainError(ctx, err, req, asked))
	}
	if req.Words {
		d.UpdateFiles((*treediff.File).MarkWords)
	}
	return Diff{Added: d.Added, Removed: d.Removed, Changed: d.Changed, LeftOut: filterLeftOut(c.leftOut, req.Paths)}, nil
}

// filterLeftOut returns the left-out entries that are equal to, below or above one of the paths.
func filterLeftOut(all []snapshots.LeftOut, paths []string) []snapshots.LeftOut {
	if len(paths) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(l snapshots.LeftOut) bool {
		return !slices.ContainsFunc(paths, func(p string) bool {
			return strings.HasPrefix(l.Path+"/", p+"/") || strings.HasPrefix(p+"/", l.Path+"/")
		})
	})
}

// Close closes the sandboxes and the mirror of the repository, if they were opened.
func (c *Comparison) Close() error {
	var errs []error
	for _, h := range c.handles {
		errs = append(errs, h.Close())
	}
	if c.mirror != nil {
		errs = append(errs, c.mirror.Close())
	}
	return errors.Join(errs...)
}

// resolveStates resolves both states concurrently.
func (c *Comparison) resolveStates(ctx context.Context, from, to string) (fromID, toID string, err error) {
	if from == to { // the same state is not captured twice
		fromID, err = c.resolveState(ctx, from)
		return fromID, fromID, err
	}
	other := proc.Async(func() (string, error) { return c.resolveState(ctx, from) })
	toID, toErr := c.resolveState(ctx, to)
	if fromID, err = other(); err == nil {
		err = toErr
	}
	return fromID, toID, err
}

// resolveState returns the commit or tree that a state name stands for.
func (c *Comparison) resolveState(ctx context.Context, name string) (string, error) {
	if find, is := c.StateLookups[name]; is {
		return find(ctx)
	}
	all, err := c.allSnapshots()
	if err != nil {
		return "", err
	}
	snapshot, err := snapshots.Match(all, name)
	return snapshot.ID, err
}

// Objects returns the repository to whose objects a lookup of a state may add, and which Close removes.
func (c *Comparison) Objects() *git.Repo { return c.mirror.Repo }

// CaptureWork writes the current content of a tree as a tree object into the mirror and returns its id.
func (c *Comparison) CaptureWork(ctx context.Context, subject git.WorktreeSpec) (string, error) {
	subject, err := c.Repo.PrepareCapture(subject)
	if err != nil {
		return "", err
	}
	if !c.includeSecrets {
		if subject.SecretPatterns, err = c.Repo.Settings.SecretPatterns(); err != nil {
			return "", err
		}
	}
	tree, left, err := status.DiskTree(ctx, c.mirror, subject)
	if err == nil {
		left, err = c.Repo.WithoutCleanSubmodules(ctx, c.Repo.Git, subject, left)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leftOut = append(c.leftOut, snapshots.ToLeftOut(left)...)
	return tree, err
}

// runDiff runs git diff, parses its output and adds the sizes of binary files.
func (c *Comparison) runDiff(ctx context.Context, asked merge.CompareRequest) (d treediff.Diff, err error) {
	text, err := merge.Compare(ctx, c.mirror, asked)
	if err != nil {
		return d, err
	}
	parse := treediff.ParsePatch
	if asked.Detail != merge.Patches {
		parse = treediff.ParseCounts
	}
	if d, err = parse(text); err != nil {
		return d, err
	}
	var blobs []string
	d.UpdateFiles(func(f *treediff.File) {
		if f.IsBinary() {
			blobs = append(blobs, f.OldID, f.NewID)
		}
	})
	blobs = slices.DeleteFunc(blobs, func(oid string) bool { return oid == "" })
	sizes, err := merge.Sizes(ctx, c.mirror, blobs...)
	d.UpdateFiles(func(f *treediff.File) { f.OldSize, f.NewSize = sizes[f.OldID], sizes[f.NewID] })
	return d, err
}

// explainError replaces an error of git by a *NoCommitError if one of the states does not exist any more.
func (c *Comparison) explainError(ctx context.Context, err error, req Request, asked merge.CompareRequest) error {
	found, lookErr := c.Repo.Git.Lookup(ctx, asked.From+"^{tree}", asked.To+"^{tree}")
	for i, name := range []string{req.From, req.To} {
		if lookErr == nil && path.Base(name) != Work && found[i].Missing() {
			return &fault.NoCommitError{Name: name}
		}
	}
	return err
}
