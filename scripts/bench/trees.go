package main

import (
	"context"
	"fmt"
	"time"
)

// creationPromise is the upper bound of the time to create a sandbox, as a ratio to git worktree add.
type creationPromise struct {
	changeset string // --changeset of start
	files     int
	rounds    int
	ratio     float64
}

// creationPromises hold while the integration worktree, from which files are copied, is in the page cache.
var creationPromises = map[string][]creationPromise{
	"trees": {
		{changeset: "worktree", files: 200, rounds: 20, ratio: 0.8},
		{changeset: "worktree", files: 10_000, rounds: 6, ratio: 0.30},
	},
	"large": {
		{changeset: "worktree", files: 100_000, rounds: 3, ratio: 0.35},
	},
}

// creationComparison compares the creation of a sandbox with git worktree add.
func (r *repository) creationComparison(p creationPromise) comparison {
	return comparison{
		title: "start, " + groupThousands(p.files) + " files", rounds: p.rounds, promise: promise{ratio: p.ratio},
		base: r.addWorktree, tool: func(ctx context.Context) (time.Duration, error) { return r.startWith(ctx, "--changeset", p.changeset) },
		check: r.checkSandbox,
	}
}

// treeComparisons measures creating and removing worktrees. The removals come last.
func (b *bench) treeComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	repositories := map[int]*repository{}
	for _, p := range creationPromises["trees"] {
		if repositories[p.files] == nil {
			if repositories[p.files], err = b.newRepository(ctx, fmt.Sprintf("files-%d", p.files), p.files); err != nil {
				return nil, false, err
			}
		}
		contests = append(contests, repositories[p.files].creationComparison(p))
	}
	small, large := repositories[200], repositories[10_000]
	if err := large.printDiskUsage(ctx, "disk, 10,000 files"); err != nil {
		return nil, false, err
	}
	return append(contests,
		large.firstStatusComparison("first status, 10,000 files"),
		comparison{title: "discard, 200 files", rounds: 10, base: small.removeWorktree, tool: small.discardSandbox},
		comparison{title: "discard, 10,000 files", rounds: 6, promise: promise{ratio: 1}, base: large.removeWorktree, tool: large.discardSandbox},
		comparison{title: "discard until files are gone", rounds: 4, base: large.removeWorktree, tool: large.removeSandbox},
	), true, nil
}

// largeTreeComparisons measures trees of 100,000 files.
func (b *bench) largeTreeComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	const size = 2_000 // on average; a tree takes 500 MB
	huge, err := b.newRepositoryOf(ctx, "files-100000", 100_000, size)
	if err != nil {
		return nil, false, err
	}
	for _, p := range creationPromises["large"] {
		contests = append(contests, huge.creationComparison(p))
	}
	return append(contests, comparison{
		title: "discard, 100,000 files", rounds: 3, promise: promise{ratio: 1}, base: huge.removeWorktree, tool: huge.discardSandbox,
	}), true, nil
}

// crowdedComparisons measures whether existing sandboxes slow down the creation of another.
func (b *bench) crowdedComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	alone, err := b.newCrowdedRepo(ctx, "alone", 1)
	if err != nil {
		return nil, false, err
	}
	crowded, err := b.newCrowdedRepo(ctx, "crowded", 1000)
	if err != nil {
		return nil, false, err
	}
	return []comparison{{
		title: "start beside 1,000 sandboxes", rounds: 20, promise: promise{ratio: 1.5},
		baseName: "beside 1", base: alone.startAndDiscard, tool: crowded.startAndDiscard,
	}}, true, nil
}

// newCrowdedRepo creates a repository of 200 files in which n other sandboxes exist, all but one with almost empty trees:
// the number of registrations, branches and records matters.
func (b *bench) newCrowdedRepo(ctx context.Context, name string, n int) (*repository, error) {
	r, err := b.newListingRepo(ctx, name, n)
	if err == nil {
		r.sandboxes = nil // they stay
	}
	return r, err
}

// startAndDiscard measures the creation of a sandbox, and discards it.
func (r *repository) startAndDiscard(ctx context.Context) (time.Duration, error) {
	took, err := r.startSandbox(ctx)
	if err != nil {
		return 0, err
	}
	if err := r.checkSandbox(ctx); err != nil {
		return 0, err
	}
	_, err = r.discardSandbox(ctx)
	return took, err
}
