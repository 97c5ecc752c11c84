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
)

// LockedError is a file that another git has locked.
type LockedError struct {
	Path string
	Err  error // error of the git that failed; nil if none was run
}

func (e *LockedError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Path + " is locked"
}

func (e *LockedError) Unwrap() error { return e.Err }

// WriteIndex replaces the index of a linked worktree as git does: under index.lock, and atomically. at becomes its mtime:
// git reads files again whose mtime is not before it (racy git), and trusts the stat data of the others. The error is a
// *LockedError when a git has locked the index. Callers take turns for one worktree.
func (r *Repo) WriteIndex(name string, x index.File, at time.Time) error {
	d, err := r.NewIndexDraft(name)
	if err == nil {
		err = d.Write(x, at)
	}
	if err == nil {
		err = d.Publish()
	}
	return errors.Join(err, d.Drop())
}

// ExpandIndex returns the index file of a linked worktree as a plain one, which holds every entry itself, unlike a split or
// sparse index. Git expands a copy; the index itself is not changed.
func (r *Repo) ExpandIndex(ctx context.Context, name string) (_ []byte, err error) {
	admin := r.AdminDir(name)
	index := filepath.Join(admin, "index")
	fi, err := os.Stat(index)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	plain, err := os.CreateTemp(admin, "index-plain-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(plain.Name())) }()
	_, err = plain.Write(data)
	// By the mtime git tells which entries are racy.
	if err = errors.Join(err, plain.Close(), os.Chtimes(plain.Name(), fi.ModTime(), fi.ModTime())); err != nil {
		return nil, err
	}
	at := RunOptions{
		GitDir: admin, Env: []string{"GIT_INDEX_FILE=" + plain.Name()},
		Config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false"},
	}
	if _, err := r.RunWrite(ctx, at, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return nil, err
	}
	return os.ReadFile(plain.Name())
}

// IndexDraft is a new index file, index.agency, that is to replace the index. A nil draft can be closed and dropped.
//
// To lock the index, the draft is hard-linked to index.lock. So a lock that a killed process left is known to be ours: it is
// the same file as the draft.
type IndexDraft struct {
	Index string
	File  *os.File
}

// NewIndexDraft creates a draft for the index of a linked worktree, and removes one that a killed process left.
func (r *Repo) NewIndexDraft(name string) (*IndexDraft, error) {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return nil, fmt.Errorf("%q is not the name of a worktree entry", name)
	}
	d := &IndexDraft{Index: filepath.Join(r.AdminDir(name), "index")}
	perm := fs.FileMode(0o666)
	if fi, err := os.Lstat(d.Index); err == nil {
		perm = fi.Mode().Perm()
	}
	if err := RemoveDraft(d.Index); err != nil {
		return nil, err
	}
	var err error
	d.File, err = os.OpenFile(d.Index+index.DraftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// RemoveDraft removes the draft of a file, and the lock if it is that draft, which a killed process left.
func RemoveDraft(path string) error {
	left, err := os.Lstat(path + index.DraftSuffix)
	if err != nil {
		return nil
	}
	if lock, err := os.Lstat(path + index.LockSuffix); err == nil && os.SameFile(left, lock) {
		if err := os.Remove(path + index.LockSuffix); err != nil {
			return err
		}
	}
	return os.Remove(path + index.DraftSuffix)
}

// ReplaceLocked replaces one of git's files durably, under its lock file, as a draft replaces the index.
func ReplaceLocked(path string, data []byte) (err error) {
	if err := RemoveDraft(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path+index.DraftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	d := &IndexDraft{Index: path, File: f}
	defer func() { err = errors.Join(err, d.Drop()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.Publish(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// Lock takes index.lock, which keeps every git from writing the index. The error is a *LockedError when it is taken.
func (d *IndexDraft) Lock() error {
	err := os.Link(d.Index+index.DraftSuffix, d.Index+index.LockSuffix)
	if errors.Is(err, fs.ErrExist) {
		return &LockedError{Path: d.Index + index.LockSuffix}
	}
	return err
}

// Write writes an index into the draft, with the mtime at unless that is in the future.
func (d *IndexDraft) Write(x index.File, at time.Time) error {
	err := x.Write(d.File)
	if err == nil && at.Before(time.Now()) {
		err = os.Chtimes(d.Index+index.DraftSuffix, at, at)
	}
	return err
}

// WriteFile writes the data of an index file into the draft, with the mtime at unless that is in the future.
func (d *IndexDraft) WriteFile(data []byte, at time.Time) error {
	_, err := d.File.Write(data)
	if err == nil && at.Before(time.Now()) {
		err = os.Chtimes(d.Index+index.DraftSuffix, at, at)
	}
	return err
}

// Publish renames the lock to the index, and takes the lock first if the caller has not.
func (d *IndexDraft) Publish() error {
	if !d.IsLocked() {
		if err := d.Lock(); err != nil {
			return err
		}
	}
	if err := os.Rename(d.Index+index.LockSuffix, d.Index); err != nil {
		return err
	}
	// After this nothing of the index changes any more, not even its link count.
	return os.Remove(d.Index + index.DraftSuffix)
}

// IsLocked reports whether index.lock is this draft.
func (d *IndexDraft) IsLocked() bool {
	draft, err := os.Lstat(d.Index + index.DraftSuffix)
	if err != nil {
		return false
	}
	lock, err := os.Lstat(d.Index + index.LockSuffix)
	return err == nil && os.SameFile(draft, lock)
}

// Close closes the file and leaves the draft on disk, for another process.
func (d *IndexDraft) Close() error {
	if d == nil {
		return nil
	}
	return d.File.Close()
}

// Drop removes the draft and its lock, unless it was published.
func (d *IndexDraft) Drop() error {
	if d == nil {
		return nil
	}
	err := d.File.Close()
	if d.IsLocked() {
		err = errors.Join(err, os.Remove(d.Index+index.LockSuffix))
	}
	if gone := os.Remove(d.Index + index.DraftSuffix); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
