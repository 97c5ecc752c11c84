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

// errFault is the error that tests inject.
var errFault = errors.New("fault")

// runUntil runs all steps up to a fault injection point and returns the points that it passed.
func (lab *updateLab) runUntil(point string) (tx *Transaction, passed []string, err error) {
	lab.T.Helper()
	tx, err = lab.begin()
	lab.Must(err)
	tx.fault = func(at string) error {
		passed = append(passed, at)
		if at == point {
			return errFault
		}
		return nil
	}
	for _, name := range stepNames {
		if err := lab.runStep(tx, name); err != nil {
			return tx, passed, err
		}
	}
	return tx, passed, nil
}

// reload returns the Update as another process reads it from its record, and the repository as that process opens it.
func (lab *updateLab) reload() (*git.Repo, Update) {
	lab.T.Helper()
	data, err := json.Marshal(lab.spec)
	lab.Must(err)
	var a Update
	lab.Must(json.Unmarshal(data, &a))
	return repotest.OpenRepo(lab.Fixture), a
}

// withAndWithoutMerger runs a test with new files that git writes, and with new files that we write from a Merger.
func withAndWithoutMerger(t *testing.T, try func(t *testing.T, withMerger bool, newLab func(*testing.T) *updateLab)) {
	t.Helper()
	for _, withMerger := range []bool{false, true} {
		t.Run(fmt.Sprintf("merger=%t", withMerger), func(t *testing.T) {
			t.Parallel()
			try(t, withMerger, func(t *testing.T) *updateLab {
				t.Helper()
				lab := newDirtyLab(t)
				if withMerger {
					lab.contentMerger = openMerger(lab.Fixture)
				}
				return lab
			})
		})
	}
}

// newDirtyLab is an updateLab with changes of every kind, and dirty, staged and untracked files beside them.
func newDirtyLab(t *testing.T) *updateLab {
	t.Helper()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	lab.spec.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: strings.Repeat("0", len(lab.spec.Old)), New: lab.spec.Old}}
	l.Write("keep.txt", "dirty\n")
	l.Write("staged.new", "staged\n")
	l.Git("add", "staged.new")
	l.Write("untracked", "u\n")
	l.Write("deep/mine", "mine\n")
	l.Must(os.Mkdir(filepath.Join(l.Root, "d2f/empty"), 0o750))
	l.Must(os.Chmod(filepath.Join(l.Root, "d2f"), 0o700))
	return lab
}

func TestUpdateFailingAtAnyPointIsUndone(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, withMerger bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		status := lab.status()
		tx, points, err := lab.runUntil("publish") // passes all points
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		if err := tx.Undo(t.Context()); err == nil {
			t.Error("Undo succeeded after the refs had moved")
		}
		lab.Must(tx.closeUpdateRef())
		repo, a := lab.reload()
		done, err := Recover(t.Context(), repo, a)
		if err != nil || !done {
			t.Fatalf("%v, %v", done, err)
		}
		lab.requireLanded(status)
		if len(points) < 15 {
			t.Errorf("too few points: %q", points)
		}

		lab = newLab(t)
		before := lab.diskState()
		for i, point := range points[:len(points)-1] {
			if testing.Short() && (i%2 == 0) != withMerger {
				continue // with -short, each point fails either with or without a Merger
			}
			tx, _, err := lab.runUntil(point)
			if !errors.Is(err, errFault) {
				t.Fatalf("%s: %v", point, err)
			}
			if err := tx.Undo(t.Context()); err != nil {
				t.Errorf("%s: %v", point, err)
			}
			gittest.RequireSame(t, "undone at "+point, lab.diskState(), before)

			tx, _, err = lab.runUntil(point)
			if !errors.Is(err, errFault) {
				t.Fatalf("%s: %v", point, err)
			}
			lab.Must(tx.closeUpdateRef()) // git ends like this when we are killed
			repo, a := lab.reload()
			for range 2 {
				if done, err := Recover(t.Context(), repo, a); err != nil || done {
					t.Errorf("%s: %v, %v", point, done, err)
				}
			}
			gittest.RequireSame(t, "killed at "+point, lab.diskState(), before)
		}
		if t.Failed() {
			return
		}
		if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
			t.Errorf("before any step: %v, %v", done, err)
		}
		lab.Must(lab.runAll())
		if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
			t.Errorf("after all steps: %v, %v", done, err)
		}
		after := lab.diskState()
		lab.Git("commit", "-q", "-m", "on", "--allow-empty")
		if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
			t.Errorf("after another commit: %v, %v", done, err)
		}
		gittest.RequireSame(t, "files", map[string]string{"a.txt": after[filepath.Join(lab.Root, "a.txt")]}, map[string]string{"a.txt": lab.diskState()[filepath.Join(lab.Root, "a.txt")]})
	})
}

// A file that is saved while files are being replaced is never lost: either the update fails, or the saved content is a
// change to the new file.
func TestUpdateLosesNoConcurrentSave(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, withMerger bool, newLab func(*testing.T) *updateLab) {
		for _, noExchange := range []bool{false, true} {
			if testing.Short() && noExchange != withMerger {
				continue
			}
			lab := newLab(t)
			before := lab.diskState()
			var open *os.File
			for _, c := range []struct {
				name, point string
				do          func()
				want        string            // overlaps
				stay        map[string]string // the user's files afterwards
			}{
				{"a file not yet replaced", "put a.txt", func() { lab.Write("run2.sh", "mine\n") }, "run2.sh dirty", map[string]string{"run2.sh": "mine\n"}},
				{"a file before any is replaced", "files", func() { lab.Write("a.txt", "mine\n") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"a file to be deleted", "files", func() { lab.Write("deep/er/del.txt", "mine\n") }, "deep/er/del.txt dirty", map[string]string{"deep/er/del.txt": "mine\n"}},
				{"a file at the path of a new file", "put bin", func() { lab.Write("bin", "mine\n") }, "bin untracked", map[string]string{"bin": "mine\n"}},
				{"a directory at the path of a new file", "put bin", func() { lab.Write("bin/x", "mine\n") }, "bin untracked", map[string]string{"bin/x": "mine\n"}},
				{"a file at the path of a new directory", "taken", func() { lab.Write("new", "mine\n") }, "new untracked", map[string]string{"new": "mine\n"}},
				{"a file in a directory to be deleted", "taken", func() { lab.Write("d2f/late", "mine\n") }, "d2f untracked", map[string]string{"d2f/late": "mine\n"}},
				{"a symlink in place of a directory", "put dir/b.txt", func() {
					lab.Must(os.Rename(filepath.Join(lab.Root, "dir"), filepath.Join(lab.Root, "moved")))
					lab.Must(os.Symlink("moved", filepath.Join(lab.Root, "dir")))
				}, "dir untracked", map[string]string{"moved/b.txt": "b\n"}},
				{"a file just being replaced", "late a.txt", func() { lab.Write("a.txt", "mine\n") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"another file renamed over it", "late a.txt", func() { lab.Shell("echo mine >x; mv x a.txt") }, "a.txt dirty", map[string]string{"a.txt": "mine\n"}},
				{"a file just being deleted", "late del.txt", func() { lab.Write("del.txt", "mine\n") }, "del.txt dirty", map[string]string{"del.txt": "mine\n"}},
				{"a write through an open descriptor", "moved", func() { _, err := open.WriteString("more\n"); lab.Must(err) }, "a.txt dirty", map[string]string{"a.txt": "a\nmore\n"}},
			} {
				var err error
				open, err = os.OpenFile(filepath.Join(lab.Root, "a.txt"), os.O_WRONLY|os.O_APPEND, 0)
				lab.Must(err)
				tx, err := lab.begin()
				lab.Must(err)
				tx.fault = func(at string) error {
					if at == c.point {
						c.do()
					}
					return nil
				}
				lab.Must(tx.Lock(t.Context()))
				tx.staging.noExchange = noExchange
				tx.staging.beforeMove = func(path string) { _ = tx.fault("late " + path) }
				lab.Must(tx.Prepare(t.Context()))
				if err := tx.MoveFiles(t.Context()); describeOverlaps(err) != c.want {
					t.Errorf("%s: %q, want %q: %v", c.name, describeOverlaps(err), c.want, err)
				}
				if err := tx.Undo(t.Context()); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				lab.Must(open.Close())
				for name, content := range c.stay {
					if data, err := os.ReadFile(filepath.Join(lab.Root, name)); string(data) != content {
						t.Errorf("%s: %s is %q, %v", c.name, name, data, err)
					}
				}
				// Everything else is unchanged.
				if fi, err := os.Lstat(filepath.Join(lab.Root, "dir")); err == nil && fi.Mode()&os.ModeSymlink != 0 {
					lab.Must(os.Remove(filepath.Join(lab.Root, "dir")))
					lab.Must(os.Rename(filepath.Join(lab.Root, "moved"), filepath.Join(lab.Root, "dir")))
				}
				for name := range c.stay {
					top, _, _ := strings.Cut(name, "/")
					switch path := filepath.Join(lab.Root, name); {
					case before[path] != "":
						lab.Git("checkout", "-q", "--", name)
					case before[filepath.Join(lab.Root, top)] == "":
						lab.Must(os.RemoveAll(filepath.Join(lab.Root, top)))
					default:
						lab.Must(os.Remove(path))
					}
				}
				now := lab.diskState()
				delete(now, filepath.Join(lab.Root, ".git/index")) // rewritten by git just now
				want := maps.Clone(before)
				delete(want, filepath.Join(lab.Root, ".git/index"))
				gittest.RequireSame(t, c.name, now, want)
				if t.Failed() {
					return
				}
			}
			// A save over a new file is a local change to it.
			tx, err := lab.begin()
			lab.Must(err)
			tx.fault = func(at string) error {
				if at == "moved" {
					lab.Write("a.txt", "mine on top\n")
					lab.Write("new/in/here", "mine on top\n")
				}
				return nil
			}
			for _, name := range stepNames {
				lab.Must(lab.runStep(tx, name))
			}
			if got := lab.Git("diff", "--name-only"); got != "a.txt\nkeep.txt\nnew/in/here" {
				t.Errorf("changed: %q", got)
			}
			if data, _ := os.ReadFile(filepath.Join(lab.Root, "a.txt")); string(data) != "mine on top\n" {
				t.Errorf("a.txt is %q", data)
			}
		}
	})
}

// Undo and Recover leave files that were saved over new files, and name them in the error. Everything else is undone.
func TestUndoLeavesConcurrentlyWrittenPaths(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		for _, killed := range []bool{false, true} {
			lab := newLab(t)
			before := lab.diskState()
			tx, _, err := lab.runUntil("commit")
			if !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			lab.Write("a.txt", "mine\n")
			lab.Write("new/in/here", "mine\n")
			lab.Write("f2d/mine", "mine\n")
			if killed {
				lab.Must(tx.closeUpdateRef())
				_, err = Recover(t.Context(), lab.repo, lab.spec)
			} else {
				err = tx.Undo(t.Context())
			}
			var e *ConcurrentChangeError
			if !errors.As(err, &e) || !slices.Equal(e.Paths, []string{"a.txt", "f2d", "new/in/here"}) {
				t.Errorf("%v", err)
			}
			for _, name := range []string{"a.txt", "new/in/here", "f2d/mine"} {
				if data, _ := os.ReadFile(filepath.Join(lab.Root, name)); string(data) != "mine\n" {
					t.Errorf("%s is %q", name, data)
				}
			}
			if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
				t.Errorf("second Recover: %v, %v", done, err)
			}
			lab.Must(os.RemoveAll(filepath.Join(lab.Root, "new")))
			lab.Must(os.RemoveAll(filepath.Join(lab.Root, "f2d")))
			lab.Git("checkout", "-q", "--", "a.txt", "f2d")
			now := lab.diskState()
			now[filepath.Join(lab.Root, ".git/index")] = before[filepath.Join(lab.Root, ".git/index")]
			gittest.RequireSame(t, "other files", now, before)
		}
	})
}

// An Undo that fails leaves everything that Recover needs to undo the update later.
func TestRecoverUndoesAfterFailedUndo(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		tx, _, err := lab.runUntil("commit")
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		old := filepath.Join(tx.staging.dir, "old")
		lab.Must(os.Rename(old, old+".away"))
		if err := tx.Undo(t.Context()); err == nil || errors.As(err, new(*ConcurrentChangeError)) {
			t.Fatalf("%v", err)
		}
		lab.Must(tx.Close())
		if err := os.Rename(old+".away", old); err != nil {
			t.Fatalf("the replaced files are lost: %v", err)
		}
		repo, a := lab.reload()
		if done, err := Recover(t.Context(), repo, a); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		gittest.RequireSame(t, "undone later", lab.diskState(), before)
	})
}

// Promise: a cancelled Prepare does not wait for a git that does not answer whether the refs are locked. That git has moved
// nothing, and the update is undone.
func TestPrepareDoesNotWaitForSilentGit(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		tx, err := lab.begin()
		lab.Must(err)
		lab.Must(tx.Lock(t.Context()))
		lab.Must(tx.closeUpdateRef())
		gitCtx, killGit := context.WithCancelCause(t.Context())
		tx.killUpdateRef, tx.startingUpdateRef = killGit, proc.Async(func() (*proc.Coprocess, error) {
			return proc.StartCoprocess(gitCtx, proc.Command{Argv: []string{"sleep", "600"}})
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tx.Prepare(ctx); err == nil {
			t.Error("Prepare succeeded")
		}
		lab.Must(tx.Undo(t.Context()))
		gittest.RequireSame(t, "undone", lab.diskState(), before)
	})
}
