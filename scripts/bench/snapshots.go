package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// snapshotComparisons measures snapshots of trees in which ten files changed.
func (b *bench) snapshotComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	var contests []comparison
	for _, size := range []struct {
		name   string
		files  int
		rounds int
	}{{"10,000", 10_000, 20}, {"100,000", 100_000, 12}} {
		s, err := b.newSnapshotRepo(ctx, "work-"+strings.ReplaceAll(size.name, ",", ""), size.files)
		if err != nil {
			return nil, false, err
		}
		contests = append(contests, comparison{
			title: "snapshot create, " + size.name + " files", rounds: size.rounds, promise: promise{ratio: 1.6},
			baseName: "status", base: s.status, tool: s.snapshot, check: s.checkSnapshot,
		})
	}
	return contests, true, nil
}

// snapshotRepo is a sandbox in which ten files changed.
type snapshotRepo struct {
	*repository
	id, tree     string
	edits        int
	lastSnapshot string // commit id
}

func (b *bench) newSnapshotRepo(ctx context.Context, name string, files int) (*snapshotRepo, error) {
	r, err := b.newRepository(ctx, name, files)
	if err != nil {
		return nil, err
	}
	w := &snapshotRepo{repository: r}
	if _, err := r.startSandbox(ctx); err != nil {
		return nil, err
	}
	w.id = r.sandboxes[0]
	path, _, err := b.agency(ctx, r.dir, "path", w.id)
	if err != nil {
		return nil, err
	}
	w.tree = strings.TrimSpace(path)
	// Files as new as the index are racy: git reads them again until the index is rewritten.
	if _, err := w.status(ctx); err != nil {
		return nil, err
	}
	_, err = w.status(ctx)
	return w, err
}

// edit changes eight tracked and two untracked files.
func (w *snapshotRepo) edit(ctx context.Context) error {
	w.edits++
	tracked, _, err := w.b.git(ctx, w.tree, "ls-tree", "-r", "--name-only", "HEAD")
	if err != nil {
		return err
	}
	names := strings.Fields(tracked)
	for i := range 8 {
		path := filepath.Join(w.tree, names[i*len(names)/8])
		if err := os.WriteFile(path, fmt.Appendf(nil, "edit %d of %d\n", i, w.edits), 0o644); err != nil {
			return err
		}
	}
	for i := range 2 {
		path := filepath.Join(w.tree, fmt.Sprintf("new-%d.txt", i))
		if err := os.WriteFile(path, fmt.Appendf(nil, "edit %d of %d\n", i, w.edits), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// status measures git status of the same tree.
func (w *snapshotRepo) status(ctx context.Context) (time.Duration, error) {
	if err := w.edit(ctx); err != nil {
		return 0, err
	}
	_, took, err := w.b.git(ctx, w.tree, "status")
	return took, err
}

func (w *snapshotRepo) snapshot(ctx context.Context) (time.Duration, error) {
	if err := w.edit(ctx); err != nil {
		return 0, err
	}
	taken, took, err := w.b.agency(ctx, w.dir, "snapshot", "create", w.id)
	w.lastSnapshot = strings.TrimSpace(taken)
	return took, err
}

// checkSnapshot makes sure that a snapshot has the tree that git add --all would stage.
func (w *snapshotRepo) checkSnapshot(ctx context.Context) error {
	if _, err := w.snapshot(ctx); err != nil {
		return err
	}
	if _, _, err := w.b.git(ctx, w.tree, "add", "--all"); err != nil {
		return err
	}
	want, _, err := w.b.git(ctx, w.tree, "write-tree")
	if err != nil {
		return err
	}
	have, _, err := w.b.git(ctx, w.tree, "rev-parse", w.lastSnapshot+"^{tree}")
	if err == nil && have != want {
		err = fmt.Errorf("the snapshot holds %s, and the tree %s", strings.TrimSpace(have), strings.TrimSpace(want))
	}
	return err
}
