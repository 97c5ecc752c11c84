package changeset

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

const testID = "20260128120500-b7c9"

// testRepo is a repository with its own environment and directories for trees and scratch files.
type testRepo struct {
	t       *testing.T
	dir     string // main worktree
	data    string // parent directory of trees
	scratch string
	env     []string
	repo    *git.Repo
	backend Worktree

	kind string // name of the backend that makes trees; empty: worktree
}

// kinds are the backends that make trees, with the steps of their transactions.
var kinds = []struct {
	name  string
	steps []string
}{
	{"worktree", []string{"tree-dir", "branch", "registration", "checkout"}},
	{"overlay", []string{"tree-dir", "branch", "registration", "layer", "files", "index"}},
	{"clone", []string{"tree-dir", "branch", "base", "registration", "checkout", "clone"}},
}

// layers returns the directory of the layers.
func (l *testRepo) layers() string { return filepath.Join(filepath.Dir(l.dir), "layers") }

// newTestRepoOf is newTestRepo for trees of one kind.
func newTestRepoOf(t *testing.T, kind string) *testRepo {
	t.Helper()
	l := newTestRepo(t)
	l.kind = kind
	return l
}

func newTestRepo(t *testing.T) *testRepo {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &testRepo{t: t, dir: filepath.Join(root, "repo"), data: filepath.Join(root, "data"), scratch: filepath.Join(root, "scratch")}
	config := filepath.Join(root, "gitconfig")
	l.must(os.WriteFile(config, []byte("[user]\n\tname = Somebody\n\temail = somebody@example.com\n"), 0o644))
	l.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_CONFIG_GLOBAL=" + config, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_DATE=2026-01-28T12:00:00Z", "GIT_COMMITTER_DATE=2026-01-28T12:00:00Z",
	}
	for _, dir := range []string{l.dir, l.data, l.scratch} {
		l.must(os.Mkdir(dir, 0o755))
	}
	l.git("init", "-q", "-b", "main", gittest.WithTemplate(t), ".")
	l.writeFile(l.dir, "a.txt", "a\n")
	l.writeFile(l.dir, "dir/b.txt", "b\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "first")
	l.must(os.Mkdir(filepath.Join(l.dir, ".git/agency"), 0o755)) // normally made with the lock, which Create's caller holds
	l.repo, err = git.Open(t.Context(), l.dir, l.env)
	l.must(err)
	l.backend = Worktree{Repo: l.repo}
	return l
}

// create makes and fills a tree.
func (l *testRepo) create(ctx context.Context, tx *undo.Tx, s Spec) error {
	var backend Backend = l.backend
	switch l.kind {
	case "clone":
		backend = Clone{Worktree: l.backend, Source: clone.Source{Name: clone.ThisRepository, URL: l.dir}}
	case "overlay":
		backend = Overlay{Worktree: l.backend, Layers: l.layers(), UsedLayers: func() (map[string]bool, error) { return nil, nil }}
	}
	if err := backend.Create(ctx, tx, s); err != nil {
		return err
	}
	return backend.Fill(ctx, tx, s)
}

// leaveEntriesToGit changes the settings so that git writes the entries of worktrees.
func (l *testRepo) leaveEntriesToGit() {
	l.t.Helper()
	l.git("config", "core.sharedRepository", "umask")
	var err error
	l.repo, err = git.Open(l.t.Context(), l.dir, l.env)
	l.must(err)
	l.backend = Worktree{Repo: l.repo}
}

func (l *testRepo) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *testRepo) writeFile(dir, name, content string) {
	l.t.Helper()
	path := filepath.Join(dir, name)
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.must(os.WriteFile(path, []byte(content), 0o644))
}

func (l *testRepo) git(args ...string) string { l.t.Helper(); return l.gitIn(l.dir, args...) }

func (l *testRepo) gitIn(dir string, args ...string) string {
	l.t.Helper()
	out, err := l.tryGit(dir, args...)
	if err != nil {
		l.t.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSuffix(out, "\n")
}

func (l *testRepo) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, &stderr)
	}
	return stdout.String(), nil
}

func (l *testRepo) spec() Spec {
	l.t.Helper()
	overlayDir, cloneDir := "", ""
	switch l.kind {
	case "overlay":
		overlayDir = filepath.Join(l.data, "overlay")
	case "clone":
		cloneDir = filepath.Join(l.data, "clone")
	}
	return Spec{
		OverlayDir: overlayDir, CloneDir: cloneDir,
		ID: testID, Tree: filepath.Join(l.data, "tree"), Branch: "refs/heads/agency/sandbox-" + testID,
		Base: l.git("rev-parse", "main"), Scratch: l.scratch, Reason: "agency: start " + testID,
		BaseTree: l.git("rev-parse", "main^{tree}"), Source: checkout.Source{Tree: l.dir, GitDir: filepath.Join(l.dir, ".git")},
	}
}

// snapshot returns mode and content of every file that Create could touch: the git directory with its refs, logs, locks and
// worktree entries, the main worktree, the trees and the scratch directory. Objects are left out.
func (l *testRepo) snapshot() map[string]string {
	l.t.Helper()
	seen := map[string]string{}
	for _, root := range []string{l.dir, l.data, l.scratch} {
		l.must(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if path == filepath.Join(l.dir, ".git/objects") {
				return fs.SkipDir
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			what := fi.Mode().String()
			if fi.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				what += " " + string(data)
			}
			seen[path] = what
			return nil
		}))
	}
	return seen
}

func requireSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	all := maps.Clone(got)
	maps.Copy(all, want)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		g, haveG := got[k]
		w, haveW := want[k]
		switch {
		case !haveG:
			t.Errorf("%s: %q is gone", what, k)
		case !haveW:
			t.Errorf("%s: %q is new: %q", what, k, g)
		case g != w:
			t.Errorf("%s: %q is %q and was %q", what, k, g, w)
		}
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// TestMain puts a wrapper of git first on PATH. It runs git, unless killGitAt asked for the death of this git command.
func TestMain(m *testing.M) {
	real, err := exec.LookPath("git")
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "killer-")
	if err != nil {
		panic(err)
	}
	script := `#!/bin/sh
if test -f "$HOME/kill"; then
	read -r sub when <"$HOME/kill"
	for arg; do
		test "$arg" = "$sub" || continue
		case $when in
		before) kill -KILL $$ ;;
		after) '` + real + `' "$@"; kill -KILL $$ ;;
		middle) GIT_EXEC_PATH='` + dir + `/child' exec '` + real + `' "$@" ;;
		esac
	done
fi
exec '` + real + `' "$@"
`
	child := "#!/bin/sh\nkill -KILL $PPID\n" // a helper command of git, which kills its parent
	for name, content := range map[string]string{"git": script, "child/git": child} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			panic(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			panic(err)
		}
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// killGitAt makes one git subcommand die by SIGKILL: before, in the middle of, or after its work.
func (l *testRepo) killGitAt(sub, when string) {
	l.t.Helper()
	l.must(os.WriteFile(filepath.Join(filepath.Dir(l.dir), "kill"), []byte(sub+" "+when+"\n"), 0o644))
}

func (l *testRepo) stopKilling() {
	l.t.Helper()
	l.must(os.Remove(filepath.Join(filepath.Dir(l.dir), "kill")))
}
