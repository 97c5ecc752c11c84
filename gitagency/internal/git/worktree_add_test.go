package git

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAnAddedWorktreeIsCleanAndCalledAsAsked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tree", "sp ace", "new\nline", "trailing\n", "é", "-dash", "q'uote\"", "*", ".dot", "deep/er/tree"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.register(repo, sandboxName, filepath.Join(tempDir(t), name))
			before := l.git("for-each-ref")
			if entries, err := os.ReadDir(w.Tree); err != nil || len(entries) != 1 || entries[0].Name() != ".git" {
				t.Errorf("before the checkout there is %v, %v", entries, err)
			}
			l.must(repo.CheckoutWorktree(t.Context(), w, l.git("rev-parse", "HEAD")))

			l.requireClean(w)
			if exists(w.Link) {
				t.Error("the link is still there")
			}
			if got, what := readAdminEntry(repo.AdminDir(sandboxName)); got.Path != w.Tree || got.Branch != w.Branch || what != "" || got.Locked {
				t.Errorf("got %+v, %q", got, what)
			}
			if after := l.git("for-each-ref"); after != before {
				t.Errorf("refs moved: %q", after)
			}
			files, dirs := repo.RegistrationFiles(w)
			for _, path := range slices.Concat(files, dirs) {
				if !exists(path) {
					t.Errorf("%s is not there", path)
				}
			}
			// It is an ordinary worktree: one can commit in it.
			l.put(w.Tree, "new", "n\n")
			l.in(w.Tree, "add", "new")
			l.in(w.Tree, "commit", "-q", "-m", "new")
			if l.in(w.Tree, "rev-parse", "HEAD") != l.git("rev-parse", w.Branch) || l.git("status", "--porcelain") != "" {
				t.Error("the commit did not go to the branch, or touched the main worktree")
			}
		})
	}
}

// requireClean asks git, in the tree itself and without letting it write, and compares file by file.
func (l *lab) requireClean(w Registration) {
	l.t.Helper()
	if status := l.in(w.Tree, "--no-optional-locks", "status", "--porcelain", "--ignored"); status != "" {
		l.t.Errorf("status: %q", status)
	}
	if diff, err := l.try(w.Tree, "--no-optional-locks", "diff-files", "--quiet"); err != nil {
		l.t.Errorf("the index does not know its files: %s %v", diff, err)
	}
	if head := l.in(w.Tree, "symbolic-ref", "HEAD"); head != w.Branch {
		l.t.Errorf("HEAD is %q", head)
	}
	for path, state := range l.files("HEAD") {
		if l.in(w.Tree, "config", "--get", "--default", "false", "core.sparseCheckout") == "true" {
			break
		}
		if mode := state[:6]; mode == "120000" {
			if target, err := os.Readlink(filepath.Join(w.Tree, path)); err != nil || "120000 "+target != state {
				l.t.Errorf("%s leads to %q, %v", path, target, err)
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(w.Tree, path))
		if err != nil || state[7:] != string(data) {
			l.t.Errorf("%s holds %q, %v", path, data, err)
		}
	}
}

func TestAWorktreeCanBeAddedFromAnywhere(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab) string{
		"a bare repository": func(l *lab) string {
			bare := filepath.Join(tempDir(l.t), "bare.git")
			l.git("clone", "-q", "--bare", ".", bare)
			return bare
		},
		"a linked worktree": func(l *lab) string {
			linked := filepath.Join(tempDir(l.t), "linked")
			l.git("worktree", "add", "-q", "--detach", linked)
			return linked
		},
		"a submodule": func(l *lab) string {
			super := filepath.Join(tempDir(l.t), "super")
			l.must(os.Mkdir(super, 0o755))
			l.in(super, "init", "-q")
			l.in(super, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", l.dir, "sub")
			return filepath.Join(super, "sub")
		},
		"a repository with its git directory elsewhere": func(l *lab) string {
			dir := filepath.Join(tempDir(l.t), "separate")
			l.git("clone", "-q", "--separate-git-dir", dir+".elsewhere", ".", dir)
			return dir
		},
		"a repository with a configuration per worktree": func(l *lab) string {
			l.git("config", "extensions.worktreeConfig", "true")
			l.git("config", "--worktree", "core.bare", "false")
			return l.dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			from := arrange(l)
			before := states(t, from)
			repo := l.openIn(from)
			w := l.sandbox(repo)
			l.requireClean(w)
			if strings.HasPrefix(repo.CommonDir, from) {
				return // what was added is below
			}
			requireSame(t, "where we stood", states(t, from), before)
		})
	}
}

func TestCaptureWorksFromAnyKindOfRepository(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bare := filepath.Join(tempDir(t), "bare.git")
	l.git("clone", "-q", "--bare", ".", bare)
	super := filepath.Join(tempDir(t), "super")
	l.must(os.Mkdir(super, 0o755))
	l.in(super, "init", "-q")
	l.in(super, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", l.dir, "sub")
	for name, dir := range map[string]string{"bare": bare, "a submodule": filepath.Join(super, "sub")} {
		t.Run(name, func(t *testing.T) {
			here := *l
			here.t, here.dir = t, dir
			repo := here.openIn(dir)
			w := here.sandbox(repo)
			here.put(w.Tree, "a.txt", "changed\n")
			here.put(w.Tree, "new", "n\n")
			got := here.capture(repo, here.subject(w))
			requireSame(t, "captured", here.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n", "new": "100644 n\n"}))
		})
	}
}

func TestASparseCheckoutIsInherited(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]string{{"--cone"}, {"--no-cone"}, {"--cone", "--sparse-index"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.write("other/c.txt", "c\n")
			l.commit("other")
			l.git(slices.Concat([]string{"sparse-checkout", "set"}, mode, []string{"dir"})...)
			repo := l.open()
			w := l.sandbox(repo)
			if exists(filepath.Join(w.Tree, "other")) || !exists(filepath.Join(w.Tree, "dir/b.txt")) {
				t.Error("the patterns are not those of the main worktree")
			}
			l.requireClean(w)
			if got := l.capture(repo, l.subject(w)); got.Dirty || got.Commit != got.BranchTip {
				t.Errorf("a clean tree counts as changed: %+v", got)
			}
		})
	}
}

func TestCheckoutRunsTheFiltersTheUserConfigured(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("filter.up.smudge", "tr a-z A-Z")
	l.configure("filter.up.clean", "tr A-Z a-z")
	l.write(".gitattributes", "*.up filter=up\n*.crlf text eol=crlf\n")
	l.write("x.up", "x\n")
	l.write("deep/y.up", "y\n")
	l.write("z.crlf", "z\n")
	head := l.commit("filtered")
	repo := l.open()
	w := l.register(repo, sandboxName, filepath.Join(tempDir(t), "tree"))
	l.must(repo.CheckoutWorktree(t.Context(), w, head))
	for name, want := range map[string]string{"x.up": "X\n", "deep/y.up": "Y\n", "z.crlf": "z\r\n"} {
		if got, err := os.ReadFile(filepath.Join(w.Tree, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if status := l.in(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
}

func TestCheckoutFailsWithARequiredFilter(t *testing.T) {
	t.Parallel()
	for _, required := range []string{"true", "false"} {
		t.Run("required "+required, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.write(".gitattributes", "*.up filter=up\n")
			l.write("x.up", "x\n")
			head := l.commit("filtered")
			l.configure("filter.up.smudge", "false")
			l.configure("filter.up.required", required)
			repo := l.open()
			w := l.register(repo, sandboxName, filepath.Join(tempDir(t), "tree"))
			if err := repo.CheckoutWorktree(t.Context(), w, head); (err != nil) != (required == "true") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNoHookRunsWhileAWorktreeComesAndGoes(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(l *lab) string{
		"in the repository": func(l *lab) string { return filepath.Join(l.dir, ".git/hooks") },
		"by the user's configuration": func(l *lab) string {
			dir := filepath.Join(l.t.TempDir(), "hooks")
			l.configure("core.hooksPath", dir)
			return dir
		},
		"by the repository's, in the tree itself": func(l *lab) string {
			l.git("config", "core.hooksPath", "githooks")
			return filepath.Join(l.dir, "githooks")
		},
		"by the command line": func(l *lab) string {
			dir := filepath.Join(l.t.TempDir(), "hooks")
			l.env = append(l.env, "GIT_CONFIG_PARAMETERS='core.hooksPath'='"+dir+"'", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0="+dir)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			dir := place(l)
			witness := filepath.Join(t.TempDir(), "ran")
			for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "pre-auto-gc"} {
				l.put(dir, hook, "#!/bin/sh\necho "+hook+" >>'"+witness+"'\nexit 1\n")
				l.must(os.Chmod(filepath.Join(dir, hook), 0o755))
			}
			if strings.HasPrefix(dir, l.dir+"/githooks") { // so that the new tree has them too
				l.git("-c", "core.hooksPath=/dev/null", "add", "-A")
				l.git("-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "hooks")
			}
			if _, err := l.try(l.dir, "update-ref", "refs/heads/probe", "HEAD"); err == nil || !exists(witness) {
				t.Fatal("git does not run the hooks; the test would prove nothing")
			}
			l.must(os.Remove(witness))

			repo := l.open()
			head := l.git("rev-parse", "HEAD")
			w := l.sandbox(repo)
			l.put(w.Tree, "new", "n\n")
			got, err := repo.Capture(t.Context(), l.subject(w))
			l.must(err)
			l.must(repo.CreateRef(t.Context(), "refs/agency/trash/x", got.Commit, "keep"))
			l.must(repo.MoveRef(t.Context(), "refs/agency/trash/x", head, got.Commit, "move"))
			l.must(repo.RemoveAdminDir(w.Name))
			l.must(repo.DeleteRef(t.Context(), w.Branch, head))
			if ran, err := os.ReadFile(witness); err == nil {
				t.Errorf("these ran: %s", ran)
			}
		})
	}
}

func TestAddWorktreeThatFailsLeavesNoLinkAndNoEntry(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	head := l.git("rev-parse", "HEAD")
	link := filepath.Join(tempDir(t), sandboxName)
	for name, w := range map[string]Registration{
		"no such branch":           {Branch: "refs/heads/none", Tree: filepath.Join(tempDir(t), "tree")},
		"a branch in use":          {Branch: "refs/heads/main", Tree: filepath.Join(tempDir(t), "tree")},
		"a tree that is not empty": {Branch: "refs/heads/free", Tree: l.dir},
	} {
		w.Name, w.Link = sandboxName, link
		if w.Branch == "refs/heads/free" {
			l.must(repo.CreateRef(t.Context(), w.Branch, head, "test"))
		} else {
			l.must(os.Mkdir(w.Tree, 0o755))
		}
		before := states(t, w.Tree)
		if err := repo.AddWorktree(t.Context(), w); err == nil {
			t.Errorf("%s: it worked", name)
		}
		if exists(link) || exists(filepath.Join(repo.CommonDir, "worktrees")) {
			t.Errorf("%s: something is left", name)
		}
		requireSame(t, name, states(t, w.Tree), before)
	}
	// A link of that name is somebody's and stays.
	l.must(os.WriteFile(link, []byte("mine"), 0o644))
	if err := repo.AddWorktree(t.Context(), Registration{Name: sandboxName, Link: link, Branch: "refs/heads/free", Tree: tempDir(t)}); err == nil {
		t.Error("it worked over somebody's file")
	}
	if data, _ := os.ReadFile(link); string(data) != "mine" {
		t.Error("somebody's file is gone")
	}
}

func TestAddWorktreeNoticesWhenTheNameWasTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	taken := filepath.Join(tempDir(t), sandboxName)
	l.git("worktree", "add", "-q", "--detach", taken)
	l.must(repo.CreateRef(t.Context(), "refs/heads/free", l.git("rev-parse", "HEAD"), "test"))
	w := Registration{Name: sandboxName, Link: filepath.Join(tempDir(t), sandboxName), Branch: "refs/heads/free", Tree: tempDir(t)}
	if err := repo.AddWorktree(t.Context(), w); err == nil {
		t.Error("it says that the entry of another worktree is ours")
	}
	if l.in(taken, "status", "--porcelain") != "" {
		t.Error("the other worktree suffered")
	}
}
