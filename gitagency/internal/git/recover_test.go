package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stopped is an Advance that was killed at a point, with everything that it had started.
func (ad *advancer) stopped(point string) {
	ad.t.Helper()
	x, _, err := ad.until(point)
	if !errors.Is(err, errFault) {
		ad.t.Fatal(err)
	}
	ad.must(x.closeUpdateRef())
}

func TestFinishAdvanceFindsWhatWasTornByAPowerCut(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		path := func(name string) string { return filepath.Join(ad.dir, name) }
		for _, c := range []struct {
			name string
			do   func()
		}{
			{"a part of a file", func() { ad.must(os.Truncate(path("bin"), 1000)); ad.must(os.Truncate(path("a.txt"), 3)) }},
			{"nothing of it", func() { ad.must(os.Truncate(path("bin"), 0)); ad.must(os.Truncate(path("a.txt"), 0)) }},
			{"no file", func() { ad.must(os.Remove(path("bin"))); ad.must(os.Remove(path("a.txt"))) }},
			{"another time", func() { ad.shell("touch -d @1 bin a.txt new/in/here run.sh d2f f2d/a/b") }},
			{"what was there before, again", func() { ad.shell("rm a.txt; echo a >a.txt") }},
			{"a mix of all", func() {
				ad.must(os.Truncate(path("bin"), 1000))
				ad.must(os.Remove(path("a.txt")))
				ad.shell("touch -d @1 new/in/here run.sh")
			}},
		} {
			ad.stopped("commit")
			c.do()
			if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
				t.Errorf("%s: %v, %v", c.name, done, err)
			}
			requireSame(t, c.name, ad.sum(), before)
		}
		// What is not a part of it is somebody's.
		ad.stopped("commit")
		ad.must(os.WriteFile(path("bin"), []byte("x"), 0o644))
		var e *ConcurrentChangeError
		if _, err := ad.repo.Recover(t.Context(), ad.a); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "bin" {
			t.Errorf("%v", err)
		}
		ad.must(os.Remove(path("bin")))
		requireSame(t, "the rest", ad.sum(), before)
	})
}

func TestFinishAdvanceWithoutSwappingFiles(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		for _, point := range []string{"put dir/b.txt", "moved", "commit"} {
			x, err := ad.begin()
			ad.must(err)
			x.fault = func(at string) error {
				if at == point {
					return errFault
				}
				return nil
			}
			ad.must(x.Lock(t.Context()))
			x.staging.noExchange = true
			ad.must(x.Prepare(t.Context()))
			// No step can be taken after one that failed.
			if err := errors.Join(x.MoveFiles(t.Context()), x.Commit(t.Context()), x.Publish(t.Context())); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			ad.must(x.closeUpdateRef())
			// The moment at which one has gone and the other has not come.
			if point == "moved" {
				i, _ := x.staging.plan.findMove("a.txt")
				ad.must(os.Remove(filepath.Join(ad.dir, "a.txt")))
				if !exists(filepath.Join(x.staging.dir, "old", slotName(i))) {
					t.Fatal("it is not aside")
				}
			}
			if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
				t.Errorf("%s: %v, %v", point, done, err)
			}
			requireSame(t, point, ad.sum(), before)
		}
	})
}

func TestFinishAdvanceRemovesOnlyLocksThatAreOurs(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		git := func(name string) string { return filepath.Join(ad.dir, ".git", name) }
		ad.stopped("commit")
		ad.put(ad.dir, ".git/refs/heads/main.lock", ad.a.New+"\n")
		ad.put(ad.dir, ".git/HEAD.lock", "")
		ad.put(ad.dir, ".git/refs/agency/trash/x.lock", ad.a.Old+"\n")
		if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		requireSame(t, "locks of ours", ad.sum(), before)

		// Of somebody else's nothing is touched.
		ad.stopped("commit")
		ad.put(ad.dir, ".git/refs/heads/main.lock", ad.a.Old+"\n")
		ad.put(ad.dir, ".git/HEAD.lock", "")
		ad.shell("touch -d @1 .git/HEAD.lock") // from before
		if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		for _, name := range []string{"refs/heads/main.lock", "HEAD.lock"} {
			if !exists(git(name)) {
				t.Errorf("%s is gone", name)
			}
			ad.must(os.Remove(git(name)))
		}
		requireSame(t, "locks of others", ad.sum(), before)

		// A lock of the index that is not ours: nothing at all.
		ad.stopped("commit")
		ad.must(os.Remove(git("index.lock")))
		ad.put(ad.dir, ".git/index.lock", "")
		stopped := ad.sum()
		var locked *LockedError
		if _, err := ad.repo.Recover(t.Context(), ad.a); !errors.As(err, &locked) {
			t.Errorf("a lock: %v", err)
		}
		requireSame(t, "a lock", ad.sum(), stopped)
		ad.must(os.Remove(git("index.lock")))

		if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		requireSame(t, "unlocked", ad.sum(), before)
	})
}

// The branch has gone elsewhere, or is gone: what had come goes, for it was never a part of it.
func TestFinishAdvanceUndoesWhereverTheBranchIs(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		status := ad.status()
		other := ad.git("commit-tree", "-m", "x", "-p", "main", "main^{tree}")
		for _, locked := range []bool{true, false} {
			for _, args := range [][]string{{"refs/heads/main", other}, {"-d", "refs/heads/main"}} {
				ad.stopped("commit")
				if !locked {
					ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock")))
				}
				ad.git(append([]string{"update-ref"}, args...)...)
				for range 2 {
					if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
						t.Fatalf("%q: %v, %v", args, done, err)
					}
				}
				ad.git("update-ref", "refs/heads/main", ad.a.Old)
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
		ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock")))
		ad.git("add", "a.txt", "f2d", "new")
		ad.git("rm", "-q", "--cached", "del.txt")
		ad.git("commit", "-q", "-m", "mine")
		var e *ConcurrentChangeError
		if _, err := ad.repo.Recover(t.Context(), ad.a); !errors.As(err, &e) || strings.Join(e.Paths, " ") != "a.txt del.txt f2d f2d/a/b new/in/here" {
			t.Errorf("%v", err)
		}
		if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
			t.Errorf("again: %v, %v", done, err)
		}
		if got := ad.git("diff", "--name-only", "HEAD"); got != "keep.txt" {
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
				ad.must(os.Rename(filepath.Join(ad.dir, ".git/index.lock"), filepath.Join(ad.dir, ".git/index")))
			},
			"the branch has gone on": func(ad *advancer) {
				ad.git("update-ref", "refs/heads/main", ad.git("commit-tree", "-m", "x", "-p", "main", "main^{tree}"))
			},
			"somebody has taken the lock away": func(ad *advancer) { ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock"))) },
			"and has staged something": func(ad *advancer) {
				ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock")))
				ad.write("staged.more", "x")
				ad.git("add", "staged.more")
				ad.git("rm", "-q", "--cached", "staged.more")
			},
			"and has staged some of what came": func(ad *advancer) {
				ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock")))
				ad.git("add", "a.txt", "f2d")
			},
			"killed before the index was made again": func(ad *advancer) {
				ad.shell("rm .git/index.lock .git/index.agency")
			},
			"killed when nothing of it was written": func(ad *advancer) {
				ad.must(os.Truncate(filepath.Join(ad.dir, ".git/index.agency"), 0))
			},
			"killed when a part of it was": func(ad *advancer) {
				ad.must(os.Truncate(filepath.Join(ad.dir, ".git/index.agency"), 100))
				ad.put(ad.dir, ".git/index.agency-again", "DIRC")
			},
			"published, and somebody has taken back a part of it": func(ad *advancer) {
				ad.shell("mv .git/index.lock .git/index; rm .git/index.agency")
				ad.git("checkout", "-q", ad.a.Old, "--", "a.txt", "del.txt")
				ad.git("commit", "-q", "-m", "x", "--", "a.txt", "del.txt")
			},
			"published, and somebody has gone elsewhere": func(ad *advancer) {
				ad.shell("mv .git/index.lock .git/index; rm .git/index.agency")
				ad.git("checkout", "-q", "-b", "other", ad.a.Old)
			},
			"and HEAD is still locked": func(ad *advancer) { ad.put(ad.dir, ".git/HEAD.lock", "") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ad := messy(t)
				status := ad.status()
				ad.stopped("publish")
				do(ad)
				_ = os.Remove(filepath.Join(ad.dir, "staged.more"))
				for range 2 {
					if done, err := ad.repo.Recover(t.Context(), ad.a); !done || err != nil {
						t.Fatalf("%v, %v", done, err)
					}
				}
				ad.a.New = ad.git("rev-parse", "main")
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
		ad.git("update-ref", "--create-reflog", "refs/agency/trash/x", ad.a.Old)
		for _, log := range []string{"HEAD", "refs/heads/main"} { // it is written before the ref
			ad.shell("echo '" + ad.a.Old + " " + ad.a.New + " Somebody <s> 1 +0000\tland' >>.git/logs/" + log)
		}
		if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		now := ad.sum()
		delete(now, filepath.Join(ad.dir, ".git/logs/refs/agency"))
		requireSame(t, "refs", now, before)
	})
}

// What somebody has staged when the lock was gone stays staged, and everything else comes.
func TestFinishAdvanceKeepsWhatWasStagedSince(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		ad.stopped("publish")
		ad.must(os.Remove(filepath.Join(ad.dir, ".git/index.lock")))
		ad.write("a.txt", "mine\n")
		ad.git("add", "a.txt")
		if done, err := ad.repo.Recover(t.Context(), ad.a); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		if got := ad.git("diff", "--cached", "--name-only"); got != "a.txt\nstaged.new" {
			t.Errorf("staged: %q", got)
		}
		if got := ad.git("show", ":a.txt"); got != "mine" {
			t.Errorf("a.txt is staged as %q", got)
		}
		ad.unlocked()
	})
}
