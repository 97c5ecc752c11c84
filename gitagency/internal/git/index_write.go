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
)

// LockedError is a file that another git is writing.
type LockedError struct{ Path string }

func (e *LockedError) Error() string { return e.Path + " is locked" }

// WriteIndex gives a linked worktree another index, as git does it: whoever holds the lock writes, and others
// see all of it or nothing. at is when the index was last in step with the files: what changed at the same
// moment git looks at again, and what changed before it believes. The error is a *LockedError when a git is
// at work there. Whoever writes one for the same worktree takes turns.
func (r *Repo) WriteIndex(name string, x Index, at time.Time) error {
	d, err := r.DraftIndex(name)
	if err == nil {
		err = d.Write(x, at)
	}
	if err == nil {
		err = d.Publish()
	}
	return errors.Join(err, d.Drop())
}

// PlainIndex is the index of a linked worktree as one that holds every entry itself, as a split or a sparse one does
// not. The one that is there stays as it is.
func (r *Repo) PlainIndex(ctx context.Context, name string) (_ []byte, err error) {
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
	// By its age git knows what it has to look at again.
	if err = errors.Join(err, plain.Close(), os.Chtimes(plain.Name(), fi.ModTime(), fi.ModTime())); err != nil {
		return nil, err
	}
	at := place{
		gitDir: admin, env: []string{"GIT_INDEX_FILE=" + plain.Name()},
		config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false"},
	}
	if _, err := r.change(ctx, at, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return nil, err
	}
	return os.ReadFile(plain.Name())
}

// IndexDraft is an index that is not yet in its place. It is nil where there is none.
//
// It has two names while it is put there: one of ours, and that of the lock. Of a lock that somebody left who was
// killed, that tells whose it is.
type IndexDraft struct {
	index string
	file  *os.File
}

// The names beside that of the index.
const (
	draftSuffix = ".agency"
	lockSuffix  = ".lock" // as git calls it
)

// DraftIndex begins an index for a linked worktree, and removes what a killed one left.
func (r *Repo) DraftIndex(name string) (*IndexDraft, error) {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return nil, fmt.Errorf("%q does not name a worktree's entry", name)
	}
	d := &IndexDraft{index: filepath.Join(r.AdminDir(name), "index")}
	perm := fs.FileMode(0o666)
	if fi, err := os.Lstat(d.index); err == nil {
		perm = fi.Mode().Perm()
	}
	if err := dropDraft(d.index); err != nil {
		return nil, err
	}
	var err error
	d.file, err = os.OpenFile(d.index+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// dropDraft removes what somebody who was killed left of a file that was to take the place of another.
func dropDraft(path string) error {
	left, err := os.Lstat(path + draftSuffix)
	if err != nil {
		return nil
	}
	if lock, err := os.Lstat(path + lockSuffix); err == nil && os.SameFile(left, lock) {
		if err := os.Remove(path + lockSuffix); err != nil {
			return err
		}
	}
	return os.Remove(path + draftSuffix)
}

// writeLocked replaces one of git's files as a draft replaces the index: durably, and by the rules of its lock.
func writeLocked(path string, data []byte) (err error) {
	if err := dropDraft(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	d := &IndexDraft{index: path, file: f}
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

// Lock keeps every git from writing the index.
func (d *IndexDraft) Lock() error {
	err := os.Link(d.index+draftSuffix, d.index+lockSuffix)
	if errors.Is(err, fs.ErrExist) {
		return &LockedError{d.index + lockSuffix}
	}
	return err
}

// Write says what is in it.
func (d *IndexDraft) Write(x Index, at time.Time) error {
	err := x.write(d.file)
	if err == nil && at.Before(time.Now()) {
		err = os.Chtimes(d.index+draftSuffix, at, at)
	}
	return err
}

// WriteFile says what is in it with the words of another index file.
func (d *IndexDraft) WriteFile(data []byte, at time.Time) error {
	_, err := d.file.Write(data)
	if err == nil && at.Before(time.Now()) {
		err = os.Chtimes(d.index+draftSuffix, at, at)
	}
	return err
}

// Publish puts it in its place. Who has not locked it does so now.
func (d *IndexDraft) Publish() error {
	if !d.locked() {
		if err := d.Lock(); err != nil {
			return err
		}
	}
	if err := os.Rename(d.index+lockSuffix, d.index); err != nil {
		return err
	}
	// Nothing of the index changes from then on, not even how many names it has.
	return os.Remove(d.index + draftSuffix)
}

func (d *IndexDraft) locked() bool {
	draft, err := os.Lstat(d.index + draftSuffix)
	if err != nil {
		return false
	}
	lock, err := os.Lstat(d.index + lockSuffix)
	return err == nil && os.SameFile(draft, lock)
}

// close leaves it as it is, for somebody else.
func (d *IndexDraft) close() error {
	if d == nil {
		return nil
	}
	return d.file.Close()
}

// Drop removes what is left of a draft: all of it, unless it was published.
func (d *IndexDraft) Drop() error {
	if d == nil {
		return nil
	}
	err := d.file.Close()
	if d.locked() {
		err = errors.Join(err, os.Remove(d.index+lockSuffix))
	}
	if gone := os.Remove(d.index + draftSuffix); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
