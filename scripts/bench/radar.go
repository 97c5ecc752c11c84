package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// radarComparisons measures the conflict radar over twenty sandboxes with 10,000 files each. A repeated run has to
// find out that nothing changed, which takes an lstat of every file, so it is compared with exactly that.
func (b *bench) radarComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	r, err := b.newRadarRepo(ctx, 20, 10_000)
	if err != nil {
		return nil, false, err
	}
	return []comparison{
		{
			title: "radar, 20 × 10,000, first", rounds: 5, promise: promise{limit: time.Second}, useFastest: true,
			baseName: "status", base: r.status, tool: r.radarWithoutCache, check: r.checkRadar,
		},
		{
			title: "radar again", rounds: 20, promise: promise{ratio: 1.3, extra: 20 * time.Millisecond}, useFastest: true,
			baseName: "lstat", base: r.lstatAll, tool: r.radarRun, check: r.checkRadar,
		},
	}, true, nil
}

// radarRepo is a repository with many sandboxes, in each of which ten files changed and one was added. Each sandbox
// also changes a file that its neighbour changes: half of these pairs conflict.
type radarRepo struct {
	*repository
	trees []string
	paths [][]string // paths of all files and directories, by tree
}

func (b *bench) newRadarRepo(ctx context.Context, sandboxes, files int) (*radarRepo, error) {
	repository, err := b.newRepository(ctx, "radar", files)
	if err != nil {
		return nil, err
	}
	r := &radarRepo{repository: repository}
	for n := range sandboxes {
		if _, err := r.startSandbox(ctx); err != nil {
			return nil, err
		}
		tree, err := r.sandboxPath(ctx, r.sandboxes[n])
		if err != nil {
			return nil, err
		}
		r.trees = append(r.trees, tree)
		if err := changeFiles(filepath.Join(tree, "src", fmt.Sprintf("group%02d", n)), 10); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(tree, "src", fmt.Sprintf("new%d.go", n)), []byte("package bench\n"), 0o600); err != nil {
			return nil, err
		}
		// At the top of one file, and at the top or at the end of the next.
		if err := r.changeSharedFile(n, n, true); err != nil {
			return nil, err
		}
		if err := r.changeSharedFile(n, n+1, n%2 == 0); err != nil {
			return nil, err
		}
	}
	for _, tree := range r.trees {
		// Files as new as the index are racy and would be read again by every scan.
		if _, _, err := b.git(ctx, tree, "status", "--porcelain"); err != nil {
			return nil, err
		}
		var paths []string
		err := filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			path, err = filepath.Rel(tree, path)
			paths = append(paths, path)
			return err
		})
		if err != nil {
			return nil, err
		}
		r.paths = append(r.paths, paths)
	}
	return r, nil
}

// changeSharedFile changes a file that another sandbox changes too.
func (r *radarRepo) changeSharedFile(n, file int, top bool) error {
	path := filepath.Join(r.trees[n], "src", "group45", fmt.Sprintf("part%02d", file), "file0.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("// by %d\n", n)
	if top {
		return os.WriteFile(path, append([]byte(line), text...), 0o600)
	}
	return os.WriteFile(path, append(text, line...), 0o600)
}

// status runs git status in all sandboxes, which detects changes but not conflicts.
func (r *radarRepo) status(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := forEachParallel(len(r.trees), func(n int) error {
		_, _, err := r.b.git(ctx, r.trees[n], "--no-optional-locks", "status", "--porcelain")
		return err
	})
	return time.Since(began), err
}

// lstatAll calls lstat on every file.
func (r *radarRepo) lstatAll(context.Context) (time.Duration, error) {
	began := time.Now()
	err := forEachParallel(len(r.paths), func(n int) error {
		top, err := unix.Open(r.trees[n], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(top)
		var st unix.Stat_t
		for _, path := range r.paths[n] {
			if err := unix.Fstatat(top, path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(began), err
}

// forEachParallel calls do for 0 to n-1, on all CPUs.
func forEachParallel(n int, do func(int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// radarWithoutCache measures git-agency after removing its cache.
func (r *radarRepo) radarWithoutCache(ctx context.Context) (time.Duration, error) {
	remembered, err := filepath.Glob(filepath.Join(r.b.root, "data", "repos", "*", "radar"))
	if err != nil {
		return 0, err
	}
	for _, dir := range remembered {
		if err := os.RemoveAll(dir); err != nil {
			return 0, err
		}
	}
	return r.radarRun(ctx)
}

// radarRun measures git-agency.
func (r *radarRepo) radarRun(ctx context.Context) (time.Duration, error) {
	_, took, err := r.b.agency(ctx, r.dir, "radar", worktreeName, "--json")
	return took, err
}

// checkRadar makes sure that every sandbox would land, and that exactly the expected pairs conflict.
func (r *radarRepo) checkRadar(ctx context.Context) error {
	out, _, err := r.b.agency(ctx, r.dir, "radar", worktreeName, "--porcelain")
	if err != nil {
		return err
	}
	clean, conflicts := strings.Count(out, "\nradar clean\n"), strings.Count(out, "\nradar conflicts\n")
	pairs := len(r.trees) * (len(r.trees) - 1) / 2
	if want := len(r.trees) / 2; conflicts != want || clean != len(r.trees)+pairs-want {
		return fmt.Errorf("%d clean and %d in conflict, of %d sandboxes and %d pairs", clean, conflicts, len(r.trees), pairs)
	}
	return nil
}
