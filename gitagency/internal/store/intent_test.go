package store

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

var testIntent = Intent{ID: invID, Command: "start", Tree: "/x/tree", Branch: "refs/heads/agency/sandbox-" + invID, BaseCommit: zeros, PID: 42, StartedAt: at(0)}

func TestAnInvocationBeingCreatedIsHiddenAndAnInterruptedOneIsShown(t *testing.T) {
	t.Parallel()
	for _, withTree := range []bool{false, true} {
		s := newStore(t)
		dir := s.InvocationDir(repoID, invID)
		must(t, s.CreateInvocationDir(repoID, invID))
		if withTree {
			must(t, os.MkdirAll(s.SandboxTreePath(repoID, invID), 0o755))
		}
		open, err := WriteIntent(dir, testIntent)
		must(t, err)

		for _, busy := range []func() bool{nil, func() bool { return true }, func() bool { return false }} {
			entries, err := s.Invocations(repoID, busy)
			if err != nil || len(entries) != 0 {
				t.Errorf("while it is created: %+v, %v", entries, err)
			}
			if e := s.Invocation(repoID, invID, busy); !e.BeingCreated || e.Intent != nil {
				t.Errorf("alone: %+v", e)
			}
		}

		// The creator dies: the kernel closes his files.
		must(t, open.file.Close())
		entries, err := s.Invocations(repoID, func() bool { return true })
		want := map[bool]Defect{false: Incomplete, true: MissingMeta}[withTree]
		if err != nil || len(entries) != 1 || entries[0].Defect != want || entries[0].Intent == nil {
			t.Fatalf("after it was interrupted: %+v, %v", entries, err)
		}
		intended := testIntent
		intended.SchemaVersion = SchemaVersion
		if *entries[0].Intent != intended {
			t.Errorf("got %+v, want %+v", *entries[0].Intent, intended)
		}

		// A record makes it whole; an intent beside one means nothing.
		must(t, s.WriteInvocationMeta(repoID, meta(s, invID)))
		must(t, os.MkdirAll(s.SandboxTreePath(repoID, invID), 0o755))
		if e := s.Invocation(repoID, invID, nil); e.Defect != NoDefect || e.Intent != nil || e.BeingCreated {
			t.Errorf("with a record: %+v", e)
		}
	}
}

func TestAnIntentIsHeldByTheOneWhoWroteItAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir := s.InvocationDir(repoID, invID)
	must(t, s.CreateInvocationDir(repoID, invID))
	open, err := WriteIntent(dir, testIntent)
	must(t, err)
	other, err := os.Open(intentPath(dir))
	must(t, err)
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("anybody may have it: %v", err)
	}
	if fi, err := os.Stat(intentPath(dir)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("it is %v, %v", fi.Mode(), err)
	}
	var got Intent
	data, err := os.ReadFile(intentPath(dir))
	must(t, err)
	must(t, json.Unmarshal(data, &got))
	if got.SchemaVersion != SchemaVersion || got.Tree != testIntent.Tree {
		t.Errorf("got %+v", got)
	}
	for range 2 {
		must(t, open.Remove())
		if left := names(t, dir); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// Between the directory and the intent there is nothing but the repository lock to go by.
func TestAnEmptyDirectoryIsUnderWayOnlyWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, invID))
	for busy, want := range map[bool]int{true: 0, false: 1} {
		entries, err := s.Invocations(repoID, func() bool { return busy })
		if err != nil || len(entries) != want {
			t.Errorf("busy %v: %+v, %v", busy, entries, err)
		}
	}
	if entries, err := s.Invocations(repoID, nil); err != nil || len(entries) != 1 || entries[0].Defect != Incomplete {
		t.Errorf("nobody to ask: %+v, %v", entries, err)
	}
	// A sandbox without a record directory has no creator: that directory comes first.
	must(t, os.Remove(s.InvocationDir(repoID, invID)))
	must(t, os.MkdirAll(s.SandboxTreePath(repoID, invID), 0o755))
	entries, err := s.Invocations(repoID, func() bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Defect != MissingMeta {
		t.Errorf("a tree alone: %+v, %v", entries, err)
	}
}

// A listing takes no lock, so it can run between any two steps of a creation.
func TestInvocationUnderCreationIsNeverListedAsBroken(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var current atomic.Pointer[string] // the id that is being created
	var readers sync.WaitGroup
	first := id(0)
	must(t, s.CreateInvocationDir(repoID, first))
	current.Store(&first)
	for range 4 {
		readers.Go(func() {
			for i := current.Load(); i != nil; i = current.Load() {
				if e := s.Invocation(repoID, *i, func() bool { return true }); !e.BeingCreated {
					t.Errorf("%s is %s: %s", e.ID, e.Defect, e.Detail)
					return
				}
			}
		})
	}
	for n := range 100 {
		open, err := WriteIntent(s.InvocationDir(repoID, id(n)), Intent{ID: id(n), Command: "start", Tree: "/x/tree", Branch: "refs/heads/x", BaseCommit: zeros})
		must(t, err)
		defer open.Remove()
		next := id(n + 1)
		must(t, s.CreateInvocationDir(repoID, next))
		current.Store(&next)
	}
	current.Store(nil)
	readers.Wait()
}

func TestAnIntentNobodyCanReadIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "rubbish", "[]", `{"pid":"x"}`} {
		s := newStore(t)
		must(t, s.CreateInvocationDir(repoID, invID))
		must(t, os.WriteFile(intentPath(s.InvocationDir(repoID, invID)), []byte(content), 0o600))
		e := s.Invocation(repoID, invID, func() bool { return true })
		if e.Defect != Incomplete || e.Intent != nil || e.BeingCreated {
			t.Errorf("%q: %+v", content, e)
		}
	}
}

// The lock is asked about only where it matters: it costs a system call in a directory of git's.
func TestTheLockIsNotAskedAboutWholeInvocations(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for n := range 5 {
		add(t, s, id(n))
	}
	entries, err := s.Invocations(repoID, func() bool { t.Error("asked"); return false })
	if err != nil || !slices.Equal(idsOf(entries), []string{id(0), id(1), id(2), id(3), id(4)}) {
		t.Errorf("got %q, %v", idsOf(entries), err)
	}
}

// "Directory names are the identity; a record that disagrees with its directory name is broken." An
// intent that is believed names a tree and a branch that will be removed: those of another invocation,
// where a directory was copied or restored under another name.
func TestAnIntentThatNamesAnotherIDIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, id(1)))
	open, err := WriteIntent(s.InvocationDir(repoID, id(1)), testIntent)
	must(t, err)
	must(t, open.file.Close())
	if e := s.Invocation(repoID, id(1), nil); e.Intent != nil && e.Intent.ID != id(1) {
		t.Errorf("the directory %s says that %s was interrupted: %+v", id(1), e.Intent.ID, *e.Intent)
	}
}

// Whoever acted on it would remove the tree "", the branch "" and the entry "" below .git/worktrees, which
// is every entry.
func TestAnIntentThatNamesNothingIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"{}", "null", "null and void", `{"id":"` + invID + `"}`, `{"id":"` + invID + `","tree":"/x"} rubbish`} {
		s := newStore(t)
		must(t, s.CreateInvocationDir(repoID, invID))
		must(t, os.WriteFile(intentPath(s.InvocationDir(repoID, invID)), []byte(content), 0o600))
		if e := s.Invocation(repoID, invID, nil); e.Intent != nil {
			t.Errorf("%s: %+v", content, *e.Intent)
		}
	}
}
