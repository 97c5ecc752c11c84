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
type gcLab struct {
	*updateLab
	merger *merge.Merger
	tx     *Transaction
}

const trashRef = "refs/agency/trash/x"

// newGCLab makes a gcLab; before runs when both branches exist and the merge does not.
func newGCLab(t *testing.T, before func(l *gittest.Fixture)) *gcLab {
	t.Helper()
	l := gittest.New(t)
	lines := strings.Repeat("line\n", 20)
	l.Write("dir/long", lines)
	base := l.Commit("base")
	theirs := l.CommitDetached(base, map[string]string{"dir/long": lines + "theirs\n"})
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
	lab := &gcLab{updateLab: newUpdateLab(l, made), merger: m}
	lab.spec.OtherRefs = []RefMove{{Ref: trashRef, Old: strings.Repeat("0", 40), New: theirs}}
	return lab
}

// runWithHook runs all steps until the first error, and calls do at a fault injection point.
func (lab *gcLab) runWithHook(point string, do func() error) error {
	lab.T.Helper()
	ctx := lab.T.Context()
	var err error
	lab.tx, err = BeginMerged(ctx, lab.merger, lab.spec)
	lab.Must(err)
	reached := false
	lab.tx.fault = func(at string) error {
		if at != point {
			return nil
		}
		reached = true
		return do()
	}
	if err := lab.merger.Persist(ctx); err != nil {
		return err
	}
	for _, name := range stepNames {
		if err := lab.runStep(lab.tx, name); err != nil {
			return err
		}
	}
	if !reached {
		lab.T.Errorf("the point %s is never reached", point)
	}
	return lab.tx.Close()
}

// writeGCPid writes a gc.pid that says that a gc runs on another host.
func (lab *gcLab) writeGCPid() { lab.T.Helper(); lab.WriteIn(lab.Root, ".git/gc.pid", "1 elsewhere") }

// prune deletes unreachable objects, loose and packed.
func (lab *gcLab) prune() {
	lab.T.Helper()
	lab.Git("repack", "-q", "-a", "-d")
	lab.Git("prune", "--expire=now")
}

// keepFiles lists the .keep files of packs.
func (lab *gcLab) keepFiles() []string {
	lab.T.Helper()
	found, err := filepath.Glob(filepath.Join(lab.Root, ".git/objects/pack/*.keep"))
	lab.Must(err)
	return found
}

// requireComplete checks that the update is done, no .keep file is left, and no object is missing, also after prune.
func (lab *gcLab) requireComplete() {
	lab.T.Helper()
	lab.requireLanded("")
	lab.Git("fsck", "--strict")
	for _, ref := range []string{"main", trashRef} {
		lab.Git("rev-list", "--objects", ref)
	}
	if got := lab.keepFiles(); len(got) > 0 {
		lab.T.Errorf("the .keep files %s are left", got)
	}
	lab.prune()
	lab.Git("fsck", "--strict")
}

// Promise: while a gc runs, the new objects are in a pack with a .keep file, which gc does not delete. The .keep file is
// removed when the refs have moved.
func TestNewObjectsAreKeptInPackDuringGC(t *testing.T) {
	t.Parallel()
	lab := newGCLab(t, nil)
	lab.writeGCPid()
	lab.Must(lab.runWithHook("held", func() error {
		held := lab.keepFiles()
		if len(held) != 1 {
			t.Fatalf("the .keep files are %q, want one", held)
		}
		if data, err := os.ReadFile(held[0]); err != nil || string(data) != "git-agency landing "+lab.spec.New+"\n" {
			t.Errorf("the .keep file says %q, %v", data, err)
		}
		lab.prune()
		lab.Git("cat-file", "-e", lab.spec.New)
		return nil
	}))
	lab.requireComplete()
}

// Promise: objects that a gc deletes before the refs have moved are written again afterwards, also when there was no gc.pid.
func TestUpdateRestoresPrunedObjects(t *testing.T) {
	t.Parallel()
	for i, point := range []string{"lock", "prepare", "moved", "commit"} {
		for _, gcPid := range []bool{false, true} {
			if testing.Short() && gcPid != (i%2 == 0) {
				continue
			}
			lab := newGCLab(t, nil)
			if gcPid {
				lab.writeGCPid()
			}
			lab.Must(lab.runWithHook(point, func() error {
				lab.prune()
				if _, err := lab.TryGit(lab.Root, "cat-file", "-e", lab.spec.New); err == nil {
					t.Errorf("%s: prune deleted nothing", point)
				}
				return nil
			}))
			lab.requireComplete()
		}
	}
}

// Persist keeps an object that was unreferenced in the repository before, and that git therefore did not write again: gc may
// delete it like the new objects.
func TestPersistKeepsUnreferencedObjects(t *testing.T) {
	t.Parallel()
	var blob string
	lab := newGCLab(t, func(l *gittest.Fixture) {
		l.Write("../merged", "ours\n"+strings.Repeat("line\n", 20)+"theirs\n")
		blob = l.Git("hash-object", "-w", "../merged")
	})
	if gittest.Exists(lab.merger.Repo.LoosePath(blob)) {
		t.Fatal("git has written the blob again")
	}
	lab.Must(lab.runWithHook("commit", func() error { lab.prune(); return nil }))
	lab.requireComplete()

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
func TestCapturedObjectsAreKeptInPack(t *testing.T) {
	t.Parallel()
	lab := newGCLab(t, nil)
	lab.Write("../captured", "captured\n")
	blob := lab.Git("hash-object", "-w", "../captured")
	lab.Shell("printf '100644 blob " + blob + "\\tcaptured\\n' | git mktree >../tree")
	tree, err := os.ReadFile(filepath.Join(lab.Root, "../tree"))
	lab.Must(err)
	lab.spec.OtherRefs[0].New = lab.Git("commit-tree", "-p", lab.spec.OtherRefs[0].New, "-m", "captured", strings.TrimSpace(string(tree)))
	lab.merger.UsesUnreferenced = true
	lab.Must(lab.runWithHook("held", func() error { lab.prune(); return nil }))
	lab.requireComplete()
}

// Promise: without a running gc the update writes no pack.
func TestNoPackIsWrittenWithoutGC(t *testing.T) {
	t.Parallel()
	lab := newGCLab(t, nil)
	lab.Must(lab.runWithHook("commit", func() error { return nil }))
	if packs, err := filepath.Glob(filepath.Join(lab.Root, ".git/objects/pack/*")); err != nil || len(packs) > 0 {
		t.Errorf("the packs are %q, %v", packs, err)
	}
	lab.requireComplete()
}

// Promise: the .keep file is removed when the update is done, undone or recovered. Other .keep files stay.
func TestKeepFilesAreRemoved(t *testing.T) {
	t.Parallel()
	lab := newGCLab(t, nil)
	lab.writeGCPid()
	before := lab.diskState()
	theirs := filepath.Join(lab.Root, ".git/objects/pack/pack-"+strings.Repeat("1", 40)+".keep")
	lab.Must(os.MkdirAll(filepath.Dir(theirs), 0o755))
	lab.Must(os.WriteFile(theirs, []byte("receive-pack 1 on elsewhere\n"), 0o644))
	checkRemoved := func(what string) {
		t.Helper()
		if got := lab.keepFiles(); len(got) != 1 || got[0] != theirs {
			t.Errorf("%s: the .keep files are %q, want only %s", what, got, theirs)
		}
	}
	stop := func() error {
		if len(lab.keepFiles()) != 2 {
			t.Errorf("the .keep files are %q, want two", lab.keepFiles())
		}
		return errFault
	}
	if err := lab.runWithHook("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.tx.Close())
	checkRemoved("undone")
	gittest.RequireSame(t, "undone", lab.diskState(), before)

	if err := lab.runWithHook("held", stop); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.tx.closeUpdateRef()) // as when the process is killed
	if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	checkRemoved("killed before the refs have moved")
	gittest.RequireSame(t, "killed", lab.diskState(), before)

	if err := lab.runWithHook("publish", func() error {
		lab.WriteIn(lab.Root, ".git/objects/pack/pack-"+strings.Repeat("2", 40)+".keep", lab.spec.keepReason()+"\n")
		return errFault
	}); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	lab.Must(lab.tx.closeUpdateRef())
	if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	checkRemoved("killed when the refs had moved")
	lab.Must(os.Remove(theirs))
	lab.requireComplete()
}

func TestIsGCRunningReadsGCPid(t *testing.T) {
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
