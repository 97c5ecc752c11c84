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

// stagedTree is an index, and what it makes of a tree.
type stagedTree struct {
	Index
	at        time.Time     // since when it knows less than the files do
	entries   []stagedEntry // but for what is omitted, or in conflict
	conflicts []string
}

func (s Subject) treeOf(x Index, at time.Time) stagedTree {
	t := stagedTree{Index: x, at: at, entries: make([]stagedEntry, 0, x.count)}
	for e := range x.all() {
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

// readAhead reads the index while git starts, and finds out where HEAD is.
func (r *Repo) readAhead(s Subject) func() (stagedTree, error) {
	return proc.Meanwhile(func() (stagedTree, error) {
		x, at, err := r.plainIndex(s.Name, FormatOf(s.Base))
		if err != nil {
			return stagedTree{}, err
		}
		return s.treeOf(x, at), nil
	})
}

// baseIndex is the index that the tree is compared with. One that cannot be read is replaced by what HEAD has; and so is
// an empty one of a tree that is about to go, of which rather too much is kept.
func (r *Repo) baseIndex(ctx context.Context, bench func() (place, error), s Subject, head string) (stagedTree, error) {
	if s.ahead != nil {
		if t, err := s.ahead(); err == nil {
			return t, nil
		}
	}
	x, at, err := r.base(ctx, bench, s, head)
	if err != nil {
		return stagedTree{}, err
	}
	return s.treeOf(x, at), nil
}

func (r *Repo) base(ctx context.Context, bench func() (place, error), s Subject, head string) (Index, time.Time, error) {
	from := cmp.Or(s.Onto, head)
	if s.Onto == "" && s.Memory == "" {
		x, at, err := r.stagedIndex(ctx, bench, s, FormatOf(from))
		if err == nil && (x.count > 0 || s.asIs) || context.Cause(ctx) != nil {
			return x, at, err
		}
	}
	if from == "" {
		return Index{format: SHA1}, time.Time{}, nil
	}
	p, err := bench()
	if err != nil {
		return Index{}, time.Time{}, err
	}
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+filepath.Join(p.gitDir, "base"))
	if _, err := r.change(ctx, p, "read-tree", from); err != nil {
		return Index{}, time.Time{}, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "base"))
	if err != nil {
		return Index{}, time.Time{}, err
	}
	x, err := ReadIndex(data, FormatOf(from))
	return x, time.Time{}, err
}

// stagedIndex is the index of a worktree; where that is not a plain one, git makes a plain copy of it.
func (r *Repo) stagedIndex(ctx context.Context, bench func() (place, error), s Subject, format ObjectFormat) (Index, time.Time, error) {
	x, at, err := r.plainIndex(s.Name, format)
	if !errors.As(err, new(*NotPlainError)) {
		return x, at, err
	}
	p, err := bench()
	if err != nil {
		return x, at, err
	}
	if err := r.copyIndex(s.Name, p.gitDir); err != nil {
		return x, at, err
	}
	p.config = append(slices.Clone(p.config), "-c", "core.splitIndex=false", "-c", "index.sparse=false")
	if _, err := r.change(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return x, at, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "index"))
	if err == nil {
		x, err = ReadIndex(data, format)
	}
	return x, at, err
}

// plainIndex reads the index of a worktree, and when it was written.
func (r *Repo) plainIndex(name string, format ObjectFormat) (x Index, at time.Time, err error) {
	f, fi, err := openRegular(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return x, at, err
	}
	defer f.Close()
	if fi.Size() > mostIndex {
		return x, at, fmt.Errorf("index: %d bytes", fi.Size())
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return x, at, err
	}
	x, err = ReadIndex(data, format)
	return x, fi.ModTime(), err
}
