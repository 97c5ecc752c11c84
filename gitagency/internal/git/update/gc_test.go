package update

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// keeping is a merge that is about to land: main and another branch have changed the same file, so that git has to merge
// it, and there is a blob, trees and a commit that nobody else has.
type keeping struct {
	*advancer
	m *merge.Merger
	x *Transaction
}

const trashed = "refs/agency/trash/x"

func newKeeping(t *testing.T, before func(l *gittest.Lab)) *keeping {
	t.Helper()
	l := gittest.New(t)
	lines := strings.Repeat("line\n", 20)
	l.Write("dir/long", lines)
	base := l.Commit("base")
	theirs := l.SideCommit(base, map[string]string{"dir/long": lines + "theirs\n"})
	l.Git("branch", "theirs", theirs)
	l.Git("checkout", "-q", "main")
	l.Write("dir/long", "ours\n"+lines)
	ours := l.Commit("ours")
	if before != nil {
		before(l)
	}
	m := openMerger(l)
	merged := mergeCommits(l, m, merge.Request{Ours: ours, Theirs: theirs})
	who := object.Signature{Identity: object.Identity{Name: "A", Email: "a@example.com"}, When: "1700000000 +0100"}
	made, err := m.CreateCommit(t.Context(), merge.CommitRequest{Tree: merged.Tree, Parents: []string{ours, theirs}, Author: who, Committer: who, Message: "merged"})
	l.Must(err)
	k := &keeping{advancer: newAdvancer(l, made), m: m}
	k.a.OtherRefs = []RefMove{{Ref: trashed, Old: strings.Repeat("0", 40), New: theirs}}
	return k
}

// run takes all steps, and calls something at a point; it ends with the first error.
func (k *keeping) run(point string, do func() error) error {
	k.T.Helper()
	ctx := k.T.Context()
	var err error
	k.x, err = BeginMerged(ctx, k.m, k.a)
	k.Must(err)
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
		k.T.Errorf("%s is never reached", point)
	}
	return k.x.Close()
}

// tidiesUp says that a gc is at work, somewhere.
func (k *keeping) tidiesUp() { k.T.Helper(); k.WriteIn(k.Root, ".git/gc.pid", "1 elsewhere") }

// prune takes away what no ref leads to, of that in files as of that in packs.
func (k *keeping) prune() {
	k.T.Helper()
	k.Git("repack", "-q", "-a", "-d")
	k.Git("prune", "--expire=now")
}

// keeps are the files that keep packs.
func (k *keeping) keeps() []string {
	k.T.Helper()
	found, err := filepath.Glob(filepath.Join(k.Root, ".git/objects/pack/*.keep"))
	k.Must(err)
	return found
}

// whole checks that all of it has landed, and that nothing is missing, whatever the merger still had.
func (k *keeping) whole() {
	k.T.Helper()
	k.landed("")
	k.Git("fsck", "--strict")
	for _, ref := range []string{"main", trashed} {
		k.Git("rev-list", "--objects", ref)
	}
	if got := k.keeps(); len(got) > 0 {
		k.T.Errorf("%s is left", got)
	}
	k.prune()
	k.Git("fsck", "--strict")
}

// Promise: while a gc is at work, all that is about to land is where it does not take it away; and nothing says so any more
// when it has landed.
func TestWhatLandsIsHeldWhileAGitTidiesUp(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.tidiesUp()
	k.Must(k.run("held", func() error {
		held := k.keeps()
		if len(held) != 1 {
			t.Fatalf("held by %q", held)
		}
		if data, err := os.ReadFile(held[0]); err != nil || string(data) != "git-agency landing "+k.a.New+"\n" {
			t.Errorf("it says %q, %v", data, err)
		}
		k.prune()
		k.Git("cat-file", "-e", k.a.New)
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
			k.Must(k.run(point, func() error {
				k.prune()
				if _, err := k.TryGit(k.Root, "cat-file", "-e", k.a.New); err == nil {
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
	k := newKeeping(t, func(l *gittest.Lab) {
		l.Write("../merged", "ours\n"+strings.Repeat("line\n", 20)+"theirs\n")
		blob = l.Git("hash-object", "-w", "../merged")
	})
	if gittest.Exists(k.m.Repo.LoosePath(blob)) {
		t.Fatal("git has written it again")
	}
	k.Must(k.run("commit", func() error { k.prune(); return nil }))
	k.whole()

	// The same, of what is on disk and was not committed.
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	box := repotest.AddSandbox(l, repo)
	l.WriteIn(box.Tree, "new", "lies about\n")
	oid := l.GitIn(box.Tree, "hash-object", "-w", "new")
	m := openMerger(l)
	looked, err := m.Inspect(t.Context(), git.WorktreeSpec{Name: box.Name, Dir: box.Tree, Branch: box.Branch})
	l.Must(err)
	l.Git("prune", "--expire=now")
	l.Must(m.Persist(t.Context()))
	if got := l.Git("cat-file", "blob", looked.DiskTree+":new"); got != "lies about" {
		t.Errorf("%s is %q", oid, got)
	}
}

// What others have written to the repository, just now, cannot be had again from us: it is held in any case.
func TestWhatWasCapturedIsHeld(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.Write("../captured", "captured\n")
	blob := k.Git("hash-object", "-w", "../captured")
	k.Shell("printf '100644 blob " + blob + "\\tcaptured\\n' | git mktree >../tree")
	tree, err := os.ReadFile(filepath.Join(k.Root, "../tree"))
	k.Must(err)
	k.a.OtherRefs[0].New = k.Git("commit-tree", "-p", k.a.OtherRefs[0].New, "-m", "captured", strings.TrimSpace(string(tree)))
	k.m.UsesUnreferenced = true
	k.Must(k.run("held", func() error { k.prune(); return nil }))
	k.whole()
}

// Promise: where nobody tidies up there is no pack.
func TestNothingIsPackedWhereNobodyTidiesUp(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, nil)
	k.Must(k.run("commit", func() error { return nil }))
	if packs, err := filepath.Glob(filepath.Join(k.Root, ".git/objects/pack/*")); err != nil || len(packs) > 0 {
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
	theirs := filepath.Join(k.Root, ".git/objects/pack/pack-"+strings.Repeat("1", 40)+".keep")
	k.Must(os.MkdirAll(filepath.Dir(theirs), 0o755))
	k.Must(os.WriteFile(theirs, []byte("receive-pack 1 on elsewhere\n"), 0o644))
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
	k.Must(k.x.Close())
	let("undone")
	gittest.RequireSame(t, "undone", k.sum(), before)

	if err := k.run("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	k.Must(k.x.closeUpdateRef()) // as who is killed
	if done, err := Recover(t.Context(), k.repo, k.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	let("killed before the refs have moved")
	gittest.RequireSame(t, "killed", k.sum(), before)

	if err := k.run("publish", func() error {
		k.WriteIn(k.Root, ".git/objects/pack/pack-"+strings.Repeat("2", 40)+".keep", k.a.keepReason()+"\n")
		return errFault
	}); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	k.Must(k.x.closeUpdateRef())
	if done, err := Recover(t.Context(), k.repo, k.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	let("killed when the refs had moved")
	k.Must(os.Remove(theirs))
	k.whole()
}

func TestAGitTidiesUpAsLongAsItsFileSaysSo(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	if isGCRunning(repo) {
		t.Error("nobody does")
	}
	here, err := os.Hostname()
	l.Must(err)
	ended := exec.CommandContext(t.Context(), "true")
	l.Must(ended.Run())
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
		l.WriteIn(l.Root, ".git/gc.pid", c.says)
		at := time.Now().Add(-c.age)
		l.Must(os.Chtimes(filepath.Join(l.Root, ".git/gc.pid"), at, at))
		if got := isGCRunning(repo); got != c.want {
			t.Errorf("%q, %s old: %v", c.says, c.age, got)
		}
	}
}
