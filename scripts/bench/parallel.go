package main

import (
	"context"
	"fmt"
	"time"
)

// parallelComparisons measures many starts at once. Starts take their turns at the repository lock themselves; git has no
// such lock, so that git worktree add is safe only under a lock of the caller.
func (b *bench) parallelComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	for _, row := range []struct {
		starts, files, rounds int
		locked                bool // git worktree add runs one after the other
		promise               promise
	}{
		// 1.6 times the throughput. With 200 files it depends more on how fast processes start than on creating trees, so that
		// only the row of 10,000 files has a promise.
		{starts: 32, files: 10_000, rounds: 1, locked: true, promise: promise{ratio: 1 / 1.6}},
		{starts: 32, files: 200, rounds: 3, locked: true},
		{starts: 16, files: 200, rounds: 4},
		{starts: 64, files: 200, rounds: 2},
	} {
		r, err := b.newRepositoryOf(ctx, fmt.Sprintf("parallel-%d-%d-%t", row.starts, row.files, row.locked), row.files, tinyFile)
		if err != nil {
			return nil, false, err
		}
		c := comparison{
			title: fmt.Sprintf("%d starts at once, %s files", row.starts, groupThousands(row.files)), rounds: row.rounds, promise: row.promise,
			base: inParallel(row.starts, r.tryAddWorktree), tool: inParallel(row.starts, r.startInTurn), note: r.describeFailures,
			check: r.checkSandbox, warmUp: r.warmUp,
		}
		if row.locked {
			c.baseName, c.base, c.note = "in turn", inSequence(row.starts, r.addWorktree), nil
		}
		contests = append(contests, c)
	}
	return contests, true, nil
}

// startInTurn is startSandbox that waits for the repository lock as long as necessary.
func (r *repository) startInTurn(ctx context.Context) (time.Duration, error) {
	return r.startWith(ctx, "--lock-timeout", "-1")
}

// warmUp creates one tree with each side. A whole round to warm the caches would take too much space.
func (r *repository) warmUp(ctx context.Context) error {
	if _, err := r.addWorktree(ctx); err != nil {
		return err
	}
	_, err := r.startSandbox(ctx)
	return err
}
