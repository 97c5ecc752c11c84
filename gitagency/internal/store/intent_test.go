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

func TestInvocationsHideRunningCreation(t *testing.T) {
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
				t.Errorf("listed during its creation: %+v, %v", entries, err)
			}
			if e := s.Invocation(repoID, invID, busy); !e.BeingCreated || e.Intent != nil {
				t.Errorf("read by id: %+v", e)
			}
		}

		// Simulate the death of the creator: the kernel closes its files, which releases the lock.
		must(t, open.file.Close())
		entries, err := s.Invocations(repoID, func() bool { return true })
		want := map[bool]Defect{false: Incomplete, true: MissingMeta}[withTree]
		if err != nil || len(entries) != 1 || entries[0].Defect != want || entries[0].Intent == nil {
			t.Fatalf("after the interruption: %+v, %v", entries, err)
		}
		intended := testIntent
		intended.SchemaVersion = SchemaVersion
		if *entries[0].Intent != intended {
			t.Errorf("got %+v, want %+v", *entries[0].Intent, intended)
		}

		// A record completes the invocation; an intent beside a record is ignored.
		must(t, s.WriteInvocationMeta(repoID, meta(s, invID)))
		must(t, os.MkdirAll(s.SandboxTreePath(repoID, invID), 0o755))
		if e := s.Invocation(repoID, invID, nil); e.Defect != NoDefect || e.Intent != nil || e.BeingCreated {
			t.Errorf("with a record: %+v", e)
		}
	}
}

func TestWriteIntentLocksFile(t *testing.T) {
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
		t.Errorf("another process can lock the intent: %v", err)
	}
	if fi, err := os.Stat(intentPath(dir)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
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

// After the directory was made and before the intent is written, only the repository lock shows that a creation runs.
func TestInvocationsHideEmptyDirectoryWhileLocked(t *testing.T) {
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
		t.Errorf("without a lock to ask: %+v, %v", entries, err)
	}
	// A tree without a record directory is not being created: a creation makes that directory first.
	must(t, os.Remove(s.InvocationDir(repoID, invID)))
	must(t, os.MkdirAll(s.SandboxTreePath(repoID, invID), 0o755))
	entries, err := s.Invocations(repoID, func() bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Defect != MissingMeta {
		t.Errorf("tree without a record directory: %+v, %v", entries, err)
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

func TestInvocationIgnoresUnreadableIntent(t *testing.T) {
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

// A listing queries the repository lock only for incomplete invocations: the query costs a system call.
func TestInvocationsQueryLockOnlyIfIncomplete(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for n := range 5 {
		add(t, s, id(n))
	}
	entries, err := s.Invocations(repoID, func() bool { t.Error("the lock was queried"); return false })
	if err != nil || !slices.Equal(idsOf(entries), []string{id(0), id(1), id(2), id(3), id(4)}) {
		t.Errorf("got %q, %v", idsOf(entries), err)
	}
}

// An intent that names another id than its directory is ignored. Recovery removes the tree and the branch that an intent
// names; in a directory that was copied or restored under another name, these belong to another invocation.
func TestInvocationIgnoresIntentOfOtherID(t *testing.T) {
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

// An intent without tree and branch is ignored. Recovery from it would remove the tree "", the branch "" and the entry ""
// below .git/worktrees, which is every entry.
func TestInvocationIgnoresIncompleteIntent(t *testing.T) {
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
