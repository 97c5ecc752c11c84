// Package repotest opens the repositories of gittest as git.Repo and adds worktrees to them, for the tests of packages
// that import git. The tests of git and git/worktree cannot import it and have copies of these functions.
package repotest

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// NewMirror creates a mirror of the repository at HEAD and closes it at the end of the test.
func NewMirror(l *gittest.Fixture) *git.Mirror {
	l.T.Helper()
	m, err := OpenRepo(l).NewMirror(l.Git("rev-parse", "HEAD"))
	l.Must(err)
	l.T.Cleanup(func() { l.Must(m.Close()) })
	return m
}

// SpecOf returns the specification for capturing a registered worktree, which omits .agency.
func SpecOf(l *gittest.Fixture, w worktree.Registration) git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: w.Name, Dir: w.Tree, Branch: w.Branch, Omit: ".agency",
		Message: "captured", Author: object.Identity{Name: "tool", Email: "tool@localhost"},
	}
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
func RegisterWorktree(l *gittest.Fixture, repo *git.Repo, name, tree string) worktree.Registration {
	l.T.Helper()
	w := worktree.Registration{Name: name, Tree: tree, Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.T.TempDir(), name)}
	l.Must(repo.CreateRef(l.T.Context(), w.Branch, l.Git("rev-parse", "HEAD"), "test"))
	l.Must(os.MkdirAll(w.Tree, 0o755))
	l.Must(worktree.Add(l.T.Context(), repo, w))
	return w
}

// AddSandbox registers and checks out a linked worktree for a sandbox.
func AddSandbox(l *gittest.Fixture, repo *git.Repo) worktree.Registration {
	l.T.Helper()
	w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(l.T), "tree"))
	l.Must(worktree.Checkout(l.T.Context(), repo, w, l.Git("rev-parse", "HEAD"), false))
	return w
}

// MakeConflict starts a merge in the worktree, with a detached HEAD, that stops at a conflict in a.txt.
func MakeConflict(l *gittest.Fixture, w worktree.Registration) {
	l.T.Helper()
	l.WriteIn(w.Tree, "a.txt", "ours\n")
	l.GitIn(w.Tree, "commit", "-q", "-a", "-m", "ours")
	l.GitIn(w.Tree, "checkout", "-q", "--detach", "HEAD~1")
	l.WriteIn(w.Tree, "a.txt", "theirs\n")
	l.GitIn(w.Tree, "commit", "-q", "-a", "-m", "theirs")
	if _, err := l.TryGit(w.Tree, "merge", w.Branch); err == nil {
		l.T.Fatal("the merge had no conflict")
	}
}

// RequireClean fails the test if the worktree differs from the commit of its branch, by git status, by diff-files and
// by the content of each file. Git gets no optional locks: it must not refresh the index that is checked.
func RequireClean(l *gittest.Fixture, w worktree.Registration) {
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
