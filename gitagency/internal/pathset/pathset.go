// Package pathset makes and reads sandboxes over plain directories: any directories, inside git or not, each of which commands see as
// an overlay at its own path. It owns the repository in the data directory that holds the states of such directories, and turns the
// upper directories of the overlays into commits.
//
// The directories themselves are only read; package pathland changes them. Upper directories are read as data: an agent may have
// written everything in them.
package pathset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// format is the object format of the repository, which git.InitBare chooses.
const format = object.SHA1

// Open opens the repository of all sandboxes over plain directories, wherever the caller is. It need not exist: see Exists.
func Open(ctx context.Context, opts core.Options) (*core.Repository, error) {
	return core.OpenInDataDir(ctx, opts, store.Store.PathsGitDir)
}

// Exists reports whether any sandbox over plain directories was ever started.
func Exists(r *core.Repository) bool {
	_, err := os.Lstat(filepath.Join(r.CommonDir, "HEAD"))
	return err == nil
}

// States returns the repository with the states of the directories, for packages that take a repository. Only its objects and refs are
// those of another git directory than that of r: commands behind walls can read the latter, and must not read the files of directories
// of other sandboxes.
func States(r *core.Repository) *core.Repository {
	dir := r.Store.PathStatesDir()
	return &core.Repository{
		ID: r.ID, CommonDir: dir, DataDir: r.DataDir, Git: r.Git.ForBareDir(dir), Store: r.Store, CallerDir: r.CallerDir,
		LockDirOverride: r.LockDir(), Settings: r.Settings, Opts: r.Opts,
	}
}

// ensureRepositories makes both git directories, unless they exist. A process that is killed meanwhile leaves directories that no
// other process looks at.
func ensureRepositories(r *core.Repository) error {
	return errors.Join(ensureBare(r.Store.PathStatesDir()), ensureBare(r.Store.PathsGitDir()))
}

func ensureBare(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), durable.TempPrefix+"*")
	if err != nil {
		return err
	}
	err = git.InitBare(fresh)
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(fresh))
		if _, there := store.FirstExisting(dir); there { // made by another process meanwhile
			return nil
		}
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// Name returns the name under which files of a sandbox are shown: the path of the directory as it was given, and the path in it. file
// is a path in a tree of this package, "<n>/<path>".
func Name(paths []store.PathMeta, file string) string {
	top, rest, _ := strings.Cut(file, "/")
	n, err := strconv.Atoi(top)
	if err != nil || n < 0 || n >= len(paths) {
		return file
	}
	given := strings.TrimSuffix(paths[n].Given, "/")
	if rest == "" {
		return given
	}
	return given + "/" + rest
}

// split returns the number of the directory and the path in it of a path in a tree of this package.
func split(file string) (n int, path string, err error) {
	top, path, ok := strings.Cut(file, "/")
	n, err = strconv.Atoi(top)
	if err != nil || !ok || path == "" {
		return 0, "", fmt.Errorf("%q is not a path of a directory", file)
	}
	return n, path, nil
}

// Split is split for a tree of the directories of a sandbox.
func Split(paths []store.PathMeta, file string) (n int, path string, err error) {
	n, path, err = split(file)
	if err == nil && (n < 0 || n >= len(paths)) {
		err = fmt.Errorf("%q is in none of the directories", file)
	}
	return n, path, err
}
