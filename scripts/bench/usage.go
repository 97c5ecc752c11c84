package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// firstStatusComparison compares the first git status in a new sandbox with that in a new worktree. It is fast if the
// stat data in the index is right: else git reads and hashes files.
func (r *repository) firstStatusComparison(title string) comparison {
	var read [2]string
	return comparison{
		title: title, rounds: 3,
		base: func(ctx context.Context) (time.Duration, error) {
			tree, err := r.newRawTree(ctx)
			if err != nil {
				return 0, err
			}
			_, took, err := r.b.git(ctx, tree, "status", "--porcelain")
			return took, err
		},
		tool: func(ctx context.Context) (time.Duration, error) {
			tree, err := r.newSandboxTree(ctx)
			if err != nil {
				return 0, err
			}
			_, took, err := r.b.git(ctx, tree, "status", "--porcelain")
			return took, err
		},
		check: func(ctx context.Context) error {
			for i, newTree := range []func(context.Context) (string, error){r.newRawTree, r.newSandboxTree} {
				tree, err := newTree(ctx)
				if err != nil {
					return err
				}
				if read[i], err = r.countFilesRead(ctx, tree); err != nil {
					return err
				}
			}
			return r.checkSandbox(ctx)
		},
		note: func() string { return fmt.Sprintf("files read: raw git %s, git-agency %s", read[0], read[1]) },
	}
}

// newRawTree creates a worktree with git and returns its path.
func (r *repository) newRawTree(ctx context.Context) (string, error) {
	if _, err := r.addWorktree(ctx); err != nil {
		return "", err
	}
	return r.rawWorktrees[len(r.rawWorktrees)-1].path, nil
}

// newSandboxTree starts a sandbox and returns the path of its tree.
func (r *repository) newSandboxTree(ctx context.Context) (string, error) {
	if _, err := r.startSandbox(ctx); err != nil {
		return "", err
	}
	return r.sandboxPath(ctx, r.sandboxes[len(r.sandboxes)-1])
}

// countFilesRead counts the tracked files that a first git status reads, by their access times. They change with the
// first read after a write, unless the file system is mounted with noatime.
func (r *repository) countFilesRead(ctx context.Context, tree string) (string, error) {
	before, err := accessTimes(filepath.Join(tree, "src"))
	if err != nil {
		return "", err
	}
	if _, _, err := r.b.git(ctx, tree, "status", "--porcelain"); err != nil {
		return "", err
	}
	after, err := accessTimes(filepath.Join(tree, "src"))
	if err != nil {
		return "", err
	}
	read, unread := 0, ""
	for path, at := range before {
		if after[path] != at {
			read++
		} else {
			unread = path
		}
	}
	if unread != "" {
		if _, err := os.ReadFile(unread); err != nil {
			return "", err
		}
		var st unix.Stat_t
		if err := unix.Lstat(unread, &st); err != nil || st.Atim == before[unread] {
			return "unknown (no access times)", err
		}
	}
	return strconv.Itoa(read), nil
}

// accessTimes returns the access times of all files in a directory.
func accessTimes(dir string) (map[string]unix.Timespec, error) {
	times := map[string]unix.Timespec{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		err = unix.Lstat(path, &st)
		times[path] = st.Atim
		return err
	})
	return times, err
}

// printDiskUsage prints how much space a sandbox and a worktree take.
func (r *repository) printDiskUsage(ctx context.Context, title string) error {
	raw, err := r.newRawTree(ctx)
	if err != nil {
		return err
	}
	sandbox, err := r.newSandboxTree(ctx)
	if err != nil {
		return err
	}
	var used [2]int64
	for i, dirs := range [2][]string{{raw}, {sandbox, filepath.Dir(sandbox)}} {
		gitDir, _, err := r.b.git(ctx, dirs[0], "rev-parse", "--absolute-git-dir")
		if err != nil {
			return err
		}
		if used[i], err = diskUsage(append(dirs, trimLine(gitDir))...); err != nil {
			return err
		}
	}
	megabytes := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	printRow(title, "raw git", megabytes(used[0]), "git-agency", megabytes(used[1]), fmt.Sprintf("%.2f ×", float64(used[1])/float64(used[0])), "", "")
	return nil
}

// diskUsage returns the space that directories take, as du does: each file once, however many names it has.
func diskUsage(dirs ...string) (sum int64, err error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	for _, dir := range dirs {
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			if id := (file{uint64(st.Dev), st.Ino}); !seen[id] {
				seen[id] = true
				sum += st.Blocks * 512
			}
			return nil
		}))
	}
	return sum, err
}

// trimLine removes the line end of a command's output.
func trimLine(output string) string { return strings.TrimSuffix(output, "\n") }

// groupThousands formats a number with a comma between groups of three digits.
func groupThousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
