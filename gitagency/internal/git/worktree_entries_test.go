package git

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEntriesNameTheFilesThatGitCannotWorkWith(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	dir := repo.AdminDir(w.Name)
	whole := states(t, dir)
	for content, flawed := range map[string]map[string]bool{
		"":                                 {"gitdir": true, "commondir": true, "HEAD": true},
		"\n":                               {"gitdir": true, "commondir": true, "HEAD": true},
		"nonsense\n":                       {"commondir": true, "HEAD": true}, // the tree of a gitdir need not be there
		"../..\n":                          {"HEAD": true},
		"../..":                            {"HEAD": true},
		repo.CommonDir + "\n":              {"HEAD": true},
		tempDir(t) + "\n":                  {"commondir": true, "HEAD": true},
		"ref: refs/heads/main\n":           {"commondir": true},
		"ref:refs/heads/main":              {"commondir": true},
		"ref: main\n":                      {"commondir": true, "HEAD": true},
		strings.Repeat("a", 40):            {"commondir": true},
		strings.Repeat("g", 40):            {"commondir": true, "HEAD": true},
		strings.Repeat("a", 1<<17):         {"gitdir": true, "commondir": true, "HEAD": true},
		"\xff\x00\x1b[2J\n\nref: refs/x\n": {"commondir": true, "HEAD": true},
	} {
		for _, name := range []string{"gitdir", "commondir", "HEAD"} {
			was, err := os.ReadFile(filepath.Join(dir, name))
			l.must(err)
			l.put(dir, name, content)
			entries, err := repo.WorktreeEntries()
			l.must(err)
			if got := slices.Contains(entries[0].BadFiles, name); got != flawed[name] || len(entries[0].BadFiles) > 1 {
				t.Errorf("%s of %.40q: the flaws are %q", name, content, entries[0].BadFiles)
			}
			l.put(dir, name, string(was))
		}
	}
	requireSame(t, "afterwards", states(t, dir), whole)
}

func TestEntriesOutliveEveryDamage(t *testing.T) {
	t.Parallel()
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			l.git("worktree", "add", "-q", "--detach", filepath.Join(tempDir(t), "bad"))
			l.must(damage(repo.AdminDir("bad")))
			within(t, "Entries", func() {
				if _, err := repo.WorktreeEntries(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAPipeInAnEntryIsAFlawAndNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	for _, name := range []string{"gitdir", "commondir", "HEAD", "locked", "logs/HEAD"} {
		fifo(t, filepath.Join(repo.AdminDir(w.Name), name))
	}
	fifo(t, filepath.Join(w.Tree, ".git"))
	within(t, "looking", func() {
		entries, err := repo.WorktreeEntries()
		if err != nil || !slices.Equal(entries[0].BadFiles, []string{"gitdir", "commondir", "HEAD"}) || !entries[0].WasCheckedOut {
			t.Errorf("%+v, %v", entries, err)
		}
		if at, err := DotGitTarget(w.Tree); err == nil {
			t.Errorf("a pipe leads to %q", at)
		}
		if commit, err := repo.LastLoggedCommit(t.Context(), w.Name); commit != "" || err != nil {
			t.Errorf("a pipe names %q, %v", commit, err)
		}
	})
}

func TestATreeIsTiedAgainWhateverWasLost(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(dir, tree string) error{
		"nothing":       func(string, string) error { return nil },
		"the entry":     func(dir, _ string) error { return os.RemoveAll(dir) },
		"what is in it": func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"the index":     func(dir, _ string) error { return os.Remove(filepath.Join(dir, "index")) },
		"HEAD":          func(dir, _ string) error { return empty("HEAD")(dir) },
		"commondir":     func(dir, _ string) error { return gone("commondir")(dir) },
		"gitdir":        func(dir, _ string) error { return empty("gitdir")(dir) },
		"the .git":      func(_, tree string) error { return os.Remove(filepath.Join(tree, ".git")) },
		"the way back": func(_, tree string) error {
			return os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: /nowhere\n"), 0o644)
		},
		"everything that was": func(dir, tree string) error {
			return errors.Join(os.RemoveAll(dir), os.Remove(filepath.Join(tree, ".git")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, "a.txt", "changed\n")
			l.must(damage(repo.AdminDir(w.Name), w.Tree))
			l.must(repo.RelinkWorktree(t.Context(), w))
			if got := l.in(w.Tree, "status", "--porcelain"); got != " M a.txt" && got != "M a.txt" {
				t.Errorf("git status shows %q", got)
			}
			if got := l.in(w.Tree, "symbolic-ref", "HEAD"); got != w.Branch {
				t.Errorf("HEAD is %q", got)
			}
			if entry := repo.readEntry(w.Name); len(entry.BadFiles) > 0 || entry.Path != w.Tree {
				t.Errorf("%+v", entry)
			}
		})
	}
}

func TestATreeIsNotTiedThroughALink(t *testing.T) {
	t.Parallel()
	for _, path := range []func(repo *Repo, w Registration) string{
		func(repo *Repo, w Registration) string { return repo.AdminDir(w.Name) },
		func(_ *Repo, w Registration) string { return filepath.Join(w.Tree, ".git") },
	} {
		l := newLab(t)
		repo := l.open()
		w := l.sandbox(repo)
		victim := tempDir(t)
		l.must(os.RemoveAll(path(repo, w)))
		l.must(os.Symlink(victim, path(repo, w)))
		before := states(t, victim)
		if err := repo.RelinkWorktree(t.Context(), w); err == nil {
			t.Errorf("%s was taken for ours", path(repo, w))
		}
		requireSame(t, "behind the link", states(t, victim), before)
	}
}

func TestAnEntryOfTheUsersIsRepairedAsFarAsItCanBeKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		damage func(dir string) error
		beyond []string
		gone   bool
	}{
		{"commondir", empty("commondir"), nil, false},
		{"HEAD, which has a log", empty("HEAD"), nil, false},
		{"HEAD, which has none", func(dir string) error {
			return errors.Join(empty("HEAD")(dir), os.RemoveAll(filepath.Join(dir, "logs")))
		}, []string{"HEAD"}, false},
		{"gitdir", empty("gitdir"), []string{"gitdir"}, false},
		{"all of it", damages["all are empty"], []string{"gitdir"}, false},
		{"it was never used", damages["it is empty"], nil, true},
		{"it was never used, and is locked", damages["only a lock is left"], nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			tree := filepath.Join(tempDir(t), "bad")
			l.git("worktree", "add", "-q", "-b", "topic", tree)
			l.must(c.damage(repo.AdminDir("bad")))
			if got := repo.UnrepairableFiles(repo.readEntry("bad")); !slices.Equal(got, c.beyond) {
				t.Errorf("beyond repair: %q", got)
			}
			l.must(repo.RepairEntry(repo.readEntry("bad")))
			if got := exists(repo.AdminDir("bad")); got == c.gone {
				t.Fatalf("the entry is there: %v", got)
			}
			if got := repo.readEntry("bad").BadFiles; !c.gone && !slices.Equal(got, c.beyond) {
				t.Errorf("still damaged: %q", got)
			}
			l.git("worktree", "list")
			if !exists(filepath.Join(tree, "a.txt")) {
				t.Error("the tree was touched")
			}
		})
	}
}

func TestLinkedToIsWhereGitGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	elsewhere := tempDir(t)
	for content, want := range map[string]string{
		"gitdir: " + l.dir + "/.git\n":         l.dir + "/.git",
		"gitdir: " + l.dir + "/.git":           l.dir + "/.git",
		"gitdir: " + l.dir + "/.git\r\n\r\n":   l.dir + "/.git",
		"gitdir: ../repo/.git\n":               l.dir + "/.git",
		"gitdir: " + elsewhere + "\n":          elsewhere,
		"gitdir: /with\nnewline\n":             "/with\nnewline",
		"gitdir:" + l.dir + "/.git\n":          "",
		"gitdir: \n":                           "",
		"":                                     "",
		"\x00\xff":                             "",
		" gitdir: " + l.dir + "/.git\n":        "",
		"# gitdir: x\ngitdir: " + l.dir + "\n": "",
	} {
		tree := filepath.Join(filepath.Dir(l.dir), "tree")
		l.put(tree, ".git", content)
		if got, err := DotGitTarget(tree); got != want || err != nil {
			t.Errorf("%q leads to %q, %v", content, got, err)
		}
		// Git goes the same way, where there is anything to go to.
		if out, err := l.try(tree, "rev-parse", "--absolute-git-dir"); err == nil && strings.TrimSuffix(out, "\n") != want {
			t.Errorf("git makes %q of %q, not %q", out, content, want)
		}
	}
	if got, err := DotGitTarget(l.dir); got != l.dir+"/.git" || err != nil {
		t.Errorf("a repository of its own leads to %q, %v", got, err)
	}
	if got, err := DotGitTarget(filepath.Join(l.dir, "nowhere")); got != "" || err != nil {
		t.Errorf("nothing leads to %q, %v", got, err)
	}
}

func FuzzParseDotGit(f *testing.F) {
	f.Add([]byte("gitdir: /repo/.git/worktrees/x\n"))
	f.Add([]byte("gitdir: ../x\r\n"))
	f.Add([]byte("gitdir: \n\ngitdir: /x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := parseDotGit("/tree", data)
		if path == "" {
			return
		}
		if !filepath.IsAbs(path) || strings.HasSuffix(path, "\n") || !strings.HasPrefix(string(data), "gitdir: ") {
			t.Errorf("%q leads to %q", data, path)
		}
		if again := parseDotGit("/elsewhere", []byte("gitdir: "+path+"\n")); again != path {
			t.Errorf("%q leads to %q, and that to %q", data, path, again)
		}
	})
}

func TestTheLastCommitIsTheNewestThatExists(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	first := l.git("rev-parse", "HEAD")
	l.put(w.Tree, "new", "n\n")
	l.in(w.Tree, "add", "new")
	l.in(w.Tree, "commit", "-q", "-m", "second")
	second := l.in(w.Tree, "rev-parse", "HEAD")
	log := filepath.Join(repo.AdminDir(w.Name), "logs", "HEAD")
	for content, want := range map[string]string{
		first + " " + second + " A <a> 1 +0000\tx\n":                                                   second,
		first + " " + second + " A <a> 1 +0000\tx\n" + second + " " + strings.Repeat("1", 40) + " x\n": second,
		"nonsense\n\x00\xff " + first + "\n":                                                           first,
		"a b\n" + first + " HEAD\n":                                                                    "",
		"":                                                                                             "",
		strings.Repeat("1", 40) + " refs/x\n":                                                          "",
	} {
		l.must(os.WriteFile(log, []byte(content), 0o644))
		if got, err := repo.LastLoggedCommit(t.Context(), w.Name); got != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", content, got, err, want)
		}
	}
}

func TestACaptureCoversAnEarlierOneWhileNothingIsMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	capture := func() string {
		t.Helper()
		got, err := repo.Capture(t.Context(), WorktreeSpec{Name: w.Name, Dir: w.Tree, Branch: w.Branch, Message: "m", Author: Identity{"tool", "tool@localhost"}})
		l.must(err)
		return got.Commit
	}
	covers := func(what string, later, earlier string, want bool) {
		t.Helper()
		if got, err := repo.Covers(t.Context(), later, earlier); got != want || err != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	l.put(w.Tree, "untracked", "u\n")
	l.put(w.Tree, "staged", "s\n")
	l.in(w.Tree, "add", "staged")
	l.in(w.Tree, "commit", "-q", "--allow-empty", "-m", "forgotten")
	l.in(w.Tree, "reset", "-q", "--soft", "HEAD~1")
	l.put(w.Tree, "staged", "and changed\n")
	before := capture()
	covers("itself", before, before, true)
	covers("the same again", capture(), before, true)
	l.in(w.Tree, "commit", "-q", "-m", "on top")
	covers("the staged is committed, by somebody else", capture(), before, false)
	covers("the other way round", before, capture(), false)
	covers("nothing at all", "", before, false)
}
