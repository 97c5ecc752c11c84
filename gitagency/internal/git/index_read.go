package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// IndexContents is an index with its entries sorted out for a capture.
type IndexContents struct {
	index.File
	Mtime     time.Time     // mtime of the index; files that are not older must be re-read (racy git)
	Entries   []index.Entry // without omitted and conflicting ones
	Conflicts []string
}

// ReadEditableIndex reads the index of a worktree. Git expands a copy of one that is split or sparse.
func (r *Repo) ReadEditableIndex(ctx context.Context, gitDir string, format object.Format) (*index.Editable, error) {
	path := filepath.Join(gitDir, "index")
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &index.Editable{File: index.File{Format: format}, FileVersion: 2}, nil // an empty index
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := durable.ReadFile(path, index.MaxSize)
	if err != nil {
		return nil, err
	}
	x, err := index.ParseEditable(data, format)
	if errors.As(err, new(*index.NotPlainError)) {
		if data, err = r.expandIndexCopy(ctx, gitDir, data, fi.ModTime()); err == nil {
			x, err = index.ParseEditable(data, format)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// If the file was replaced between Lstat and ReadFile, the stamp differs when it is to be written.
	x.ModTime, x.Stamp, x.Perm = fi.ModTime(), durable.StatFingerprint(fi), fi.Mode().Perm()
	return x, nil
}

// IndexMatches reports whether the index of a linked worktree has the tree of a commit.
func (r *Repo) IndexMatches(ctx context.Context, name, commit string) (bool, error) {
	index := RunOptions{Env: []string{"GIT_INDEX_FILE=" + filepath.Join(r.AdminDir(name), "index")}, Reading: r.ReadingOf("comparing the index with " + commit)}
	_, err := r.RunRead(ctx, index, "diff-index", "--cached", "--quiet", commit)
	if ExitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// CommitIndex writes the tree of an index file, which git may update, as a commit whose parent is after. It returns "" where
// git cannot write a tree, as with conflicts.
func (r *Repo) CommitIndex(ctx context.Context, index, after string, who object.Identity, message string) (string, error) {
	tree, err := r.WriteTree(ctx, RunOptions{Env: []string{"GIT_INDEX_FILE=" + index}, Reading: r.ReadingOf("writing the tree of " + index)})
	if ExitedWith(err, 128) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return r.CommitTree(ctx, WorktreeSpec{Author: who}, tree, []string{after}, message)
}

// SkipSubmodulesInIndex marks every submodule skip-worktree in the index of a linked worktree, and returns the index before.
// It waits for a git that has locked the index, and not for long; then the error is a *LockedError.
func (r *Repo) SkipSubmodulesInIndex(ctx context.Context, name string, format object.Format) (was index.File, err error) {
	d, err := r.NewIndexDraft(name)
	if err != nil {
		return was, err
	}
	defer func() { err = errors.Join(err, d.Drop()) }()
	waitErr := r.LockWait.Until(ctx, func() bool { err = d.Lock(); return !errors.As(err, new(*LockedError)) })
	if waitErr != nil || err != nil {
		return was, errors.Join(waitErr, err)
	}
	path := filepath.Join(r.AdminDir(name), "index")
	fi, err := os.Lstat(path)
	if err != nil {
		return was, err
	}
	data, err := os.ReadFile(path)
	if err == nil {
		was, err = index.Read(data, format)
	}
	if err == nil {
		err = d.Write(was.WithSubmodulesSkipped(), fi.ModTime())
	}
	if err == nil {
		err = d.Publish()
	}
	return was, err
}
