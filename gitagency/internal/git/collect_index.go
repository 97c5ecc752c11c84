package git

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

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// indexContents is an index with its entries sorted out for a capture.
type indexContents struct {
	Index
	mtime     time.Time    // mtime of the index; files that are not older must be re-read (racy git)
	entries   []indexEntry // without omitted and conflicting ones
	conflicts []string
}

// selectEntries separates the entries of an index from conflicting ones, and drops those below Omit.
func (s WorktreeSpec) selectEntries(x Index, mtime time.Time) indexContents {
	t := indexContents{Index: x, mtime: mtime, entries: make([]indexEntry, 0, x.count)}
	for e := range x.allEntries() {
		switch {
		case s.Omit != "" && (string(e.name) == s.Omit || bytes.HasPrefix(e.name, []byte(s.Omit+"/"))):
		case e.stage != 0:
			t.conflicts = append(t.conflicts, string(e.name))
		default:
			t.entries = append(t.entries, e)
		}
	}
	return t
}

// readIndexAsync reads the index in the background, while git starts and resolves HEAD.
func (r *Repo) readIndexAsync(s WorktreeSpec) func() (indexContents, error) {
	return proc.Async(func() (indexContents, error) {
		x, mtime, err := r.readPlainIndex(s.Name, FormatOf(s.Base))
		if err != nil {
			return indexContents{}, err
		}
		return s.selectEntries(x, mtime), nil
	})
}

// loadBaseIndex returns the index with which the files are compared. An unreadable index is replaced by the tree of
// HEAD. So is an empty index of a worktree that is about to be removed, because capturing too much is better than
// losing files.
func (r *Repo) loadBaseIndex(ctx context.Context, scratch func() (runOptions, error), s WorktreeSpec, head string) (indexContents, error) {
	if s.pendingIndex != nil {
		if t, err := s.pendingIndex(); err == nil {
			return t, nil
		}
	}
	x, mtime, err := r.readBaseIndex(ctx, scratch, s, head)
	if err != nil {
		return indexContents{}, err
	}
	return s.selectEntries(x, mtime), nil
}

func (r *Repo) readBaseIndex(ctx context.Context, scratch func() (runOptions, error), s WorktreeSpec, head string) (Index, time.Time, error) {
	from := cmp.Or(s.Onto, head)
	if s.Onto == "" && s.IndexCache == "" {
		x, mtime, err := r.readWorktreeIndex(ctx, scratch, s, FormatOf(from))
		if err == nil && (x.count > 0 || s.inUse) || context.Cause(ctx) != nil {
			return x, mtime, err
		}
	}
	if from == "" {
		return Index{format: SHA1}, time.Time{}, nil
	}
	p, err := scratch()
	if err != nil {
		return Index{}, time.Time{}, err
	}
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+filepath.Join(p.gitDir, "base"))
	if _, err := r.runWrite(ctx, p, "read-tree", from); err != nil {
		return Index{}, time.Time{}, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "base"))
	if err != nil {
		return Index{}, time.Time{}, err
	}
	x, err := ReadIndex(data, FormatOf(from))
	return x, time.Time{}, err
}

// readWorktreeIndex reads the index of a worktree. Git converts a copy of a split or sparse one.
func (r *Repo) readWorktreeIndex(ctx context.Context, scratch func() (runOptions, error), s WorktreeSpec, format ObjectFormat) (Index, time.Time, error) {
	x, mtime, err := r.readPlainIndex(s.Name, format)
	if !errors.As(err, new(*NotPlainError)) {
		return x, mtime, err
	}
	p, err := scratch()
	if err != nil {
		return x, mtime, err
	}
	if err := r.copyIndexFiles(s.Name, p.gitDir); err != nil {
		return x, mtime, err
	}
	p.config = append(slices.Clone(p.config), "-c", "core.splitIndex=false", "-c", "index.sparse=false")
	if _, err := r.runWrite(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return x, mtime, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "index"))
	if err == nil {
		x, err = ReadIndex(data, format)
	}
	return x, mtime, err
}

// readPlainIndex reads the index of a worktree, and its mtime.
func (r *Repo) readPlainIndex(name string, format ObjectFormat) (x Index, mtime time.Time, err error) {
	f, fi, err := openRegular(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return x, mtime, err
	}
	defer f.Close()
	if fi.Size() > maxIndexSize {
		return x, mtime, fmt.Errorf("index: %d bytes", fi.Size())
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return x, mtime, err
	}
	x, err = ReadIndex(data, format)
	return x, fi.ModTime(), err
}
