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

// gcLab is an update to a merge commit that exists only in a Merger: main and another branch have changed the same file, so
// that git merges it and writes a new blob, trees and a commit, which no ref reaches.
type keeping struct {
	*advancer
	m *merge.Merger
	x *Transaction
}

const trashed = "refs/agency/trash/x"

// newGCLab makes a gcLab; before runs when both branches exist and the merge does not.
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
	author := object.Signature{Identity: object.Identity{Name: "A", Email: "a@example.com"}, When: "1700000000 +0100"}
	made, err := m.CreateCommit(t.Context(), merge.CommitRequest{Tree: merged.Tree, Parents: []string{ours, theirs}, Author: author, Committer: author, Message: "merged"})
	l.Must(err)
	lab := &keeping{advancer: newAdvancer(l, made), m: m}
	lab.a.OtherRefs = []RefMove{{Ref: trashed, Old: strings.Repeat("0", 40), New: theirs}}
	return lab
}

// runWithHook runs all steps until the first error, and calls do at a fault injection point.
func (lab *keeping) run(point string, do func() error) error {
	lab.T.Helper()
	ctx := lab.T.Context()
	var err error
	lab.x, err = BeginMerged(ctx, lab.m, lab.a)
	lab.Must(err)
	reached := false
	lab.x.fault = func(at string) error {
		if at != point {
			return nil
		}
		reached = true
		return do()
	}
	if err := lab.m.Persist(ctx); err != nil {
		return err
	}
	for _, name := range steps {
		if err := lab.step(lab.x, name); err != nil {
			return err
		}
	}
	if !reached {
		lab.T.Errorf("the point %s is never reached", point)
	}
	return lab.x.Close()
}

// writeGCPid writes a gc.pid that says that a gc runs on another host.
func (lab *keeping) tidiesUp() { lab.T.Helper(); lab.WriteIn(lab.Root, ".git/gc.pid", "1 elsewhere") }

// prune deletes unreachable objects, loose and packed.
func (lab *keeping) prune() {
	lab.T.Helper()
	lab.Git("repack", "-q", "-a", "-d")
	lab.Git("prune", "--expire=now")
}

// keepFiles lists the .keep files of packs.
func (lab *keeping) keeps() []string {
	lab.T.Helper()
	found, err := filepath.Glob(filepath.Join(lab.Root, ".git/objects/pack/*.keep"))
	lab.Must(err)
	return found
}

// requireComplete checks that the update is done, no .keep file is left, and no object is missing, also after prune.
func (lab *keeping) whole() {
	lab.T.Helper()
	lab.landed("")
	lab.Git("fsck", "--strict")
	for _, ref := range []string{"main", trashed} {
		lab.Git("rev-list", "--objects", ref)
	}
	if got := lab.keeps(); len(got) > 0 {
		lab.T.Errorf("the .keep files %s are left", got)
	}
	lab.prune()
	lab.Git("fsck", "--strict")
}

// Promise: while a gc runs, the new objects are in a pack with a .keep file, which gc does not delete. The .keep file is
// removed when the refs have moved.
func TestWhatLandsIsHeldWhileAGitTidiesUp(t *testing.T) {
	t.Parallel()
	lab := newKeeping(t, nil)
	lab.tidiesUp()
	lab.Must(lab.run("held", func() error {
		held := lab.keeps()
		if len(held) != 1 {
			t.Fatalf("the .keep files are %q, want one", held)
		}
		if data, err := os.ReadFile(held[0]); err != nil || string(data) != "git-agency landing "+lab.a.New+"\n" {
			t.Errorf("the .keep file says %q, %v", data, err)
		}
		lab.prune()
		lab.Git("cat-file", "-e", lab.a.New)
		return nil
	}))
	lab.whole()
}

// Promise: objects that a gc deletes before the refs have moved are written again afterwards, also when there was no gc.pid.
func TestWhatWasTakenAwayBeforeItLandedIsThereAgain(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"lock", "prepare", "moved", "commit"} {
		for _, gcPid := range []bool{false, true} {
			lab := newKeeping(t, nil)
			if gcPid {
				lab.tidiesUp()
			}
			lab.Must(lab.run(point, func() error {
				lab.prune()
				if _, err := lab.TryGit(lab.Root, "cat-file", "-e", lab.a.New); err == nil {
					t.Errorf("%s: prune deleted nothing", point)
				}
				return nil
			}))
			lab.whole()
		}
	}
}

// Persist keeps an object that was unreferenced in the repository before, and that git therefore did not write again: gc may
// delete it like the new objects.
func TestWhatLayAboutBeforeIsKeptToo(t *testing.T) {
	t.Parallel()
	var blob string
	lab := newKeeping(t, func(l *gittest.Lab) {
		l.Write("../merged", "ours\n"+strings.Repeat("line\n", 20)+"theirs\n")
		blob = l.Git("hash-object", "-w", "../merged")
	})
	if gittest.Exists(lab.m.Repo.LoosePath(blob)) {
		t.Fatal("git has written the blob again")
	}
	lab.Must(lab.run("commit", func() error { lab.prune(); return nil }))
	lab.whole()

	// The same for an uncommitted file of a worktree.
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	sandbox := repotest.AddSandbox(l, repo)
	l.WriteIn(sandbox.Tree, "new", "lies about\n")
	oid := l.GitIn(sandbox.Tree, "hash-object", "-w", "new")
	m := openMerger(l)
	report, err := m.Inspect(t.Context(), git.WorktreeSpec{Name: sandbox.Name, Dir: sandbox.Tree, Branch: sandbox.Branch})
	l.Must(err)
	l.Git("prune", "--expire=now")
	l.Must(m.Persist(t.Context()))
	if got := l.Git("cat-file", "blob", report.DiskTree+":new"); got != "lies about" {
		t.Errorf("blob %s is %q", oid, got)
	}
}

// Objects that Capture has just written to the repository are always kept in a pack: the merger has no copy of them.
func TestWhatWasCapturedIsHeld(t *testing.T) {
	t.Parallel()
	lab := newKeeping(t, nil)
	lab.Write("../captured", "captured\n")
	blob := lab.Git("hash-object", "-w", "../captured")
	lab.Shell("printf '100644 blob " + blob + "\\tcaptured\\n' | git mktree >../tree")
	tree, err := os.ReadFile(filepath.Join(lab.Root, "../tree"))
	lab.Must(err)
	lab.a.OtherRefs[0].New = lab.Git("commit-tree", "-p", lab.a.OtherRefs[0].New, "-m", "captured", strings.TrimSpace(string(tree)))
	lab.m.UsesUnreferenced = true
	lab.Must(lab.run("held", func() error { lab.prune(); return nil }))
	lab.whole()
}

// Promise: without a running gc the update writes no pack.
func TestNothingIsPackedWhereNobodyTidiesUp(t *testing.T) {
	t.Parallel()
	lab := newKeeping(t, nil)
	lab.Must(lab.run("commit", func() error { return nil }))
	if packs, err := filepath.Glob(filepath.Join(lab.Root, ".git/objects/pack/*")); err != nil || len(packs) > 0 {
		t.Errorf("the packs are %q, %v", packs, err)
	}
	lab.whole()
}

// Promise: the .keep file is removed when the update is done, undone or recovered. Other .keep files stay.
func TestWhatWasHeldIsLetGo(t *testing.T) {
	t.Parallel()
	lab := newKeeping(t, nil)
	lab.tidiesUp()
	before := lab.sum()
	theirs := filepath.Join(lab.Root, ".git/objects/pack/pack-"+strings.Repeat("1", 40)+".keep")
	lab.Must(os.MkdirAll(filepath.Dir(theirs), 0o755))
	lab.Must(os.WriteFile(theirs, []byte("receive-pack 1 on elsewhere\n"), 0o644))
	checkRemoved := func(what string) {
		t.Helper()
		if got := lab.keeps(); len(got) != 1 || got[0] != theirs {
			t.Errorf("%s: the .keep files are %q, want only %s", what, got, theirs)
		}
	}
	stop := func() error {
		if len(lab.keeps()) != 2 {
			t.Errorf("the .keep files are %q, want two", lab.keeps())
		}
		return errFault
	}
	if err := lab.run("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.x.Close())
	checkRemoved("undone")
	gittest.RequireSame(t, "undone", lab.sum(), before)

	if err := lab.run("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.x.closeUpdateRef()) // as when the process is killed
	if done, err := Recover(t.Context(), lab.repo, lab.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	checkRemoved("killed before the refs have moved")
	gittest.RequireSame(t, "killed", lab.sum(), before)

	if err := lab.run("publish", func() error {
		lab.WriteIn(lab.Root, ".git/objects/pack/pack-"+strings.Repeat("2", 40)+".keep", lab.a.keepReason()+"\n")
		return errFault
	}); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.x.closeUpdateRef())
	if done, err := Recover(t.Context(), lab.repo, lab.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	checkRemoved("killed when the refs had moved")
	lab.Must(os.Remove(theirs))
	lab.whole()
}

func TestAGitTidiesUpAsLongAsItsFileSaysSo(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	if isGCRunning(repo) {
		t.Error("true without a gc.pid")
	}
	here, err := os.Hostname()
	l.Must(err)
	ended := exec.CommandContext(t.Context(), "true")
	l.Must(ended.Run())
	for _, c := range []struct {
		pid  string // content of gc.pid
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
		l.WriteIn(l.Root, ".git/gc.pid", c.pid)
		at := time.Now().Add(-c.age)
		l.Must(os.Chtimes(filepath.Join(l.Root, ".git/gc.pid"), at, at))
		if got := isGCRunning(repo); got != c.want {
			t.Errorf("gc.pid %q, %s old: %v", c.pid, c.age, got)
		}
	}
}
