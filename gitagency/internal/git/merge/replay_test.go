package merge

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// testCommitter is the committer of replayed commits.
var testCommitter = object.Signature{Identity: object.Identity{Name: "Lander", Email: "lander@example.com"}, When: "1800000000 +0200"}

// replayCommits replays commits and persists the result.
func replayCommits(l *gittest.Fixture, m *Merger, what ReplayRequest) ReplayResult {
	l.T.Helper()
	if what.Committer == (object.Signature{}) {
		what.Committer = testCommitter
	}
	done, err := m.Replay(l.T.Context(), what)
	l.Must(err)
	l.Must(m.Persist(l.T.Context()))
	return done
}

// Promise: Replay makes the same trees and authors as git rebase. Each commit keeps its author, date, message and encoding,
// has the requested committer, and loses its signature, which would be invalid.
func TestReplayMatchesRebase(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("long", nineLines)
	base := l.Commit("long")
	onto := l.CommitDetached(base, map[string]string{"a.txt": "ours\n", "long": strings.Replace(nineLines, "1", "one", 1)})
	tip := l.CommitDetached(base, map[string]string{"dir/b.txt": "1\n"})
	tip = l.CommitDetached(tip, map[string]string{"long": strings.Replace(nineLines, "9", "nine", 1)}) // needs a merge of file contents
	tip = l.CommitDetached(tip, map[string]string{"long": "", "elsewhere": strings.Replace(nineLines, "9", "nine", 1)})
	tip = l.CommitDetached(tip, map[string]string{"dir/b.txt": "2\n", "new/dir/x": "x\n"})
	tip = l.CommitDetached(tip, nil) // empty, and is kept
	tip = l.RawCommit("tree " + l.Git("rev-parse", tip+"^{tree}") + "\nparent " + tip + "\nauthor J\xf6rg <j@example.com> 1600000000 -0330\ncommitter C <c@example.com> 1600000001 +0000\nencoding latin1\ngpgsig -----BEGIN\n x\n -----END\n\nna\xefve\n\n  two\n")

	m := openMerger(l)
	done := replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: tip, Onto: onto, Message: func(s string) string { return s + "\nLanded: yes\n" }})
	l.Git("checkout", "-q", "--detach", tip)
	l.Git("rebase", "-q", "--keep-empty", onto)
	for _, format := range []string{"%T", "%an %ae %ad"} {
		got, want := l.Git("log", "--format="+format, onto+".."+done.Tip), l.Git("log", "--format="+format, onto+"..HEAD")
		if got != want {
			t.Errorf("%s: got\n%s\nrebase made\n%s", format, got, want)
		}
	}
	if len(done.Commits) != 6 || done.Commits[5].Old != tip || done.Commits[5].New != done.Tip || done.Tree != l.Git("rev-parse", done.Tip+"^{tree}") || done.Dropped != nil || done.StoppedAt != "" {
		t.Errorf("%+v", done)
	}
	want := "parent " + done.Commits[4].New + "\nauthor J\xf6rg <j@example.com> 1600000000 -0330\ncommitter Lander <lander@example.com> 1800000000 +0200\nencoding latin1\n\nna\xefve\n\n  two\n\nLanded: yes"
	if got := l.Git("cat-file", "-p", done.Tip); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l.Git("fsck", "--strict", done.Tip)
}

// Promise: Replay converts a commit to UTF-8, as git rebase does, when a committer or a message line is added that may not
// be in its encoding.
func TestReplayRecodesCommitToUTF8(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	tip := l.CommitDetached(base, map[string]string{"x": "x\n"})
	tip = l.RawCommit("tree " + l.Git("rev-parse", tip+"^{tree}") + "\nparent " + base + "\nauthor J\xf6rg <j@example.com> 1600000000 -0330\ncommitter C <c@example.com> 1600000001 +0000\nencoding latin1\n\nna\xefve\n")
	for what, r := range map[string]ReplayRequest{
		"a committer":    {Committer: object.Signature{Identity: object.Identity{Name: "Zoë", Email: "z@example.com"}, When: "1800000000 +0200"}},
		"a message line": {Message: func(s string) string { return s + "\nLanded: ✓\n" }},
	} {
		r.Upstream, r.Onto, r.Tip = base, base, tip
		made := l.Git("cat-file", "-p", replayCommits(l, openMerger(l), r).Tip)
		if !utf8.ValidString(made) || strings.Contains(made, "\nencoding") || !strings.Contains(made, "\nauthor Jörg <j@example.com> 1600000000 -0330\n") || !strings.Contains(made, "\n\nnaïve") {
			t.Errorf("with %s: %q", what, made)
		}
	}
}

// Promise: Replay drops and lists commits whose changes the new base already has. It stops at the first conflict, and does
// not replay the commits after it.
func TestReplayDropsAppliedAndStopsAtConflict(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	applied := l.CommitDetached(base, map[string]string{"a.txt": "both\n"})
	tip := l.CommitDetached(applied, map[string]string{"x": "x\n"})
	onto := l.CommitDetached(base, map[string]string{"a.txt": "both\n", "y": "y\n"})
	m := openMerger(l)
	got := replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: tip, Onto: onto})
	if !slices.Equal(got.Dropped, []string{applied}) || len(got.Commits) != 1 || got.Commits[0].Old != tip {
		t.Errorf("%+v", got)
	}
	if got := replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: applied, Onto: onto}); got.Tip != onto || got.Tree != l.Git("rev-parse", onto+"^{tree}") || len(got.Commits) != 0 {
		t.Errorf("all commits dropped: %+v", got)
	}
	if got := replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: base, Onto: onto}); got.Tip != onto || len(got.Commits)+len(got.Dropped) != 0 {
		t.Errorf("no commits: %+v", got)
	}
	bad := l.CommitDetached(tip, map[string]string{"y": "another\n"})
	last := l.CommitDetached(bad, map[string]string{"z": "z\n"})
	got = replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: last, Onto: onto})
	if got.StoppedAt != bad || got.Tip != "" || len(got.Conflicts) != 1 || got.Conflicts[0].Path != "y" || len(got.Commits) != 1 {
		t.Errorf("%+v", got)
	}
}

// Promise: Replay linearizes a range with merges if the result equals the merge of both sides. If a merge commit resolved a
// conflict, the resolution is kept: all commits up to that merge are squashed into one.
func TestReplayKeepsMergeResolutions(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	merge := func(on, with string, resolve map[string]string) string {
		l.Git("checkout", "-q", "--detach", on)
		_, _ = l.TryGit(l.Root, "merge", "-q", "--no-ff", "-m", "merged", with)
		for name, content := range resolve {
			l.Write(name, content)
		}
		l.Git("add", "-A")
		_, _ = l.TryGit(l.Root, "commit", "-q", "-m", "merged")
		return l.Git("rev-parse", "HEAD")
	}
	upstream := l.CommitDetached(base, map[string]string{"a.txt": "upstream\n"})
	m := openMerger(l)

	// Without a conflict.
	one := l.CommitDetached(base, map[string]string{"x": "1\n"})
	two := l.CommitDetached(merge(one, upstream, nil), map[string]string{"x": "2\n"})
	got := replayCommits(l, m, ReplayRequest{Upstream: upstream, Tip: two, Onto: upstream})
	if len(got.Commits) != 2 || got.Commits[0].Old != one || got.Commits[1].Old != two || got.Collapsed != nil || got.Tree != l.Git("rev-parse", two+"^{tree}") {
		t.Errorf("without a conflict: %+v", got)
	}

	// With a conflict that the merge resolved, after another branch was merged.
	one = l.CommitDetached(base, map[string]string{"a.txt": "sandbox\n"})
	side := l.CommitDetached(base, map[string]string{"side": "s\n"})
	inner := merge(one, side, nil)
	outer := merge(inner, upstream, map[string]string{"a.txt": "resolved\n"})
	after := l.CommitDetached(outer, map[string]string{"after": "1\n"})
	onto := l.CommitDetached(upstream, map[string]string{"later": "l\n"})
	got = replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: after, Onto: onto})
	if got.StoppedAt != "" || len(got.Commits) != 2 || got.Commits[0].Old != outer || got.Commits[1].Old != after || len(got.Collapsed) != 4 || !slices.Contains(got.Collapsed, inner) {
		t.Fatalf("resolved: %+v", got)
	}
	files := l.Files(got.Tip)
	if files["a.txt"] != "100644 resolved\n" || files["side"] == "" || files["later"] == "" || files["after"] == "" {
		t.Errorf("%v", files)
	}
	message := l.Git("log", "-1", "--format=%B", got.Commits[0].New)
	if !strings.Contains(message, "* side a.txt\n") || !strings.Contains(message, "* side side") {
		t.Errorf("%s", message)
	}
	if parents := l.Git("log", "--format=%p", "--abbrev=40", onto+".."+got.Tip); parents != got.Commits[0].New+"\n"+onto {
		t.Errorf("not linear: %s", parents)
	}

	// A merge commit with a change of its own, which linearized commits would lose.
	amended := merge(l.CommitDetached(base, map[string]string{"x": "1\n"}), upstream, nil)
	l.Git("checkout", "-q", "--detach", amended)
	l.Write("only-in-the-merge", "m\n")
	l.Git("add", "-A")
	l.Git("commit", "-q", "--amend", "-m", "merged and more")
	amended = l.Git("rev-parse", "HEAD")
	got = replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: amended, Onto: onto})
	if files := l.Files(got.Tip); len(got.Commits) != 1 || files["only-in-the-merge"] == "" || files["x"] == "" || files["later"] == "" {
		t.Errorf("amended merge: %+v", got)
	}

	// The squashed commit conflicts with the new base.
	onto = l.CommitDetached(upstream, map[string]string{"a.txt": "changed again\n"})
	if got := replayCommits(l, m, ReplayRequest{Upstream: onto, Tip: after, Onto: onto}); got.StoppedAt != outer || len(got.Conflicts) != 1 || got.Tip != "" {
		t.Errorf("with a new conflict: %+v", got)
	}
}

// Promise: FsckRange and Replay refuse malformed commits.
func TestFsckRangeRefusesMalformedCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	head, tree := l.Git("rev-parse", "HEAD"), l.Git("rev-parse", "HEAD^{tree}")
	by := "author A <a@example.com> 1600000000 +0000\ncommitter A <a@example.com> 1600000000 +0000\n"
	m := openMerger(l)
	top := "tree " + tree + "\nparent " + head + "\n"
	if err := m.FsckRange(t.Context(), head, l.RawCommit(top+by+"\nfine\n")); err != nil {
		t.Error(err)
	}
	for what, content := range map[string]string{
		"no author":           top + strings.SplitAfter(by, "\n")[1] + "\nx\n",
		"two authors":         top + "author A <a@example.com> 1600000000 +0000\n" + by + "\nx\n",
		"two trees":           top + by + "tree " + tree + "\n\nx\n",
		"parent after author": top + by + "parent " + tree + "\n\nx\n",
		"duplicate parent":    top + "parent " + head + "\n" + by + "\nx\n",
		"invalid name":        top + strings.Replace(by, "A <a@", "A> <a@", 1) + "\nx\n",
		"no time":             top + strings.Replace(by, " 1600000000 +0000", "", 1) + "\nx\n",
		"invalid time":        top + strings.Replace(by, "1600000000", "99999999999999999999", 1) + "\nx\n",
		"invalid time zone":   top + strings.Replace(by, "+0000", "zone", 1) + "\nx\n",
		"a NUL":               top + by + "\nx\x00y\n",
		"two encodings":       top + by + "encoding a\nencoding b\n\nx\n",
		"invalid encoding":    top + by + "encoding a b\n\nx\n",
		"wrong order":         "tree " + tree + "\n" + strings.SplitAfter(by, "\n")[0] + "parent " + head + "\n" + strings.SplitAfter(by, "\n")[1] + "\nx\n",
		"no message":          top + strings.TrimSuffix(by, "\n"),
		"invalid tree id":     "tree x\nparent " + head + "\n" + by + "\nx\n",
		"short parent id":     "tree " + tree + "\nparent " + head[:39] + "\n" + by + "\nx\n",
	} {
		commit := l.RawCommit(content)
		var invalid *object.InvalidCommitError
		err := m.FsckRange(t.Context(), head, commit)
		if !errors.As(err, &invalid) && !errors.As(err, new(*git.Error)) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := m.Replay(t.Context(), ReplayRequest{Upstream: head, Tip: commit, Onto: head, Committer: testCommitter}); err == nil {
			t.Errorf("%s: it was replayed", what)
		}
	}
}

// Promise: FsckRange refuses a bad tree of an intermediate commit, also when the last commit has removed it.
func TestFsckRangeChecksIntermediateCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	tip := l.CommitDetached(base, map[string]string{"x": "x\n"})
	m := openMerger(l)
	if err := m.FsckRange(t.Context(), base, tip); err != nil {
		t.Fatal(err)
	}
	bad := l.CommitDetached(tip, map[string]string{".Agency/x": "x\n"})
	for _, more := range []int{1, 70} { // within and beyond maxNearCommits
		tip := addEmptyCommits(l, m, l.CommitDetached(bad, map[string]string{".Agency": ""}), more)
		var invalid *fsck.Error
		if err := m.FsckRange(t.Context(), base, tip); !errors.As(err, &invalid) || invalid.Path != ".Agency" {
			t.Errorf("%v", err)
		}
		if err := m.FsckTree(t.Context(), tip, base); err != nil {
			t.Error(err)
		}
	}
}
