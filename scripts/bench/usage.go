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

// overlayStatusComparison compares the first git status in a new overlay, timed behind its walls, with that in a new worktree.
// Layers have an index whose stat data is right, so that git hashes no file.
func (r *repository) overlayStatusComparison(title string) comparison {
	const timed = `began=$(date +%s%N); git status --porcelain >&2; echo $(($(date +%s%N) - began))`
	return comparison{
		title: title, rounds: 3, base: func(ctx context.Context) (time.Duration, error) {
			tree, err := r.newRawTree(ctx)
			if err != nil {
				return 0, err
			}
			_, took, err := r.b.git(ctx, tree, "status", "--porcelain")
			return took, err
		},
		tool: func(ctx context.Context) (time.Duration, error) {
			if _, err := r.startSandbox(ctx); err != nil {
				return 0, err
			}
			output, _, err := r.b.agency(ctx, r.dir, "exec", r.sandboxes[len(r.sandboxes)-1], "--", "sh", "-c", timed)
			if err != nil {
				return 0, err
			}
			nanoseconds, err := strconv.ParseInt(trimLine(output), 10, 64)
			return time.Duration(nanoseconds), err
		},
		check: r.checkSandbox,
	}
}

// printFirstOverlay prints how long the first overlay of a commit takes, which includes making its layer.
func (r *repository) printFirstOverlay(ctx context.Context, title string) error {
	base, err := r.addWorktree(ctx)
	if err != nil {
		return err
	}
	took, err := r.startSandbox(ctx)
	if err != nil {
		return err
	}
	printRow(title, "raw git", millis(base), "git-agency", millis(took), formatRatio(float64(took)/float64(base)), "", "once")
	return r.checkSandbox(ctx)
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
	rawGitDir, _, err := r.b.git(ctx, raw, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return err
	}
	sandboxGitDir, err := r.sandboxGitDir(r.sandboxes[len(r.sandboxes)-1])
	if err != nil {
		return err
	}
	var used [2]int64
	for i, dirs := range [2][]string{{raw, trimLine(rawGitDir)}, {filepath.Dir(sandbox), sandboxGitDir}} {
		if used[i], err = diskUsage(dirs...); err != nil {
			return err
		}
	}
	printRow(title, "raw git", formatSize(used[0]), "git-agency", formatSize(used[1]), formatRatio(float64(used[1])/float64(used[0])), "", "")
	return nil
}

// sandboxGitDir returns the git directory of a sandbox. Git does not list that of an overlay.
func (r *repository) sandboxGitDir(id string) (string, error) {
	found, err := filepath.Glob(filepath.Join(r.dir, ".git", "agency", "*", id))
	if listed := filepath.Join(r.dir, ".git", "worktrees", id); len(found) == 0 {
		found = []string{listed}
	}
	return found[0], err
}

func formatSize(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/1e6) }

// diskUsage returns the space that directories take, as du does. Files with several names are shared with a layer and do not
// count.
func diskUsage(dirs ...string) (sum int64, err error) {
	for _, dir := range dirs {
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			if d.IsDir() || st.Nlink == 1 {
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
