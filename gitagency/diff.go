package gitagency

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// The nouns of a difference. As JSON, paths and lines that are not UTF-8 stand there a second time, in base64.
type (
	// Diff is how two states differ.
	Diff = treediff.Diff
	// DiffFile is how one file differs.
	DiffFile = treediff.File
	// DiffHunk is a run of lines, some of which differ.
	DiffHunk = treediff.Hunk
	// DiffLine is one line of a hunk.
	DiffLine = treediff.Line
	// DiffSpan is a part of a line.
	DiffSpan = treediff.Span
)

// DiffDetail is how much there is to know about a difference.
type DiffDetail int

const (
	DiffHunks  DiffDetail = iota // everything
	DiffCounts                   // which files, and how many lines
	DiffNames                    // which files
)

// What can be compared, besides any snapshot.
const (
	DiffBase        = "base"        // the commit that the sandbox started from
	DiffHead        = "head"        // the commit that HEAD of the sandbox is at
	DiffWork        = "work"        // what is in the sandbox now, as a snapshot would hold it
	DiffIntegration = "integration" // the tip of the integration branch now
)

// DiffStates are the words for them.
var DiffStates = []string{DiffBase, DiffHead, DiffWork, DiffIntegration}

// DiffLimit is how much text a difference may be. All of it is held in memory, a few times.
const DiffLimit = 256 << 20

// DiffRequest says what to compare.
type DiffRequest struct {
	Invocation string   // required: its id, or a unique prefix
	From       string   // one of DiffStates or a snapshot, of any invocation; default: DiffBase
	To         string   // the same; default: DiffWork
	Paths      []string // only these and what is below them, from the top of the sandbox; default: all

	Detail DiffDetail
	Words  bool // also which words changed inside of lines
	Binary bool // also patches of binary files

	Secrets bool // what is in the sandbox now includes untracked files that look like credentials
}

// DiffSnapshots compares two states of a sandbox: what it started from, what it has committed, what is in it now
// including what is not committed, any snapshot, and what it would be landed on. Nothing changes anywhere, and commands
// may run in the sandbox meanwhile. Of an invocation that has ended its base and its snapshots are left.
//
// What differs is what git finds. Neither the attributes in the trees nor the settings of the repository have a say in
// it, with which an agent could hide what it did, and no program runs that they name.
func (r *Repository) DiffSnapshots(ctx context.Context, req DiffRequest) (_ Diff, err error) {
	if err := req.check(); err != nil {
		return Diff{}, err
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return Diff{}, err
	}
	c := &comparison{r: r, inv: inv}
	defer func() { err = errors.Join(err, c.close()) }()
	if slices.ContainsFunc([]string{req.From, req.To}, livesInSandbox) {
		if err := c.enter(ctx); err != nil {
			return Diff{}, err
		}
	} else if inv.BaseCommit == "" {
		return Diff{}, inv.Err()
	}
	if c.view, err = r.git.View(inv.BaseCommit); err != nil {
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
		return Diff{}, fmt.Errorf("diff of %s: %w", inv.ID, c.explained(ctx, err, req, asked))
	}
	if req.Words {
		d.Each((*DiffFile).FindWords)
	}
	return d, nil
}

// DiffText compares two texts that are in no repository. The file has neither path nor ids.
func DiffText(before, after []byte) DiffFile { return treediff.Text(before, after) }

func (req *DiffRequest) check() error {
	if req.From == "" {
		req.From = DiffBase
	}
	if req.To == "" {
		req.To = DiffWork
	}
	for _, state := range []string{req.From, req.To} {
		if !slices.Contains(DiffStates, state) && !looksLikeSnapshot(state) {
			return &InvalidError{What: "state", Value: state, Want: strings.Join(DiffStates, ", ") + ", or a snapshot: its commit or <id>/<n>"}
		}
	}
	paths := slices.Clone(req.Paths)
	for i, p := range paths {
		clean := path.Clean(p)
		switch {
		case p == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(p, "\x00"):
			return &InvalidError{What: "path", Value: p, Want: "one from the top of the sandbox, such as src/main.go"}
		case clean == ".":
			paths = nil
		default:
			paths[i] = clean
		}
		if paths == nil {
			break
		}
	}
	req.Paths = paths
	return nil
}

// looksLikeSnapshot tells what may be the name of one from what is a mistake.
func looksLikeSnapshot(name string) bool {
	_, _, numbered := strings.Cut(name, "/")
	return numbered || len(name) >= 4 && strings.Trim(strings.ToLower(name), "0123456789abcdef") == ""
}

// livesInSandbox reports whether a state is known only there.
func livesInSandbox(state string) bool { return state == DiffWork || state == DiffHead }

// comparison is one that is being made.
type comparison struct {
	r    *Repository
	inv  Invocation
	site *site // of the sandbox, when something of it is compared
	view *git.View
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
	if c.view != nil {
		errs = append(errs, c.view.Close())
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
	snapshot, err := c.r.snapshotNamed(ctx, c.r.git, name)
	return snapshot.ID, err
}

func (c *comparison) subject() git.Subject {
	return git.Subject{Name: c.inv.ID, Tree: c.r.sandboxOf(c.inv.ID).tree, Branch: sandboxRef(c.inv.ID), Base: c.inv.BaseCommit}
}

// work is what is in the sandbox now, as a tree that nobody but the view sees.
func (c *comparison) work(ctx context.Context) (string, error) {
	subject, err := capturable(c.subject())
	if err != nil {
		return "", err
	}
	tree, _, err := c.view.WorkTree(ctx, subject)
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
func (c *comparison) compare(ctx context.Context, asked git.Comparison) (d Diff, err error) {
	text, err := c.view.Compare(ctx, asked)
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
	sizes, err := c.view.Sizes(ctx, blobs...)
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
