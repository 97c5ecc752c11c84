package git

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// first is what newLab commits.
var first = map[string]string{
	"a.txt": "100644 a\n", "dir/b.txt": "100644 b\n", "run.sh": "100755 #!/bin/sh\n", "link": "120000 a.txt",
}

// with is first with some paths changed; "" takes one away.
func with(changes map[string]string) map[string]string {
	want := maps.Clone(first)
	for path, content := range changes {
		if content == "" {
			delete(want, path)
		} else {
			want[path] = content
		}
	}
	return want
}

func (l *lab) subject(w Registration) WorktreeSpec {
	return WorktreeSpec{
		Name: w.Name, Dir: w.Tree, Branch: w.Branch, Omit: ".agency",
		Message: "captured", Author: Identity{Name: "tool", Email: "tool@localhost"},
	}
}

// capture captures and checks what must hold of every capture.
func (l *lab) capture(repo *Repo, s WorktreeSpec) CaptureResult {
	l.t.Helper()
	var got CaptureResult
	l.requireUntouched(repo, s, func() (err error) { got, err = repo.Capture(l.t.Context(), s); return err })
	return got
}

// requireUntouched checks that nothing in the worktree, in its entry or on any ref is different after do,
// and that nothing is left beside.
func (l *lab) requireUntouched(repo *Repo, s WorktreeSpec, do func() error) {
	l.t.Helper()
	look := func() map[string]string {
		paths := []string{repo.AdminDir(s.Name)}
		if s.Dir != "" {
			paths = append(paths, s.Dir)
		}
		seen := states(l.t, paths...)
		seen["refs"] = l.git("for-each-ref")
		return seen
	}
	before := look()
	var err error
	within(l.t, "it", func() { err = do() })
	l.must(err)
	requireSame(l.t, "afterwards", look(), before)
	l.requireNothingBeside(repo)
}

func (l *lab) requireNothingBeside(repo *Repo) {
	l.t.Helper()
	left, err := filepath.Glob(filepath.Join(repo.CommonDir, "agency", "*"))
	l.must(err)
	if len(left) > 0 {
		l.t.Errorf("left behind: %q", left)
	}
}

func (l *lab) parents(commit string) []string {
	l.t.Helper()
	return strings.Fields(l.git("rev-list", "--parents", "-n1", commit))[1:]
}

func TestCaptureKeepsEverythingThatIsInATreeAndNotIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		arrange func(l *lab, tree string)
		want    map[string]string
	}{
		{"nothing changed", func(l *lab, tree string) {}, first},
		{"a file changed", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"untracked files, with any name", func(l *lab, tree string) {
			for _, name := range []string{"new", "-dash", "sp ace", "new\nline", "q\"uote", "non\xffutf8", "deep/er/é", ":(top)x", "*", "a.txt.lock"} {
				l.put(tree, name, "new\n")
			}
		}, with(map[string]string{
			"new": "100644 new\n", "-dash": "100644 new\n", "sp ace": "100644 new\n", "new\nline": "100644 new\n",
			"q\"uote": "100644 new\n", "non\xffutf8": "100644 new\n", "deep/er/é": "100644 new\n",
			":(top)x": "100644 new\n", "*": "100644 new\n", "a.txt.lock": "100644 new\n",
		})},
		{"files deleted, a directory with them", func(l *lab, tree string) {
			l.must(os.RemoveAll(filepath.Join(tree, "dir")))
		}, with(map[string]string{"dir/b.txt": ""})},
		{"a file made executable", func(l *lab, tree string) {
			l.must(os.Chmod(filepath.Join(tree, "a.txt"), 0o755))
		}, with(map[string]string{"a.txt": "100755 a\n"})},
		{"symlinks: new, dangling, leading out, to a directory", func(l *lab, tree string) {
			l.must(os.Symlink("nowhere", filepath.Join(tree, "dangling")))
			l.must(os.Symlink("/etc", filepath.Join(tree, "out")))
			l.must(os.Symlink("dir", filepath.Join(tree, "d")))
		}, with(map[string]string{"dangling": "120000 nowhere", "out": "120000 /etc", "d": "120000 dir"})},
		{"a file became a symlink, a symlink a directory, a directory a file", func(l *lab, tree string) {
			for _, name := range []string{"a.txt", "link", "dir"} {
				l.must(os.RemoveAll(filepath.Join(tree, name)))
			}
			l.must(os.Symlink("run.sh", filepath.Join(tree, "a.txt")))
			l.put(tree, "link/in", "in\n")
			l.put(tree, "dir", "file\n")
		}, with(map[string]string{"a.txt": "120000 run.sh", "link": "", "link/in": "100644 in\n", "dir/b.txt": "", "dir": "100644 file\n"})},
		{"ignored files are left out, by every kind of ignore file", func(l *lab, tree string) {
			l.put(tree, ".gitignore", "*.o\nbuild/\n")
			l.put(tree, "x.o", "o\n")
			l.put(tree, "build/out", "o\n")
			l.put(l.dir, ".git/info/exclude", "excluded\n")
			l.put(tree, "excluded", "o\n")
			l.put(filepath.Dir(l.global), "ignore", "*.swp\n")
			l.configure("core.excludesFile", filepath.Join(filepath.Dir(l.global), "ignore"))
			l.put(tree, "a.swp", "o\n")
		}, with(map[string]string{".gitignore": "100644 *.o\nbuild/\n"})},
		{"a tracked file that is ignored too", func(l *lab, tree string) {
			l.put(tree, ".gitignore", "*.txt\n")
			l.put(tree, "a.txt", "changed\n")
			l.put(tree, "forced.txt", "f\n")
			l.in(tree, "add", "-f", "forced.txt")
		}, with(map[string]string{".gitignore": "100644 *.txt\n", "a.txt": "100644 changed\n", "forced.txt": "100644 f\n"})},
		{"files marked assume-unchanged, with any name", func(l *lab, tree string) {
			names := []string{"a.txt", ":x", ":(top)y", "-z", "new\nline", "tab\tx", "\xff"}
			for _, name := range names[1:] {
				l.put(tree, name, "x\n")
			}
			l.in(tree, "add", "-A")
			l.in(tree, append([]string{"--literal-pathspecs", "update-index", "--assume-unchanged", "--"}, names...)...)
			for _, name := range names {
				l.put(tree, name, "changed\n")
			}
		}, with(map[string]string{
			"a.txt": "100644 changed\n", ":x": "100644 changed\n", ":(top)y": "100644 changed\n", "-z": "100644 changed\n",
			"new\nline": "100644 changed\n", "tab\tx": "100644 changed\n", "\xff": "100644 changed\n",
		})},
		{"intent to add", func(l *lab, tree string) {
			l.put(tree, "later", "later\n")
			l.in(tree, "add", "-N", "later")
		}, with(map[string]string{"later": "100644 later\n"})},
		{"an index that remembers untracked files", func(l *lab, tree string) {
			l.in(tree, "update-index", "--index-version", "4", "--untracked-cache")
			l.in(tree, "-c", "core.untrackedCache=true", "status")
			l.put(tree, "dir/new", "n\n")
		}, with(map[string]string{"dir/new": "100644 n\n"})},
		{"an index that believes a monitor", func(l *lab, tree string) {
			monitor := []string{"-c", "core.fsmonitor=printf 'token\\0'; :", "-c", "core.fsmonitorHookVersion=2"}
			l.in(tree, append(monitor, "update-index", "--fsmonitor")...)
			l.in(tree, append(monitor, "status")...)
			l.in(tree, append(monitor, "update-index", "--fsmonitor-valid", "a.txt")...)
			l.put(tree, "a.txt", "changed\n")
			if status := l.in(tree, append(monitor, "--no-optional-locks", "status", "--porcelain")...); status != "" {
				l.t.Fatalf("git sees through it by itself: %q", status)
			}
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"a corrupt index", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.must(os.WriteFile(filepath.Join(l.dir, ".git/worktrees", sandboxName, "index"), []byte("DIRC rubbish"), 0o644))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"an empty index file", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.must(os.WriteFile(filepath.Join(l.dir, ".git/worktrees", sandboxName, "index"), nil, 0o644))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"no index", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.must(os.Remove(filepath.Join(l.dir, ".git/worktrees", sandboxName, "index")))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"an index that is a pipe", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			fifo(l.t, filepath.Join(l.dir, ".git/worktrees", sandboxName, "index"))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"an index that is a directory", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			index := filepath.Join(l.dir, ".git/worktrees", sandboxName, "index")
			l.must(os.Remove(index))
			l.must(os.Mkdir(index, 0o755))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"an index locked by somebody", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.must(os.WriteFile(filepath.Join(l.dir, ".git/worktrees", sandboxName, "index.lock"), nil, 0o644))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"the remains of a capture that was killed", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.put(l.dir, ".git/agency/capture-"+sandboxName+"/index", "rubbish")
			l.put(l.dir, ".git/agency/capture-"+sandboxName+"/index.lock", "rubbish")
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"a .git file that leads elsewhere", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.put(tree, ".git", "gitdir: /nowhere\n")
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"no .git file", func(l *lab, tree string) {
			l.put(tree, "a.txt", "changed\n")
			l.must(os.Remove(filepath.Join(tree, ".git")))
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
		{"a pipe and a socket-like thing beside", func(l *lab, tree string) {
			fifo(l.t, filepath.Join(tree, "pipe"))
			l.put(tree, "a.txt", "changed\n")
		}, with(map[string]string{"a.txt": "100644 changed\n"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			c.arrange(l, w.Tree)
			got := l.capture(repo, l.subject(w))
			requireSame(t, "captured", l.files(got.Commit), c.want)
			head := l.git("rev-parse", w.Branch)
			dirty := !maps.Equal(c.want, first)
			if got.BranchTip != head || got.Dirty != dirty || dirty == (got.Commit == head) {
				t.Errorf("got %+v with HEAD at %s", got, head)
			}
			if dirty && l.parents(got.Commit)[0] != head {
				t.Errorf("the first parent is %v, not HEAD", l.parents(got.Commit))
			}
		})
	}
}

func TestCaptureLeavesTheMarkerDirectoryOut(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab, tree string){
		"excluded": func(l *lab, tree string) { l.put(l.dir, ".git/info/exclude", "/.agency/\n") },
		"not excluded": func(l *lab, tree string) {
			l.must(os.RemoveAll(filepath.Join(l.dir, ".git/info")))
		},
		"an ignore file wants it": func(l *lab, tree string) {
			l.put(l.dir, ".git/info/exclude", "/.agency/\n")
			l.put(tree, ".gitignore", "!/.agency/\n!/.agency/**\n")
		},
		"it is a file": func(l *lab, tree string) {
			l.must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.put(tree, ".agency", "a file\n")
		},
		"it is a symlink": func(l *lab, tree string) {
			l.must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.must(os.Symlink("dir", filepath.Join(tree, ".agency")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
			arrange(l, w.Tree)
			l.put(w.Tree, "a.txt", "changed\n")
			l.put(w.Tree, "dir/.agency/deep", "not at the top\n")
			got := l.capture(repo, l.subject(w))
			want := with(map[string]string{"a.txt": "100644 changed\n", "dir/.agency/deep": "100644 not at the top\n"})
			if data, err := os.ReadFile(filepath.Join(w.Tree, ".gitignore")); err == nil {
				want[".gitignore"] = "100644 " + string(data)
			}
			requireSame(t, "captured", l.files(got.Commit), want)
		})
	}
}

func TestCaptureKeepsWhatWasStagedAndChangedAgainAsAParent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "staged\n")
	l.in(w.Tree, "add", "a.txt")
	l.put(w.Tree, "a.txt", "worked on\n")
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 worked on\n"}))
	parents := l.parents(got.Commit)
	if len(parents) != 2 || parents[0] != got.BranchTip || !got.Dirty {
		t.Fatalf("got %+v with parents %v", got, parents)
	}
	requireSame(t, "staged", l.files(parents[1]), with(map[string]string{"a.txt": "100644 staged\n"}))
}

func TestCaptureKeepsADetachedHeadAndTheBranch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "on-branch", "b\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "on the branch")
	branch := l.in(w.Tree, "rev-parse", "HEAD")
	l.in(w.Tree, "checkout", "-q", "--detach", "HEAD~1")
	l.put(w.Tree, "detached", "d\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "detached")
	head := l.in(w.Tree, "rev-parse", "HEAD")

	got := l.capture(repo, l.subject(w))
	if !slices.Equal(l.parents(got.Commit), []string{head, branch}) || got.BranchTip != branch || got.Dirty {
		t.Errorf("got %+v with parents %v, want %s and %s", got, l.parents(got.Commit), head, branch)
	}
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"detached": "100644 d\n"}))
}

func TestCaptureKeepsTheCommitsOfAnotherBranchThatIsCheckedOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "checkout", "-q", "-b", "of-the-agent")
	l.put(w.Tree, "new", "n\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "elsewhere")
	head := l.in(w.Tree, "rev-parse", "HEAD")
	got := l.capture(repo, l.subject(w))
	if got.Commit != head || got.BranchTip != l.git("rev-parse", "main") || got.Dirty {
		t.Errorf("got %+v; HEAD is at %s and holds the branch too", got, head)
	}
}

func TestCaptureWorksWhereHeadLeadsNowhere(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a branch that is not there":  "ref: refs/heads/orphan\n",
		"an object that is not there": strings.Repeat("1", 40) + "\n",
		"nothing":                     "",
		"zeros after a power cut":     strings.Repeat("\x00", 41),
		"rubbish":                     "-- rubbish --\n",
		"outside of refs":             "ref: ../../HEAD\n",
		"an option":                   "ref: --all\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			branch := l.git("rev-parse", w.Branch)
			l.put(w.Tree, "a.txt", "changed\n")
			l.must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "HEAD"), []byte(head), 0o644))
			got := l.capture(repo, l.subject(w))
			requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
			if got.BranchTip != branch || !slices.Equal(l.parents(got.Commit), []string{branch}) || !got.Dirty {
				t.Errorf("got %+v with parents %v", got, l.parents(got.Commit))
			}
		})
	}
}

func TestCaptureWithoutHeadAndBranchStandsOnTheBaseOrOnNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	base := l.git("rev-parse", "main")
	l.put(w.Tree, "new", "n\n")
	l.git("update-ref", "-d", w.Branch)
	s := l.subject(w)
	for _, s.Base = range []string{"", strings.Repeat("1", 40), base} {
		got := l.capture(repo, s)
		requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"new": "100644 n\n"}))
		parents := l.parents(got.Commit)
		if got.BranchTip != "" || !got.Dirty || len(parents) != 1 {
			t.Fatalf("base %q: %+v with parents %v", s.Base, got, parents)
		}
		if s.Base == base && parents[0] != base {
			t.Errorf("it stands on %s, not on its base", parents[0])
		}
		if s.Base != base { // then what was staged is all that tells what there was before
			requireSame(t, "staged", l.files(parents[0]), first)
			if above := l.parents(parents[0]); len(above) > 0 {
				t.Errorf("it stands on %v", above)
			}
		}
	}
}

func TestCaptureWithoutATreeKeepsTheCommits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "new", "n\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "new")
	tip := l.git("rev-parse", w.Branch)
	l.must(os.RemoveAll(w.Tree))
	s := l.subject(w)
	s.Dir = ""
	if got := l.capture(repo, s); got != (CaptureResult{Commit: tip, BranchTip: tip}) {
		t.Errorf("got %+v, want %s", got, tip)
	}
	// Also when git knows nothing of the worktree any more.
	l.must(os.RemoveAll(repo.AdminDir(w.Name)))
	got, err := repo.Capture(t.Context(), s)
	if err != nil || got != (CaptureResult{Commit: tip, BranchTip: tip}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Commits that were amended, reset or switched away are known to nobody but the log of HEAD, which
// goes with the worktree.
func TestCaptureKeepsWhatOnlyTheLogOfHeadRemembers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	var lost []string
	for _, name := range []string{"reset", "amended", "detached"} {
		l.put(w.Tree, name, "x\n")
		l.in(w.Tree, "add", "-A")
		l.in(w.Tree, "commit", "-q", "-m", name)
		lost = append(lost, l.in(w.Tree, "rev-parse", "HEAD"))
		switch name {
		case "reset":
			l.in(w.Tree, "reset", "-q", "--hard", "HEAD~1")
		case "amended":
			l.in(w.Tree, "commit", "-q", "--amend", "-m", "better")
			l.in(w.Tree, "checkout", "-q", "--detach")
		case "detached":
			l.in(w.Tree, "checkout", "-q", strings.TrimPrefix(w.Branch, "refs/heads/"))
		}
	}
	got := l.capture(repo, l.subject(w))
	for _, commit := range append(lost, got.BranchTip) {
		if _, err := l.try(l.dir, "merge-base", "--is-ancestor", commit, got.Commit); err != nil {
			t.Errorf("%q is lost", l.git("show", "-s", "--format=%s", commit))
		}
	}
	if got.Dirty {
		t.Error("all of it was committed")
	}
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"amended": "100644 x\n"}))
	if first := l.parents(got.Commit)[0]; first != got.BranchTip {
		t.Errorf("the first parent is %s, not HEAD", first)
	}
}

func TestCaptureWithoutATreeKeepsWhatWasStaged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "staged\n")
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.in(w.Tree, "add", "-f", "a.txt", ".agency")
	l.in(w.Tree, "update-index", "--assume-unchanged", "a.txt")
	l.in(w.Tree, "update-index", "--skip-worktree", "dir/b.txt")
	l.must(os.RemoveAll(w.Tree))
	s := l.subject(w)
	s.Dir = ""
	got := l.capture(repo, s)
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 staged\n"}))
	if !got.Dirty || !slices.Equal(l.parents(got.Commit), []string{got.BranchTip}) {
		t.Errorf("got %+v", got)
	}
}

// A removal that was interrupted left half a tree, in which somebody has worked on.
func TestCaptureOntoAnEarlierOneAddsWhatIsNewAndTakesNothingAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "changed\n")
	l.put(w.Tree, "untracked", "u\n")
	earlier := l.capture(repo, l.subject(w))

	s := l.subject(w)
	s.Onto = earlier.Commit
	if got := l.capture(repo, s); got.Commit != earlier.Commit || got.Dirty {
		t.Errorf("nothing is new: %+v", got)
	}
	l.must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
	l.must(os.Remove(filepath.Join(w.Tree, "a.txt")))
	if got := l.capture(repo, s); got.Commit != earlier.Commit || got.Dirty {
		t.Errorf("nothing but removals: %+v", got)
	}
	l.must(os.RemoveAll(repo.AdminDir(w.Name)))
	l.must(os.Mkdir(repo.AdminDir(w.Name), 0o755)) // only so that there is something to compare
	l.put(w.Tree, "new", "n\n")
	l.put(w.Tree, "untracked", "more\n")
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	got := l.capture(repo, s)
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{
		"a.txt": "100644 changed\n", "untracked": "100644 more\n", "new": "100644 n\n",
	}))
	if !slices.Equal(l.parents(got.Commit), []string{earlier.Commit}) || !got.Dirty {
		t.Errorf("got %+v with parents %v", got, l.parents(got.Commit))
	}
	l.in(w.Tree, "init", "-q", "nested")
	if _, err := repo.Capture(t.Context(), s); !errors.As(err, new(*NestedRepositoryError)) {
		t.Errorf("a repository in it: %v", err)
	}
}

func TestCaptureInTheMiddleOfAMergeKeepsTheFilesAsTheyAre(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.write("a.txt", "theirs\n")
	l.commit("theirs")
	l.put(w.Tree, "a.txt", "ours\n")
	l.in(w.Tree, "commit", "-q", "-am", "ours")
	if out, err := l.try(w.Tree, "merge", "main"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	onDisk, err := os.ReadFile(filepath.Join(w.Tree, "a.txt"))
	l.must(err)
	if !strings.Contains(string(onDisk), "<<<<<<<") {
		t.Fatalf("no conflict: %q", onDisk)
	}
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 " + string(onDisk)}))
	if !got.Dirty {
		t.Error("a merge under way is not work?")
	}
}

func TestCaptureTakesTheStateOfASparseCheckoutAsItIs(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]string{{"--cone"}, {"--no-cone"}, {"--cone", "--sparse-index"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.in(w.Tree, slices.Concat([]string{"sparse-checkout", "set"}, mode, []string{"nothing-here"})...)
			if exists(filepath.Join(w.Tree, "dir")) {
				t.Fatal("the checkout is not sparse")
			}
			if got := l.capture(repo, l.subject(w)); got.Dirty || got.Commit != got.BranchTip {
				t.Errorf("what is outside of the sparse patterns counts as changed: %+v\n%v", got, l.files(got.Commit))
			}
			l.put(w.Tree, "dir/new", "outside of the patterns\n")
			got := l.capture(repo, l.subject(w))
			requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"dir/new": "100644 outside of the patterns\n"}))
		})
	}
}

// Ignored or not: what git would not look into at all is the first to be lost.
func TestCaptureRefusesRepositoriesInATree(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	var want []string
	for _, name := range []string{"-nested", "dir/ne sted", "new\nline", "gl*b[x]", ":(top)x", "ignored"} {
		dir := filepath.Join(w.Tree, name)
		l.must(os.MkdirAll(dir, 0o755))
		l.in(dir, "init", "-q")
		want = append(want, dir)
	}
	l.put(w.Tree, "file/.git", "gitdir: elsewhere\n")
	l.must(os.MkdirAll(filepath.Join(w.Tree, "linked"), 0o755))
	l.must(os.Symlink("/nowhere", filepath.Join(w.Tree, "linked/.git")))
	want = append(want, filepath.Join(w.Tree, "file"), filepath.Join(w.Tree, "linked"))
	l.put(w.Tree, ".gitignore", "/ignored/\n")
	before := states(t, w.Tree, repo.AdminDir(w.Name))

	_, err := repo.Capture(t.Context(), l.subject(w))
	var nested *NestedRepositoryError
	if !errors.As(err, &nested) {
		t.Fatalf("got %v", err)
	}
	slices.Sort(want)
	if !slices.Equal(nested.Paths, want) || nested.Dir != w.Tree {
		t.Errorf("got %q, want %q", nested.Paths, want)
	}
	requireSame(t, "afterwards", states(t, w.Tree, repo.AdminDir(w.Name)), before)
	l.requireNothingBeside(repo)
}

// evil makes a repository whose configuration runs a program whenever git looks at its files: as a
// monitor, as a hook, and as a filter.
func (l *lab) evil(dir string) (witness string) {
	l.t.Helper()
	witness = filepath.Join(l.t.TempDir(), "ran")
	l.must(os.MkdirAll(dir, 0o755))
	l.in(dir, "init", "-q")
	l.put(dir, "in", "in\n")
	l.in(dir, "add", "in")
	l.in(dir, "commit", "-q", "-m", "in")
	l.in(dir, "config", "core.fsmonitor", "echo monitor >>'"+witness+"'; false")
	l.in(dir, "config", "core.hooksPath", dir)
	l.put(dir, "post-index-change", "#!/bin/sh\necho hook >>'"+witness+"'\n")
	l.must(os.Chmod(filepath.Join(dir, "post-index-change"), 0o755))
	l.in(dir, "config", "filter.evil.clean", "echo filter >>'"+witness+"'; cat")
	l.put(dir, ".git/info/attributes", "* filter=evil\n")
	// Other stat data than git's index has: only reading the file tells that it is the same.
	long := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	l.must(os.Chtimes(filepath.Join(dir, "in"), long, long))
	l.in(dir, "--no-optional-locks", "status", "--porcelain")
	if ran, err := os.ReadFile(witness); err != nil || !strings.Contains(string(ran), "monitor") || !strings.Contains(string(ran), "filter") {
		l.t.Fatalf("git status runs only %q (%v); the test would prove nothing", ran, err)
	}
	l.must(os.Chtimes(filepath.Join(dir, "in"), long.Add(time.Hour), long.Add(time.Hour)))
	l.must(os.Remove(witness))
	return witness
}

func TestCaptureNeverRunsWhatARepositoryInATreeIsConfiguredToRun(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab, tree string){
		"untracked": func(l *lab, tree string) {},
		"ignored":   func(l *lab, tree string) { l.put(tree, ".gitignore", "evil/\n") },
		"tracked":   func(l *lab, tree string) { l.in(tree, "add", "evil") },
		"committed": func(l *lab, tree string) {
			l.in(tree, "add", "evil")
			l.in(tree, "commit", "-q", "-m", "evil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			witness := l.evil(filepath.Join(w.Tree, "evil"))
			arrange(l, w.Tree)
			_ = os.Remove(witness) // the test's own git may have run it
			_, err := repo.Capture(t.Context(), l.subject(w))
			var nested *NestedRepositoryError
			if !errors.As(err, &nested) {
				t.Errorf("got %v", err)
			}
			if ran, err := os.ReadFile(witness); err == nil {
				t.Errorf("what somebody wrote into the tree was run: %s", ran)
			}
		})
	}
}

func TestCaptureNeverRunsWhatTheTreeItselfIsConfiguredToRun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	// The .git file is replaced by one that leads to a repository with another configuration.
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	witness := l.evil(elsewhere)
	l.put(w.Tree, ".git", "gitdir: "+elsewhere+"/.git\n")
	l.put(w.Tree, "a.txt", "changed\n")
	got := l.capture(repo, l.subject(w))
	if ran, err := os.ReadFile(witness); err == nil {
		t.Errorf("what somebody wrote into the tree was run: %s", ran)
	}
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
}

func TestCaptureRunsTheCleanFilterTheUserConfigured(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("filter.up.clean", "tr a-z A-Z")
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, ".gitattributes", "*.up filter=up\n")
	l.put(w.Tree, "x.up", "up\n")
	got := l.capture(repo, l.subject(w))
	if content := l.files(got.Commit)["x.up"]; content != "100644 UP\n" {
		t.Errorf("got %q", content)
	}
	l.configure("filter.up.clean", "false")
	l.configure("filter.up.required", "true")
	l.put(w.Tree, "x.up", "changed\n")
	if got, err := repo.Capture(t.Context(), l.subject(w)); err == nil {
		t.Errorf("a required filter failed, and yet %+v", got)
	}
	l.requireNothingBeside(repo)
}

func TestCaptureIsByTheToolAndNeedsNoConfiguredIdentity(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.env = append(l.env, "GIT_AUTHOR_NAME=Hook", "GIT_COMMITTER_EMAIL=hook@example.com")
	repo := l.open()
	w := l.sandbox(repo)
	l.must(os.WriteFile(l.global, []byte("[user]\n\tuseConfigOnly = true\n[commit]\n\tgpgSign = true\n[core]\n\tautocrlf = input\n\tsafecrlf = true\n"), 0o644))
	l.put(w.Tree, "a.txt", "changed\r\n")
	got := l.capture(repo, l.subject(w))
	if by := l.git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%B", got.Commit); by != "tool <tool@localhost>|tool <tool@localhost>|captured\n" {
		t.Errorf("got %q", by)
	}
}

func TestCaptureReachesWhatSomebodyTookItsPermissionsFrom(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	for name, modes := range map[string]map[string]os.FileMode{
		"a file":                        {"dir/new": 0},
		"a tracked file":                {"a.txt": 0},
		"a file one may only write":     {"dir/new": 0o200},
		"a directory":                   {"dir": 0},
		"a directory one may not list":  {"dir": 0o300},
		"a directory one may only list": {"dir": 0o400},
		"one in another":                {"dir/sub": 0, "dir": 0},
		"a read-only tree":              {".": 0o500, "dir": 0o500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, "a.txt", "changed\n")
			l.put(w.Tree, "dir/new", "n\n")
			l.put(w.Tree, "dir/sub/new", "n\n")
			for _, path := range slices.Backward(slices.Sorted(maps.Keys(modes))) {
				l.must(os.Chmod(filepath.Join(w.Tree, path), modes[path]))
			}
			t.Cleanup(func() {
				for _, path := range slices.Sorted(maps.Keys(modes)) {
					_ = os.Chmod(filepath.Join(w.Tree, path), 0o700)
				}
			})
			got, err := repo.Capture(t.Context(), l.subject(w))
			l.must(err)
			want := with(map[string]string{"a.txt": "100644 changed\n", "dir/new": "100644 n\n", "dir/sub/new": "100644 n\n"})
			requireSame(t, "captured", l.files(got.Commit), want)
		})
	}
}
