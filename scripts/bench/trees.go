package main

import (
	"context"
	"fmt"
	"time"
)

// Values of --changeset.
const (
	worktreeChangeset = "worktree"
	overlayChangeset  = "overlay"
)

// creationPromise is the upper bound of the time to create a sandbox, as a ratio to git worktree add and, unless limit is 0, as a
// time.
type creationPromise struct {
	changeset string // --changeset of start
	files     int
	rounds    int
	ratio     float64
	limit     time.Duration
}

// creationPromises hold while the integration worktree, from which files are copied, is in the page cache, and while the layer of
// an overlay exists.
var creationPromises = map[string][]creationPromise{
	"trees": {
		{changeset: worktreeChangeset, files: 200, rounds: 20, ratio: 0.8},
		{changeset: worktreeChangeset, files: 10_000, rounds: 6, ratio: 0.30},
		{changeset: overlayChangeset, files: 200, rounds: 20, ratio: 0.8},
		{changeset: overlayChangeset, files: 10_000, rounds: 6, ratio: 0.03},
	},
	"large": {
		{changeset: worktreeChangeset, files: 100_000, rounds: 3, ratio: 0.35},
		{changeset: overlayChangeset, files: 100_000, rounds: 3, ratio: 0.005, limit: 40 * time.Millisecond},
	},
}

// creationComparison compares the creation of a sandbox with git worktree add.
func (r *repository) creationComparison(p creationPromise) comparison {
	title := "start"
	if p.changeset == overlayChangeset {
		title = "overlay"
	}
	return comparison{
		title: title + ", " + groupThousands(p.files) + " files", rounds: p.rounds, promise: promise{ratio: p.ratio, limit: p.limit},
		base: r.addWorktree, tool: r.startSandbox, check: r.checkSandbox,
	}
}

// treeComparisons measures creating and removing worktrees and overlays. The removals come last.
func (b *bench) treeComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	repositories := map[int]*repository{}
	overlays := map[int]*repository{}
	for _, p := range creationPromises["trees"] {
		if repositories[p.files] == nil {
			r, err := b.newRepository(ctx, fmt.Sprintf("files-%d", p.files), p.files)
			if err != nil {
				return nil, false, err
			}
			repositories[p.files], overlays[p.files] = r, r.withChangeset(overlayChangeset)
		}
		in := repositories[p.files]
		if p.changeset == overlayChangeset {
			in = overlays[p.files]
		}
		contests = append(contests, in.creationComparison(p))
	}
	small, medium, overlay := repositories[200], repositories[10_000], overlays[10_000]
	if err := overlay.printFirstOverlay(ctx, "layer and overlay, 10,000"); err != nil {
		return nil, false, err
	}
	if err := medium.printDiskUsage(ctx, "disk, 10,000 files"); err != nil {
		return nil, false, err
	}
	if err := overlay.printDiskUsage(ctx, "disk, overlay, 10,000 files"); err != nil {
		return nil, false, err
	}
	contests = append(contests,
		medium.firstStatusComparison("first status, 10,000 files"),
		overlay.overlayStatusComparison("first status, overlay"),
		comparison{title: "discard, 200 files", rounds: 10, base: small.removeWorktree, tool: small.discardSandbox},
		comparison{title: "discard, 10,000 files", rounds: 6, promise: promise{ratio: 1}, base: medium.removeWorktree, tool: medium.discardSandbox},
		comparison{title: "discard until files are gone", rounds: 4, base: medium.removeWorktree, tool: medium.removeSandbox},
	)
	return append(contests, overlay.overlayDiscardComparisons(10_000, 6, 0.2)...), true, nil
}

// overlayDiscardComparisons compares the removal of overlays with git worktree remove.
func (r *repository) overlayDiscardComparisons(files, rounds int, ratio float64) []comparison {
	title := "discard overlay, " + groupThousands(files)
	return []comparison{
		{title: title, rounds: rounds, promise: promise{ratio: ratio}, base: r.removeWorktree, tool: r.discardSandbox},
		{title: title + ", not detached", rounds: rounds, base: r.removeWorktree, tool: r.discardInForeground},
	}
}

// largeTreeComparisons measures trees of 100,000 files.
func (b *bench) largeTreeComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	const size = 2_000 // on average; a tree takes 500 MB
	huge, err := b.newRepositoryOf(ctx, "files-100000", 100_000, size)
	if err != nil {
		return nil, false, err
	}
	overlay := huge.withChangeset(overlayChangeset)
	if err := overlay.printFirstOverlay(ctx, "layer and overlay, 100,000"); err != nil {
		return nil, false, err
	}
	for _, p := range creationPromises["large"] {
		in := huge
		if p.changeset == overlayChangeset {
			in = overlay
		}
		contests = append(contests, in.creationComparison(p))
	}
	contests = append(contests, comparison{
		title: "discard, 100,000 files", rounds: 3, promise: promise{ratio: 1}, base: huge.removeWorktree, tool: huge.discardSandbox,
	})
	return append(contests, overlay.overlayDiscardComparisons(100_000, 3, 0.02)...), true, nil
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
