package update

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// killAt runs an update to a fault injection point and leaves it as if the process had been killed there.
func (lab *updateLab) killAt(point string) {
	lab.T.Helper()
	tx, _, err := lab.runUntil(point)
	if !errors.Is(err, errFault) {
		lab.T.Fatal(err)
	}
	lab.Must(tx.closeUpdateRef())
}

func TestRecoverRestoresFilesTornByPowerCut(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		path := func(name string) string { return filepath.Join(lab.Root, name) }
		for _, c := range []struct {
			name string
			do   func()
		}{
			{"truncated files", func() { lab.Must(os.Truncate(path("bin"), 1000)); lab.Must(os.Truncate(path("a.txt"), 3)) }},
			{"empty files", func() { lab.Must(os.Truncate(path("bin"), 0)); lab.Must(os.Truncate(path("a.txt"), 0)) }},
			{"missing files", func() { lab.Must(os.Remove(path("bin"))); lab.Must(os.Remove(path("a.txt"))) }},
			{"other mtimes", func() { lab.Shell("touch -d @1 bin a.txt new/in/here run.sh d2f f2d/a/b") }},
			{"the old file again", func() { lab.Shell("rm a.txt; echo a >a.txt") }},
			{"a mix of these", func() {
				lab.Must(os.Truncate(path("bin"), 1000))
				lab.Must(os.Remove(path("a.txt")))
				lab.Shell("touch -d @1 new/in/here run.sh")
			}},
		} {
			lab.killAt("commit")
			c.do()
			if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
				t.Errorf("%s: %v, %v", c.name, done, err)
			}
			gittest.RequireSame(t, c.name, lab.diskState(), before)
		}
		// Content that is no prefix of the new file was written by another process.
		lab.killAt("commit")
		lab.Must(os.WriteFile(path("bin"), []byte("x"), 0o644))
		var e *ConcurrentChangeError
		if _, err := Recover(t.Context(), lab.repo, lab.spec); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "bin" {
			t.Errorf("%v", err)
		}
		lab.Must(os.Remove(path("bin")))
		gittest.RequireSame(t, "other files", lab.diskState(), before)
	})
}

func TestRecoverWithoutRenameExchange(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		for _, point := range []string{"put dir/b.txt", "moved", "commit"} {
			tx, err := lab.begin()
			lab.Must(err)
			tx.fault = func(at string) error {
				if at == point {
					return errFault
				}
				return nil
			}
			lab.Must(tx.Lock(t.Context()))
			tx.staging.noExchange = true
			lab.Must(tx.Prepare(t.Context()))
			// Steps after a failed one are refused.
			if err := errors.Join(tx.MoveFiles(t.Context()), tx.Commit(t.Context()), tx.Publish(t.Context())); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			lab.Must(tx.closeUpdateRef())
			// The moment after the old file was moved away and before the new one was moved in.
			if point == "moved" {
				i, _ := tx.staging.plan.findMove("a.txt")
				lab.Must(os.Remove(filepath.Join(lab.Root, "a.txt")))
				if !gittest.Exists(filepath.Join(tx.staging.dir, "old", slotName(i))) {
					t.Fatal("the old file is not in the staging directory")
				}
			}
			if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
				t.Errorf("%s: %v, %v", point, done, err)
			}
			gittest.RequireSame(t, point, lab.diskState(), before)
		}
	})
}

func TestRecoverRemovesOnlyOwnLocks(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		gitPath := func(name string) string { return filepath.Join(lab.Root, ".git", name) }
		lab.killAt("commit")
		lab.WriteIn(lab.Root, ".git/refs/heads/main.lock", lab.spec.New+"\n")
		lab.WriteIn(lab.Root, ".git/HEAD.lock", "")
		lab.WriteIn(lab.Root, ".git/refs/agency/trash/x.lock", lab.spec.Old+"\n")
		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "own locks", lab.diskState(), before)

		// Locks of other processes stay.
		lab.killAt("commit")
		lab.WriteIn(lab.Root, ".git/refs/heads/main.lock", lab.spec.Old+"\n")
		lab.WriteIn(lab.Root, ".git/HEAD.lock", "")
		lab.Shell("touch -d @1 .git/HEAD.lock") // older than the update
		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		for _, name := range []string{"refs/heads/main.lock", "HEAD.lock"} {
			if !gittest.Exists(gitPath(name)) {
				t.Errorf("%s is gone", name)
			}
			lab.Must(os.Remove(gitPath(name)))
		}
		gittest.RequireSame(t, "locks of others", lab.diskState(), before)

		// With an index.lock of another process Recover changes nothing.
		lab.killAt("commit")
		lab.Must(os.Remove(gitPath("index.lock")))
		lab.WriteIn(lab.Root, ".git/index.lock", "")
		stopped := lab.diskState()
		var locked *git.LockedError
		if _, err := Recover(t.Context(), lab.repo, lab.spec); !errors.As(err, &locked) {
			t.Errorf("index.lock of another process: %v", err)
		}
		gittest.RequireSame(t, "index.lock of another process", lab.diskState(), stopped)
		lab.Must(os.Remove(gitPath("index.lock")))

		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "unlocked", lab.diskState(), before)
	})
}

// Recover undoes the update when the branch is at another commit or was deleted: the new commit was never part of it.
func TestRecoverUndoesForAnyBranchPosition(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		status := lab.status()
		other := lab.Git("commit-tree", "-m", "x", "-p", "main", "main^{tree}")
		for _, locked := range []bool{true, false} {
			for _, args := range [][]string{{"refs/heads/main", other}, {"-d", "refs/heads/main"}} {
				lab.killAt("commit")
				if !locked {
					lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock")))
				}
				lab.Git(append([]string{"update-ref"}, args...)...)
				for range 2 {
					if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
						t.Fatalf("%q: %v, %v", args, done, err)
					}
				}
				lab.Git("update-ref", "refs/heads/main", lab.spec.Old)
				if got := lab.status(); got != status {
					t.Errorf("%q: status is\n%s\nwant\n%s", args, got, status)
				}
				lab.requireNoLeftovers()
			}
		}
	})
}

// Recover leaves new files that the user has committed since.
func TestRecoverKeepsCommittedFiles(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		lab.killAt("commit")
		lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock")))
		lab.Git("add", "a.txt", "f2d", "new")
		lab.Git("rm", "-q", "--cached", "del.txt")
		lab.Git("commit", "-q", "-m", "mine")
		var e *ConcurrentChangeError
		if _, err := Recover(t.Context(), lab.repo, lab.spec); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "a.txt del.txt f2d f2d/a/b new/in/here" {
			t.Errorf("%v", err)
		}
		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Errorf("second Recover: %v, %v", done, err)
		}
		if got := lab.Git("diff", "--name-only", "HEAD"); got != "keep.txt" {
			t.Errorf("changed: %q", got)
		}
		lab.requireNoLeftovers()
	})
}

func TestRecoverFinishesAfterBranchMoved(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		for name, do := range map[string]func(lab *updateLab){
			"index not published": func(*updateLab) {},
			"index published": func(lab *updateLab) {
				lab.Must(os.Rename(filepath.Join(lab.Root, ".git/index.lock"), filepath.Join(lab.Root, ".git/index")))
			},
			"branch moved on": func(lab *updateLab) {
				lab.Git("update-ref", "refs/heads/main", lab.Git("commit-tree", "-m", "x", "-p", "main", "main^{tree}"))
			},
			"index.lock removed": func(lab *updateLab) { lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock"))) },
			"index.lock removed, index rewritten": func(lab *updateLab) {
				lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock")))
				lab.Write("staged.more", "x")
				lab.Git("add", "staged.more")
				lab.Git("rm", "-q", "--cached", "staged.more")
			},
			"index.lock removed, new files staged": func(lab *updateLab) {
				lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock")))
				lab.Git("add", "a.txt", "f2d")
			},
			"index.lock and draft removed": func(lab *updateLab) {
				lab.Shell("rm .git/index.lock .git/index.agency")
			},
			"empty draft": func(lab *updateLab) {
				lab.Must(os.Truncate(filepath.Join(lab.Root, ".git/index.agency"), 0))
			},
			"truncated draft": func(lab *updateLab) {
				lab.Must(os.Truncate(filepath.Join(lab.Root, ".git/index.agency"), 100))
				lab.WriteIn(lab.Root, ".git/index.agency-again", "DIRC")
			},
			"published, and a part reverted": func(lab *updateLab) {
				lab.Shell("mv .git/index.lock .git/index; rm .git/index.agency")
				lab.Git("checkout", "-q", lab.spec.Old, "--", "a.txt", "del.txt")
				lab.Git("commit", "-q", "-m", "x", "--", "a.txt", "del.txt")
			},
			"published, and another branch checked out": func(lab *updateLab) {
				lab.Shell("mv .git/index.lock .git/index; rm .git/index.agency")
				lab.Git("checkout", "-q", "-b", "other", lab.spec.Old)
			},
			"HEAD.lock left": func(lab *updateLab) { lab.WriteIn(lab.Root, ".git/HEAD.lock", "") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lab := newLab(t)
				status := lab.status()
				lab.killAt("publish")
				do(lab)
				_ = os.Remove(filepath.Join(lab.Root, "staged.more"))
				for range 2 {
					if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
						t.Fatalf("%v, %v", done, err)
					}
				}
				lab.spec.New = lab.Git("rev-parse", "main")
				lab.requireLanded(status)
			})
		}
	})
}

// Recover restores refs that moved before git was killed. The branch never moves before the others.
func TestRecoverRestoresOtherRefs(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		lab.killAt("commit")
		lab.Git("update-ref", "--create-reflog", "refs/agency/trash/x", lab.spec.Old)
		for _, log := range []string{"HEAD", "refs/heads/main"} { // git writes the reflog before the ref
			lab.Shell("echo '" + lab.spec.Old + " " + lab.spec.New + " Somebody <s> 1 +0000\tland' >>.git/logs/" + log)
		}
		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		now := lab.diskState()
		delete(now, filepath.Join(lab.Root, ".git/logs/refs/agency"))
		gittest.RequireSame(t, "refs", now, before)
	})
}

// A file that was staged while index.lock was missing stays staged, and all other files are updated.
func TestRecoverKeepsFilesStagedSince(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		lab.killAt("publish")
		lab.Must(os.Remove(filepath.Join(lab.Root, ".git/index.lock")))
		lab.Write("a.txt", "mine\n")
		lab.Git("add", "a.txt")
		if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		if got := lab.Git("diff", "--cached", "--name-only"); got != "a.txt\nstaged.new" {
			t.Errorf("staged: %q", got)
		}
		if got := lab.Git("show", ":a.txt"); got != "mine" {
			t.Errorf("a.txt is staged as %q", got)
		}
		lab.requireNoLeftovers()
	})
}
