package worktree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Registration is a linked worktree to be added or removed.
type Registration struct {
	Name   string // of its entry below <common dir>/worktrees; must be free
	Tree   string // the directory; it exists and is empty
	Branch string // full ref; the caller has just created it, so that it is checked out nowhere
	Link   string // temporary path whose last component is Name; must be free

	// DotGit is the path of its .git file if git does not list the worktree, because that exists only behind walls; else empty.
	DotGit string
}

// entryPaths returns the entry of the worktree, the common directory as seen from there, the .git file, and the entry that this
// names: behind walls, that of an unlisted worktree is where git lists it.
func (w Registration) entryPaths(r *git.Repo) (admin, common, dotGit, target string) {
	if w.DotGit != "" {
		return r.UnlistedAdminDir(w.Name), "../../..", w.DotGit, filepath.Join(r.CommonDir, "worktrees", w.Name)
	}
	return r.AdminDir(w.Name), "../..", filepath.Join(w.Tree, ".git"), r.AdminDir(w.Name)
}

// Relink connects a worktree with its entry again: it writes the missing or invalid files of the entry, and the .git of the
// worktree. Valid files stay, but for the two paths. ensureIndex is called with the entry before the paths are written.
func Relink(r *git.Repo, w Registration, ensureIndex func(admin string) error) error {
	admin, common, dotGit, target := w.entryPaths(r)
	for _, path := range []string{dotGit, admin} {
		fi, err := os.Lstat(path)
		if err == nil && path == dotGit && !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
		if err == nil && path == admin && !fi.IsDir() {
			return fmt.Errorf("%s is not a directory", path) // a symlink, to a place that we must not write to
		}
	}
	if err := os.MkdirAll(admin, 0o777); err != nil {
		return err
	}
	flaws := ReadEntry(r, w.Name).BadFiles
	for name, content := range map[string]string{"commondir": common, "HEAD": "ref: " + w.Branch} {
		if !slices.Contains(flaws, name) {
			continue // a valid HEAD is the user's choice
		}
		if err := durable.WriteFile(filepath.Join(admin, name), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	if err := ensureIndex(admin); err != nil {
		return err
	}
	if err := durable.WriteFile(dotGit, []byte("gitdir: "+target+"\n"), 0o644); err != nil {
		return err
	}
	// gitdir comes last, so that a process that finds it finds a complete entry.
	return durable.WriteFile(filepath.Join(admin, "gitdir"), []byte(filepath.Join(w.Tree, ".git")+"\n"), 0o644)
}

// Unregister removes every entry that git has for the worktree: where the name was taken, git chose another
// one. An entry of this name for another existing worktree stays.
func Unregister(r *git.Repo, w Registration) error {
	return unregisterWith(r, w, func(name string) error { return RemoveAdminDir(r, name) })
}

// UnregisterDeferred is Unregister that leaves the slow part to RemoveUnregistered: the entry of this name is only renamed
// to where git does not look.
func UnregisterDeferred(r *git.Repo, w Registration) error {
	return unregisterWith(r, w, func(name string) error {
		if name != w.Name {
			return RemoveAdminDir(r, name)
		}
		return moveAdminDirAway(r, name)
	})
}

// unregisterWith calls remove for the name of every entry of the worktree, after deleting a leftover symlink.
func unregisterWith(r *git.Repo, w Registration, remove func(name string) error) error {
	if fi, err := os.Lstat(w.Link); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(w.Link); err != nil {
			return err
		}
	}
	registered, err := RegisteredTrees(r)
	if err != nil {
		return err
	}
	names := w.NamesIn(registered)
	if _, there := registered[w.Name]; !there {
		names = append(names, w.Name) // an earlier attempt may have left its renamed directory
	}
	for _, name := range names {
		if err := remove(name); err != nil {
			return err
		}
	}
	return nil
}

// NamesIn lists the names of the entries, of all that are registered, that belong to the worktree.
func (w Registration) NamesIn(registered map[string]string) []string {
	var names []string
	for name, at := range registered {
		switch {
		case name != w.Name && at == w.Tree:
			names = append(names, name)
		case name == w.Name:
			if real, err := filepath.EvalSymlinks(at); at == "" || err != nil || real == w.Tree {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// RegistrationFiles returns the files git wrote for a registered worktree without fsync, and the directories that
// hold their names.
func RegistrationFiles(r *git.Repo, w Registration) (files, dirs []string) {
	admin, _, dotGit, _ := w.entryPaths(r)
	for _, name := range []string{"gitdir", "commondir", "HEAD"} {
		files = append(files, filepath.Join(admin, name))
	}
	files = append(files, dotGit)
	return files, []string{admin, filepath.Dir(admin), w.Tree, filepath.Dir(w.Tree)}
}

// Checkout fills a registered, still empty worktree with a commit. It runs the filters the user configured,
// as any checkout does, and moves no ref. On a machine with several cores git uses them, unless the user configured
// checkout.workers. With skipLFS, Git LFS downloads nothing.
func Checkout(ctx context.Context, r *git.Repo, w Registration, commit string, skipLFS bool) error {
	return CheckoutIn(ctx, r, git.RunOptions{GitDir: r.AdminDir(w.Name), WorkTree: w.Tree, LazyFetch: true}, commit, skipLFS)
}

// CheckoutIn is Checkout for the git directory and the worktree of p, which need not be registered. Files of entries that the
// index has already are not written.
func CheckoutIn(ctx context.Context, r *git.Repo, p git.RunOptions, treeish string, skipLFS bool) error {
	p.Config, p.Reading = slices.Concat(p.Config, r.CheckoutWorkersConfig()), r.CheckoutReading("the checkout of "+treeish)
	if skipLFS {
		p.Env, p.Config = append(slices.Clone(p.Env), git.KeepLFSPointersEnv), slices.Concat(p.Config, git.NoLFSServerArgs)
	}
	_, err := r.RunWrite(ctx, p, "read-tree", "-m", "-u", "--no-recurse-submodules", treeish)
	return err
}

// SettleIndex has git trust the stat data of a checkout. A file of the same age as the index may have changed after the index
// was written, so that git reads it again (racy git), and the clock of files is so coarse that a checkout leaves many of them.
// The index is dated with the present, when no file has changed since it was written: then they are older. The time must be the
// kernel's own, because that of other clocks may be later than the time that it gives to a file next.
func SettleIndex(r *git.Repo, w Registration) error {
	path := filepath.Join(r.AdminDir(w.Name), "index")
	if err := unix.Utimes(path, nil); err != nil {
		return &fs.PathError{Op: "set the time of", Path: path, Err: err}
	}
	return nil
}
