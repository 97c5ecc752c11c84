package worktree

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// The tests of this package cannot import repotest, which imports it, and have copies of these functions.

// OpenRepo opens the repository of the fixture from its main worktree.
func OpenRepo(l *gittest.Fixture) *git.Repo { l.T.Helper(); return OpenRepoIn(l, l.Root) }

// OpenRepoIn opens the repository around dir, with env added to the environment of the fixture.
func OpenRepoIn(l *gittest.Fixture, dir string, env ...string) *git.Repo {
	l.T.Helper()
	repo, err := git.Open(l.T.Context(), dir, slices.Concat(l.Env, env))
	l.Must(err)
	return repo
}

// RegisterWorktree creates a branch at HEAD and registers a linked worktree for it in the directory tree. No files are
// checked out.
func RegisterWorktree(l *gittest.Fixture, repo *git.Repo, name, tree string) Registration {
	l.T.Helper()
	w := Registration{Name: name, Tree: tree, Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.T.TempDir(), name)}
	l.Must(repo.CreateRef(l.T.Context(), w.Branch, l.Git("rev-parse", "HEAD"), "test"))
	l.Must(os.MkdirAll(w.Tree, 0o755))
	l.Must(Add(l.T.Context(), repo, w))
	return w
}

// AddSandbox registers and checks out a linked worktree for a sandbox.
func AddSandbox(l *gittest.Fixture, repo *git.Repo) Registration {
	l.T.Helper()
	w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(l.T), "tree"))
	l.Must(Checkout(l.T.Context(), repo, w, l.Git("rev-parse", "HEAD"), false))
	return w
}

// RequireEmptyAgencyDir fails the test if files are left in the agency directory of the repository.
func RequireEmptyAgencyDir(l *gittest.Fixture, repo *git.Repo) {
	l.T.Helper()
	left, err := filepath.Glob(filepath.Join(repo.CommonDir, "agency", "*"))
	l.Must(err)
	if len(left) > 0 {
		l.T.Errorf("left in the agency directory: %q", left)
	}
}

// RequireClean fails the test if the worktree differs from the commit of its branch, by git status, by diff-files and
// by the content of each file. Git gets no optional locks: it must not refresh the index that is checked.
func RequireClean(l *gittest.Fixture, w Registration) {
	l.T.Helper()
	if status := l.GitIn(w.Tree, "--no-optional-locks", "status", "--porcelain", "--ignored"); status != "" {
		l.T.Errorf("status: %q", status)
	}
	if diff, err := l.TryGit(w.Tree, "--no-optional-locks", "diff-files", "--quiet"); err != nil {
		l.T.Errorf("the stat data in the index is not that of the files: %s %v", diff, err)
	}
	if head := l.GitIn(w.Tree, "symbolic-ref", "HEAD"); head != w.Branch {
		l.T.Errorf("HEAD is %q", head)
	}
	for path, state := range l.Files("HEAD") {
		if l.GitIn(w.Tree, "config", "--get", "--default", "false", "core.sparseCheckout") == "true" {
			break
		}
		if mode := state[:6]; mode == "120000" {
			if target, err := os.Readlink(filepath.Join(w.Tree, path)); err != nil || "120000 "+target != state {
				l.T.Errorf("target of %s is %q, %v", path, target, err)
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(w.Tree, path))
		if err != nil || state[7:] != string(data) {
			l.T.Errorf("content of %s is %q, %v", path, data, err)
		}
	}
}
