package radar

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// forecast is one run of Radar for the sandboxes of a worktree that land on the same branch.
//
// It uses two caches of earlier runs: the stat cache of every sandbox, and the facts about commits and trees. If nothing
// has changed, the run only has to stat every file of every sandbox. It is not enough to look at the paths that were
// touched in the last run: two sandboxes may since have changed a file that neither had touched before.
type forecast struct {
	r               *core.Repository
	only            string   // id of the sandbox whose pairs with others are computed, and nothing else; empty: everything is
	cacheName       string   // name of its fact cache
	secrets         []string // name patterns of untracked files to leave out
	sandboxes       []*sandboxState
	tip             git.ResolvedCommit // commit and tree of the integration branch
	configDigest    status.ConfigDigest
	merger          *merge.Merger // nil if the integration branch does not exist
	oldFacts, facts factCache
	savedFacts      []byte // facts as stored on disk
}

// sandboxState is one sandbox of a forecast.
type sandboxState struct {
	inv      core.Invocation
	handle   *sandbox.Handle
	subject  git.WorktreeSpec
	head     git.ResolvedCommit
	tree     string // tree of its content, including uncommitted work; empty if not known yet
	inMerger bool   // read in this run, so the merger has the tree
	err      error  // why it cannot be read

	changedSubmodule bool // a submodule has work that is not committed in it, or not staged; known only if nothing else would land
}

// newForecast opens sandboxes that all land on the branch called name, and loads the caches. Sandboxes whose stat cache
// still matches get their tree without being read.
func newForecast(ctx context.Context, r *core.Repository, wt core.Worktree, name string, invocations []core.Invocation) (_ *forecast, err error) {
	secrets, err := r.Settings.SecretPatterns()
	if err != nil {
		return nil, err
	}
	s := &forecast{r: r, cacheName: factCacheName(wt.ID, name), secrets: secrets, configDigest: status.ReadConfigDigest(r.Git)}
	// While any sandbox on record has no walls, merge drivers from the repository's own configuration do not run.
	trusted := r.AllSandboxesWalled()
	s.facts = newFactCache(fmt.Sprint(s.configDigest, trusted))
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, inv := range invocations {
		s.sandboxes = append(s.sandboxes, &sandboxState{inv: inv})
	}
	s.savedFacts = r.Store.ReadRadarCache(r.ID, s.cacheName)
	s.oldFacts = parseFactCache(s.savedFacts, s.facts.ConfigDigest)
	proc.Parallel(s.sandboxes, func(b *sandboxState) { b.err = s.openSandbox(ctx, b) })
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	recognised := proc.Async(func() (struct{}, error) {
		proc.Parallel(s.usable(), func(b *sandboxState) {
			b.tree = status.TreeFromStatCache(r.Git, b.subject, s.configDigest, r.Store.ReadRadarCache(r.ID, statCacheName(b.inv.ID)))
		})
		return struct{}{}, nil
	})
	subjects := []git.WorktreeSpec{}
	for _, b := range s.sandboxes {
		subjects = append(subjects, b.subject)
	}
	heads, tip, err := r.Git.ResolveHeads(ctx, subjects, name)
	_, _ = recognised()
	if err != nil {
		return nil, err
	}
	if s.tip = tip; tip.Commit == "" {
		for _, b := range s.sandboxes {
			b.err = cmp.Or(b.err, r.MissingBranch(ctx, r.Git, b.inv, name))
		}
		return s, nil
	}
	for i, b := range s.sandboxes {
		if b.head = heads[i]; b.err == nil {
			b.err = b.head.Err
		}
		if b.err == nil && b.head.Commit == "" {
			b.err = &fault.NoCommitError{Name: "HEAD of " + b.inv.ID}
		}
	}
	if s.merger, err = merge.NewMerger(r.Git, tip.Commit); err == nil {
		s.merger.Trusted = trusted
	}
	return s, err
}

// openSandbox keeps a sandbox from being removed, and determines what belongs to its content.
func (s *forecast) openSandbox(ctx context.Context, b *sandboxState) (err error) {
	b.subject = git.WorktreeSpec{Name: b.inv.ID, Dir: sandbox.Of(s.r, b.inv.ID).Tree, Branch: core.SandboxRef(b.inv.ID), Base: b.inv.BaseCommit}
	if b.handle, err = sandbox.ImportAndOpen(ctx, s.r, b.inv); err != nil {
		return err
	}
	b.subject.SecretPatterns = s.secrets
	b.subject, err = s.r.PrepareCapture(b.subject)
	return err
}

func (s *forecast) close() error {
	var errs []error
	for _, b := range s.sandboxes {
		if b.handle != nil {
			errs = append(errs, b.handle.Close())
		}
	}
	if s.merger != nil {
		errs = append(errs, s.merger.Close())
	}
	return errors.Join(errs...)
}

// compute fills all facts. It reads no sandbox twice.
func (s *forecast) compute(ctx context.Context) error {
	unread := slices.DeleteFunc(s.usable(), func(b *sandboxState) bool { return b.tree != "" })
	for {
		proc.Parallel(unread, func(b *sandboxState) { s.readTree(ctx, b) })
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.findBases(ctx); err != nil {
			return err
		}
		var err error
		if unread, err = s.findTouched(ctx); err != nil {
			return err
		}
		if len(unread) > 0 {
			continue
		}
		merges, unjudged := s.pairsToMerge(), s.unchecked()
		if unread = s.addUnreadSandboxes(unjudged, s.unreadSides(merges)); len(unread) == 0 {
			if err := s.fsckSandboxes(ctx, unjudged); err != nil {
				return err
			}
			return s.mergePairs(ctx, merges)
		}
	}
}

// findChangedSubmodules looks for work in the submodules of sandboxes that have nothing else to land: it is in no tree.
func (s *forecast) findChangedSubmodules(ctx context.Context) error {
	for i, b := range s.sandboxes {
		if b.err != nil || !s.facts.Merges[s.mergeKey(integrationPair(i))].NothingNew {
			continue
		}
		changed, err := s.r.ChangedSubmodules(ctx, s.r.Git, b.subject)
		if err != nil {
			return err
		}
		b.changedSubmodule = len(changed) > 0
	}
	return nil
}

// readTree reads the content of a sandbox, and stores its stat cache.
func (s *forecast) readTree(ctx context.Context, b *sandboxState) {
	var statCache []byte
	b.inMerger = true
	if b.tree, statCache, b.err = status.DiskTreeWithStatCache(ctx, s.merger.Mirror, b.subject, b.head.Commit, s.configDigest); b.err != nil || statCache == nil {
		return
	}
	if err := s.r.Store.WriteRadarCache(s.r.ID, statCacheName(b.inv.ID), statCache); err != nil {
		s.r.Warn("the state of sandbox %s could not be cached: %v", b.inv.ID, err)
	}
}

// usable lists the sandboxes without an error.
func (s *forecast) usable() []*sandboxState {
	return slices.DeleteFunc(slices.Clone(s.sandboxes), func(b *sandboxState) bool { return b.err != nil })
}

// saveFacts writes the facts to disk.
func (s *forecast) saveFacts() error {
	data, err := json.Marshal(s.facts)
	if err != nil || string(data) == string(s.savedFacts) {
		return err
	}
	return s.r.Store.WriteRadarCache(s.r.ID, s.cacheName, data)
}

// pruneCache removes the cache files that no sandbox needs any more, and those of this worktree for other branches than
// its sandboxes land on now.
func pruneCache(r *core.Repository, wt core.Worktree, forecasts []*forecast, invocations []core.Invocation) error {
	live := map[string]bool{}
	for _, inv := range invocations {
		live[statCacheName(inv.ID)] = inv.Broken || !inv.HasEnded()
	}
	for _, f := range forecasts {
		live[f.cacheName] = true
	}
	return r.Store.PruneRadarCache(r.ID, func(name string) bool {
		return live[name] || strings.HasSuffix(name, cachefile.Suffix) || r.IsHashCacheInUse(name) || strings.HasSuffix(name, factCacheSuffix) && !strings.HasPrefix(name, wt.ID)
	})
}

const factCacheSuffix = ".json"

// factCacheName returns the name of the cache for the sandboxes of a worktree that land on a branch, or on the commit of a
// detached HEAD.
func factCacheName(worktreeID, name string) string {
	sum := sha256.Sum256([]byte(name))
	return worktreeID + "-" + hex.EncodeToString(sum[:4]) + factCacheSuffix
}

func statCacheName(id string) string { return id + ".likeness" }
