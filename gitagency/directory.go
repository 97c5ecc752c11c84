package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Directory is a directory that belongs to no repository, and of which there are snapshots all the same: in a
// repository of their own in the data directory. The directory itself is only ever read. Everything in it is
// untracked, so that each snapshot decides anew what is ignored and what looks like a credential.
//
// There is no rollback of it. A Sandbox is ours to change, and its rollback relies on that; what is in a directory is a
// person's, who can check a snapshot out and put it in its place.
type Directory struct {
	ID    string   // the first 16 digits of the SHA-256 of its path; its snapshots are called <id>/<n>
	Path  string   // canonical
	First Snapshot // the state in which it was onboarded; Created when that has just been done

	repo *Repository // of its snapshots
}

// OpenDirectory finds a directory that was onboarded before, by any path that leads to it. It need not be there any
// more: its snapshots are. Without a record of it the error is a *NotFoundError.
func OpenDirectory(ctx context.Context, dir string, opts Options) (*Directory, error) {
	d, err := directory(ctx, dir, opts)
	if err == nil {
		err = d.open(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Directories lists those that were onboarded, by their paths.
func Directories(ctx context.Context, opts Options) ([]*Directory, error) {
	desk, err := openDesk(ctx, opts)
	if err != nil {
		return nil, err
	}
	ids, err := desk.store.Directories()
	if err != nil {
		return nil, err
	}
	var all []*Directory
	for _, id := range ids {
		meta, err := desk.store.Directory(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // forgotten since
		}
		if err != nil {
			desk.warn("%v", err)
			continue
		}
		d := desk.directory(meta.Path)
		if err := d.open(ctx); is[*NotFoundError](err) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Directory) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// directory is the one that a path leads to, onboarded or not.
func directory(ctx context.Context, dir string, opts Options) (*Directory, error) {
	desk, err := openDesk(ctx, opts)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &InvalidError{What: "directory", Value: dir, Want: "a path"}
	}
	path, err := resolve(desk.here, dir)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(path) {
		return nil, &InvalidError{What: "directory", Value: path, Want: "a path in valid UTF-8"}
	}
	return desk.directory(path), nil
}

// openDesk is a Repository for who needs none: the data directory, and git as the user has set it up. In which repository
// the caller stands does not matter, nor which one the environment is about.
func openDesk(ctx context.Context, opts Options) (*Repository, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	if err := outside(opts.Env); err != nil {
		return nil, err
	}
	user, err := git.OpenBare(ctx, os.DevNull, opts.Env)
	if err != nil {
		return nil, err
	}
	data, err := dataDir(opts.Env, user.Config)
	if err != nil {
		return nil, err
	}
	return &Repository{DataDir: data, git: user, store: store.Store{Root: data}, here: opts.Dir, opts: opts}, nil
}

// directory is a handle of the one at a canonical path.
func (r *Repository) directory(path string) *Directory {
	id := store.DirectoryID(path)
	return &Directory{ID: id, Path: path, repo: &Repository{
		ID: id, CommonDir: r.store.DirectoryGitDir(id), DataDir: r.DataDir,
		git: r.git.Sibling(r.store.DirectoryGitDir(id)), store: r.store, here: r.here, lockedAt: r.store.DirectoryDir(id), opts: r.opts,
	}}
}

// open looks up what is known of the directory.
func (d *Directory) open(ctx context.Context) error {
	if err := d.onboarded(); err != nil {
		return err
	}
	all, err := snapshots(ctx, d.repo.git, d.ID)
	if err == nil && len(all) > 0 {
		d.First = all[0]
	}
	return err
}

// onboarded is nil when there is a record of the directory.
func (d *Directory) onboarded() error {
	_, err := d.repo.store.Directory(d.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return &NotFoundError{Kind: "directory", Query: d.Path}
	}
	return err
}

// check refuses what is no directory, or not one for us to look after.
func (d *Directory) check() error {
	fi, err := os.Lstat(d.Path)
	switch {
	case err != nil:
		return err
	case !fi.IsDir():
		return &fs.PathError{Op: "look into", Path: d.Path, Err: syscall.ENOTDIR}
	}
	place, err := guard.Locate(d.Path)
	if err != nil {
		return &UnsafePathError{Path: d.Path, Why: err.Error()}
	}
	if place.Path != d.Path { // one above it has become a link
		return &UnsafePathError{Path: d.Path, Why: "leads to " + place.Path}
	}
	if err := unmarked(place); err != nil {
		return err
	}
	trees, err := d.integrationTrees()
	if err != nil {
		return err
	}
	for _, other := range append(trees, d.repo.DataDir) {
		if rel := place.Relation(other); rel != guard.Apart {
			return &OverlapError{Path: d.Path, Relation: string(rel), Other: other}
		}
	}
	around, err := git.Around(d.Path)
	if err == nil && around != "" {
		err = &InRepositoryError{Path: d.Path, Repository: around}
	}
	return err
}

// integrationTrees are those on record, of every repository.
func (d *Directory) integrationTrees() ([]string, error) {
	repos, err := d.repo.store.Repos()
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, repo := range repos {
		worktrees, err := d.repo.store.Worktrees(repo.RepoID, nil)
		if err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			if w.Tree != "" && w.Record.State != store.Archived {
				trees = append(trees, w.Tree)
			}
		}
	}
	return trees, nil
}

// lock takes the lock of a directory that is onboarded.
func (d *Directory) lock(ctx context.Context) (*git.Repo, func(), error) {
	if err := d.onboarded(); err != nil { // locking would make a place for it
		return nil, nil, err
	}
	repo, unlock, err := d.repo.lock(ctx)
	if errors.Is(err, fs.ErrNotExist) { // forgotten meanwhile
		return nil, nil, errors.Join(&NotFoundError{Kind: "directory", Query: d.Path}, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := d.onboarded(); err != nil {
		if is[*NotFoundError](err) {
			err = errors.Join(err, d.repo.store.RemoveDirectory(d.ID)) // the place that the lock has made
		}
		unlock()
		return nil, nil, err
	}
	return repo, unlock, nil
}

// Forget removes the snapshots of a directory, and all else there is of it in the data directory; the directory itself
// stays as it is. Doing it again is fine.
func (d *Directory) Forget(ctx context.Context) error {
	_, unlock, err := d.lock(ctx)
	if is[*NotFoundError](err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.repo.forward(ctx, "forget", []step{{"directory", func() error {
		dir := d.repo.store.DirectoryDir(d.ID)
		if err := checkReal(filepath.Join(dir, "git")); err != nil {
			return err
		}
		return d.repo.store.RemoveDirectory(d.ID)
	}}})
}

// subject says what belongs to the state of the directory, and as what it is to be frozen.
func (d *Directory) subject(message string) git.Subject {
	return git.Subject{
		Name: d.ID, Tree: d.Path, Memory: d.repo.store.DirectoryMemory(d.ID),
		Message: fmt.Sprintf("%s\n\nAgency-Directory: %s\nAgency-Version: %s", message, d.ID, cmp.Or(d.repo.opts.Version, "unknown")),
	}
}

func (d *Directory) history() history {
	return history{repo: d.repo, id: d.ID, of: "directory " + d.ID, subject: d.subject}
}
