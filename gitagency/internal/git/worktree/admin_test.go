package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// adminDirDamages maps the states in which a killed git, a power cut or a user can leave the administrative directory
// of a worktree to functions that produce them.
var adminDirDamages = map[string]func(dir string) error{
	"no damage": func(string) error { return nil },
	"locked": func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "locked"), []byte("initializing"), 0o644)
	},
	"lock files":         addLockFiles,
	"commondir is empty": truncateFile("commondir"),
	"commondir is gone":  removeFile("commondir"),
	"gitdir is empty":    truncateFile("gitdir"),
	"gitdir is gone":     removeFile("gitdir"),
	"HEAD is empty":      truncateFile("HEAD"),
	"HEAD is gone":       removeFile("HEAD"),
	"all are empty": func(dir string) error {
		return errors.Join(truncateFile("HEAD")(dir), truncateFile("gitdir")(dir), truncateFile("commondir")(dir))
	},
	"directory is empty": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
	"directory is gone":  os.RemoveAll,
	"a file":             func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
	"a dangling symlink": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Symlink("/nowhere", dir)) },
	"only the locked file": func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "locked"), nil, 0o644))
	},
	"after a killed removal": func(dir string) error {
		away := filepath.Join(dir, "../../agency/removed-bad")
		return errors.Join(os.MkdirAll(filepath.Join(away, "logs"), 0o755), os.WriteFile(filepath.Join(away, "logs/HEAD"), nil, 0o444))
	},
}

// truncateFile returns a function that truncates a file of the directory.
func truncateFile(name string) func(string) error {
	return func(dir string) error { return os.Truncate(filepath.Join(dir, name), 0) }
}

// removeFile returns a function that removes a file of the directory.
func removeFile(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

// addLockFiles creates the lock files that a killed git leaves.
func addLockFiles(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "HEAD.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "index.lock"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "ORIG_HEAD.lock"), nil, 0o644))
}

func TestRemoveAdminDirRemovesDamagedEntry(t *testing.T) {
	t.Parallel()
	for what, damage := range adminDirDamages {
		for _, others := range []bool{false, true} {
			t.Run(what+map[bool]string{true: ", with others"}[others], func(t *testing.T) {
				t.Parallel()
				l := gittest.New(t)
				repo := OpenRepo(l)
				var good Registration
				var kept map[string]string
				if others {
					good = RegisterWorktree(l, repo, "good", filepath.Join(gittest.TempDir(t), "tree"))
					kept = gittest.DiskState(t, repo.AdminDir("good"), good.Tree)
				}
				bad := RegisterWorktree(l, repo, "bad", filepath.Join(gittest.TempDir(t), "tree"))
				before := gittest.DiskState(t, bad.Tree)
				l.Must(damage(repo.AdminDir("bad")))

				for range 2 { // a second removal does nothing
					l.Must(RemoveAdminDir(repo, "bad"))
					if gittest.Exists(repo.AdminDir("bad")) {
						t.Error("the entry still exists")
					}
					RequireEmptyAgencyDir(l, repo)
					if gittest.Exists(filepath.Join(repo.CommonDir, "worktrees")) != others {
						t.Errorf("existence of .git/worktrees: %v", !others)
					}
				}
				if others {
					gittest.RequireSame(t, "the other worktree", gittest.DiskState(t, repo.AdminDir("good"), good.Tree), kept)
				}
				gittest.RequireSame(t, "the tree", gittest.DiskState(t, bad.Tree), before)
				list := l.Git("worktree", "list", "--porcelain")
				if strings.Contains(list, bad.Tree) || strings.Count(list, "worktree ") != 1+map[bool]int{true: 1}[others] {
					t.Errorf("git lists %q", list)
				}
				l.Git("fsck")
				// The name can be used again.
				l.Must(os.RemoveAll(bad.Tree))
				l.Must(os.Mkdir(bad.Tree, 0o755))
				l.Must(Add(t.Context(), repo, bad))
			})
		}
	}
}

func TestRemoveAdminDirFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	outside := gittest.TempDir(t)
	l.WriteIn(outside, "precious", "p\n")
	l.Must(os.MkdirAll(filepath.Join(repo.CommonDir, "worktrees"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(repo.CommonDir, "agency"), 0o755))
	l.Must(os.Symlink(outside, repo.AdminDir("bad")))
	l.Must(os.Symlink(outside, filepath.Join(repo.CommonDir, "agency", "removed-bad")))
	l.Must(RemoveAdminDir(repo, "bad"))
	if gittest.Exists(repo.AdminDir("bad")) || !gittest.Exists(filepath.Join(outside, "precious")) {
		t.Error("the link is left, or its target was changed")
	}
	RequireEmptyAgencyDir(l, repo)
}

func TestReadAdminEntryResolvesRelativePaths(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := RegisterWorktree(l, repo, "rel", filepath.Join(l.Root, "inside"))
	l.Must(os.WriteFile(filepath.Join(repo.AdminDir("rel"), "gitdir"), []byte("../../../inside/.git\n"), 0o644))
	if got, what := readAdminEntry(repo.AdminDir("rel")); what != "" || got.Path != w.Tree || got.Branch != w.Branch {
		t.Errorf("got %+v, %q", got, what)
	}
}

// readEntries must name the damaged file of an entry. Git lists or skips such entries without a message.
func TestReadEntriesNamesEveryDamage(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		"no damage": "", "locked": "", "lock files": "",
		"commondir is empty": "commondir is empty", "commondir is gone": "commondir is missing",
		"gitdir is empty": "gitdir is empty", "gitdir is gone": "gitdir is missing",
		"HEAD is empty": "HEAD is empty", "HEAD is gone": "HEAD is missing",
		"directory is empty": "HEAD is missing", "a file": "HEAD cannot be read", "a dangling symlink": "HEAD is missing",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			bad := RegisterWorktree(l, repo, "bad", filepath.Join(gittest.TempDir(t), "tree"))
			l.Must(adminDirDamages[what](repo.AdminDir("bad")))
			got, err := ListWithoutGit(repo, nil)
			l.Must(err)
			switch {
			case want == "" && len(got.Damaged) > 0, want != "" && (len(got.Damaged) != 1 || got.Damaged[0].Problem != want || got.Damaged[0].Name != "bad"):
				t.Errorf("got %v, want %q", got.Damaged, want)
			}
			// A worktree whose path is known is listed even if damaged: no worktree may be created inside it.
			_, haveGitdir := os.Stat(filepath.Join(repo.AdminDir("bad"), "gitdir"))
			if haveGitdir == nil && what != "gitdir is empty" && (len(got.Worktrees) != 2 || got.Worktrees[1].Path != bad.Tree) {
				t.Errorf("got %+v", got.Worktrees)
			}
		})
	}
}

func TestRegisteredTreeReadsGitdirFile(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := RegisterWorktree(l, repo, "good", filepath.Join(gittest.TempDir(t), "tr\nee"))
	if got := RegisteredTree(repo, "good"); got != w.Tree {
		t.Errorf("got %q", got)
	}
	l.Must(adminDirDamages["gitdir is empty"](repo.AdminDir("good")))
	for _, name := range []string{"good", "none"} {
		if got := RegisteredTree(repo, name); got != "" {
			t.Errorf("entry %s: tree %q", name, got)
		}
	}
}

// RemoveAdminDir must remove an entry without write permission. To rename a directory to another parent, the kernel
// requires write permission on the directory itself.
func TestRemoveAdminDirRemovesReadOnlyEntry(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l, repo)
	l.Must(os.Chmod(repo.AdminDir(w.Name), 0o500))
	t.Cleanup(func() { _ = os.Chmod(repo.AdminDir(w.Name), 0o700) })
	if err := RemoveAdminDir(repo, w.Name); err != nil {
		t.Error(err)
	}
	if gittest.Exists(repo.AdminDir(w.Name)) {
		t.Error("the entry still exists")
	}
}

// RemoveAdminDir must remove nothing for a name that is not the name of one entry.
func TestRemoveAdminDirRemovesNothingByPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../refs/heads", "good/..", "good/logs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			RegisterWorktree(l, repo, "good", filepath.Join(gittest.TempDir(t), "tree"))
			before := gittest.DiskState(t, repo.AdminDir("good"), filepath.Join(repo.CommonDir, "refs"))
			_ = RemoveAdminDir(repo, name)
			if !gittest.Exists(repo.AdminDir("good")) || !gittest.Exists(filepath.Join(repo.CommonDir, "refs/heads/main")) {
				t.Fatal("files outside one entry were removed")
			}
			gittest.RequireSame(t, "afterwards", gittest.DiskState(t, repo.AdminDir("good"), filepath.Join(repo.CommonDir, "refs")), before)
		})
	}
}

// readEntries must trim a lock reason at both ends, as git worktree list does.
func TestReadEntriesTrimsLockReason(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := RegisterWorktree(l, repo, "x", filepath.Join(gittest.TempDir(t), "tree"))
	l.Git("worktree", "lock", "--reason", "  on a stick\n\n", w.Tree)
	listing, err := List(t.Context(), repo)
	l.Must(err)
	read, err := ListWithoutGit(repo, nil)
	l.Must(err)
	if got, want := read.Worktrees[1].LockReason, listing.Worktrees[1].LockReason; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// readEntries must decide by core.bare whether a repository is bare, not by the name of its directory.
func TestReadEntriesDetectsBareByConfig(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture) string{
		"bare, called .git": func(l *gittest.Fixture) string {
			dir := filepath.Join(gittest.TempDir(l.T), "project")
			l.Git("clone", "-q", "--bare", ".", filepath.Join(dir, ".git"))
			return dir
		},
		"not bare, git dir elsewhere": func(l *gittest.Fixture) string {
			dir := filepath.Join(gittest.TempDir(l.T), "project")
			l.Git("clone", "-q", "--separate-git-dir", dir+".elsewhere", ".", dir)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepoIn(l, arrange(l))
			listing, err := List(t.Context(), repo)
			l.Must(err)
			read, err := ListWithoutGit(repo, nil)
			l.Must(err)
			want, got := listing.Worktrees[0], read.Worktrees[0]
			if got.Path != want.Path || got.Bare != want.Bare || got.Branch != want.Branch {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestRegistrationNamesInMatchesNameOrTree(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l, repo)
	names := func() []string {
		t.Helper()
		registered, err := RegisteredTrees(repo)
		l.Must(err)
		return w.NamesIn(registered)
	}
	if got := names(); !slices.Equal(got, []string{w.Name}) {
		t.Errorf("got %q", got)
	}
	// The entry has another name, and a different worktree has ours.
	l.Must(os.Rename(repo.AdminDir(w.Name), repo.AdminDir("tree1")))
	l.Git("worktree", "add", "-q", "--detach", filepath.Join(t.TempDir(), w.Name))
	if got := names(); !slices.Equal(got, []string{"tree1"}) {
		t.Errorf("got %q", got)
	}
	l.Must(Unregister(repo, w))
	if got := names(); len(got) > 0 || !gittest.Exists(repo.AdminDir(w.Name)) {
		t.Errorf("got %q", got)
	}
	// An incomplete entry of our name counts as ours.
	l.Must(os.RemoveAll(repo.AdminDir(w.Name)))
	l.Must(os.MkdirAll(repo.AdminDir(w.Name), 0o755))
	if got := names(); !slices.Equal(got, []string{w.Name}) {
		t.Errorf("got %q", got)
	}
}
