package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Add registers the worktree with git and checks nothing out. "git worktree add" reads the entries of all other worktrees, so
// that it takes longer the more there are, and fails because of a damaged one. So the entry is written here, as git writes it,
// unless settings make git write more.
func Add(ctx context.Context, r *git.Repo, w Registration) error {
	if _, err := os.Lstat(r.AdminDir(w.Name)); err == nil {
		return fmt.Errorf("git already has a worktree named %s", w.Name)
	}
	if _, err := os.Lstat(r.RefPath(w.Branch)); err == nil && EntrySetting(r) == "" {
		return writeEntry(r, w)
	}
	return addByGit(ctx, r, w)
}

// EntrySetting returns the name of a setting that makes git write more into the entry of a worktree than its path, branch and reflog, or
// give it unusual permissions; empty if there is none.
func EntrySetting(r *git.Repo) string {
	for _, name := range []string{"extensions.worktreeConfig", "core.sharedRepository", "core.sparseCheckout", "worktree.useRelativePaths"} {
		if s, set := r.Config.Last(strings.ToLower(name)); set && !strings.EqualFold(s.Value, "false") {
			return name
		}
	}
	return ""
}

// addByGit has git register the worktree. Git names the entry after the last component of the path it is given, which need
// not be unique; so it is given a symlink of the name we want. It stores the path behind the link.
func addByGit(ctx context.Context, r *git.Repo, w Registration) error {
	if err := os.Symlink(w.Tree, w.Link); err != nil {
		return err
	}
	_, err := r.RunWrite(ctx, git.RunOptions{LazyFetch: true}, "worktree", "add", "--no-checkout", w.Link, strings.TrimPrefix(w.Branch, "refs/heads/"))
	if rmErr := os.Remove(w.Link); err == nil {
		err = rmErr
	}
	if err != nil {
		return err
	}
	got, what := readAdminEntry(r.AdminDir(w.Name))
	if what != "" || got.Path != w.Tree || got.Branch != w.Branch {
		return fmt.Errorf("git registered %q on %q as %q %s instead of %q on %q", got.Path, got.Branch, w.Name, what, w.Tree, w.Branch)
	}
	return nil
}

// writeEntry writes the entry of a worktree as git does, in the same order: while the file locked exists, git worktree prune
// leaves an incomplete entry alone. Unlike git it does not look for the branch in the entries of the other worktrees, because
// the caller has just created it.
func writeEntry(r *git.Repo, w Registration) (err error) {
	there, err := os.ReadDir(w.Tree)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is not empty", w.Tree)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, RemoveAdminDir(r, w.Name), durable.RemoveIfExists(filepath.Join(w.Tree, ".git")))
		}
	}()
	return writeEntryFiles(r, w)
}

// AddUnlisted writes the entry of a worktree where git does not list it, and its .git file.
func AddUnlisted(r *git.Repo, w Registration) error { return writeEntryFiles(r, w) }

// writeEntryFiles writes the files of a new entry.
func writeEntryFiles(r *git.Repo, w Registration) error {
	admin, common, dotGit, target := w.entryPaths(r)
	if err := makeAdminDir(admin); err != nil {
		return err
	}
	const lock = "locked"
	for _, f := range []struct{ path, content string }{
		{filepath.Join(admin, lock), "initializing"},
		{filepath.Join(admin, "gitdir"), filepath.Join(w.Tree, ".git") + "\n"},
		{dotGit, "gitdir: " + target + "\n"},
		{filepath.Join(admin, "HEAD"), "ref: " + w.Branch + "\n"},
		{filepath.Join(admin, "commondir"), common + "\n"},
	} {
		if err := durable.WriteNew(f.path, []byte(f.content), 0o666); err != nil {
			return err
		}
	}
	if err := copyReflog(r, w, admin); err != nil {
		return err
	}
	return os.Remove(filepath.Join(admin, lock))
}

// makeAdminDir creates the directory of an entry, which must not exist.
func makeAdminDir(admin string) (err error) {
	const tries = 10 // git removes the directory of all entries together with the last one
	for range tries {
		if err = os.MkdirAll(filepath.Dir(admin), 0o777); err != nil {
			return err
		}
		if err = os.Mkdir(admin, 0o777); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// copyReflog begins the reflog of HEAD with that of the branch, unless the user wants no reflogs.
func copyReflog(r *git.Repo, w Registration, admin string) error {
	if !r.ConfigBool("core.logallrefupdates", true) {
		return nil
	}
	log, err := git.ReadSmallFile(r.CommonDir, filepath.Join("logs", w.Branch))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	logs := filepath.Join(admin, "logs")
	if err := os.Mkdir(logs, 0o777); err != nil {
		return err
	}
	return durable.WriteNew(filepath.Join(logs, "HEAD"), log, 0o666)
}
