// Package listing finds out what a list of invocations shows besides their records: which sandboxes have a running
// command, how many commits each is ahead of its integration branch, and how many of its files are not committed. It
// changes nothing but its cache, takes no locks, and never imports git state from behind walls: a command's commits
// count when it has ended.
package listing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// timeLimit bounds the time for reading the trees of all sandboxes. The changed files of those that are left are unknown.
const timeLimit = 2 * time.Second

// errNoTime is the cause of a tree that was not read in time.
var errNoTime = errors.New("reading the trees of all sandboxes took longer than " + timeLimit.String())

// Fill sets Running, RunningSince, Ahead, Dirty and State of every invocation whose sandbox exists. Numbers that cannot be
// found out stay nil.
func Fill(ctx context.Context, r *core.Repository, invocations []core.Invocation) error {
	_, err := fill(ctx, r, invocations)
	return err
}

// FillOne is Fill for one invocation, with a warning that says why its files cannot be counted.
func FillOne(ctx context.Context, r *core.Repository, inv *core.Invocation) error {
	one := []core.Invocation{*inv}
	sandboxes, err := fill(ctx, r, one)
	*inv = one[0]
	for _, s := range sandboxes {
		if s.err != nil {
			r.Warn("sandbox %s: its changed files cannot be counted: %v", inv.ID, s.err)
		}
	}
	return err
}

// liveSandbox is a sandbox that exists.
type liveSandbox struct {
	inv  *core.Invocation
	tip  string // commit of its branch; empty if unknown
	head string // commit of its HEAD; empty if unknown
	tree string // tree of that commit; empty if unknown
	err  error  // why its files cannot be counted

	version tipVersion // of the files that tip and head were read from
}

// spec describes the worktree of the sandbox. It is large, so that a list of many makes it where it is needed.
func (s *liveSandbox) spec() git.WorktreeSpec {
	// The configuration of the repository is not trusted: whether it may be would have to be asked for every sandbox.
	return git.WorktreeSpec{Name: s.inv.ID, Dir: s.dir(), Branch: s.branch(), Base: s.inv.BaseCommit, Omit: guard.AgencyDir}
}

func (s *liveSandbox) dir() string    { return s.inv.Entry.TreePath }
func (s *liveSandbox) branch() string { return core.SandboxRef(s.inv.ID) }

func fill(ctx context.Context, r *core.Repository, invocations []core.Invocation) ([]*liveSandbox, error) {
	running := proc.Async(func() (map[string]time.Time, error) { return proc.RunningTasks(), nil })
	load := proc.Async(func() (*facts, error) { return loadFacts(r), nil })
	sandboxes := findSandboxes(invocations)
	files, err := r.Git.OpenRefFiles(core.AgencyHeads)
	if err != nil {
		return nil, err
	}
	defer files.Close() // only reading
	facts, err := readTips(ctx, r, files, load, sandboxes, time.Now())
	if err != nil {
		return nil, err
	}
	countAhead(ctx, r, facts, sandboxes)
	if err := readHeadTrees(ctx, r, facts, sandboxes); err != nil {
		return nil, err
	}
	countDirty(ctx, r, files, sandboxes)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	facts.save(r, len(sandboxes))
	tasks, _ := running()
	records := r.Store.InvocationDir(r.ID, "") + "/"
	for i := range invocations {
		inv := &invocations[i]
		if inv.IsSupervised() {
			inv.Running, inv.RunningSince = true, inv.RunStartedAt
		}
		if since, is := tasks[records+inv.ID]; is && !inv.Broken && !inv.HasEnded() {
			inv.Running, inv.RunningSince = true, since.UTC().Truncate(time.Second)
		}
		inv.SetState()
	}
	return sandboxes, nil
}

// findSandboxes lists the sandboxes that exist.
func findSandboxes(invocations []core.Invocation) []*liveSandbox {
	sandboxes := make([]*liveSandbox, 0, len(invocations))
	for i := range invocations {
		inv := &invocations[i]
		if inv.Broken || inv.HasEnded() || !inv.Entry.HasTree || len(inv.Paths) > 0 { // the files of the latter are elsewhere
			continue
		}
		sandboxes = append(sandboxes, &liveSandbox{inv: inv})
	}
	return sandboxes
}

// readTips reads the branches and the HEADs of the sandboxes, from their files where that is possible.
func readTips(ctx context.Context, r *core.Repository, files git.RefFiles, load func() (*facts, error), sandboxes []*liveSandbox, now time.Time) (*facts, error) {
	name := func(s *liveSandbox) string { return s.branch()[len(core.AgencyHeads):] }
	readVersion := func(s *liveSandbox) tipVersion {
		return tipVersion{Ref: files.RefVersion(name(s), now), Head: files.HeadVersion(s.inv.ID, now)}
	}
	proc.Parallel(sandboxes, func(s *liveSandbox) { s.version = readVersion(s) })
	facts, err := load()
	if err != nil {
		return nil, err
	}
	var unknown []*liveSandbox
	for _, s := range sandboxes {
		if s.tip = facts.tip(s.inv.ID, s.version); s.tip == "" {
			unknown = append(unknown, s)
		}
		s.head = s.tip
	}
	proc.Parallel(unknown, func(s *liveSandbox) {
		s.tip = files.LooseRef(name(s))
		if head, err := files.Head(s.inv.ID); err == nil && head.Branch == s.branch() && s.tip != "" {
			s.head = s.tip // reading the ref again would take as long
			if readVersion(s) != s.version {
				s.version = tipVersion{}
			}
			return
		}
		s.version = tipVersion{}
		s.head, _ = r.Git.HeadFromFiles(s.spec())
	})
	for _, s := range unknown {
		facts.setTip(s.inv.ID, s.version, s.tip)
	}
	if !slices.ContainsFunc(sandboxes, func(s *liveSandbox) bool { return s.tip == "" }) {
		return facts, nil
	}
	refs, err := r.Git.Refs(ctx, core.AgencyHeads)
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes {
		s.tip = refs[s.branch()]
	}
	return facts, nil
}

// countAhead sets Ahead. An integration branch whose history cannot be read is a warning.
func countAhead(ctx context.Context, r *core.Repository, facts *facts, sandboxes []*liveSandbox) {
	commits := map[string]string{} // commits to land on, by upstreamKey
	asked := map[string][]string{} // commits of sandboxes to count, by commit to land on
	for _, s := range sandboxes {
		key := upstreamKey(s.inv)
		if _, known := commits[key]; !known {
			commits[key] = upstreamCommit(ctx, r, s.inv)
		}
		upstream := commits[key]
		if _, known := facts.ahead(s.tip, upstream); upstream != "" && s.tip != "" && !known && !slices.Contains(asked[upstream], s.tip) {
			asked[upstream] = append(asked[upstream], s.tip)
		}
	}
	for upstream, tips := range asked {
		counts, err := merge.CountAhead(ctx, r.Git, upstream, tips)
		if err != nil && context.Cause(ctx) == nil {
			r.Warn("commits that are not on the integration branch cannot be counted: %v", err)
		}
		for tip, n := range counts {
			facts.setAhead(tip, upstream, n)
		}
	}
	for _, s := range sandboxes {
		if n, known := facts.ahead(s.tip, commits[upstreamKey(s.inv)]); known {
			s.inv.Ahead = &n
		}
	}
}

// upstreamKey returns a key that sandboxes share if they land on the same commit: the integration branch, or the id of the
// worktree if there is none, since the sandbox then lands on the branch that is checked out there.
func upstreamKey(inv *core.Invocation) string {
	return cmp.Or(inv.IntegrationBranch, inv.WorktreeID)
}

// upstreamCommit returns the commit of the integration branch of a sandbox, or that of HEAD of its worktree if there is no
// such branch; empty if it does not exist or cannot be read.
func upstreamCommit(ctx context.Context, r *core.Repository, inv *core.Invocation) string {
	if inv.IntegrationBranch != "" {
		return branchCommit(ctx, r, inv.IntegrationBranch)
	}
	commit, err := r.IntegrationCommit(ctx, *inv)
	if err != nil {
		r.Warn("HEAD of worktree %q cannot be read: %v", cmp.Or(inv.Worktree, inv.WorktreeID), err)
	}
	return commit
}

// branchCommit returns the commit of a branch; empty if it does not exist or cannot be read.
func branchCommit(ctx context.Context, r *core.Repository, branch string) string {
	if commit, ok := r.Git.ReadRefFile(branch); ok {
		return commit
	}
	commit, err := r.Git.Tip(ctx, branch)
	if err != nil {
		r.Warn("%s: %v", core.ShortBranch(branch), err)
	}
	return commit
}

// readHeadTrees looks up the trees of the HEADs, with one git for all that are not known yet.
func readHeadTrees(ctx context.Context, r *core.Repository, facts *facts, sandboxes []*liveSandbox) error {
	var heads, names []string
	for _, s := range sandboxes {
		if s.head != "" && facts.tree(s.head) == "" && !slices.Contains(heads, s.head) {
			heads, names = append(heads, s.head), append(names, s.head+"^{tree}")
		}
	}
	if len(names) > 0 {
		found, err := r.Git.Lookup(ctx, names...)
		if err != nil {
			return err
		}
		for i, o := range found {
			if !o.Missing() {
				facts.setTree(heads[i], o.OID)
			}
		}
	}
	for _, s := range sandboxes {
		s.tree = facts.tree(s.head)
	}
	return nil
}

// countDirty sets Dirty, within the time limit.
func countDirty(ctx context.Context, r *core.Repository, files git.RefFiles, sandboxes []*liveSandbox) {
	ctx, stop := context.WithTimeoutCause(ctx, timeLimit, errNoTime)
	defer stop()
	mounts := guard.MountsBelow(r.Store.SandboxesDir(r.ID))
	clock := status.FileClock{} // unknown if the sandboxes are on several file systems
	if len(mounts) == 0 {
		clock = status.FileClockOf(r.Store.SandboxesDir(r.ID))
	}
	proc.Parallel(sandboxes, func(s *liveSandbox) {
		switch {
		case s.tree == "":
			s.err = errors.New("its HEAD cannot be read")
		case slices.ContainsFunc(mounts, func(point string) bool { return guard.Contains(s.dir(), point) }):
			s.err = errors.New("something is mounted in it")
		case context.Cause(ctx) != nil:
			s.err = context.Cause(ctx)
		}
		if s.err != nil {
			return
		}
		spec := s.spec()
		if s.inv.Primitives.Changeset == settings.ChangesetOverlay {
			if spec.Overlay, s.err = r.OverlayTree(s.inv.ID); s.err != nil {
				return
			}
		}
		var n int
		if n, s.err = status.CountChanges(ctx, r.Git, spec, status.CountRequest{
			Head: s.head, HeadTree: s.tree, Clock: clock, Worktrees: files.EntriesOf(s.inv.ID),
			Submodules: func() ([]string, error) { return r.ChangedSubmodules(ctx, r.Git, s.spec()) },
		}); s.err == nil {
			s.inv.Dirty = &n
		}
	})
}
