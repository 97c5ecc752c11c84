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

// stopped is an Advance that was killed at a point, with everything that it had started.
func (ad *advancer) stopped(point string) {
	ad.T.Helper()
	x, _, err := ad.until(point)
	if !errors.Is(err, errFault) {
		ad.T.Fatal(err)
	}
	ad.Must(x.closeUpdateRef())
}

func TestFinishAdvanceFindsWhatWasTornByAPowerCut(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		path := func(name string) string { return filepath.Join(ad.Root, name) }
		for _, c := range []struct {
			name string
			do   func()
		}{
			{"a part of a file", func() { ad.Must(os.Truncate(path("bin"), 1000)); ad.Must(os.Truncate(path("a.txt"), 3)) }},
			{"nothing of it", func() { ad.Must(os.Truncate(path("bin"), 0)); ad.Must(os.Truncate(path("a.txt"), 0)) }},
			{"no file", func() { ad.Must(os.Remove(path("bin"))); ad.Must(os.Remove(path("a.txt"))) }},
			{"another time", func() { ad.Shell("touch -d @1 bin a.txt new/in/here run.sh d2f f2d/a/b") }},
			{"what was there before, again", func() { ad.Shell("rm a.txt; echo a >a.txt") }},
			{"a mix of all", func() {
				ad.Must(os.Truncate(path("bin"), 1000))
				ad.Must(os.Remove(path("a.txt")))
				ad.Shell("touch -d @1 new/in/here run.sh")
			}},
		} {
			ad.stopped("commit")
			c.do()
			if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
				t.Errorf("%s: %v, %v", c.name, done, err)
			}
			gittest.RequireSame(t, c.name, ad.sum(), before)
		}
		// What is not a part of it is somebody's.
		ad.stopped("commit")
		ad.Must(os.WriteFile(path("bin"), []byte("x"), 0o644))
		var e *ConcurrentChangeError
		if _, err := Recover(t.Context(), ad.repo, ad.a); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "bin" {
			t.Errorf("%v", err)
		}
		ad.Must(os.Remove(path("bin")))
		gittest.RequireSame(t, "the rest", ad.sum(), before)
	})
}

func TestFinishAdvanceWithoutSwappingFiles(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		for _, point := range []string{"put dir/b.txt", "moved", "commit"} {
			x, err := ad.begin()
			ad.Must(err)
			x.fault = func(at string) error {
				if at == point {
					return errFault
				}
				return nil
			}
			ad.Must(x.Lock(t.Context()))
			x.staging.noExchange = true
			ad.Must(x.Prepare(t.Context()))
			// No step can be taken after one that failed.
			if err := errors.Join(x.MoveFiles(t.Context()), x.Commit(t.Context()), x.Publish(t.Context())); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			ad.Must(x.closeUpdateRef())
			// The moment at which one has gone and the other has not come.
			if point == "moved" {
				i, _ := x.staging.plan.findMove("a.txt")
				ad.Must(os.Remove(filepath.Join(ad.Root, "a.txt")))
				if !gittest.Exists(filepath.Join(x.staging.dir, "old", slotName(i))) {
					t.Fatal("it is not aside")
				}
			}
			if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
				t.Errorf("%s: %v, %v", point, done, err)
			}
			gittest.RequireSame(t, point, ad.sum(), before)
		}
	})
}

func TestFinishAdvanceRemovesOnlyLocksThatAreOurs(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		gitArgs := func(name string) string { return filepath.Join(ad.Root, ".git", name) }
		ad.stopped("commit")
		ad.WriteIn(ad.Root, ".git/refs/heads/main.lock", ad.a.New+"\n")
		ad.WriteIn(ad.Root, ".git/HEAD.lock", "")
		ad.WriteIn(ad.Root, ".git/refs/agency/trash/x.lock", ad.a.Old+"\n")
		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "locks of ours", ad.sum(), before)

		// Of somebody else's nothing is touched.
		ad.stopped("commit")
		ad.WriteIn(ad.Root, ".git/refs/heads/main.lock", ad.a.Old+"\n")
		ad.WriteIn(ad.Root, ".git/HEAD.lock", "")
		ad.Shell("touch -d @1 .git/HEAD.lock") // from before
		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		for _, name := range []string{"refs/heads/main.lock", "HEAD.lock"} {
			if !gittest.Exists(gitArgs(name)) {
				t.Errorf("%s is gone", name)
			}
			ad.Must(os.Remove(gitArgs(name)))
		}
		gittest.RequireSame(t, "locks of others", ad.sum(), before)

		// A lock of the index that is not ours: nothing at all.
		ad.stopped("commit")
		ad.Must(os.Remove(gitArgs("index.lock")))
		ad.WriteIn(ad.Root, ".git/index.lock", "")
		stopped := ad.sum()
		var locked *git.LockedError
		if _, err := Recover(t.Context(), ad.repo, ad.a); !errors.As(err, &locked) {
			t.Errorf("a lock: %v", err)
		}
		gittest.RequireSame(t, "a lock", ad.sum(), stopped)
		ad.Must(os.Remove(gitArgs("index.lock")))

		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "unlocked", ad.sum(), before)
	})
}

// The branch has gone elsewhere, or is gone: what had come goes, for it was never a part of it.
func TestFinishAdvanceUndoesWhereverTheBranchIs(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		status := ad.status()
		other := ad.Git("commit-tree", "-m", "x", "-p", "main", "main^{tree}")
		for _, locked := range []bool{true, false} {
			for _, args := range [][]string{{"refs/heads/main", other}, {"-d", "refs/heads/main"}} {
				ad.stopped("commit")
				if !locked {
					ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock")))
				}
				ad.Git(append([]string{"update-ref"}, args...)...)
				for range 2 {
					if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
						t.Fatalf("%q: %v, %v", args, done, err)
					}
				}
				ad.Git("update-ref", "refs/heads/main", ad.a.Old)
				if got := ad.status(); got != status {
					t.Errorf("%q: status is\n%s\nwant\n%s", args, got, status)
				}
				ad.unlocked()
			}
		}
	})
}

// What somebody has committed of what had come is theirs.
func TestFinishAdvanceTakesNothingAwayThatWasCommitted(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		ad.stopped("commit")
		ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock")))
		ad.Git("add", "a.txt", "f2d", "new")
		ad.Git("rm", "-q", "--cached", "del.txt")
		ad.Git("commit", "-q", "-m", "mine")
		var e *ConcurrentChangeError
		if _, err := Recover(t.Context(), ad.repo, ad.a); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "a.txt del.txt f2d f2d/a/b new/in/here" {
			t.Errorf("%v", err)
		}
		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Errorf("again: %v, %v", done, err)
		}
		if got := ad.Git("diff", "--name-only", "HEAD"); got != "keep.txt" {
			t.Errorf("changed: %q", got)
		}
		ad.unlocked()
	})
}

func TestFinishAdvanceGoesOnWhereTheBranchHasMoved(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		for name, do := range map[string]func(ad *advancer){
			"killed before the index was published": func(*advancer) {},
			"killed when it had been": func(ad *advancer) {
				ad.Must(os.Rename(filepath.Join(ad.Root, ".git/index.lock"), filepath.Join(ad.Root, ".git/index")))
			},
			"the branch has gone on": func(ad *advancer) {
				ad.Git("update-ref", "refs/heads/main", ad.Git("commit-tree", "-m", "x", "-p", "main", "main^{tree}"))
			},
			"somebody has taken the lock away": func(ad *advancer) { ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock"))) },
			"and has staged something": func(ad *advancer) {
				ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock")))
				ad.Write("staged.more", "x")
				ad.Git("add", "staged.more")
				ad.Git("rm", "-q", "--cached", "staged.more")
			},
			"and has staged some of what came": func(ad *advancer) {
				ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock")))
				ad.Git("add", "a.txt", "f2d")
			},
			"killed before the index was made again": func(ad *advancer) {
				ad.Shell("rm .git/index.lock .git/index.agency")
			},
			"killed when nothing of it was written": func(ad *advancer) {
				ad.Must(os.Truncate(filepath.Join(ad.Root, ".git/index.agency"), 0))
			},
			"killed when a part of it was": func(ad *advancer) {
				ad.Must(os.Truncate(filepath.Join(ad.Root, ".git/index.agency"), 100))
				ad.WriteIn(ad.Root, ".git/index.agency-again", "DIRC")
			},
			"published, and somebody has taken back a part of it": func(ad *advancer) {
				ad.Shell("mv .git/index.lock .git/index; rm .git/index.agency")
				ad.Git("checkout", "-q", ad.a.Old, "--", "a.txt", "del.txt")
				ad.Git("commit", "-q", "-m", "x", "--", "a.txt", "del.txt")
			},
			"published, and somebody has gone elsewhere": func(ad *advancer) {
				ad.Shell("mv .git/index.lock .git/index; rm .git/index.agency")
				ad.Git("checkout", "-q", "-b", "other", ad.a.Old)
			},
			"and HEAD is still locked": func(ad *advancer) { ad.WriteIn(ad.Root, ".git/HEAD.lock", "") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ad := messy(t)
				status := ad.status()
				ad.stopped("publish")
				do(ad)
				_ = os.Remove(filepath.Join(ad.Root, "staged.more"))
				for range 2 {
					if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
						t.Fatalf("%v, %v", done, err)
					}
				}
				ad.a.New = ad.Git("rev-parse", "main")
				ad.landed(status)
			})
		}
	})
}

// Some of the refs can have moved when git is killed, but never the branch before the others.
func TestFinishAdvancePutsOtherRefsBack(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		ad.stopped("commit")
		ad.Git("update-ref", "--create-reflog", "refs/agency/trash/x", ad.a.Old)
		for _, log := range []string{"HEAD", "refs/heads/main"} { // it is written before the ref
			ad.Shell("echo '" + ad.a.Old + " " + ad.a.New + " Somebody <s> 1 +0000\tland' >>.git/logs/" + log)
		}
		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		now := ad.sum()
		delete(now, filepath.Join(ad.Root, ".git/logs/refs/agency"))
		gittest.RequireSame(t, "refs", now, before)
	})
}

// What somebody has staged when the lock was gone stays staged, and everything else comes.
func TestFinishAdvanceKeepsWhatWasStagedSince(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		ad.stopped("publish")
		ad.Must(os.Remove(filepath.Join(ad.Root, ".git/index.lock")))
		ad.Write("a.txt", "mine\n")
		ad.Git("add", "a.txt")
		if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		if got := ad.Git("diff", "--cached", "--name-only"); got != "a.txt\nstaged.new" {
			t.Errorf("staged: %q", got)
		}
		if got := ad.Git("show", ":a.txt"); got != "mine" {
			t.Errorf("a.txt is staged as %q", got)
		}
		ad.unlocked()
	})
}
