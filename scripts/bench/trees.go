package main

import (
	"context"
	"time"
)

// treeComparisons measures creating and removing worktrees. The removals come last.
func (b *bench) treeComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	large, err := b.newRepository(ctx, "large", 10_000)
	if err != nil {
		return nil, false, err
	}
	small, err := b.newRepository(ctx, "small", 200)
	if err != nil {
		return nil, false, err
	}
	crowd, err := b.newRepository(ctx, "crowd", 200)
	if err != nil {
		return nil, false, err
	}
	huge, err := b.newRepository(ctx, "huge", 30_000)
	if err != nil {
		return nil, false, err
	}
	return []comparison{
		{
			title: "start, 10,000 files", rounds: 6, promise: promise{ratio: 1.10},
			base: large.addWorktree, tool: large.startSandbox, check: large.checkSandbox,
		},
		{
			title: "start, 200 files", rounds: 20, promise: promise{extra: 30 * time.Millisecond},
			base: small.addWorktree, tool: small.startSandbox, check: small.checkSandbox,
		},
		{
			title: "16 starts at once, 200 files", rounds: 4,
			base: inParallel(16, crowd.tryAddWorktree), tool: inParallel(16, crowd.startSandbox), note: crowd.describeFailures,
		},
		{title: "discard, 200 files", rounds: 10, base: small.removeWorktree, tool: small.discardSandbox},
		{title: "discard, 10,000 files", rounds: 6, promise: promise{ratio: 1}, base: large.removeWorktree, tool: large.discardSandbox},
		{title: "discard until files are gone", rounds: 4, base: large.removeWorktree, tool: large.removeSandbox},
		{
			title: "start, 30,000 files", rounds: 5, promise: promise{ratio: 1.10},
			base: huge.addWorktree, tool: huge.startSandbox, check: huge.checkSandbox,
		},
		{title: "discard, 30,000 files", rounds: 5, promise: promise{ratio: 1}, base: huge.removeWorktree, tool: huge.discardSandbox},
	}, true, nil
}
