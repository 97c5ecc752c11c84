package changeset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// faultPoints returns the fault points of Create and Fill, in order.
func faultPoints(steps []string) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s+":before", s+":after")
	}
	return all
}

var errInjected = errors.New("boom")

func faultAt(point string) func(context.Context, string) error {
	return func(_ context.Context, p string) error {
		if p == point {
			return errInjected
		}
		return nil
	}
}

func TestCreateMakesTreeBranchAndEntry(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	var seen []string
	tx := undo.Tx{Fault: func(_ context.Context, p string) error { seen = append(seen, p); return nil }}
	l.must(l.create(t.Context(), &tx, s))
	if got, want := strings.Join(seen, " "), strings.Join(faultPoints(kinds[0].steps), " "); got != want {
		t.Errorf("the steps are %s, want %s", got, want)
	}
	if status := l.gitIn(s.Tree, "status", "--porcelain", "--ignored"); status != "" {
		t.Errorf("status: %q", status)
	}
	if head := l.gitIn(s.Tree, "symbolic-ref", "HEAD"); head != s.Branch || l.git("rev-parse", s.Branch) != s.Base {
		t.Errorf("HEAD is %s at %s", head, l.git("rev-parse", s.Branch))
	}
	if log := l.git("reflog", "show", "--format=%gs", s.Branch); log != s.Reason {
		t.Errorf("reflog message %q", log)
	}
	if data, err := os.ReadFile(filepath.Join(s.Tree, "dir/b.txt")); err != nil || string(data) != "b\n" {
		t.Errorf("dir/b.txt: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(l.scratch); err != nil || len(entries) > 0 {
		t.Errorf("in scratch: %v, %v", entries, err)
	}
	if !exists(filepath.Join(l.dir, ".git/worktrees", testID, "gitdir")) {
		t.Error("the worktree entry has another name")
	}
	if upstream, err := l.tryGit(l.dir, "config", "--get-regexp", `branch\.`); err == nil {
		t.Errorf("the branch has an upstream: %s", upstream)
	}
	l.must(l.backend.Sync(s))

	// Rollback after Commit removes nothing.
	tx.Commit()
	if failed := tx.Rollback(t.Context()); failed != nil || !exists(s.Tree) {
		t.Errorf("after the commit: %v", failed)
	}
}

func TestRollbackRestoresStateAfterAnyFailure(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			testRollback(t, kind.name, faultPoints(kind.steps))
		})
	}
}

// testRollback checks that a rollback restores all files after a failure at each point.
func testRollback(t *testing.T, changeset string, points []string) {
	for _, kind := range []struct {
		name    string
		arrange func(l *testRepo)
	}{
		{"alone", func(l *testRepo) {}},
		{"with siblings", func(l *testRepo) {
			var tx undo.Tx
			s := l.spec()
			s.ID, s.Tree, s.Branch = "20260128120000-0000", filepath.Join(l.data, "sibling"), "refs/heads/agency/sandbox-20260128120000-0000"
			if s.OverlayDir != "" {
				s.OverlayDir = filepath.Join(l.data, "sibling-overlay")
			}
			if s.CloneDir != "" {
				s.CloneDir = filepath.Join(l.data, "sibling-clone")
			}
			l.must(l.create(l.t.Context(), &tx, s))
			l.writeFile(s.Tree, "a.txt", "dirty\n")
		}},
		{"packed", func(l *testRepo) { l.git("pack-refs", "--all", "--prune"); l.git("gc", "-q") }},
	} {
		for i, point := range points {
			for _, how := range []string{"fails", "is cancelled"} {
				thinned := testing.Short() && changeset != "worktree"
				if kind.name != "alone" && (how == "is cancelled" || thinned) || thinned && (how == "is cancelled" || i%2 == 0) {
					continue
				}
				t.Run(kind.name+", "+point+" "+how, func(t *testing.T) {
					t.Parallel()
					l := newTestRepoOf(t, changeset)
					kind.arrange(l)
					before := l.snapshot()
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					tx := undo.Tx{Fault: faultAt(point)}
					if how == "is cancelled" {
						tx.Fault = func(_ context.Context, p string) error {
							if p == point {
								cancel(errInjected)
							}
							return nil
						}
					}
					err := l.create(ctx, &tx, l.spec())
					last := point == points[len(points)-1]
					if (point == "index:before" || point == "clone:before") && how == "is cancelled" {
						last = true // without a git process that could be ended, the step is completed
					}
					if !last && !errors.Is(err, errInjected) || last && (err != nil) != (how == "fails") {
						t.Fatalf("got %v", err)
					}
					if failed := tx.Rollback(context.WithoutCancel(ctx)); failed != nil {
						t.Errorf("the rollback: %v", failed)
					}
					requireSame(t, "afterwards", l.snapshot(), before)
					if kind.name == "alone" && how == "fails" { // the names are free again
						var again undo.Tx
						l.must(l.create(t.Context(), &again, l.spec()))
					}
				})
			}
		}
	}
}

// TestKilledGitIsUndone kills the git process of every step with SIGKILL and checks that its remains are undone.
func TestKilledGitIsUndone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sub, when string }{
		{"update-ref", "before"},
		{"update-ref", "after"},
		{"worktree", "before"},
		{"worktree", "middle"},
		{"worktree", "after"},
		{"read-tree", "before"},
		{"read-tree", "middle"},
		{"read-tree", "after"},
	} {
		for _, how := range []string{"a rollback", "RemoveIncomplete"} {
			t.Run(c.sub+" "+c.when+", "+how, func(t *testing.T) {
				t.Parallel()
				l := newTestRepo(t)
				s := l.spec()
				if c.sub == "worktree" {
					l.leaveEntriesToGit()
				}
				if c.sub+c.when == "read-treemiddle" {
					l.git("config", "filter.kill.smudge", "kill -KILL $PPID")
					l.writeFile(l.dir, ".git/info/attributes", "b.txt filter=kill\n")
				}
				if c.sub == "read-tree" && c.when != "middle" {
					s.Source = checkout.Source{} // git is needed only for the rest
				}
				before := l.snapshot()
				l.killGitAt(c.sub, c.when)
				var tx undo.Tx
				err := l.create(t.Context(), &tx, s)
				l.stopKilling()
				if err == nil || git.ChangedNothing(err) {
					t.Fatalf("git was not killed: %v", err)
				}
				if how == "RemoveIncomplete" {
					l.must(l.backend.RemoveIncomplete(t.Context(), s))
				} else if failed := tx.Rollback(t.Context()); failed != nil {
					t.Errorf("the rollback: %v", failed)
				}
				requireSame(t, "afterwards", l.snapshot(), before)
			})
		}
	}
}

func TestCreateKeepsForeignBranch(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *testRepo, s Spec){
		"at the same commit": func(l *testRepo, s Spec) { l.git("branch", strings.TrimPrefix(s.Branch, "refs/heads/")) },
		"at another commit": func(l *testRepo, s Spec) {
			l.git("update-ref", s.Branch, l.git("commit-tree", "-m", "other", "main^{tree}"))
		},
		"packed": func(l *testRepo, s Spec) {
			l.git("branch", strings.TrimPrefix(s.Branch, "refs/heads/"))
			l.git("pack-refs", "--all", "--prune")
		},
		"checked out": func(l *testRepo, s Spec) {
			l.git("worktree", "add", "-q", "-b", strings.TrimPrefix(s.Branch, "refs/heads/"), filepath.Join(l.data, "foreign"))
		},
		"as a parent": func(l *testRepo, s Spec) { l.git("branch", "agency") },
		"as a child":  func(l *testRepo, s Spec) { l.git("branch", strings.TrimPrefix(s.Branch, "refs/heads/")+"/below") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTestRepo(t)
			s := l.spec()
			arrange(l, s)
			before := l.snapshot()
			var tx undo.Tx
			if err := l.create(t.Context(), &tx, s); err == nil {
				t.Fatal("Create succeeded")
			}
			if failed := tx.Rollback(t.Context()); failed != nil {
				t.Errorf("the rollback: %v", failed)
			}
			after := l.snapshot()
			if name == "packed" { // git creates the directory before it finds the packed ref, and leaves it
				delete(after, filepath.Join(l.dir, ".git/refs/heads/agency"))
			}
			requireSame(t, "afterwards", after, before)
		})
	}
}

func TestCreateKeepsExistingDirectory(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *testRepo, s Spec){
		"with work": func(l *testRepo, s Spec) { l.writeFile(s.Tree, "precious", "p\n") },
		"empty":     func(l *testRepo, s Spec) { l.must(os.Mkdir(s.Tree, 0o700)) },
		"a file":    func(l *testRepo, s Spec) { l.writeFile(l.data, "tree", "p\n") },
		"a link":    func(l *testRepo, s Spec) { l.must(os.Symlink(l.dir, s.Tree)) },
		"no parent": func(l *testRepo, s Spec) { l.must(os.Remove(l.data)); l.must(os.Symlink("/nowhere", l.data)) },
		"a worktree": func(l *testRepo, s Spec) {
			l.git("worktree", "add", "-q", "--detach", s.Tree)
			l.writeFile(s.Tree, "a.txt", "dirty\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTestRepo(t)
			s := l.spec()
			arrange(l, s)
			before := l.snapshot()
			var tx undo.Tx
			if err := l.create(t.Context(), &tx, s); err == nil {
				t.Fatal("Create succeeded")
			}
			if failed := tx.Rollback(t.Context()); failed != nil {
				t.Errorf("the rollback: %v", failed)
			}
			requireSame(t, "afterwards", l.snapshot(), before)
		})
	}
}

// TestRemoveIncompleteUndoesInterruptedCreate stops Create at every fault point, as a killed process does, adds damage, and
// calls RemoveIncomplete twice.
func TestRemoveIncompleteUndoesInterruptedCreate(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			testRemoveIncomplete(t, kind.name, faultPoints(kind.steps))
		})
	}
}

func testRemoveIncomplete(t *testing.T, changeset string, points []string) {
	type state struct {
		name  string
		until string                    // fault point at which Create stops
		more  func(l *testRepo, s Spec) // further damage
	}
	var all []state
	for _, p := range points {
		all = append(all, state{p, p, nil})
	}
	filled := points[len(points)-1]
	admin := func(l *testRepo) string { return l.repo.AdminDir(testID) }
	gitFile := func(s Spec) string { return filepath.Join(s.Tree, ".git") }
	switch changeset {
	case "overlay":
		gitFile = func(s Spec) string { return filepath.Join(s.OverlayDir, "upper", ".git") }
	case "clone":
		gitFile = func(s Spec) string { return filepath.Join(s.CloneDir, ".git") }
	}
	all = append(all,
		state{"nothing at all", "tree-dir:before", nil},
		state{"a lock of the branch", "branch:before", func(l *testRepo, s Spec) { l.writeFile(l.dir, ".git/"+s.Branch+".lock", "") }},
		state{"a lock and a log without a branch", "branch:before", func(l *testRepo, s Spec) {
			l.writeFile(l.dir, ".git/"+s.Branch+".lock", s.Base+"\n")
			l.writeFile(l.dir, ".git/logs/"+s.Branch, "rubbish\n")
		}},
		state{"a lock of a branch that is there", "branch:after", func(l *testRepo, s Spec) { l.writeFile(l.dir, ".git/"+s.Branch+".lock", "") }},
		state{"a packed branch", "branch:after", func(l *testRepo, s Spec) { l.git("pack-refs", "--all", "--prune") }},
		state{"the link", "branch:after", func(l *testRepo, s Spec) { l.must(os.Symlink(s.Tree, filepath.Join(s.Scratch, s.ID))) }},
		state{"an empty entry", "branch:after", func(l *testRepo, s Spec) { l.must(os.MkdirAll(admin(l), 0o755)) }},
		state{"an entry that is being made", "branch:after", func(l *testRepo, s Spec) { l.writeFile(admin(l), "locked", "initializing") }},
		state{"an entry without a tree's .git", "registration:after", func(l *testRepo, s Spec) { l.must(os.Remove(gitFile(s))) }},
		state{"an empty commondir, which hurts every git", "registration:after", func(l *testRepo, s Spec) { l.must(os.Truncate(filepath.Join(admin(l), "commondir"), 0)) }},
		state{"an empty gitdir", "registration:after", func(l *testRepo, s Spec) { l.must(os.Truncate(filepath.Join(admin(l), "gitdir"), 0)) }},
		state{"an empty HEAD", "registration:after", func(l *testRepo, s Spec) { l.must(os.Truncate(filepath.Join(admin(l), "HEAD"), 0)) }},
		state{"locks in the entry", "registration:after", func(l *testRepo, s Spec) {
			l.writeFile(admin(l), "index.lock", "")
			l.writeFile(admin(l), "HEAD.lock", "")
			l.writeFile(admin(l), "locked", "initializing")
		}},
		state{"half a checkout", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(filepath.Join(filepath.Dir(gitFile(s)), "a.txt"))) }},
		state{"no tree any more", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(s.Tree)) }},
		state{"no entry any more", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(admin(l))) }},
		state{"no branch any more", filled, func(l *testRepo, s Spec) { l.git("update-ref", "-d", s.Branch) }},
		state{"a removal that was killed", filled, func(l *testRepo, s Spec) {
			l.must(os.Rename(admin(l), filepath.Join(l.dir, ".git/agency/removed-"+testID)))
		}},
	)
	switch changeset {
	case "clone":
		all = append(all,
			state{"a lock of the base", "base:before", func(l *testRepo, s Spec) { l.writeFile(l.dir, ".git/"+BaseRef(s.ID)+".lock", "") }},
			state{"a packed base", "base:after", func(l *testRepo, s Spec) { l.git("pack-refs", "--all", "--prune") }},
			state{"no base any more", filled, func(l *testRepo, s Spec) { l.git("update-ref", "-d", BaseRef(s.ID)) }},
			state{"half a clone", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(filepath.Join(s.Tree, ".git/objects"))) }},
			state{"no record of the exchange any more", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(s.CloneDir)) }},
		)
	case "overlay":
		all = append(all,
			state{"no overlay any more", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(s.OverlayDir)) }},
			state{"no layer any more", filled, func(l *testRepo, s Spec) { l.must(os.RemoveAll(l.layers())) }},
		)
	}
	for i, c := range all {
		if testing.Short() && changeset != "worktree" && i%3 > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newTestRepoOf(t, changeset)
			s := l.spec()
			before := l.snapshot()
			tx := undo.Tx{Fault: faultAt(c.until)}
			if err := l.create(t.Context(), &tx, s); !errors.Is(err, errInjected) {
				t.Fatal(err)
			}
			if c.more != nil {
				c.more(l, s)
			}
			for range 2 {
				l.must(l.backend.RemoveIncomplete(t.Context(), s))
				got := l.snapshot()
				if strings.HasPrefix(c.name, "a packed ") { // main is now in packed-refs
					delete(got, filepath.Join(l.dir, ".git/packed-refs"))
					delete(got, filepath.Join(l.dir, ".git/refs/heads/main"))
					delete(before, filepath.Join(l.dir, ".git/refs/heads/main"))
				}
				requireSame(t, "afterwards", got, before)
			}
			if refs := l.git("for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
				t.Errorf("refs: %q", refs)
			}
			l.git("fsck")
			var again undo.Tx
			l.must(l.create(t.Context(), &again, s))
		})
	}
}

// TestMovedBranchIsNotDeleted: new commits on the branch are work that must be kept.
func TestMovedBranchIsNotDeleted(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	var tx undo.Tx
	l.must(l.create(t.Context(), &tx, s))
	l.writeFile(s.Tree, "new", "n\n")
	l.gitIn(s.Tree, "add", "-A")
	l.gitIn(s.Tree, "commit", "-q", "-m", "new")
	tip := l.git("rev-parse", s.Branch)
	log := l.git("reflog", "show", s.Branch)
	if err := l.backend.DeleteBranch(t.Context(), s, s.Base); err == nil {
		t.Error("deleted with the wrong old value")
	}
	if failed := tx.Rollback(t.Context()); len(failed) == 0 {
		t.Error("an incomplete rollback returned no error")
	}
	if err := l.backend.RemoveIncomplete(t.Context(), s); err == nil {
		t.Error("an incomplete RemoveIncomplete returned no error")
	}
	if l.git("rev-parse", s.Branch) != tip || l.git("reflog", "show", s.Branch) != log {
		t.Error("the branch or its reflog changed")
	}
	l.must(l.backend.DeleteBranch(t.Context(), s, tip))
	if out, err := l.tryGit(l.dir, "rev-parse", "-q", "--verify", s.Branch); err == nil {
		t.Errorf("the branch is still at %s", out)
	}
}

func TestRemoveKeepsBranch(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	var tx undo.Tx
	l.must(l.create(t.Context(), &tx, s))
	l.writeFile(s.Tree, "untracked", "u\n")
	for range 2 {
		l.must(l.backend.Remove(s))
		if exists(s.Tree) || exists(filepath.Join(l.dir, ".git/worktrees")) {
			t.Error("the tree or the worktree entry still exists")
		}
		if l.git("rev-parse", s.Branch) != s.Base || l.git("reflog", "show", s.Branch) == "" {
			t.Error("the branch or its reflog changed")
		}
	}
}

func TestSyncFailsOnMissingFiles(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	if err := l.backend.Sync(s); err == nil {
		t.Error("no error without a worktree")
	}
	var tx undo.Tx
	l.must(l.create(t.Context(), &tx, s))
	l.must(os.Remove(filepath.Join(s.Tree, ".git")))
	if err := l.backend.Sync(s); err == nil {
		t.Error("no error without the .git file")
	}
}

// Sync dates the index of a checkout after its files. An index of other content than the files keeps its time, by which git
// knows that it must read them.
func TestSyncDatesIndexOfCheckout(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]bool{"checkout": false, "state": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTestRepo(t)
			s := l.spec()
			if files {
				s.FilesCommit = s.Base
			}
			var tx undo.Tx
			l.must(l.create(t.Context(), &tx, s))
			indexFile, old := filepath.Join(l.repo.AdminDir(s.ID), "index"), time.Now().Add(-time.Hour).Truncate(time.Second)
			l.must(os.Chtimes(indexFile, old, old))
			l.must(l.backend.Sync(s))
			fi, err := os.Stat(indexFile)
			l.must(err)
			if kept := fi.ModTime().Equal(old); kept != files {
				t.Errorf("the index is of %s, and was of %s", fi.ModTime(), old)
			}
		})
	}
}

// Invariant 7: a rollback undoes only what the same run created. The caller has checked that every name is free, but a
// plain git command does not take our lock, so the next tests create the names meanwhile.

// TestCancelledCreateKeepsConcurrentBranch cancels before git update-ref starts: Create made no branch, so none is removed.
func TestCancelledCreateKeepsConcurrentBranch(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx := undo.Tx{Fault: func(_ context.Context, p string) error {
		if p == "branch:before" {
			l.git("branch", strings.TrimPrefix(s.Branch, "refs/heads/"), s.Base)
			cancel()
		}
		return nil
	}}
	if err := l.create(ctx, &tx, s); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	tx.Rollback(t.Context())
	if _, err := l.tryGit(l.dir, "rev-parse", "-q", "--verify", s.Branch); err != nil {
		t.Error("the concurrent branch was removed")
	}
}

// TestRollbackRemovesOnlyItsWorktreeEntry: git adds a number to the name of a worktree entry that exists already. The
// existing entry is foreign; the numbered one belongs to Create.
func TestRollbackRemovesOnlyItsWorktreeEntry(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	foreign := filepath.Join(l.data, testID)
	tx := undo.Tx{Fault: func(_ context.Context, p string) error {
		if p == "registration:before" {
			l.git("worktree", "add", "-q", "--detach", foreign)
		}
		return nil
	}}
	if err := l.create(t.Context(), &tx, s); err == nil {
		t.Fatal("Create succeeded")
	}
	tx.Rollback(t.Context())
	if status, err := l.tryGit(foreign, "status", "--porcelain"); err != nil || status != "" {
		t.Errorf("the foreign worktree is damaged: %q, %v", status, err)
	}
	if entries, err := os.ReadDir(filepath.Join(l.dir, ".git/worktrees")); err != nil || len(entries) != 1 {
		t.Errorf("the entries are %v, %v", entries, err)
	}
}

// TestRollbackKeepsForeignFileInScratch puts a file where Create makes its symlink.
func TestRollbackKeepsForeignFileInScratch(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	l.leaveEntriesToGit()
	s := l.spec()
	l.writeFile(l.scratch, testID, "mine\n")
	var tx undo.Tx
	if err := l.create(t.Context(), &tx, s); err == nil {
		t.Fatal("Create succeeded")
	}
	tx.Rollback(t.Context())
	if !exists(filepath.Join(l.scratch, testID)) {
		t.Error("the foreign file was removed")
	}
}

// TestRemoveIncompleteKeepsTreeOfMovedBranch: a process killed after it wrote the record and before it removed the intent
// leaves a complete worktree. If the record is lost later, the intent alone looks like an incomplete creation, but commits
// on the branch show that it was used.
func TestRemoveIncompleteKeepsTreeOfMovedBranch(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	var tx undo.Tx
	l.must(l.create(t.Context(), &tx, s))
	l.writeFile(s.Tree, "committed", "c\n")
	l.gitIn(s.Tree, "add", "-A")
	l.gitIn(s.Tree, "commit", "-q", "-m", "work")
	l.writeFile(s.Tree, "precious", "not committed\n")
	if err := l.backend.RemoveIncomplete(t.Context(), s); err == nil {
		t.Error("RemoveIncomplete removed a worktree with commits")
	}
	if !exists(filepath.Join(s.Tree, "precious")) {
		t.Error("uncommitted files were removed before the refusal")
	}
}

// TestCreateFromState creates a worktree with given files, index and branch tip, which differs from the base.
func TestCreateFromState(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	s := l.spec()
	l.writeFile(l.dir, "committed", "c\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "second")
	s.Tip = l.git("rev-parse", "HEAD")
	l.writeFile(l.dir, "staged", "s\n")
	l.git("add", "staged")
	l.git("rm", "-q", "--cached", "a.txt")
	s.IndexTree = l.git("write-tree")
	l.writeFile(l.dir, "staged", "and changed\n")
	l.writeFile(l.dir, "untracked", "u\n")
	l.must(os.Remove(filepath.Join(l.dir, "dir/b.txt")))
	status := l.git("status", "--porcelain")
	l.git("add", "-A")
	s.FilesCommit = l.git("commit-tree", "-m", "state", l.git("write-tree"))

	var seen []string
	tx := undo.Tx{Fault: func(_ context.Context, p string) error { seen = append(seen, p); return nil }}
	l.must(l.create(t.Context(), &tx, s))
	if want := append(faultPoints(kinds[0].steps)[:6], "files:before", "files:after", "index:before", "index:after"); !slices.Equal(seen, want) {
		t.Errorf("the steps are %q, want %q", seen, want)
	}
	if got := l.gitIn(s.Tree, "status", "--porcelain"); got != status {
		t.Errorf("status is\n%s\nwant\n%s", got, status)
	}
	if got := l.git("rev-parse", s.Branch); got != s.Tip {
		t.Errorf("the branch is at %s", got)
	}
	if entries, err := os.ReadDir(l.scratch); err != nil || len(entries) > 0 {
		t.Errorf("in scratch: %v, %v", entries, err)
	}
	l.must(l.backend.RemoveIncomplete(t.Context(), s))
	if found, err := l.repo.Lookup(t.Context(), s.Branch); err != nil || !found[0].Missing() {
		t.Errorf("the branch is left: %v, %v", found, err)
	}
}
