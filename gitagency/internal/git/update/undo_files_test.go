package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

var errFault = errors.New("fault")

// until does all of it up to a point, and says which points it came by.
func (ad *advancer) until(point string) (x *Transaction, passed []string, err error) {
	ad.T.Helper()
	x, err = ad.begin()
	ad.Must(err)
	x.fault = func(at string) error {
		passed = append(passed, at)
		if at == point {
			return errFault
		}
		return nil
	}
	for _, name := range steps {
		if err := ad.step(x, name); err != nil {
			return x, passed, err
		}
	}
	return x, passed, nil
}

// again is the same Advance as somebody has written it down, and the repository as somebody else opens it.
func (ad *advancer) again() (*git.Repo, Update) {
	ad.T.Helper()
	data, err := json.Marshal(ad.a)
	ad.Must(err)
	var a Update
	ad.Must(json.Unmarshal(data, &a))
	return repotest.OpenRepo(ad.Lab), a
}

// bothWays tries something with new files that git writes, and with such that we write ourselves.
func bothWays(t *testing.T, try func(t *testing.T, messy func(*testing.T) *advancer)) {
	t.Helper()
	for _, ourselves := range []bool{false, true} {
		t.Run(fmt.Sprintf("ourselves=%t", ourselves), func(t *testing.T) {
			t.Parallel()
			try(t, func(t *testing.T) *advancer {
				t.Helper()
				ad := messy(t)
				if ourselves {
					ad.by = openMerger(ad.Lab)
				}
				return ad
			})
		})
	}
}

// messy is a repository with a change of every kind ahead, and things of the person's all around it.
func messy(t *testing.T) *advancer {
	t.Helper()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	ad.a.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: strings.Repeat("0", len(ad.a.Old)), New: ad.a.Old}}
	l.Write("keep.txt", "dirty\n")
	l.Write("staged.new", "staged\n")
	l.Git("add", "staged.new")
	l.Write("untracked", "u\n")
	l.Write("deep/mine", "mine\n")
	l.Must(os.Mkdir(filepath.Join(l.Root, "d2f/empty"), 0o750))
	l.Must(os.Chmod(filepath.Join(l.Root, "d2f"), 0o700))
	return ad
}

func TestAdvanceThatFailsAtAnyPointIsUndone(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		status := ad.status()
		x, points, err := ad.until("publish") // passes by all of them
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		if err := x.Undo(t.Context()); err == nil {
			t.Error("it was undone when the refs had moved")
		}
		ad.Must(x.closeUpdateRef())
		repo, a := ad.again()
		done, err := Recover(t.Context(), repo, a)
		if err != nil || !done {
			t.Fatalf("%v, %v", done, err)
		}
		ad.landed(status)
		if len(points) < 15 {
			t.Errorf("only %q", points)
		}

		ad = messy(t)
		before := ad.sum()
		for _, point := range points[:len(points)-1] {
			x, _, err := ad.until(point)
			if !errors.Is(err, errFault) {
				t.Fatalf("%s: %v", point, err)
			}
			if err := x.Undo(t.Context()); err != nil {
				t.Errorf("%s: %v", point, err)
			}
			gittest.RequireSame(t, "undone at "+point, ad.sum(), before)

			x, _, err = ad.until(point)
			if !errors.Is(err, errFault) {
				t.Fatalf("%s: %v", point, err)
			}
			ad.Must(x.closeUpdateRef()) // as git does when we are killed
			repo, a := ad.again()
			for range 2 {
				if done, err := Recover(t.Context(), repo, a); err != nil || done {
					t.Errorf("%s: %v, %v", point, done, err)
				}
			}
			gittest.RequireSame(t, "killed at "+point, ad.sum(), before)
		}
		if t.Failed() {
			return
		}
		if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
			t.Errorf("when nothing was begun: %v, %v", done, err)
		}
		ad.Must(ad.advance())
		if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
			t.Errorf("when all of it was done: %v, %v", done, err)
		}
		after := ad.sum()
		ad.Git("commit", "-q", "-m", "on", "--allow-empty")
		if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
			t.Errorf("when the branch has gone on: %v, %v", done, err)
		}
		gittest.RequireSame(t, "files", map[string]string{"a.txt": after[filepath.Join(ad.Root, "a.txt")]}, map[string]string{"a.txt": ad.sum()[filepath.Join(ad.Root, "a.txt")]})
	})
}

// What somebody saves while files are being replaced is never lost: either nothing has come, or it is there on top.
func TestAdvanceLosesNothingThatIsSavedMeanwhile(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		for _, noSwap := range []bool{false, true} {
			ad := messy(t)
			before := ad.sum()
			var open *os.File
			for _, c := range []struct {
				name, point string
				do          func()
				want        string            // overlap
				stay        map[string]string // what the person has then
			}{
				{"a file that is yet to be replaced", "put a.txt", func() { ad.Write("run2.sh", "mine\n") }, "run2.sh dirty", map[string]string{"run2.sh": "mine\n"}},
				{"the same, before anything was", "files", func() { ad.Write("a.txt", "mine\n") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"a file that goes", "files", func() { ad.Write("deep/er/del.txt", "mine\n") }, "deep/er/del.txt dirty", map[string]string{"deep/er/del.txt": "mine\n"}},
				{"a file where one comes", "put bin", func() { ad.Write("bin", "mine\n") }, "bin untracked", map[string]string{"bin": "mine\n"}},
				{"a directory where a file comes", "put bin", func() { ad.Write("bin/x", "mine\n") }, "bin untracked", map[string]string{"bin/x": "mine\n"}},
				{"a file where a directory comes", "taken", func() { ad.Write("new", "mine\n") }, "new untracked", map[string]string{"new": "mine\n"}},
				{"a file in a directory that goes", "taken", func() { ad.Write("d2f/late", "mine\n") }, "d2f untracked", map[string]string{"d2f/late": "mine\n"}},
				{"a link in the place of a directory", "put dir/b.txt", func() {
					ad.Must(os.Rename(filepath.Join(ad.Root, "dir"), filepath.Join(ad.Root, "moved")))
					ad.Must(os.Symlink("moved", filepath.Join(ad.Root, "dir")))
				}, "dir untracked", map[string]string{"moved/b.txt": "b\n"}},
				{"a file that is just being replaced", "late a.txt", func() { ad.Write("a.txt", "mine\n") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"another in its place", "late a.txt", func() { ad.Shell("echo mine >x; mv x a.txt") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"a file that is just being removed", "late del.txt", func() { ad.Write("del.txt", "mine\n") }, "del.txt dirty", map[string]string{"del.txt": "mine\n"}},
				{"somebody who has it open", "moved", func() { _, err := open.WriteString("more\n"); ad.Must(err) }, "a.txt dirty", map[string]string{"a.txt": "a\nmore\n"}},
			} {
				var err error
				open, err = os.OpenFile(filepath.Join(ad.Root, "a.txt"), os.O_WRONLY|os.O_APPEND, 0)
				ad.Must(err)
				x, err := ad.begin()
				ad.Must(err)
				x.fault = func(at string) error {
					if at == c.point {
						c.do()
					}
					return nil
				}
				ad.Must(x.Lock(t.Context()))
				x.staging.noExchange = noSwap
				x.staging.beforeMove = func(path string) { _ = x.fault("late " + path) }
				ad.Must(x.Prepare(t.Context()))
				if err := x.MoveFiles(t.Context()); over(err) != c.want {
					t.Errorf("%s: %q, want %q: %v", c.name, over(err), c.want, err)
				}
				if err := x.Undo(t.Context()); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				ad.Must(open.Close())
				for name, content := range c.stay {
					if data, err := os.ReadFile(filepath.Join(ad.Root, name)); string(data) != content {
						t.Errorf("%s: %s is %q, %v", c.name, name, data, err)
					}
				}
				// All else is as it was.
				if fi, err := os.Lstat(filepath.Join(ad.Root, "dir")); err == nil && fi.Mode()&os.ModeSymlink != 0 {
					ad.Must(os.Remove(filepath.Join(ad.Root, "dir")))
					ad.Must(os.Rename(filepath.Join(ad.Root, "moved"), filepath.Join(ad.Root, "dir")))
				}
				for name := range c.stay {
					top, _, _ := strings.Cut(name, "/")
					switch path := filepath.Join(ad.Root, name); {
					case before[path] != "":
						ad.Git("checkout", "-q", "--", name)
					case before[filepath.Join(ad.Root, top)] == "":
						ad.Must(os.RemoveAll(filepath.Join(ad.Root, top)))
					default:
						ad.Must(os.Remove(path))
					}
				}
				now := ad.sum()
				delete(now, filepath.Join(ad.Root, ".git/index")) // which git has just written
				want := maps.Clone(before)
				delete(want, filepath.Join(ad.Root, ".git/index"))
				gittest.RequireSame(t, c.name, now, want)
				if t.Failed() {
					return
				}
			}
			// What is saved on top of what came is the person's change to it.
			x, err := ad.begin()
			ad.Must(err)
			x.fault = func(at string) error {
				if at == "moved" {
					ad.Write("a.txt", "mine on top\n")
					ad.Write("new/in/here", "mine on top\n")
				}
				return nil
			}
			for _, name := range steps {
				ad.Must(ad.step(x, name))
			}
			if got := ad.Git("diff", "--name-only"); got != "a.txt\nkeep.txt\nnew/in/here" {
				t.Errorf("changed: %q", got)
			}
			if data, _ := os.ReadFile(filepath.Join(ad.Root, "a.txt")); string(data) != "mine on top\n" {
				t.Errorf("a.txt is %q", data)
			}
		}
	})
}

// What somebody has saved on top of what came, when that has to go again, stays and is named; all the rest is undone.
func TestAdvanceLeavesToTheirOwnersPathsThatWereWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		for _, killed := range []bool{false, true} {
			ad := messy(t)
			before := ad.sum()
			x, _, err := ad.until("commit")
			if !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			ad.Write("a.txt", "mine\n")
			ad.Write("new/in/here", "mine\n")
			ad.Write("f2d/mine", "mine\n")
			if killed {
				ad.Must(x.closeUpdateRef())
				_, err = Recover(t.Context(), ad.repo, ad.a)
			} else {
				err = x.Undo(t.Context())
			}
			var e *ConcurrentChangeError
			if !errors.As(err, &e) || !slices.Equal(e.Paths, []string{"a.txt", "f2d", "new/in/here"}) {
				t.Errorf("%v", err)
			}
			for _, name := range []string{"a.txt", "new/in/here", "f2d/mine"} {
				if data, _ := os.ReadFile(filepath.Join(ad.Root, name)); string(data) != "mine\n" {
					t.Errorf("%s is %q", name, data)
				}
			}
			if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
				t.Errorf("again: %v, %v", done, err)
			}
			ad.Must(os.RemoveAll(filepath.Join(ad.Root, "new")))
			ad.Must(os.RemoveAll(filepath.Join(ad.Root, "f2d")))
			ad.Git("checkout", "-q", "--", "a.txt", "f2d")
			now := ad.sum()
			now[filepath.Join(ad.Root, ".git/index")] = before[filepath.Join(ad.Root, ".git/index")]
			gittest.RequireSame(t, "the rest", now, before)
		}
	})
}

// Who is stopped while it undoes leaves to the next all that that needs.
func TestAdvanceThatCannotBeUndoneIsUndoneLater(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		x, _, err := ad.until("commit")
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		old := filepath.Join(x.staging.dir, "old")
		ad.Must(os.Rename(old, old+".away"))
		if err := x.Undo(t.Context()); err == nil || errors.As(err, new(*ConcurrentChangeError)) {
			t.Fatalf("%v", err)
		}
		ad.Must(x.Close())
		if err := os.Rename(old+".away", old); err != nil {
			t.Fatalf("what went is gone: %v", err)
		}
		repo, a := ad.again()
		if done, err := Recover(t.Context(), repo, a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "undone later", ad.sum(), before)
	})
}

// Promise: a git that does not say whether the refs are locked is not waited for when somebody is told to end: it has moved
// nothing, and all of it is undone.
func TestAdvanceDoesNotWaitForAGitThatSaysNothing(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		x, err := ad.begin()
		ad.Must(err)
		ad.Must(x.Lock(t.Context()))
		ad.Must(x.closeUpdateRef())
		mute, silence := context.WithCancelCause(t.Context())
		x.killUpdateRef, x.startingUpdateRef = silence, proc.Async(func() (*proc.Coprocess, error) {
			return proc.StartCoprocess(mute, proc.Command{Argv: []string{"sleep", "600"}})
		})
		told, end := context.WithCancel(t.Context())
		end()
		if err := x.Prepare(told); err == nil {
			t.Error("they are said to be locked")
		}
		ad.Must(x.Undo(t.Context()))
		gittest.RequireSame(t, "undone", ad.sum(), before)
	})
}
