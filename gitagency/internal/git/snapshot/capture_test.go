package snapshot

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// initialFiles are the files that gittest.New commits: mode and content by path.
var initialFiles = map[string]string{
	"a.txt": "100644 a\n", "dir/b.txt": "100644 b\n", "run.sh": "100755 #!/bin/sh\n", "link": "120000 a.txt",
}

// initialFilesWith returns initialFiles with changes; an empty content removes a path.
func initialFilesWith(changes map[string]string) map[string]string {
	want := maps.Clone(initialFiles)
	for path, content := range changes {
		if content == "" {
			delete(want, path)
		} else {
			want[path] = content
		}
	}
	return want
}

// captureSpec captures a worktree and checks that this changed nothing in it.
func captureSpec(l *gittest.Fixture, repo *git.Repo, s git.WorktreeSpec) CaptureResult {
	l.T.Helper()
	var got CaptureResult
	requireUntouched(l, repo, s, func() (err error) { got, err = Capture(l.T.Context(), repo, s); return err })
	return got
}

// requireUntouched checks that do changes neither the worktree, nor its directory below .git/worktrees, nor any ref, and
// that it leaves no temporary files.
func requireUntouched(l *gittest.Fixture, repo *git.Repo, s git.WorktreeSpec, do func() error) {
	l.T.Helper()
	diskAndRefs := func() map[string]string {
		paths := []string{repo.AdminDir(s.Name)}
		if s.Dir != "" {
			paths = append(paths, s.Dir)
		}
		seen := gittest.DiskState(l.T, paths...)
		seen["refs"] = l.Git("for-each-ref")
		return seen
	}
	before := diskAndRefs()
	var err error
	gittest.Within(l.T, "the capture", func() { err = do() })
	l.Must(err)
	gittest.RequireSame(l.T, "afterwards", diskAndRefs(), before)
	repotest.RequireEmptyAgencyDir(l, repo)
}

func TestCaptureKeepsAllFilesNotIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		arrange func(l *gittest.Fixture, tree string)
		want    map[string]string
	}{
		{"nothing changed", func(l *gittest.Fixture, tree string) {}, initialFiles},
		{"a file changed", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"untracked files with unusual names", func(l *gittest.Fixture, tree string) {
			for _, name := range []string{"new", "-dash", "sp ace", "new\nline", "q\"uote", "non\xffutf8", "deep/er/é", ":(top)x", "*", "a.txt.lock"} {
				l.WriteIn(tree, name, "new\n")
			}
		}, initialFilesWith(map[string]string{
			"new": "100644 new\n", "-dash": "100644 new\n", "sp ace": "100644 new\n", "new\nline": "100644 new\n",
			"q\"uote": "100644 new\n", "non\xffutf8": "100644 new\n", "deep/er/é": "100644 new\n",
			":(top)x": "100644 new\n", "*": "100644 new\n", "a.txt.lock": "100644 new\n",
		})},
		{"a directory deleted with its files", func(l *gittest.Fixture, tree string) {
			l.Must(os.RemoveAll(filepath.Join(tree, "dir")))
		}, initialFilesWith(map[string]string{"dir/b.txt": ""})},
		{"a file made executable", func(l *gittest.Fixture, tree string) {
			l.Must(os.Chmod(filepath.Join(tree, "a.txt"), 0o755))
		}, initialFilesWith(map[string]string{"a.txt": "100755 a\n"})},
		{"symlinks: new, dangling, outside, to a directory", func(l *gittest.Fixture, tree string) {
			l.Must(os.Symlink("nowhere", filepath.Join(tree, "dangling")))
			l.Must(os.Symlink("/etc", filepath.Join(tree, "out")))
			l.Must(os.Symlink("dir", filepath.Join(tree, "d")))
		}, initialFilesWith(map[string]string{"dangling": "120000 nowhere", "out": "120000 /etc", "d": "120000 dir"})},
		{"a file became a symlink, a symlink a directory, a directory a file", func(l *gittest.Fixture, tree string) {
			for _, name := range []string{"a.txt", "link", "dir"} {
				l.Must(os.RemoveAll(filepath.Join(tree, name)))
			}
			l.Must(os.Symlink("run.sh", filepath.Join(tree, "a.txt")))
			l.WriteIn(tree, "link/in", "in\n")
			l.WriteIn(tree, "dir", "file\n")
		}, initialFilesWith(map[string]string{"a.txt": "120000 run.sh", "link": "", "link/in": "100644 in\n", "dir/b.txt": "", "dir": "100644 file\n"})},
		{"ignored files are left out, by every kind of ignore file", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitignore", "*.o\nbuild/\n")
			l.WriteIn(tree, "x.o", "o\n")
			l.WriteIn(tree, "build/out", "o\n")
			l.WriteIn(l.Root, ".git/info/exclude", "excluded\n")
			l.WriteIn(tree, "excluded", "o\n")
			l.WriteIn(filepath.Dir(l.GlobalConfig), "ignore", "*.swp\n")
			l.ConfigureGlobal("core.excludesFile", filepath.Join(filepath.Dir(l.GlobalConfig), "ignore"))
			l.WriteIn(tree, "a.swp", "o\n")
		}, initialFilesWith(map[string]string{".gitignore": "100644 *.o\nbuild/\n"})},
		{"a tracked file that is ignored too", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitignore", "*.txt\n")
			l.WriteIn(tree, "a.txt", "changed\n")
			l.WriteIn(tree, "forced.txt", "f\n")
			l.GitIn(tree, "add", "-f", "forced.txt")
		}, initialFilesWith(map[string]string{".gitignore": "100644 *.txt\n", "a.txt": "100644 changed\n", "forced.txt": "100644 f\n"})},
		{"assume-unchanged files with unusual names", func(l *gittest.Fixture, tree string) {
			names := []string{"a.txt", ":x", ":(top)y", "-z", "new\nline", "tab\tx", "\xff"}
			for _, name := range names[1:] {
				l.WriteIn(tree, name, "x\n")
			}
			l.GitIn(tree, "add", "-A")
			l.GitIn(tree, append([]string{"--literal-pathspecs", "update-index", "--assume-unchanged", "--"}, names...)...)
			for _, name := range names {
				l.WriteIn(tree, name, "changed\n")
			}
		}, initialFilesWith(map[string]string{
			"a.txt": "100644 changed\n", ":x": "100644 changed\n", ":(top)y": "100644 changed\n", "-z": "100644 changed\n",
			"new\nline": "100644 changed\n", "tab\tx": "100644 changed\n", "\xff": "100644 changed\n",
		})},
		{"intent to add", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "later", "later\n")
			l.GitIn(tree, "add", "-N", "later")
		}, initialFilesWith(map[string]string{"later": "100644 later\n"})},
		{"an index with an untracked cache", func(l *gittest.Fixture, tree string) {
			l.GitIn(tree, "update-index", "--index-version", "4", "--untracked-cache")
			l.GitIn(tree, "-c", "core.untrackedCache=true", "status")
			l.WriteIn(tree, "dir/new", "n\n")
		}, initialFilesWith(map[string]string{"dir/new": "100644 n\n"})},
		{"an index with fsmonitor data", func(l *gittest.Fixture, tree string) {
			monitor := []string{"-c", "core.fsmonitor=printf 'token\\0'; :", "-c", "core.fsmonitorHookVersion=2"}
			l.GitIn(tree, append(monitor, "update-index", "--fsmonitor")...)
			l.GitIn(tree, append(monitor, "status")...)
			l.GitIn(tree, append(monitor, "update-index", "--fsmonitor-valid", "a.txt")...)
			l.WriteIn(tree, "a.txt", "changed\n")
			if status := l.GitIn(tree, append(monitor, "--no-optional-locks", "status", "--porcelain")...); status != "" {
				l.T.Fatalf("git status sees the change in spite of fsmonitor: %q", status)
			}
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"a corrupt index", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.Must(os.WriteFile(filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index"), []byte("DIRC rubbish"), 0o644))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"an empty index file", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.Must(os.WriteFile(filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index"), nil, 0o644))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"no index", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.Must(os.Remove(filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index")))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"an index that is a FIFO", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			gittest.MakeFIFO(l.T, filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index"))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"an index that is a directory", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			index := filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index")
			l.Must(os.Remove(index))
			l.Must(os.Mkdir(index, 0o755))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"a locked index", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.Must(os.WriteFile(filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "index.lock"), nil, 0o644))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"leftovers of a killed capture", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.WriteIn(l.Root, ".git/agency/capture-"+gittest.SandboxName+"/index", "rubbish")
			l.WriteIn(l.Root, ".git/agency/capture-"+gittest.SandboxName+"/index.lock", "rubbish")
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"a .git file with a missing gitdir", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.WriteIn(tree, ".git", "gitdir: /nowhere\n")
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"no .git file", func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "a.txt", "changed\n")
			l.Must(os.Remove(filepath.Join(tree, ".git")))
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
		{"a FIFO in the worktree", func(l *gittest.Fixture, tree string) {
			gittest.MakeFIFO(l.T, filepath.Join(tree, "pipe"))
			l.WriteIn(tree, "a.txt", "changed\n")
		}, initialFilesWith(map[string]string{"a.txt": "100644 changed\n"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			c.arrange(l, w.Tree)
			repo = repotest.OpenRepo(l) // as a later command does, with the configuration of that moment
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			gittest.RequireSame(t, "captured", l.Files(got.Commit), c.want)
			head := l.Git("rev-parse", w.Branch)
			dirty := !maps.Equal(c.want, initialFiles)
			if got.BranchTip != head || got.Dirty != dirty || dirty == (got.Commit == head) {
				t.Errorf("got %+v with HEAD at %s", got, head)
			}
			if dirty && l.Parents(got.Commit)[0] != head {
				t.Errorf("the first parent is %v, not HEAD", l.Parents(got.Commit))
			}
		})
	}
}

func TestCaptureExcludesMarkerDirectory(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture, tree string){
		"excluded": func(l *gittest.Fixture, tree string) { l.WriteIn(l.Root, ".git/info/exclude", "/.agency/\n") },
		"not excluded": func(l *gittest.Fixture, tree string) {
			l.Must(os.RemoveAll(filepath.Join(l.Root, ".git/info")))
		},
		"re-included by .gitignore": func(l *gittest.Fixture, tree string) {
			l.WriteIn(l.Root, ".git/info/exclude", "/.agency/\n")
			l.WriteIn(tree, ".gitignore", "!/.agency/\n!/.agency/**\n")
		},
		"a file": func(l *gittest.Fixture, tree string) {
			l.Must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.WriteIn(tree, ".agency", "a file\n")
		},
		"a symlink": func(l *gittest.Fixture, tree string) {
			l.Must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.Must(os.Symlink("dir", filepath.Join(tree, ".agency")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
			arrange(l, w.Tree)
			l.WriteIn(w.Tree, "a.txt", "changed\n")
			l.WriteIn(w.Tree, "dir/.agency/deep", "not at the top\n")
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			want := initialFilesWith(map[string]string{"a.txt": "100644 changed\n", "dir/.agency/deep": "100644 not at the top\n"})
			if data, err := os.ReadFile(filepath.Join(w.Tree, ".gitignore")); err == nil {
				want[".gitignore"] = "100644 " + string(data)
			}
			gittest.RequireSame(t, "captured", l.Files(got.Commit), want)
		})
	}
}

func TestCaptureKeepsStagedContentAsParent(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "staged\n")
	l.GitIn(w.Tree, "add", "a.txt")
	l.WriteIn(w.Tree, "a.txt", "worked on\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 worked on\n"}))
	parents := l.Parents(got.Commit)
	if len(parents) != 2 || parents[0] != got.BranchTip || !got.Dirty {
		t.Fatalf("got %+v with parents %v", got, parents)
	}
	gittest.RequireSame(t, "staged", l.Files(parents[1]), initialFilesWith(map[string]string{"a.txt": "100644 staged\n"}))
}

func TestCaptureKeepsDetachedHeadAndBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "on-branch", "b\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "on the branch")
	branch := l.GitIn(w.Tree, "rev-parse", "HEAD")
	l.GitIn(w.Tree, "checkout", "-q", "--detach", "HEAD~1")
	l.WriteIn(w.Tree, "detached", "d\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "detached")
	head := l.GitIn(w.Tree, "rev-parse", "HEAD")

	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if !slices.Equal(l.Parents(got.Commit), []string{head, branch}) || got.BranchTip != branch || got.Dirty {
		t.Errorf("got %+v with parents %v, want %s and %s", got, l.Parents(got.Commit), head, branch)
	}
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"detached": "100644 d\n"}))
}

func TestCaptureKeepsCommitsOfOtherCheckedOutBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "checkout", "-q", "-b", "of-the-agent")
	l.WriteIn(w.Tree, "new", "n\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "elsewhere")
	head := l.GitIn(w.Tree, "rev-parse", "HEAD")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if got.Commit != head || got.BranchTip != l.Git("rev-parse", "main") || got.Dirty {
		t.Errorf("got %+v, want HEAD at %s, which contains the branch", got, head)
	}
}

func TestCaptureWithInvalidHeadUsesBranch(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a missing branch":        "ref: refs/heads/orphan\n",
		"a missing object":        strings.Repeat("1", 40) + "\n",
		"an empty file":           "",
		"zeros after a power cut": strings.Repeat("\x00", 41),
		"rubbish":                 "-- rubbish --\n",
		"outside of refs":         "ref: ../../HEAD\n",
		"an option":               "ref: --all\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			branch := l.Git("rev-parse", w.Branch)
			l.WriteIn(w.Tree, "a.txt", "changed\n")
			l.Must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "HEAD"), []byte(head), 0o644))
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
			if got.BranchTip != branch || !slices.Equal(l.Parents(got.Commit), []string{branch}) || !got.Dirty {
				t.Errorf("got %+v with parents %v", got, l.Parents(got.Commit))
			}
		})
	}
}

func TestCaptureWithoutHeadAndBranchUsesBase(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	base := l.Git("rev-parse", "main")
	l.WriteIn(w.Tree, "new", "n\n")
	l.Git("update-ref", "-d", w.Branch)
	s := repotest.SpecOf(l, w)
	for _, s.Base = range []string{"", strings.Repeat("1", 40), base} {
		got := captureSpec(l, repo, s)
		gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"new": "100644 n\n"}))
		parents := l.Parents(got.Commit)
		if got.BranchTip != "" || !got.Dirty || len(parents) != 1 {
			t.Fatalf("base %q: %+v with parents %v", s.Base, got, parents)
		}
		if s.Base == base && parents[0] != base {
			t.Errorf("the parent is %s, not the base", parents[0])
		}
		if s.Base != base { // without a base, only the index tells the earlier content
			gittest.RequireSame(t, "staged", l.Files(parents[0]), initialFiles)
			if above := l.Parents(parents[0]); len(above) > 0 {
				t.Errorf("the commit of the index has parents %v", above)
			}
		}
	}
}

func TestCaptureWithoutWorktreeKeepsCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "new", "n\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "new")
	tip := l.Git("rev-parse", w.Branch)
	l.Must(os.RemoveAll(w.Tree))
	s := repotest.SpecOf(l, w)
	s.Dir = ""
	if got := captureSpec(l, repo, s); got != (CaptureResult{Commit: tip, BranchTip: tip}) {
		t.Errorf("got %+v, want %s", got, tip)
	}
	// The same when the worktree is no longer registered.
	l.Must(os.RemoveAll(repo.AdminDir(w.Name)))
	got, err := Capture(t.Context(), repo, s)
	if err != nil || got != (CaptureResult{Commit: tip, BranchTip: tip}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Commits that were amended, reset or switched away from are kept: only the reflog of HEAD refers to them, and it is
// deleted with the worktree.
func TestCaptureKeepsCommitsOfHeadReflog(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	var lost []string
	for _, name := range []string{"reset", "amended", "detached"} {
		l.WriteIn(w.Tree, name, "x\n")
		l.GitIn(w.Tree, "add", "-A")
		l.GitIn(w.Tree, "commit", "-q", "-m", name)
		lost = append(lost, l.GitIn(w.Tree, "rev-parse", "HEAD"))
		switch name {
		case "reset":
			l.GitIn(w.Tree, "reset", "-q", "--hard", "HEAD~1")
		case "amended":
			l.GitIn(w.Tree, "commit", "-q", "--amend", "-m", "better")
			l.GitIn(w.Tree, "checkout", "-q", "--detach")
		case "detached":
			l.GitIn(w.Tree, "checkout", "-q", strings.TrimPrefix(w.Branch, "refs/heads/"))
		}
	}
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	for _, commit := range append(lost, got.BranchTip) {
		if _, err := l.TryGit(l.Root, "merge-base", "--is-ancestor", commit, got.Commit); err != nil {
			t.Errorf("commit %q is lost", l.Git("show", "-s", "--format=%s", commit))
		}
	}
	if got.Dirty {
		t.Error("dirty, although everything was committed")
	}
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"amended": "100644 x\n"}))
	if first := l.Parents(got.Commit)[0]; first != got.BranchTip {
		t.Errorf("the first parent is %s, not HEAD", first)
	}
}

func TestCaptureWithoutWorktreeKeepsStagedContent(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "staged\n")
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.GitIn(w.Tree, "add", "-f", "a.txt", ".agency")
	l.GitIn(w.Tree, "update-index", "--assume-unchanged", "a.txt")
	l.GitIn(w.Tree, "update-index", "--skip-worktree", "dir/b.txt")
	l.Must(os.RemoveAll(w.Tree))
	s := repotest.SpecOf(l, w)
	s.Dir = ""
	got := captureSpec(l, repo, s)
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 staged\n"}))
	if !got.Dirty || !slices.Equal(l.Parents(got.Commit), []string{got.BranchTip}) {
		t.Errorf("got %+v", got)
	}
}

// A capture onto an earlier one adds new content and removes nothing: an interrupted removal left a part of the worktree,
// in which files were changed again.
func TestCaptureOntoEarlierOnlyAddsContent(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	l.WriteIn(w.Tree, "untracked", "u\n")
	earlier := captureSpec(l, repo, repotest.SpecOf(l, w))

	s := repotest.SpecOf(l, w)
	s.Onto = earlier.Commit
	if got := captureSpec(l, repo, s); got.Commit != earlier.Commit || got.Dirty {
		t.Errorf("without a change: %+v", got)
	}
	l.Must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
	l.Must(os.Remove(filepath.Join(w.Tree, "a.txt")))
	if got := captureSpec(l, repo, s); got.Commit != earlier.Commit || got.Dirty {
		t.Errorf("with only removals: %+v", got)
	}
	l.Must(os.RemoveAll(repo.AdminDir(w.Name)))
	l.Must(os.Mkdir(repo.AdminDir(w.Name), 0o755)) // only for the comparison in captureSpec
	l.WriteIn(w.Tree, "new", "n\n")
	l.WriteIn(w.Tree, "untracked", "more\n")
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	got := captureSpec(l, repo, s)
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{
		"a.txt": "100644 changed\n", "untracked": "100644 more\n", "new": "100644 n\n",
	}))
	if !slices.Equal(l.Parents(got.Commit), []string{earlier.Commit}) || !got.Dirty {
		t.Errorf("got %+v with parents %v", got, l.Parents(got.Commit))
	}
	l.GitIn(w.Tree, "init", "-q", "nested")
	if _, err := Capture(t.Context(), repo, s); !errors.As(err, new(*status.NestedRepositoryError)) {
		t.Errorf("with a nested repository: %v", err)
	}
}

func TestCaptureDuringMergeKeepsConflictedFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.Write("a.txt", "theirs\n")
	l.Commit("theirs")
	l.WriteIn(w.Tree, "a.txt", "ours\n")
	l.GitIn(w.Tree, "commit", "-q", "-am", "ours")
	if out, err := l.TryGit(w.Tree, "merge", "main"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	onDisk, err := os.ReadFile(filepath.Join(w.Tree, "a.txt"))
	l.Must(err)
	if !strings.Contains(string(onDisk), "<<<<<<<") {
		t.Fatalf("no conflict: %q", onDisk)
	}
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 " + string(onDisk)}))
	if !got.Dirty {
		t.Error("a merge in progress does not count as dirty")
	}
}

func TestCaptureOfSparseCheckout(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]string{{"--cone"}, {"--no-cone"}, {"--cone", "--sparse-index"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.GitIn(w.Tree, slices.Concat([]string{"sparse-checkout", "set"}, mode, []string{"nothing-here"})...)
			if gittest.Exists(filepath.Join(w.Tree, "dir")) {
				t.Fatal("the checkout is not sparse")
			}
			if got := captureSpec(l, repo, repotest.SpecOf(l, w)); got.Dirty || got.Commit != got.BranchTip {
				t.Errorf("files outside of the sparse patterns count as changed: %+v\n%v", got, l.Files(got.Commit))
			}
			l.WriteIn(w.Tree, "dir/new", "outside of the patterns\n")
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"dir/new": "100644 outside of the patterns\n"}))
		})
	}
}

// Capture refuses nested repositories, also ignored ones: git does not descend into them, so their content would be lost.
func TestCaptureRefusesNestedRepositories(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	var want []string
	for _, name := range []string{"-nested", "dir/ne sted", "new\nline", "gl*b[x]", ":(top)x", "ignored"} {
		dir := filepath.Join(w.Tree, name)
		l.Must(os.MkdirAll(dir, 0o755))
		l.GitIn(dir, "init", "-q")
		want = append(want, dir)
	}
	l.WriteIn(w.Tree, "file/.git", "gitdir: elsewhere\n")
	l.Must(os.MkdirAll(filepath.Join(w.Tree, "linked"), 0o755))
	l.Must(os.Symlink("/nowhere", filepath.Join(w.Tree, "linked/.git")))
	want = append(want, filepath.Join(w.Tree, "file"), filepath.Join(w.Tree, "linked"))
	l.WriteIn(w.Tree, ".gitignore", "/ignored/\n")
	before := gittest.DiskState(t, w.Tree, repo.AdminDir(w.Name))

	_, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	var nested *status.NestedRepositoryError
	if !errors.As(err, &nested) {
		t.Fatalf("got %v", err)
	}
	slices.Sort(want)
	if !slices.Equal(nested.Paths, want) || nested.Dir != w.Tree {
		t.Errorf("got %q, want %q", nested.Paths, want)
	}
	gittest.RequireSame(t, "afterwards", gittest.DiskState(t, w.Tree, repo.AdminDir(w.Name)), before)
	repotest.RequireEmptyAgencyDir(l, repo)
}

// makeHostileRepo makes a repository whose config runs a program whenever git examines its files: as fsmonitor, as hook
// and as clean filter. The program creates the file witness.
func makeHostileRepo(l *gittest.Fixture, dir string) (witness string) {
	l.T.Helper()
	witness = filepath.Join(l.T.TempDir(), "ran")
	l.Must(os.MkdirAll(dir, 0o755))
	l.GitIn(dir, "init", "-q")
	l.WriteIn(dir, "in", "in\n")
	l.GitIn(dir, "add", "in")
	l.GitIn(dir, "commit", "-q", "-m", "in")
	l.GitIn(dir, "config", "core.fsmonitor", "echo monitor >>'"+witness+"'; false")
	l.GitIn(dir, "config", "core.hooksPath", dir)
	l.WriteIn(dir, "post-index-change", "#!/bin/sh\necho hook >>'"+witness+"'\n")
	l.Must(os.Chmod(filepath.Join(dir, "post-index-change"), 0o755))
	l.GitIn(dir, "config", "filter.evil.clean", "echo filter >>'"+witness+"'; cat")
	l.WriteIn(dir, ".git/info/attributes", "* filter=evil\n")
	// The mtime differs from the index, so that git must read the file, through the filter.
	mtime := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	l.Must(os.Chtimes(filepath.Join(dir, "in"), mtime, mtime))
	l.GitIn(dir, "--no-optional-locks", "status", "--porcelain")
	if ran, err := os.ReadFile(witness); err != nil || !strings.Contains(string(ran), "monitor") || !strings.Contains(string(ran), "filter") {
		l.T.Fatalf("git status runs only %q (%v); the test is void", ran, err)
	}
	l.Must(os.Chtimes(filepath.Join(dir, "in"), mtime.Add(time.Hour), mtime.Add(time.Hour)))
	l.Must(os.Remove(witness))
	return witness
}

func TestCaptureRunsNothingOfNestedRepository(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture, tree string){
		"untracked": func(l *gittest.Fixture, tree string) {},
		"ignored":   func(l *gittest.Fixture, tree string) { l.WriteIn(tree, ".gitignore", "evil/\n") },
		"tracked":   func(l *gittest.Fixture, tree string) { l.GitIn(tree, "add", "evil") },
		"committed": func(l *gittest.Fixture, tree string) {
			l.GitIn(tree, "add", "evil")
			l.GitIn(tree, "commit", "-q", "-m", "evil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			witness := makeHostileRepo(l, filepath.Join(w.Tree, "evil"))
			arrange(l, w.Tree)
			_ = os.Remove(witness) // the git commands of this test may have run the program
			_, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
			var nested *status.NestedRepositoryError
			if !errors.As(err, &nested) {
				t.Errorf("got %v", err)
			}
			if ran, err := os.ReadFile(witness); err == nil {
				t.Errorf("a program configured by the worktree ran: %s", ran)
			}
		})
	}
}

func TestCaptureRunsNothingOfReplacedGitFile(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	// The .git file is replaced by one that names a repository with another config.
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	witness := makeHostileRepo(l, elsewhere)
	l.WriteIn(w.Tree, ".git", "gitdir: "+elsewhere+"/.git\n")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if ran, err := os.ReadFile(witness); err == nil {
		t.Errorf("a program configured by the worktree ran: %s", ran)
	}
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
}

func TestCaptureRunsUsersCleanFilter(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.ConfigureGlobal("filter.up.clean", "tr a-z A-Z")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".gitattributes", "*.up filter=up\n")
	l.WriteIn(w.Tree, "x.up", "up\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if content := l.Files(got.Commit)["x.up"]; content != "100644 UP\n" {
		t.Errorf("got %q", content)
	}
	l.ConfigureGlobal("filter.up.clean", "false")
	l.ConfigureGlobal("filter.up.required", "true")
	l.WriteIn(w.Tree, "x.up", "changed\n")
	if got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w)); err == nil {
		t.Errorf("a required filter failed, but Capture returned %+v", got)
	}
	repotest.RequireEmptyAgencyDir(l, repo)
}

func TestCaptureNeedsNoConfiguredIdentity(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Env = append(l.Env, "GIT_AUTHOR_NAME=Hook", "GIT_COMMITTER_EMAIL=hook@example.com")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.Must(os.WriteFile(l.GlobalConfig, []byte("[user]\n\tuseConfigOnly = true\n[commit]\n\tgpgSign = true\n[core]\n\tautocrlf = input\n\tsafecrlf = true\n"), 0o644))
	l.WriteIn(w.Tree, "a.txt", "changed\r\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if by := l.Git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%B", got.Commit); by != "tool <tool@localhost>|tool <tool@localhost>|captured\n" {
		t.Errorf("got %q", by)
	}
}

func TestCaptureReadsFilesWithoutPermissions(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	for name, modes := range map[string]map[string]os.FileMode{
		"a file":                {"dir/new": 0},
		"a tracked file":        {"a.txt": 0},
		"a write-only file":     {"dir/new": 0o200},
		"a directory":           {"dir": 0},
		"a directory without r": {"dir": 0o300},
		"a directory without x": {"dir": 0o400},
		"nested directories":    {"dir/sub": 0, "dir": 0},
		"a read-only tree":      {".": 0o500, "dir": 0o500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, "a.txt", "changed\n")
			l.WriteIn(w.Tree, "dir/new", "n\n")
			l.WriteIn(w.Tree, "dir/sub/new", "n\n")
			for _, path := range slices.Backward(slices.Sorted(maps.Keys(modes))) {
				l.Must(os.Chmod(filepath.Join(w.Tree, path), modes[path]))
			}
			t.Cleanup(func() {
				for _, path := range slices.Sorted(maps.Keys(modes)) {
					_ = os.Chmod(filepath.Join(w.Tree, path), 0o700)
				}
			})
			got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
			l.Must(err)
			want := initialFilesWith(map[string]string{"a.txt": "100644 changed\n", "dir/new": "100644 n\n", "dir/sub/new": "100644 n\n"})
			gittest.RequireSame(t, "captured", l.Files(got.Commit), want)
		})
	}
}
