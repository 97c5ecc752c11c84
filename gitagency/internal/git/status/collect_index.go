package status

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// selectEntries separates the entries of an index from conflicting ones, and drops those below Omit.
func selectEntries(s git.WorktreeSpec, x index.File, mtime time.Time) git.IndexContents {
	t := git.IndexContents{File: x, Mtime: mtime, Entries: make([]index.Entry, 0, x.Count)}
	for e := range x.AllEntries() {
		switch {
		case s.Omit != "" && (string(e.Name) == s.Omit || bytes.HasPrefix(e.Name, []byte(s.Omit+"/"))):
		case e.Stage != 0:
			t.Conflicts = append(t.Conflicts, string(e.Name))
		default:
			t.Entries = append(t.Entries, e)
		}
	}
	return t
}

// ReadIndexAsync reads the index in the background, while git starts and resolves HEAD.
func ReadIndexAsync(r *git.Repo, s git.WorktreeSpec) func() (git.IndexContents, error) {
	return proc.Async(func() (git.IndexContents, error) {
		x, mtime, err := readPlainIndex(r, s.Name, object.FormatOf(s.Base))
		if err != nil {
			return git.IndexContents{}, err
		}
		return selectEntries(s, x, mtime), nil
	})
}

// loadBaseIndex returns the index with which the files are compared. An unreadable index is replaced by the tree of
// HEAD. So is an empty index of a worktree that is about to be removed, because capturing too much is better than
// losing files.
func loadBaseIndex(ctx context.Context, r *git.Repo, scratch func() (git.RunOptions, error), s git.WorktreeSpec, head string) (git.IndexContents, error) {
	if s.PendingIndex != nil {
		if t, err := s.PendingIndex(); err == nil {
			return t, nil
		}
	}
	x, mtime, err := readBaseIndex(ctx, r, scratch, s, head)
	if err != nil {
		return git.IndexContents{}, err
	}
	return selectEntries(s, x, mtime), nil
}

func readBaseIndex(ctx context.Context, r *git.Repo, scratch func() (git.RunOptions, error), s git.WorktreeSpec, head string) (index.File, time.Time, error) {
	from := cmp.Or(s.Onto, head)
	if s.Onto == "" && s.IndexCache == "" {
		x, mtime, err := readWorktreeIndex(ctx, r, scratch, s, object.FormatOf(from))
		if err == nil && (x.Count > 0 || s.InUse) || context.Cause(ctx) != nil {
			return x, mtime, err
		}
	}
	if from == "" {
		return index.File{Format: object.SHA1}, time.Time{}, nil
	}
	p, err := scratch()
	if err != nil {
		return index.File{}, time.Time{}, err
	}
	const name = "base"
	p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+filepath.Join(p.GitDir, outputDir, name))
	if _, err := r.RunWrite(ctx, p, "read-tree", from); err != nil {
		return index.File{}, time.Time{}, err
	}
	x, err := readOutputIndex(p, name, object.FormatOf(from))
	return x, time.Time{}, err
}

// readWorktreeIndex reads the index of a worktree. Git converts a copy of a split or sparse one.
func readWorktreeIndex(ctx context.Context, r *git.Repo, scratch func() (git.RunOptions, error), s git.WorktreeSpec, format object.Format) (index.File, time.Time, error) {
	x, mtime, err := readPlainIndex(r, s.Name, format)
	if errors.As(err, new(*index.NotPlainError)) {
		x, err = readConvertedIndex(ctx, r, scratch, s, format)
	}
	return x, mtime, err
}

// readConvertedIndex has git convert a copy of a split or sparse index and reads the result.
func readConvertedIndex(ctx context.Context, r *git.Repo, scratch func() (git.RunOptions, error), s git.WorktreeSpec, format object.Format) (x index.File, err error) {
	p, err := scratch()
	if err != nil {
		return x, err
	}
	if err := r.CopyIndexFiles(s.Name, p.GitDir); err != nil {
		return x, err
	}
	const name = "index"
	to := filepath.Join(p.GitDir, outputDir, name)
	if err := os.Rename(filepath.Join(p.GitDir, "index"), to); err != nil {
		return x, err
	}
	p.Config = append(slices.Clone(p.Config), "-c", "core.splitIndex=false", "-c", "index.sparse=false")
	p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+to)
	if _, err := r.RunWrite(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return x, err
	}
	return readOutputIndex(p, name, format)
}

// readOutputIndex reads an index that git made of data of an agent.
func readOutputIndex(p git.RunOptions, name string, format object.Format) (index.File, error) {
	output, err := beneath.Open(filepath.Join(p.GitDir, outputDir))
	if err != nil {
		return index.File{}, err
	}
	defer output.Close()
	file, st, err := output.OpenFile(name)
	if err != nil {
		return index.File{}, err
	}
	defer file.Close()
	if st.Size > index.MaxSize {
		return index.File{}, fmt.Errorf("the index is too large: %d bytes", st.Size)
	}
	data, err := io.ReadAll(io.LimitReader(file, st.Size))
	if err != nil {
		return index.File{}, err
	}
	return index.Read(data, format)
}

// readPlainIndex reads the index of a worktree, and its mtime.
func readPlainIndex(r *git.Repo, name string, format object.Format) (x index.File, mtime time.Time, err error) {
	return readIndexIn(unix.AT_FDCWD, r.AdminDir(name)+"/index", format)
}

// readIndexIn reads an index, whose path is relative to an open directory, and its mtime.
func readIndexIn(dir int, path string, format object.Format) (x index.File, mtime time.Time, err error) {
	data, mtime, err := durable.ReadFileTime(dir, path, index.MaxSize)
	if err != nil {
		return x, mtime, err
	}
	x, err = index.Read(data, format)
	return x, mtime, err
}
