// Package directory takes snapshots of plain directories that are in no repository. It only reads the directories.
package directory

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

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Directory is a plain directory, outside every repository, that has snapshots. They are stored in a bare repository in the
// data directory; the directory itself is only read. All of its files are untracked, so each snapshot decides anew which
// files are ignored and which look like credentials.
//
// A Directory has no rollback. The rollback of a Sandbox relies on the tree being ours to change; a directory belongs to
// the user, who can check out a snapshot and put it in place.
type Directory struct {
	ID            string             // first 16 hex digits of the SHA-256 of Path; its snapshots are named <id>/<n>
	Path          string             // canonical path
	FirstSnapshot snapshots.Snapshot // snapshot taken by Onboard; Created is set only by the call that took it

	repo *core.Repository // bare repository with the snapshots
}

// Open opens an onboarded directory by any path that leads to it. The directory itself may be gone; its snapshots
// remain. A directory without a record is a *NotFoundError.
func Open(ctx context.Context, dir string, opts core.Options) (*Directory, error) {
	d, err := resolveDirectory(ctx, dir, opts)
	if err == nil {
		err = d.load(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// List lists the onboarded directories, sorted by path.
func List(ctx context.Context, opts core.Options) ([]*Directory, error) {
	repo, err := openWithoutRepository(ctx, opts)
	if err != nil {
		return nil, err
	}
	ids, err := repo.Store.Directories()
	if err != nil {
		return nil, err
	}
	var all []*Directory
	for _, id := range ids {
		meta, err := repo.Store.Directory(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by Forget since
		}
		if err != nil {
			repo.Warn("%v", err)
			continue
		}
		d := directoryAt(repo, meta.Path)
		if err := d.load(ctx); fault.Is[*fault.NotFoundError](err) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Directory) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// resolveDirectory returns the Directory for a path, onboarded or not.
func resolveDirectory(ctx context.Context, dir string, opts core.Options) (*Directory, error) {
	repo, err := openWithoutRepository(ctx, opts)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &fault.InvalidError{What: "directory", Value: dir, Want: "a path"}
	}
	path, err := guard.ResolveFrom(repo.CallerDir, dir)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(path) {
		return nil, &fault.InvalidError{What: "directory", Value: path, Want: "a path in valid UTF-8"}
	}
	return directoryAt(repo, path), nil
}

// openWithoutRepository returns a Repository that only has the data directory and the user's git configuration. It ignores
// the repository around the current directory and the one that the environment names.
func openWithoutRepository(ctx context.Context, opts core.Options) (*core.Repository, error) {
	opts, err := opts.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := core.CheckOutsideWalls(opts.Env); err != nil {
		return nil, err
	}
	user, err := git.OpenBare(ctx, os.DevNull, opts.Env)
	if err != nil {
		return nil, err
	}
	data, err := settings.DataDir(opts.Env, user.Config)
	if err != nil {
		return nil, err
	}
	return &core.Repository{DataDir: data, Git: user, Store: store.Store{Root: data}, Settings: opts.SettingsReader(user.Config), CallerDir: opts.Dir, Opts: opts}, nil
}

// directoryAt returns the Directory for a canonical path, without reading anything.
func directoryAt(r *core.Repository, path string) *Directory {
	id := store.DirectoryID(path)
	return &Directory{ID: id, Path: path, repo: &core.Repository{
		ID: id, CommonDir: r.Store.DirectoryGitDir(id), DataDir: r.DataDir,
		Git: r.Git.ForBareDir(r.Store.DirectoryGitDir(id)), Store: r.Store, CallerDir: r.CallerDir, LockDirOverride: r.Store.DirectoryDir(id), Settings: r.Settings, Opts: r.Opts,
	}}
}

// load checks that the directory is onboarded, and reads its first snapshot.
func (d *Directory) load(ctx context.Context) error {
	if err := d.checkOnboarded(); err != nil {
		return err
	}
	all, err := snapshots.List(ctx, d.repo.Git, d.ID)
	if err == nil && len(all) > 0 {
		d.FirstSnapshot = all[0]
	}
	return err
}

// checkOnboarded returns a *NotFoundError if there is no record of the directory.
func (d *Directory) checkOnboarded() error {
	_, err := d.repo.Store.Directory(d.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return &fault.NotFoundError{Kind: "directory", Query: d.Path}
	}
	return err
}

// checkPath refuses a path that is not a directory, or a directory that overlaps the data directory, an integration tree,
// a sandbox or a repository.
func (d *Directory) checkPath() error {
	fi, err := os.Lstat(d.Path)
	switch {
	case err != nil:
		return err
	case !fi.IsDir():
		return &fs.PathError{Op: "open", Path: d.Path, Err: syscall.ENOTDIR}
	}
	place, err := guard.Locate(d.Path)
	if err != nil {
		return &fault.UnsafePathError{Path: d.Path, Why: err.Error()}
	}
	if place.Path != d.Path { // a parent directory was replaced by a symlink
		return &fault.UnsafePathError{Path: d.Path, Why: "leads to " + place.Path}
	}
	if err := core.CheckUnmarked(place); err != nil {
		return err
	}
	trees, err := d.integrationTrees()
	if err != nil {
		return err
	}
	for _, other := range append(trees, d.repo.DataDir) {
		if rel := place.Relation(other); rel != guard.Disjoint {
			return &fault.OverlapError{Path: d.Path, Relation: string(rel), Other: other}
		}
	}
	around, err := git.EnclosingRepo(d.Path)
	if err == nil && around != "" {
		err = &fault.InRepositoryError{Path: d.Path, Repository: around}
	}
	return err
}

// integrationTrees lists the recorded integration trees of all repositories.
func (d *Directory) integrationTrees() ([]string, error) {
	repos, err := d.repo.Store.Repos()
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, repo := range repos {
		worktrees, err := d.repo.Store.Worktrees(repo.RepoID, nil)
		if err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			if w.TreePath != "" && w.Record.State != store.Archived {
				trees = append(trees, w.TreePath)
			}
		}
	}
	return trees, nil
}

// lock takes the lock of an onboarded directory.
func (d *Directory) lock(ctx context.Context) (*git.Repo, func(), error) {
	if err := d.checkOnboarded(); err != nil { // locking would create its directory in the data directory
		return nil, nil, err
	}
	repo, unlock, err := d.repo.LockAndRecover(ctx)
	if errors.Is(err, fs.ErrNotExist) { // removed by Forget meanwhile
		return nil, nil, errors.Join(&fault.NotFoundError{Kind: "directory", Query: d.Path}, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := d.checkOnboarded(); err != nil {
		if fault.Is[*fault.NotFoundError](err) {
			err = errors.Join(err, d.repo.Store.RemoveDirectory(d.ID)) // created by the lock
		}
		unlock()
		return nil, nil, err
	}
	return repo, unlock, nil
}

// Forget removes the snapshots and the record of a directory from the data directory. The directory itself stays
// unchanged. Repeating it is allowed.
func (d *Directory) Forget(ctx context.Context) error {
	_, unlock, err := d.lock(ctx)
	if fault.Is[*fault.NotFoundError](err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.repo.RunSteps(ctx, "forget", []core.Step{{Name: "directory", Do: func() error {
		dir := d.repo.Store.DirectoryDir(d.ID)
		if err := core.CheckParentResolved(filepath.Join(dir, "git")); err != nil {
			return err
		}
		return d.repo.Store.RemoveDirectory(d.ID)
	}}})
}

// subject describes the directory to a capture, with the message of the snapshot commit.
func (d *Directory) subject(message string) git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: d.ID, Dir: d.Path, IndexCache: d.repo.Store.DirectoryIndexPath(d.ID),
		Message: fmt.Sprintf("%s\n\nAgency-Directory: %s\nAgency-Version: %s", message, d.ID, cmp.Or(d.repo.Opts.Version, "unknown")),
	}
}

func (d *Directory) series() snapshots.Series {
	return snapshots.Series{Repo: d.repo, ID: d.ID, TreeName: "directory " + d.ID, Subject: d.subject}
}
