package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// SpecOf returns the specification for capturing a registered worktree, which omits .agency.
func SpecOf(l *gittest.Fixture, w Registration) WorktreeSpec {
	return WorktreeSpec{
		Name: w.Name, Dir: w.Tree, Branch: w.Branch, Omit: ".agency",
		Message: "captured", Author: object.Identity{Name: "tool", Email: "tool@localhost"},
	}
}

// RequireEmptyAgencyDir fails the test if files are left in the agency directory of the repository.
func RequireEmptyAgencyDir(l *gittest.Fixture, repo *Repo) {
	l.T.Helper()
	left, err := filepath.Glob(filepath.Join(repo.CommonDir, "agency", "*"))
	l.Must(err)
	if len(left) > 0 {
		l.T.Errorf("left in the agency directory: %q", left)
	}
}

// OpenRepo opens the repository of the fixture from its main worktree.
func OpenRepo(l *gittest.Fixture) *Repo { l.T.Helper(); return OpenRepoIn(l, l.Root) }

// OpenRepoIn opens the repository around dir, with env added to the environment of the fixture.
func OpenRepoIn(l *gittest.Fixture, dir string, env ...string) *Repo {
	l.T.Helper()
	repo, err := Open(l.T.Context(), dir, slices.Concat(l.Env, env))
	l.Must(err)
	return repo
}

// RegisterWorktree creates a branch at HEAD and registers a linked worktree for it in the directory tree. No files are
// checked out.
func RegisterWorktree(l *gittest.Fixture, repo *Repo, name, tree string) Registration {
	l.T.Helper()
	w := Registration{Name: name, Tree: tree, Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.T.TempDir(), name)}
	l.Must(repo.CreateRef(l.T.Context(), w.Branch, l.Git("rev-parse", "HEAD"), "test"))
	l.Must(os.MkdirAll(w.Tree, 0o755))
	l.Must(repo.AddWorktree(l.T.Context(), w))
	return w
}

// AddSandbox registers and checks out a linked worktree for a sandbox.
func AddSandbox(l *gittest.Fixture, repo *Repo) Registration {
	l.T.Helper()
	w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(l.T), "tree"))
	l.Must(repo.CheckoutWorktree(l.T.Context(), w, l.Git("rev-parse", "HEAD")))
	return w
}

func TestOpenFindsSameRepositoryAsGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	other := gittest.New(t)
	root := gittest.TempDir(t)
	dotGit := filepath.Join(l.Root, ".git")

	linked := filepath.Join(root, "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	bare := filepath.Join(root, "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	l.GitIn(bare, "worktree", "add", "-q", "--detach", filepath.Join(root, "of-bare"))
	separate := filepath.Join(root, "separate")
	l.Git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	lines := filepath.Join(root, "new\nline\n")
	l.Git("clone", "-q", ".", lines)
	link := filepath.Join(root, "link")
	l.Must(os.Symlink(l.Root, link))
	l.Must(os.MkdirAll(filepath.Join(root, "nowhere"), 0o755))

	for _, c := range []struct {
		name, dir string
		env       []string
		common    string
		gitDir    string
		bare      bool
	}{
		{"the top", l.Root, nil, dotGit, dotGit, false},
		{"a sub directory", filepath.Join(l.Root, "dir"), nil, dotGit, dotGit, false},
		{"through a symlink", filepath.Join(link, "dir"), nil, dotGit, dotGit, false},
		{"in the git directory", filepath.Join(dotGit, "refs"), nil, dotGit, dotGit, false},
		{"a linked worktree", linked, nil, dotGit, filepath.Join(dotGit, "worktrees/linked"), false},
		{"a bare repository", bare, nil, bare, bare, true},
		{"a worktree of a bare one", filepath.Join(root, "of-bare"), nil, bare, filepath.Join(bare, "worktrees/of-bare"), false},
		{"a git directory elsewhere", separate, nil, separate + ".elsewhere", separate + ".elsewhere", false},
		{"a path with newlines", lines, nil, filepath.Join(lines, ".git"), filepath.Join(lines, ".git"), false},
		{"GIT_DIR", other.Root, []string{"GIT_DIR=" + dotGit}, dotGit, dotGit, false},
		{"GIT_DIR, relative", root, []string{"GIT_DIR=../" + filepath.Base(root) + "/bare.git"}, bare, bare, true},
		{"GIT_DIR of a linked worktree, as its hooks have it", other.Root, []string{"GIT_DIR=" + filepath.Join(dotGit, "worktrees/linked")}, dotGit, filepath.Join(dotGit, "worktrees/linked"), false},
		{"GIT_DIR and GIT_WORK_TREE", filepath.Join(root, "nowhere"), []string{"GIT_DIR=" + bare, "GIT_WORK_TREE=."}, bare, bare, false},
		{"GIT_INDEX_FILE of a hook", l.Root, []string{"GIT_INDEX_FILE=.git/next-index-42.lock", "GIT_PREFIX=dir/"}, dotGit, dotGit, false},
		{"localized output and traces", l.Root, []string{"LC_ALL=de_DE.UTF-8", "LANGUAGE=de", "GIT_TRACE=1", "GIT_TRACE2=1"}, dotGit, dotGit, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo, err := Open(t.Context(), c.dir, append(l.Env[:len(l.Env):len(l.Env)], c.env...))
			if err != nil {
				t.Fatal(err)
			}
			if repo.CommonDir != c.common || repo.GitDir != c.gitDir || c.bare && repo.TopLevel != "" {
				t.Errorf("got %q %q at %q\nwant %q %q, bare %v", repo.CommonDir, repo.GitDir, repo.TopLevel, c.common, c.gitDir, c.bare)
			}
			if !repo.Version.AtLeast(MinimumVersion) {
				t.Errorf("version %v", repo.Version)
			}
			for _, kv := range repo.Env {
				if strings.HasPrefix(kv, "GIT_DIR=") || strings.HasPrefix(kv, "GIT_INDEX_FILE=") || strings.HasPrefix(kv, "GIT_WORK_TREE=") {
					t.Errorf("%s is still in the environment", kv)
				}
			}
			// Later commands use the repository found here, not the caller's environment.
			if got, err := repo.Lookup(t.Context(), "refs/heads/main"); err != nil || got[0].Missing() {
				t.Errorf("Lookup: %v, %v", got, err)
			}
		})
	}
}

func TestOpenOutsideRepositoryReturnsNoRepositoryError(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	for name, env := range map[string][]string{
		"no repository":                 nil,
		"a GIT_DIR that does not exist": {"GIT_DIR=" + filepath.Join(l.Root, "nothing")},
		"in another language":           {"LC_ALL=de_DE.UTF-8", "LANGUAGE=de"},
	} {
		_, err := Open(t.Context(), l.Root, append(l.Env[:len(l.Env):len(l.Env)], env...))
		var none *NoRepositoryError
		if !errors.As(err, &none) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if msg := err.Error(); !strings.HasPrefix(msg, "not a git repository") || strings.Contains(msg, "fatal:") {
			t.Errorf("%s: %q", name, msg)
		}
		var ran *Error
		if !errors.As(err, &ran) || ran.ExitCode != 128 {
			t.Errorf("%s: does not wrap the *Error of git: %v", name, err)
		}
	}
}

func TestOpenRefusesNonUTF8Path(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	dir := filepath.Join(gittest.TempDir(t), "non\xffutf8")
	l.Git("clone", "-q", ".", dir)
	repo, err := Open(t.Context(), dir, l.Env)
	if err == nil || errors.As(err, new(*NoRepositoryError)) || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("got %+v, %v", repo, err)
	}
}

func TestOpenReportsDubiousOwnership(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can give a directory away")
	}
	l := gittest.New(t)
	l.Must(os.Chown(l.Root, 65534, 65534))
	l.Must(os.Chown(filepath.Join(l.Root, ".git"), 65534, 65534))
	_, err := Open(t.Context(), l.Root, l.Env)
	if err == nil || !strings.Contains(err.Error(), "dubious ownership") {
		t.Errorf("got %v", err)
	}
}

func TestOpenReturnsCancellationCause(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := Open(ctx, l.Root, l.Env); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestErrorQuotesGitWithoutPrefixes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stderr, want string }{
		{"", "git add: exit status 128"},
		{"fatal: no\n", "git add: no"},
		{"warning: w\nerror: one\nhint: h\nfatal: two\n", "git add: one; two"},
		{"something else\n", "git add: something else"},
		{"  \n", "git add: exit status 128"},
		{"fatal: \n", "git add: fatal:"},
	} {
		err := &Error{Args: []string{"add", "-A"}, ExitCode: 128, Stderr: c.stderr}
		if got := err.Error(); got != c.want {
			t.Errorf("%q: %q, want %q", c.stderr, got, c.want)
		}
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
