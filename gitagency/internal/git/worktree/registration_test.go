package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

func TestAddedWorktreeIsCleanUnderGivenName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tree", "sp ace", "new\nline", "trailing\n", "é", "-dash", "q'uote\"", "*", ".dot", "deep/er/tree"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(t), name))
			before := l.Git("for-each-ref")
			if entries, err := os.ReadDir(w.Tree); err != nil || len(entries) != 1 || entries[0].Name() != ".git" {
				t.Errorf("before the checkout the tree has %v, %v", entries, err)
			}
			l.Must(Checkout(t.Context(), repo, w, l.Git("rev-parse", "HEAD"), false))

			RequireClean(l, w)
			if gittest.Exists(w.Link) {
				t.Error("the temporary link is left")
			}
			if got, what := readAdminEntry(repo.AdminDir(gittest.SandboxName)); got.Path != w.Tree || got.Branch != w.Branch || what != "" || got.Locked {
				t.Errorf("got %+v, %q", got, what)
			}
			if after := l.Git("for-each-ref"); after != before {
				t.Errorf("refs moved: %q", after)
			}
			files, dirs := RegistrationFiles(repo, w)
			for _, path := range slices.Concat(files, dirs) {
				if !gittest.Exists(path) {
					t.Errorf("%s does not exist", path)
				}
			}
			// Commits in it move its branch, as in any worktree.
			l.WriteIn(w.Tree, "new", "n\n")
			l.GitIn(w.Tree, "add", "new")
			l.GitIn(w.Tree, "commit", "-q", "-m", "new")
			if l.GitIn(w.Tree, "rev-parse", "HEAD") != l.Git("rev-parse", w.Branch) || l.Git("status", "--porcelain") != "" {
				t.Error("the commit is not on the branch, or changed the main worktree")
			}
		})
	}
}

func TestAddFromAnyRepositoryLayout(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture) string{
		"a bare repository": func(l *gittest.Fixture) string {
			bare := filepath.Join(gittest.TempDir(l.T), "bare.git")
			l.Git("clone", "-q", "--bare", ".", bare)
			return bare
		},
		"a linked worktree": func(l *gittest.Fixture) string {
			linked := filepath.Join(gittest.TempDir(l.T), "linked")
			l.Git("worktree", "add", "-q", "--detach", linked)
			return linked
		},
		"a submodule": func(l *gittest.Fixture) string {
			super := filepath.Join(gittest.TempDir(l.T), "super")
			l.Must(os.Mkdir(super, 0o755))
			l.GitIn(super, "init", "-q")
			l.GitIn(super, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", l.Root, "sub")
			return filepath.Join(super, "sub")
		},
		"a repository with its git directory elsewhere": func(l *gittest.Fixture) string {
			dir := filepath.Join(gittest.TempDir(l.T), "separate")
			l.Git("clone", "-q", "--separate-git-dir", dir+".elsewhere", ".", dir)
			return dir
		},
		"a repository with a configuration per worktree": func(l *gittest.Fixture) string {
			l.Git("config", "extensions.worktreeConfig", "true")
			l.Git("config", "--worktree", "core.bare", "false")
			return l.Root
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			from := arrange(l)
			before := gittest.DiskState(t, from)
			repo := OpenRepoIn(l, from)
			w := AddSandbox(l, repo)
			RequireClean(l, w)
			if strings.HasPrefix(repo.CommonDir, from) {
				return // the new entry is below it
			}
			gittest.RequireSame(t, "the starting directory", gittest.DiskState(t, from), before)
		})
	}
}

func TestCheckoutRunsUserFilters(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.ConfigureGlobal("filter.up.smudge", "tr a-z A-Z")
	l.ConfigureGlobal("filter.up.clean", "tr A-Z a-z")
	l.Write(".gitattributes", "*.up filter=up\n*.crlf text eol=crlf\n")
	l.Write("x.up", "x\n")
	l.Write("deep/y.up", "y\n")
	l.Write("z.crlf", "z\n")
	head := l.Commit("filtered")
	repo := OpenRepo(l)
	w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(t), "tree"))
	l.Must(Checkout(t.Context(), repo, w, head, false))
	for name, want := range map[string]string{"x.up": "X\n", "deep/y.up": "Y\n", "z.crlf": "z\r\n"} {
		if got, err := os.ReadFile(filepath.Join(w.Tree, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if status := l.GitIn(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
}

func TestCheckoutFailsWithRequiredFilter(t *testing.T) {
	t.Parallel()
	for _, required := range []string{"true", "false"} {
		t.Run("required "+required, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			l.Write(".gitattributes", "*.up filter=up\n")
			l.Write("x.up", "x\n")
			head := l.Commit("filtered")
			l.ConfigureGlobal("filter.up.smudge", "false")
			l.ConfigureGlobal("filter.up.required", required)
			repo := OpenRepo(l)
			w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(t), "tree"))
			if err := Checkout(t.Context(), repo, w, head, false); (err != nil) != (required == "true") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFailedAddLeavesNoLinkOrEntry(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	head := l.Git("rev-parse", "HEAD")
	link := filepath.Join(gittest.TempDir(t), gittest.SandboxName)
	for name, w := range map[string]Registration{
		"no such branch":           {Branch: "refs/heads/none", Tree: filepath.Join(gittest.TempDir(t), "tree")},
		"a tree that is not empty": {Branch: "refs/heads/free", Tree: l.Root},
	} {
		w.Name, w.Link = gittest.SandboxName, link
		if w.Branch == "refs/heads/free" {
			l.Must(repo.CreateRef(t.Context(), w.Branch, head, "test"))
		} else {
			l.Must(os.Mkdir(w.Tree, 0o755))
		}
		before := gittest.DiskState(t, w.Tree)
		if err := Add(t.Context(), repo, w); err == nil {
			t.Errorf("%s: AddWorktree succeeded", name)
		}
		if gittest.Exists(link) || gittest.Exists(filepath.Join(repo.CommonDir, "worktrees")) {
			t.Errorf("%s: the link or an entry is left", name)
		}
		gittest.RequireSame(t, name, gittest.DiskState(t, w.Tree), before)
	}
	// An existing file at the path of the link is kept.
	l.Must(os.WriteFile(link, []byte("mine"), 0o644))
	if err := addByGit(t.Context(), repo, Registration{Name: gittest.SandboxName, Link: link, Branch: "refs/heads/free", Tree: gittest.TempDir(t)}); err == nil {
		t.Error("AddWorktree succeeded over an existing file")
	}
	if data, _ := os.ReadFile(link); string(data) != "mine" {
		t.Error("the existing file was changed")
	}
}

func TestAddRefusesTakenName(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	taken := filepath.Join(gittest.TempDir(t), gittest.SandboxName)
	l.Git("worktree", "add", "-q", "--detach", taken)
	l.Must(repo.CreateRef(t.Context(), "refs/heads/free", l.Git("rev-parse", "HEAD"), "test"))
	w := Registration{Name: gittest.SandboxName, Link: filepath.Join(gittest.TempDir(t), gittest.SandboxName), Branch: "refs/heads/free", Tree: gittest.TempDir(t)}
	if err := Add(t.Context(), repo, w); err == nil {
		t.Error("AddWorktree accepted the entry of another worktree")
	}
	if l.GitIn(taken, "status", "--porcelain") != "" {
		t.Error("the other worktree was changed")
	}
}

// After SettleIndex git sees every later change of a file, also one of the same size at the same moment, which leaves the stat
// data in the index true. Kernels with multigrain timestamps give such a change another time.
func TestSettledIndexShowsEveryChange(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l, repo)
	file, indexFile := filepath.Join(w.Tree, "a.txt"), filepath.Join(repo.AdminDir(w.Name), "index")
	for range 20 {
		l.Must(os.WriteFile(file, []byte("before\n"), 0o644))
		var st unix.Stat_t
		l.Must(unix.Lstat(file, &st))
		entry := index.Entry{Mode: object.ModeFile, OID: object.HashObject(object.SHA1, "blob", []byte("before\n")), Name: []byte("a.txt"), Stat: index.EncodeStat(&st, object.ModeFile)}
		l.Must(os.WriteFile(indexFile, index.EncodeEntries(object.SHA1, []index.Entry{entry}), 0o644))
		l.Must(SettleIndex(repo, w))
		l.Must(os.WriteFile(file, []byte("after!\n"), 0o644))
		if got := l.GitIn(w.Tree, "--no-optional-locks", "diff-files", "--name-only"); got != "a.txt" {
			t.Fatalf("changed: %q", got)
		}
	}
}

// SettleIndex dates the index after the files of a checkout.
func TestSettledIndexIsOfPresent(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l, repo)
	indexFile := filepath.Join(repo.AdminDir(w.Name), "index")
	before, err := os.Stat(indexFile)
	l.Must(err)
	l.Must(os.Chtimes(indexFile, time.Time{}, before.ModTime().Add(-time.Hour)))
	l.Must(SettleIndex(repo, w))
	if after, err := os.Stat(indexFile); err != nil || after.ModTime().Before(before.ModTime()) {
		t.Errorf("the index is of %v, and was of %v; %v", after.ModTime(), before.ModTime(), err)
	}
	RequireClean(l, w)
}
