package git

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// merger is one of a lab.
func (l *lab) merger() *Merger {
	l.t.Helper()
	m, err := l.open().NewMerger(l.git("rev-parse", "HEAD"))
	l.must(err)
	l.t.Cleanup(func() { l.must(m.Close()) })
	return m
}

// side makes a commit on top of another, with other files; one without content goes.
func (l *lab) side(on string, files map[string]string) string {
	l.t.Helper()
	l.git("checkout", "-q", "--detach", on)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == "" {
			l.git("rm", "-q", "-r", name)
			continue
		}
		l.write(name, files[name])
	}
	l.git("add", "-A")
	l.git("commit", "-q", "--allow-empty", "-m", "side "+strings.Join(slices.Sorted(maps.Keys(files)), " "))
	return l.git("rev-parse", "HEAD")
}

func (l *lab) merge(m *Merger, what Request) Result {
	l.t.Helper()
	merged, err := m.Merge(l.t.Context(), what)
	l.must(err)
	return merged
}

const lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// Promise: what is merged in memory is what git merge makes of it, whether or not files have to be merged; nobody sees it
// before it is kept, and then it is there for good.
func TestMergedIsWhatGitMakesAndNobodySeesItBeforeItIsKept(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("long", lines)
	base := l.commit("long")
	for _, c := range []struct {
		name         string
		ours, theirs map[string]string
	}{
		{"apart", map[string]string{"a.txt": "ours\n"}, map[string]string{"dir/b.txt": "theirs\n", "dir/new/x": "x\n"}},
		{"the same file", map[string]string{"long": strings.Replace(lines, "1", "one", 1)}, map[string]string{"long": strings.Replace(lines, "9", "nine", 1)}},
		{"renamed", map[string]string{"long": "", "elsewhere": lines}, map[string]string{"long": strings.Replace(lines, "9", "nine", 1)}},
		{"only theirs", nil, map[string]string{"a.txt": "theirs\n"}},
		{"taken away", map[string]string{"dir": ""}, map[string]string{"a.txt": "theirs\n"}},
	} {
		ours, theirs := l.side(base, c.ours), l.side(base, c.theirs)
		m := l.merger()
		merged := l.merge(m, Request{Ours: ours, Theirs: theirs})
		if len(merged.Conflicts) > 0 {
			t.Fatalf("%s: %v", c.name, merged.Conflicts)
		}
		for _, tree := range []string{base, l.git("rev-parse", base+"^{tree}")} {
			if over := l.merge(m, Request{Base: tree, Ours: ours, Theirs: theirs}); over.Tree != merged.Tree {
				t.Errorf("%s: over a base: %v and not %v", c.name, over, merged)
			}
		}
		who := Signature{Identity{"A", "a@example.com"}, "1700000000 +0100"}
		commit, err := m.CreateCommit(t.Context(), CommitRequest{Tree: merged.Tree, Parents: []string{ours, theirs}, Author: who, Committer: who, Message: "merged"})
		l.must(err)
		if _, err := l.try(l.dir, "cat-file", "-e", commit); err == nil {
			t.Errorf("%s: it is there before it is kept", c.name)
		}
		before := l.objects()
		l.must(m.Persist(t.Context()))
		l.git("checkout", "-q", "--detach", ours)
		l.git("merge", "-q", "--no-ff", "-m", "by git", theirs)
		if want := l.git("rev-parse", "HEAD^{tree}"); l.git("rev-parse", commit+"^{tree}") != want {
			t.Errorf("%s: %v, and git made %v", c.name, l.files(commit), l.files(want))
		}
		l.git("fsck", "--strict", commit)
		for oid := range l.objects() {
			if !before[oid] && strings.Contains(l.git("cat-file", "-p", oid), "git-agency@localhost") {
				t.Errorf("%s: %s was kept, which is nobody's", c.name, oid)
			}
		}
	}
}

// objects are all that there are in a repository.
func (l *lab) objects() map[string]bool {
	l.t.Helper()
	found := map[string]bool{}
	for oid := range strings.FieldsSeq(l.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")) {
		found[oid] = true
	}
	return found
}

// Promise: commits without a common past are told apart from everything else that can go wrong.
func TestUnrelatedHistoriesAreNotMerged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ours := l.git("rev-parse", "HEAD")
	l.git("checkout", "-q", "--orphan", "other")
	theirs := l.commit("other")
	m := l.merger()
	var unrelated *UnrelatedError
	if _, err := m.Merge(t.Context(), Request{Ours: ours, Theirs: theirs}); !errors.As(err, &unrelated) || unrelated.Ours != ours {
		t.Errorf("%v", err)
	}
	if _, err := m.Merge(t.Context(), Request{Ours: ours, Theirs: strings.Repeat("1", 40)}); err == nil || errors.As(err, &unrelated) {
		t.Errorf("%v", err)
	}
}

// Promise: each path that is in conflict is listed once, by name, with what kind of a conflict it is and all its sides;
// markers in files call the sides what they are called.
func TestConflictsAreListedWithKindsAndStages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("long", lines)
	l.write("gone", lines+"gone\n")
	base := l.commit("long")
	ours := l.side(base, map[string]string{"a.txt": "ours\n", "gone": "", "long": "", "here": lines, "both": "ours\n"})
	theirs := l.side(base, map[string]string{"a.txt": "theirs\n", "gone": lines + "kept\n", "long": "", "there": lines, "both": "theirs\n"})
	for _, style := range []string{"", "diff3"} {
		if style != "" {
			l.configure("merge.conflictStyle", style)
			l.configure("merge.verbosity", "0")
		}
		merged := l.merge(l.merger(), Request{Ours: ours, Theirs: theirs, OursName: "main", TheirsName: "agency/sandbox-x"})
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
		m := l.merger()
		merged = l.merge(m, Request{Ours: ours, Theirs: theirs, OursName: "main", TheirsName: "agency/sandbox-x"})
		l.must(m.Persist(t.Context()))
		if text := l.git("cat-file", "blob", merged.Tree+":a.txt"); !strings.HasPrefix(text, "<<<<<<< main\n") || !strings.Contains(text, ">>>>>>> agency/sandbox-x") || strings.Contains(text, "|||") != (style != "") {
			t.Errorf("%s: %s", style, text)
		}
	}
}

// Promise: where history has several merge bases, git's own way of dealing with them is taken.
func TestMergeOfHistoriesThatCrossed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	a, b := l.side(base, map[string]string{"a.txt": "A\n"}), l.side(base, map[string]string{"dir/b.txt": "B\n"})
	cross := func(on, with string) string {
		l.git("checkout", "-q", "--detach", on)
		l.git("merge", "-q", "--no-ff", "-m", "cross", with)
		return l.git("rev-parse", "HEAD")
	}
	ours, theirs := l.side(cross(a, b), map[string]string{"x": "x\n"}), l.side(cross(b, a), map[string]string{"y": "y\n"})
	m := l.merger()
	if base, err := m.mergeBase(t.Context(), ours, theirs); err != nil || base != "" {
		t.Errorf("%q, %v", base, err)
	}
	merged := l.merge(m, Request{Ours: ours, Theirs: theirs})
	l.must(m.Persist(t.Context()))
	if files := l.files(merged.Tree); len(merged.Conflicts) > 0 || files["x"] == "" || files["y"] == "" || files["a.txt"] != "100644 A\n" {
		t.Errorf("%v", merged)
	}
}

// more makes empty commits on top of another.
func (l *lab) more(m *Merger, on string, n int) string {
	l.t.Helper()
	tree := l.git("rev-parse", on+"^{tree}")
	for range n {
		var err error
		on, err = m.CreateCommit(l.t.Context(), CommitRequest{Tree: tree, Parents: []string{on}, Author: committer, Committer: committer, Message: "more"})
		l.must(err)
	}
	l.must(m.Persist(l.t.Context()))
	return on
}

// Promise: what two commits have in common is found as git finds it, near and far, and in a shallow repository.
func TestCommonBaseIsThatOfGit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("second", "2\n")
	base := l.commit("second")
	ours := l.side(base, map[string]string{"x": "x\n"})
	near := l.side(base, map[string]string{"y": "y\n"})
	m := l.merger()
	far := l.more(m, near, 70)
	for _, pair := range [][2]string{{ours, near}, {near, ours}, {ours, far}, {far, near}, {near, far}, {far, far}} {
		got, err := m.mergeBase(t.Context(), pair[0], pair[1])
		if want := l.git("merge-base", pair[0], pair[1]); err != nil || got != want {
			t.Errorf("%v: got %s, %v, want %s", pair, got, err, want)
		}
	}
	l.git("checkout", "-q", "--detach", ours)
	l.git("branch", "-D", "main")
	l.git("branch", "ours", ours)
	l.git("branch", "near", near)
	shallow := filepath.Join(tempDir(t), "shallow")
	l.git("clone", "-q", "--bare", "--depth=2", "--no-single-branch", "file://"+l.dir, shallow)
	if _, err := os.Lstat(filepath.Join(shallow, "shallow")); err != nil {
		t.Fatal(err)
	}
	if m, err := l.openIn(shallow).NewMerger(ours); err != nil {
		t.Error(err)
	} else {
		defer m.Close()
		if merged := l.merge(m, Request{Ours: ours, Theirs: near}); len(merged.Conflicts) > 0 {
			t.Errorf("%v", merged)
		}
	}
}

// Promise: what was made on top of a commit takes no look at what was before that, also where the clock of who made it was
// behind: each commit that is asked for costs a landing something.
func TestCommonBaseOfWhatFollowsIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.merger()
	later, earlier := committer, committer
	later.When, earlier.When = "2000000000 +0000", "1000000000 +0000"
	commit := func(on string, by Signature) string {
		oid, err := m.CreateCommit(t.Context(), CommitRequest{Tree: l.git("rev-parse", "HEAD^{tree}"), Parents: []string{on}, Author: by, Committer: by, Message: "more"})
		l.must(err)
		return oid
	}
	ours := l.git("rev-parse", "HEAD")
	for range 10 {
		ours = commit(ours, later)
	}
	theirs := commit(ours, earlier)
	beside := commit(l.git("rev-parse", "HEAD"), later)
	l.must(m.Persist(t.Context()))
	for _, c := range []struct {
		theirs, want string
		most         int
	}{{theirs, ours, 2}, {beside, l.git("merge-base", ours, beside), 20}} {
		m := l.merger()
		got, err := m.mergeBase(t.Context(), ours, c.theirs)
		if err != nil || got != c.want || len(m.commitCache) > c.most {
			t.Errorf("%s, %v, and %d commits asked for; want %s and %d", got, err, len(m.commitCache), c.want, c.most)
		}
	}
}

// Promise: many merges at the same time do not get in each other's way, also not when they are of the same commits.
func TestMergesAtTheSameTime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("long", lines)
	base := l.commit("long")
	ours := l.side(base, map[string]string{"long": "0\n" + lines})
	theirs := []string{l.side(base, map[string]string{"long": lines + "10\n"}), l.side(base, map[string]string{"long": "x\n" + lines}), l.side(base, map[string]string{"a.txt": "x\n"})}
	m := l.merger()
	var want []string
	for _, other := range theirs {
		want = append(want, l.merge(m, Request{Base: base, Ours: ours, Theirs: other}).Tree)
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
	l.must(m.Persist(t.Context()))
	if out := l.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"); strings.Count(out, "commit") != 6 {
		t.Errorf("commits that nobody needs were kept: %d", strings.Count(out, "commit"))
	}
}
