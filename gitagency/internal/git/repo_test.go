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
)

// OpenRepo opens the repository of the fixture from its main worktree.
func OpenRepo(l *gittest.Fixture) *Repo { l.T.Helper(); return OpenRepoIn(l, l.Root) }

// OpenRepoIn opens the repository around dir, with env added to the environment of the fixture.
func OpenRepoIn(l *gittest.Fixture, dir string, env ...string) *Repo {
	l.T.Helper()
	repo, err := Open(l.T.Context(), dir, slices.Concat(l.Env, env))
	l.Must(err)
	return repo
}

// sandboxWorktree is a linked worktree for a sandbox.
type sandboxWorktree struct{ Name, Tree string }

// AddSandbox adds a linked worktree for a sandbox, by git itself.
func AddSandbox(l *gittest.Fixture) sandboxWorktree {
	l.T.Helper()
	w := sandboxWorktree{Name: gittest.SandboxName, Tree: filepath.Join(gittest.TempDir(l.T), gittest.SandboxName)}
	l.Git("worktree", "add", "-q", "-b", "agency/sandbox-"+w.Name, w.Tree)
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
