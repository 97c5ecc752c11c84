package merge

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// openMerger returns a Merger of the lab's repository, which is closed when the test ends.
func openMerger(l *gittest.Fixture) *Merger {
	l.T.Helper()
	m, err := NewMerger(repotest.OpenRepo(l), l.Git("rev-parse", "HEAD"))
	l.Must(err)
	l.T.Cleanup(func() { l.Must(m.Close()) })
	return m
}

func mergeCommits(l *gittest.Fixture, m *Merger, what Request) Result {
	l.T.Helper()
	merged, err := m.Merge(l.T.Context(), what)
	l.Must(err)
	return merged
}

const nineLines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// Promise: Merge makes the same tree as git merge, with or without merging the content of files. The new objects are not in
// the repository before Persist, and all of them are in it afterwards.
func TestMergeMatchesGitAndIsHiddenUntilPersist(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("long", nineLines)
	base := l.Commit("long")
	for _, c := range []struct {
		name         string
		ours, theirs map[string]string
	}{
		{"apart", map[string]string{"a.txt": "ours\n"}, map[string]string{"dir/b.txt": "theirs\n", "dir/new/x": "x\n"}},
		{"the same file", map[string]string{"long": strings.Replace(nineLines, "1", "one", 1)}, map[string]string{"long": strings.Replace(nineLines, "9", "nine", 1)}},
		{"renamed", map[string]string{"long": "", "elsewhere": nineLines}, map[string]string{"long": strings.Replace(nineLines, "9", "nine", 1)}},
		{"only theirs", nil, map[string]string{"a.txt": "theirs\n"}},
		{"taken away", map[string]string{"dir": ""}, map[string]string{"a.txt": "theirs\n"}},
	} {
		ours, theirs := l.CommitDetached(base, c.ours), l.CommitDetached(base, c.theirs)
		m := openMerger(l)
		merged := mergeCommits(l, m, Request{Ours: ours, Theirs: theirs})
		if len(merged.Conflicts) > 0 {
			t.Fatalf("%s: %v", c.name, merged.Conflicts)
		}
		for _, tree := range []string{base, l.Git("rev-parse", base+"^{tree}")} {
			if over := mergeCommits(l, m, Request{Base: tree, Ours: ours, Theirs: theirs}); over.Tree != merged.Tree {
				t.Errorf("%s: with an explicit base: %v, want %v", c.name, over, merged)
			}
		}
		author := object.Signature{Identity: object.Identity{Name: "A", Email: "a@example.com"}, When: "1700000000 +0100"}
		commit, err := m.CreateCommit(t.Context(), CommitRequest{Tree: merged.Tree, Parents: []string{ours, theirs}, Author: author, Committer: author, Message: "merged"})
		l.Must(err)
		if _, err := l.TryGit(l.Root, "cat-file", "-e", commit); err == nil {
			t.Errorf("%s: the commit is in the repository before Persist", c.name)
		}
		before := l.AllObjects()
		l.Must(m.Persist(t.Context()))
		l.Git("checkout", "-q", "--detach", ours)
		l.Git("merge", "-q", "--no-ff", "-m", "by git", theirs)
		if want := l.Git("rev-parse", "HEAD^{tree}"); l.Git("rev-parse", commit+"^{tree}") != want {
			t.Errorf("%s: got %v, git made %v", c.name, l.Files(commit), l.Files(want))
		}
		l.Git("fsck", "--strict", commit)
		for oid := range l.AllObjects() {
			if !before[oid] && strings.Contains(l.Git("cat-file", "-p", oid), "git-agency@localhost") {
				t.Errorf("%s: the synthetic commit %s was persisted", c.name, oid)
			}
		}
	}
}

// Promise: Merge of commits without a common ancestor returns an UnrelatedError, and no other failure does.
func TestMergeRefusesUnrelatedHistories(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ours := l.Git("rev-parse", "HEAD")
	l.Git("checkout", "-q", "--orphan", "other")
	theirs := l.Commit("other")
	m := openMerger(l)
	var unrelated *UnrelatedError
	if _, err := m.Merge(t.Context(), Request{Ours: ours, Theirs: theirs}); !errors.As(err, &unrelated) || unrelated.Ours != ours {
		t.Errorf("%v", err)
	}
	if _, err := m.Merge(t.Context(), Request{Ours: ours, Theirs: strings.Repeat("1", 40)}); err == nil || errors.As(err, &unrelated) {
		t.Errorf("%v", err)
	}
}

// Promise: Merge lists each conflicted path once, sorted, with the kinds of conflict and all stages. Conflict markers show
// the names of both sides.
func TestMergeListsConflictsWithKindsAndStages(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("long", nineLines)
	l.Write("gone", nineLines+"gone\n")
	base := l.Commit("long")
	ours := l.CommitDetached(base, map[string]string{"a.txt": "ours\n", "gone": "", "long": "", "here": nineLines, "both": "ours\n"})
	theirs := l.CommitDetached(base, map[string]string{"a.txt": "theirs\n", "gone": nineLines + "kept\n", "long": "", "there": nineLines, "both": "theirs\n"})
	for _, style := range []string{"", "diff3"} {
		if style != "" {
			l.ConfigureGlobal("merge.conflictStyle", style)
			l.ConfigureGlobal("merge.verbosity", "0")
		}
		merged := mergeCommits(l, openMerger(l), Request{Ours: ours, Theirs: theirs, OursName: "main", TheirsName: "agency/sandbox-x"})
		var got []string
		for _, c := range merged.Conflicts {
			var stages []string
			for _, s := range c.Stages {
				stages = append(stages, string(rune('0'+s.Number)))
			}
			got = append(got, c.Path+" "+strings.Join(c.Kinds, "+")+" "+strings.Join(stages, ""))
		}
		want := []string{"a.txt contents 123", "both contents 23", "gone modify/delete 13", "here rename/rename 2", "long rename/rename 1", "there rename/rename 3"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q", style, got)
		}
		m := openMerger(l)
		merged = mergeCommits(l, m, Request{Ours: ours, Theirs: theirs, OursName: "main", TheirsName: "agency/sandbox-x"})
		l.Must(m.Persist(t.Context()))
		if text := l.Git("cat-file", "blob", merged.Tree+":a.txt"); !strings.HasPrefix(text, "<<<<<<< main\n") || !strings.Contains(text, ">>>>>>> agency/sandbox-x") || strings.Contains(text, "|||") != (style != "") {
			t.Errorf("%s: %s", style, text)
		}
	}
}

// Promise: a merge with several merge bases is left to git's recursive merge.
func TestMergeOfCrissCrossHistories(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	a, b := l.CommitDetached(base, map[string]string{"a.txt": "A\n"}), l.CommitDetached(base, map[string]string{"dir/b.txt": "B\n"})
	cross := func(on, with string) string {
		l.Git("checkout", "-q", "--detach", on)
		l.Git("merge", "-q", "--no-ff", "-m", "cross", with)
		return l.Git("rev-parse", "HEAD")
	}
	ours, theirs := l.CommitDetached(cross(a, b), map[string]string{"x": "x\n"}), l.CommitDetached(cross(b, a), map[string]string{"y": "y\n"})
	m := openMerger(l)
	if base, err := m.mergeBase(t.Context(), ours, theirs); err != nil || base != "" {
		t.Errorf("%q, %v", base, err)
	}
	merged := mergeCommits(l, m, Request{Ours: ours, Theirs: theirs})
	l.Must(m.Persist(t.Context()))
	if files := l.Files(merged.Tree); len(merged.Conflicts) > 0 || files["x"] == "" || files["y"] == "" || files["a.txt"] != "100644 A\n" {
		t.Errorf("%v", merged)
	}
}

// addEmptyCommits makes n empty commits on top of a commit and returns the last one.
func addEmptyCommits(l *gittest.Fixture, m *Merger, on string, n int) string {
	l.T.Helper()
	tree := l.Git("rev-parse", on+"^{tree}")
	for range n {
		var err error
		on, err = m.CreateCommit(l.T.Context(), CommitRequest{Tree: tree, Parents: []string{on}, Author: testCommitter, Committer: testCommitter, Message: "more"})
		l.Must(err)
	}
	l.Must(m.Persist(l.T.Context()))
	return on
}

// Promise: mergeBase returns the same commit as git merge-base, near and far; and a merge works in a shallow repository.
func TestMergeBaseMatchesGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("second", "2\n")
	base := l.Commit("second")
	ours := l.CommitDetached(base, map[string]string{"x": "x\n"})
	near := l.CommitDetached(base, map[string]string{"y": "y\n"})
	m := openMerger(l)
	far := addEmptyCommits(l, m, near, 70)
	for _, pair := range [][2]string{{ours, near}, {near, ours}, {ours, far}, {far, near}, {near, far}, {far, far}} {
		got, err := m.mergeBase(t.Context(), pair[0], pair[1])
		if want := l.Git("merge-base", pair[0], pair[1]); err != nil || got != want {
			t.Errorf("%v: got %s, %v, want %s", pair, got, err, want)
		}
	}
	l.Git("checkout", "-q", "--detach", ours)
	l.Git("branch", "-D", "main")
	l.Git("branch", "ours", ours)
	l.Git("branch", "near", near)
	shallow := filepath.Join(gittest.TempDir(t), "shallow")
	l.Git("clone", "-q", "--bare", "--depth=2", "--no-single-branch", "file://"+l.Root, shallow)
	if _, err := os.Lstat(filepath.Join(shallow, "shallow")); err != nil {
		t.Fatal(err)
	}
	if m, err := NewMerger(repotest.OpenRepoIn(l, shallow), ours); err != nil {
		t.Error(err)
	} else {
		defer m.Close()
		if merged := mergeCommits(l, m, Request{Ours: ours, Theirs: near}); len(merged.Conflicts) > 0 {
			t.Errorf("%v", merged)
		}
	}
}

// Promise: mergeBase of a commit and its descendant reads no ancestors of that commit, also when the descendant has an
// earlier date: each commit that is read makes a landing slower.
func TestMergeBaseOfDescendantReadsFewCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	m := openMerger(l)
	later, earlier := testCommitter, testCommitter
	later.When, earlier.When = "2000000000 +0000", "1000000000 +0000"
	commit := func(on string, by object.Signature) string {
		oid, err := m.CreateCommit(t.Context(), CommitRequest{Tree: l.Git("rev-parse", "HEAD^{tree}"), Parents: []string{on}, Author: by, Committer: by, Message: "more"})
		l.Must(err)
		return oid
	}
	ours := l.Git("rev-parse", "HEAD")
	for range 10 {
		ours = commit(ours, later)
	}
	theirs := commit(ours, earlier)
	beside := commit(l.Git("rev-parse", "HEAD"), later)
	l.Must(m.Persist(t.Context()))
	for _, c := range []struct {
		theirs, want string
		most         int
	}{{theirs, ours, 2}, {beside, l.Git("merge-base", ours, beside), 20}} {
		m := openMerger(l)
		got, err := m.mergeBase(t.Context(), ours, c.theirs)
		if err != nil || got != c.want || len(m.commitCache) > c.most {
			t.Errorf("got %s, %v with %d commits read; want %s with at most %d", got, err, len(m.commitCache), c.want, c.most)
		}
	}
}

// Promise: concurrent merges of one Merger do not disturb each other, also when they merge the same commits.
func TestConcurrentMerges(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("long", nineLines)
	base := l.Commit("long")
	ours := l.CommitDetached(base, map[string]string{"long": "0\n" + nineLines})
	theirs := []string{l.CommitDetached(base, map[string]string{"long": nineLines + "10\n"}), l.CommitDetached(base, map[string]string{"long": "x\n" + nineLines}), l.CommitDetached(base, map[string]string{"a.txt": "x\n"})}
	m := openMerger(l)
	var want []string
	for _, other := range theirs {
		want = append(want, mergeCommits(l, m, Request{Base: base, Ours: ours, Theirs: other}).Tree)
	}
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			got, err := m.Merge(t.Context(), Request{Base: base, Ours: ours, Theirs: theirs[i%3]})
			if err != nil || got.Tree != want[i%3] || (len(got.Conflicts) > 0) != (i%3 == 1) {
				t.Errorf("%d: %v, %v", i%3, got, err)
			}
		})
	}
	group.Wait()
	l.Must(m.Persist(t.Context()))
	if out := l.Git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"); strings.Count(out, "commit") != 6 {
		t.Errorf("synthetic commits were persisted: %d commits, want 6", strings.Count(out, "commit"))
	}
}
