package repair

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

func TestFIFOInEntryIsReportedWithoutBlocking(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	for _, name := range []string{"gitdir", "commondir", "HEAD", "locked", "logs/HEAD"} {
		gittest.MakeFIFO(t, filepath.Join(repo.AdminDir(w.Name), name))
	}
	gittest.MakeFIFO(t, filepath.Join(w.Tree, ".git"))
	gittest.Within(t, "reading an entry with pipes", func() {
		entries, err := worktree.Entries(repo)
		if err != nil || !slices.Equal(entries[0].BadFiles, []string{"gitdir", "commondir", "HEAD"}) || !entries[0].WasCheckedOut {
			t.Errorf("entries are %+v, %v", entries, err)
		}
		if at, err := git.DotGitTarget(w.Tree); err == nil {
			t.Errorf("a pipe was read as a link to %q", at)
		}
		if commit, err := LastLoggedCommit(t.Context(), repo, w.Name); commit != "" || err != nil {
			t.Errorf("a pipe was read as a reflog with %q, %v", commit, err)
		}
	})
}

func TestRelinkWorktreeRestoresLostFiles(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(dir, tree string) error{
		"no file":                          func(string, string) error { return nil },
		"the admin directory":              func(dir, _ string) error { return os.RemoveAll(dir) },
		"all files of the admin directory": func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"the index":                        func(dir, _ string) error { return os.Remove(filepath.Join(dir, "index")) },
		"HEAD":                             func(dir, _ string) error { return truncateFile("HEAD")(dir) },
		"commondir":                        func(dir, _ string) error { return removeFile("commondir")(dir) },
		"gitdir":                           func(dir, _ string) error { return truncateFile("gitdir")(dir) },
		"the .git":                         func(_, tree string) error { return os.Remove(filepath.Join(tree, ".git")) },
		"the target of .git": func(_, tree string) error {
			return os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: /nowhere\n"), 0o644)
		},
		"killed calls": func(_, tree string) error {
			return errors.Join(os.WriteFile(filepath.Join(tree, ".tmp-.git-12"), []byte("gitdir: /nowhere\n"), 0o644), os.WriteFile(filepath.Join(tree, ".tmp-.git-3"), nil, 0o600))
		},
		"admin directory and .git": func(dir, tree string) error {
			return errors.Join(os.RemoveAll(dir), os.Remove(filepath.Join(tree, ".git")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, "a.txt", "changed\n")
			l.Must(damage(repo.AdminDir(w.Name), w.Tree))
			l.Must(RelinkWorktree(t.Context(), repo, w))
			if got := l.GitIn(w.Tree, "status", "--porcelain"); got != " M a.txt" && got != "M a.txt" {
				t.Errorf("git status shows %q", got)
			}
			if got := l.GitIn(w.Tree, "symbolic-ref", "HEAD"); got != w.Branch {
				t.Errorf("HEAD is %q", got)
			}
			if entry := worktree.ReadEntry(repo, w.Name); len(entry.BadFiles) > 0 || entry.Path != w.Tree {
				t.Errorf("entry is %+v", entry)
			}
		})
	}
}

func TestRelinkWorktreeKeepsFilesOfUser(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	kept := []string{".tmp-.git-mine", ".tmp-gitdir"}
	for _, name := range kept {
		l.WriteIn(w.Tree, name, "text\n")
	}
	l.Must(RelinkWorktree(t.Context(), repo, w))
	for _, name := range kept {
		if _, err := os.Lstat(filepath.Join(w.Tree, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestRelinkWorktreeFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	for _, path := range []func(repo *git.Repo, w worktree.Registration) string{
		func(repo *git.Repo, w worktree.Registration) string { return repo.AdminDir(w.Name) },
		func(_ *git.Repo, w worktree.Registration) string { return filepath.Join(w.Tree, ".git") },
	} {
		l := gittest.New(t)
		repo := repotest.OpenRepo(l)
		w := repotest.AddSandbox(l, repo)
		victim := gittest.TempDir(t)
		l.Must(os.RemoveAll(path(repo, w)))
		l.Must(os.Symlink(victim, path(repo, w)))
		before := gittest.DiskState(t, victim)
		if err := RelinkWorktree(t.Context(), repo, w); err == nil {
			t.Errorf("RelinkWorktree succeeded with a symlink at %s", path(repo, w))
		}
		gittest.RequireSame(t, "target of the link", gittest.DiskState(t, victim), before)
	}
}

func TestRepairEntryRestoresDerivableFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what         string
		damage       func(dir string) error
		unrepairable []string // files whose content cannot be derived
		removed      bool     // the repair removes the entry
	}{
		{"commondir", truncateFile("commondir"), nil, false},
		{"HEAD, with a reflog", truncateFile("HEAD"), nil, false},
		{"HEAD, without a reflog", func(dir string) error {
			return errors.Join(truncateFile("HEAD")(dir), os.RemoveAll(filepath.Join(dir, "logs")))
		}, []string{"HEAD"}, false},
		{"gitdir", truncateFile("gitdir"), []string{"gitdir"}, false},
		{"gitdir, commondir and HEAD", adminDirDamages["all are empty"], []string{"gitdir"}, false},
		{"never checked out", adminDirDamages["directory is empty"], nil, true},
		{"never checked out, locked", adminDirDamages["only the locked file"], nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			tree := filepath.Join(gittest.TempDir(t), "bad")
			l.Git("worktree", "add", "-q", "-b", "topic", tree)
			l.Must(c.damage(repo.AdminDir("bad")))
			if got := UnrepairableFiles(repo, worktree.ReadEntry(repo, "bad")); !slices.Equal(got, c.unrepairable) {
				t.Errorf("unrepairable files: %q", got)
			}
			l.Must(RestoreEntry(repo, worktree.ReadEntry(repo, "bad")))
			if got := gittest.Exists(repo.AdminDir("bad")); got == c.removed {
				t.Fatalf("entry exists: %v", got)
			}
			if got := worktree.ReadEntry(repo, "bad").BadFiles; !c.removed && !slices.Equal(got, c.unrepairable) {
				t.Errorf("still damaged: %q", got)
			}
			l.Git("worktree", "list")
			if !gittest.Exists(filepath.Join(tree, "a.txt")) {
				t.Error("files of the worktree were changed")
			}
		})
	}
}

func TestLastLoggedCommitIsNewestExisting(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	first := l.Git("rev-parse", "HEAD")
	l.WriteIn(w.Tree, "new", "n\n")
	l.GitIn(w.Tree, "add", "new")
	l.GitIn(w.Tree, "commit", "-q", "-m", "second")
	second := l.GitIn(w.Tree, "rev-parse", "HEAD")
	log := filepath.Join(repo.AdminDir(w.Name), "logs", "HEAD")
	for content, want := range map[string]string{
		first + " " + second + " A <a> 1 +0000\tx\n":                                                   second,
		first + " " + second + " A <a> 1 +0000\tx\n" + second + " " + strings.Repeat("1", 40) + " x\n": second,
		"nonsense\n\x00\xff " + first + "\n":                                                           first,
		"a b\n" + first + " HEAD\n":                                                                    "",
		"":                                                                                             "",
		strings.Repeat("1", 40) + " refs/x\n":                                                          "",
	} {
		l.Must(os.WriteFile(log, []byte(content), 0o644))
		if got, err := LastLoggedCommit(t.Context(), repo, w.Name); got != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", content, got, err, want)
		}
	}
}
