package git

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keeping is a merge that is about to land: main and another branch have changed the same file, so that git has to merge
// it, and there is a blob, trees and a commit that nobody else has.
type keeping struct {
	*advancer
	m *Merger
	x *Transaction
}

const trashed = "refs/agency/trash/x"

func newKeeping(t *testing.T, before func(l *lab)) *keeping {
	t.Helper()
	l := newLab(t)
	lines := strings.Repeat("line\n", 20)
	l.write("dir/long", lines)
	base := l.commit("base")
	theirs := l.side(base, map[string]string{"dir/long": lines + "theirs\n"})
	l.git("branch", "theirs", theirs)
	l.git("checkout", "-q", "main")
	l.write("dir/long", "ours\n"+lines)
	ours := l.commit("ours")
	if before != nil {
		before(l)
	}
	m := l.merger()
	merged := l.merge(m, Request{Ours: ours, Theirs: theirs})
	who := Signature{Identity{"A", "a@example.com"}, "1700000000 +0100"}
	made, err := m.CreateCommit(t.Context(), CommitRequest{Tree: merged.Tree, Parents: []string{ours, theirs}, Author: who, Committer: who, Message: "merged"})
	l.must(err)
	k := &keeping{advancer: newAdvancer(l, made), m: m}
	k.a.OtherRefs = []RefMove{{Ref: trashed, Old: strings.Repeat("0", 40), New: theirs}}
	return k
}

// run takes all steps, and calls something at a point; it ends with the first error.
func (k *keeping) run(point string, do func() error) error {
	k.t.Helper()
	ctx := k.t.Context()
	var err error
	k.x, err = k.m.BeginMerged(ctx, k.a)
	k.must(err)
	reached := false
	k.x.fault = func(at string) error {
		if at != point {
			return nil
		}
		reached = true
		return do()
	}
	if err := k.m.Persist(ctx); err != nil {
		return err
	}
	for _, name := range steps {
		if err := k.step(k.x, name); err != nil {
			return err
		}
	}
	if !reached {
		k.t.Errorf("%s is never reached", point)
	}
	return k.x.Close()
}

// tidiesUp says that a gc is at work, somewhere.
func (k *keeping) tidiesUp() { k.t.Helper(); k.put(k.dir, ".git/gc.pid", "1 elsewhere") }

// prune takes away what no ref leads to, of that in files as of that in packs.
func (k *keeping) prune() {
	k.t.Helper()
	k.git("repack", "-q", "-a", "-d")
	k.git("prune", "--expire=now")
}

// keeps are the files that keep packs.
func (k *keeping) keeps() []string {
	k.t.Helper()
	found, err := filepath.Glob(filepath.Join(k.dir, ".git/objects/pack/*.keep"))
	k.must(err)
	return found
}

// whole checks that all of it has landed, and that nothing is missing, whatever the merger still had.
func (k *keeping) whole() {
	k.t.Helper()
	k.landed("")
	k.git("fsck", "--strict")
	for _, ref := range []string{"main", trashed} {
		k.git("rev-list", "--objects", ref)
	}
	if got := k.keeps(); len(got) > 0 {
		k.t.Errorf("%s is left", got)
	}
	k.prune()
	k.git("fsck", "--strict")
}

// Promise: while a gc is at work, all that is about to land is where it does not take it away; and nothing says so any more
// when it has landed.
func TestWhatLandsIsHeldWhileAGitTidiesUp(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.tidiesUp()
	k.must(k.run("held", func() error {
		held := k.keeps()
		if len(held) != 1 {
			t.Fatalf("held by %q", held)
		}
		if data, err := os.ReadFile(held[0]); err != nil || string(data) != "git-agency landing "+k.a.New+"\n" {
			t.Errorf("it says %q, %v", data, err)
		}
		k.prune()
		k.git("cat-file", "-e", k.a.New)
		return nil
	}))
	k.whole()
}

// Promise: what somebody takes away before the refs have moved is there again when they have, also when nothing said that
// he was at work.
func TestWhatWasTakenAwayBeforeItLandedIsThereAgain(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"lock", "prepare", "moved", "commit"} {
		for _, says := range []bool{false, true} {
			k := newKeeping(t, nil)
			if says {
				k.tidiesUp()
			}
			k.must(k.run(point, func() error {
				k.prune()
				if _, err := k.try(k.dir, "cat-file", "-e", k.a.New); err == nil {
					t.Errorf("%s: nothing was taken away", point)
				}
				return nil
			}))
			k.whole()
		}
	}
}

// What lay about in the repository before, and git did not write again, is as new as all the rest.
func TestWhatLayAboutBeforeIsKeptToo(t *testing.T) {
	t.Parallel()
	var blob string
	k := newKeeping(t, func(l *lab) {
		l.write("../merged", "ours\n"+strings.Repeat("line\n", 20)+"theirs\n")
		blob = l.git("hash-object", "-w", "../merged")
	})
	if exists(k.m.repo.loosePath(blob)) {
		t.Fatal("git has written it again")
	}
	k.must(k.run("commit", func() error { k.prune(); return nil }))
	k.whole()

	// The same, of what is on disk and was not committed.
	l := newLab(t)
	repo := l.open()
	box := l.sandbox(repo)
	l.put(box.Tree, "new", "lies about\n")
	oid := l.in(box.Tree, "hash-object", "-w", "new")
	m := l.merger()
	looked, err := m.Inspect(t.Context(), WorktreeSpec{Name: box.Name, Dir: box.Tree, Branch: box.Branch})
	l.must(err)
	l.git("prune", "--expire=now")
	l.must(m.Persist(t.Context()))
	if got := l.git("cat-file", "blob", looked.DiskTree+":new"); got != "lies about" {
		t.Errorf("%s is %q", oid, got)
	}
}

// What others have written to the repository, just now, cannot be had again from us: it is held in any case.
func TestWhatWasCapturedIsHeld(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.write("../captured", "captured\n")
	blob := k.git("hash-object", "-w", "../captured")
	k.shell("printf '100644 blob " + blob + "\\tcaptured\\n' | git mktree >../tree")
	tree, err := os.ReadFile(filepath.Join(k.dir, "../tree"))
	k.must(err)
	k.a.OtherRefs[0].New = k.git("commit-tree", "-p", k.a.OtherRefs[0].New, "-m", "captured", strings.TrimSpace(string(tree)))
	k.m.UsesUnreferenced = true
	k.must(k.run("held", func() error { k.prune(); return nil }))
	k.whole()
}

// Promise: where nobody tidies up there is no pack.
func TestNothingIsPackedWhereNobodyTidiesUp(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.must(k.run("commit", func() error { return nil }))
	if packs, err := filepath.Glob(filepath.Join(k.dir, ".git/objects/pack/*")); err != nil || len(packs) > 0 {
		t.Errorf("%q, %v", packs, err)
	}
	k.whole()
}

// Promise: whatever becomes of it, nothing goes on keeping a pack; what keeps somebody else's stays.
func TestWhatWasHeldIsLetGo(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.tidiesUp()
	before := k.sum()
	theirs := filepath.Join(k.dir, ".git/objects/pack/pack-"+strings.Repeat("1", 40)+".keep")
	k.must(os.MkdirAll(filepath.Dir(theirs), 0o755))
	k.must(os.WriteFile(theirs, []byte("receive-pack 1 on elsewhere\n"), 0o644))
	let := func(what string) {
		t.Helper()
		if got := k.keeps(); len(got) != 1 || got[0] != theirs {
			t.Errorf("%s: %q is left", what, got)
		}
	}
	stop := func() error {
		if len(k.keeps()) != 2 {
			t.Errorf("held by %q", k.keeps())
		}
		return errFault
	}
	if err := k.run("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	k.must(k.x.Close())
	let("undone")
	requireSame(t, "undone", k.sum(), before)

	if err := k.run("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	k.must(k.x.closeUpdateRef()) // as who is killed
	if done, err := k.repo.Recover(t.Context(), k.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	let("killed before the refs have moved")
	requireSame(t, "killed", k.sum(), before)

	if err := k.run("publish", func() error {
		k.put(k.dir, ".git/objects/pack/pack-"+strings.Repeat("2", 40)+".keep", k.a.keepReason()+"\n")
		return errFault
	}); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	k.must(k.x.closeUpdateRef())
	if done, err := k.repo.Recover(t.Context(), k.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	let("killed when the refs had moved")
	k.must(os.Remove(theirs))
	k.whole()
}

func TestAGitTidiesUpAsLongAsItsFileSaysSo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	if repo.isGCRunning() {
		t.Error("nobody does")
	}
	here, err := os.Hostname()
	l.must(err)
	ended := exec.CommandContext(t.Context(), "true")
	l.must(ended.Run())
	for _, c := range []struct {
		says string
		age  time.Duration
		want bool
	}{
		{fmt.Sprint(os.Getpid(), " ", here), 0, true},
		{fmt.Sprint(os.Getpid(), " ", here), 13 * time.Hour, false},
		{fmt.Sprint(ended.Process.Pid, " ", here), 0, false},
		{fmt.Sprint(ended.Process.Pid, " else", here), 0, true},
		{fmt.Sprint(ended.Process.Pid, " else", here), 13 * time.Hour, false},
		{"", 0, true},
		{"nonsense", 0, true},
		{"-1 " + here, 0, true},
	} {
		l.put(l.dir, ".git/gc.pid", c.says)
		at := time.Now().Add(-c.age)
		l.must(os.Chtimes(filepath.Join(l.dir, ".git/gc.pid"), at, at))
		if got := repo.isGCRunning(); got != c.want {
			t.Errorf("%q, %s old: %v", c.says, c.age, got)
		}
	}
}
