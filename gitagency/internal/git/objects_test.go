package git

import (
	"crypto/sha1"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestLookupAnswersEveryNameInOrder(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("sp ace", "s\n")
	head := l.Commit("spaces")
	l.Git("tag", "light")
	l.Git("tag", "-a", "-m", "heavy", "heavy")
	l.Git("branch", strings.Repeat("a", 40))
	object := func(name, kind string) Object { return Object{OID: l.Git("rev-parse", name), Type: kind} }
	queries := []struct {
		name string
		want Object
	}{
		{"HEAD", object("HEAD", "commit")},
		{"refs/heads/main", object("HEAD", "commit")},
		{"refs/heads/none", Object{}},
		{"HEAD^{tree}", object("HEAD^{tree}", "tree")},
		{"HEAD:a.txt", object("HEAD:a.txt", "blob")},
		{"HEAD:sp ace", object("HEAD:sp ace", "blob")},
		{"HEAD:no such file", Object{}},
		{"HEAD:", object("HEAD^{tree}", "tree")},
		{"no such branch^{commit}", Object{}},
		{"refs/heads/with space", Object{}},
		{"refs/tags/heavy", object("refs/tags/heavy", "tag")},
		{"refs/tags/heavy^{commit}", object("HEAD", "commit")},
		{"light", object("HEAD", "commit")},
		{head, object("HEAD", "commit")},
		{head[:12], object("HEAD", "commit")},
		{strings.Repeat("1", 40), Object{}},
		{strings.Repeat("1", 40) + "^{commit}", Object{}},
		{strings.Repeat("0", 40), Object{}},
		{"refs/heads/" + strings.Repeat("a", 40), object("HEAD", "commit")},
		{"HEAD^{blob}", Object{}},
		{"HEAD~5", Object{}},
		{"", Object{}},
		{" ", Object{}},
		{"-x", Object{}},
		{"--all", Object{}},
		{"HEAD^{", Object{}},
		{"main..main", Object{}},
		{"\xff", Object{}},
		{"x missing", Object{}},
		{"missing", Object{}},
	}
	var names []string
	var want []Object
	for _, q := range queries {
		names, want = append(names, q.name), append(want, q.want)
	}
	got, err := OpenRepo(l).Lookup(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if got[i] != want[i] {
			t.Errorf("%q: %+v, want %+v", name, got[i], want[i])
		}
		if got[i].Missing() != (want[i] == Object{}) {
			t.Errorf("%q: missing %v", name, got[i].Missing())
		}
	}
	// A lookup of one name gives the same answer.
	for i, name := range names {
		if one, err := OpenRepo(l).Lookup(t.Context(), name); err != nil || one[0] != want[i] {
			t.Errorf("%q alone: %+v, %v", name, one, err)
		}
	}
}

func TestLookupReportsAmbiguousNameAsMissing(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	seen := map[string]string{}
	for i := 0; ; i++ {
		content := fmt.Sprint(i)
		prefix := fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content)))[:4]
		other, twice := seen[prefix]
		seen[prefix] = content
		if !twice {
			continue
		}
		l.Write("one", content)
		l.Write("two", other)
		oids := strings.Fields(l.Git("hash-object", "-w", "one", "two"))
		got, err := OpenRepo(l).Lookup(t.Context(), prefix, oids[0], "HEAD", oids[1])
		if err != nil || !got[0].Missing() || got[1].OID != oids[0] || got[2].Missing() || got[3].OID != oids[1] {
			t.Errorf("%s: %+v, %v", prefix, got, err)
		}
		return
	}
}

func TestLookupRefusesNamesWithNewlineOrNUL(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	for _, name := range []string{"HEAD\nHEAD", "HEAD\n", "\n", "HEAD\x00"} {
		if got, err := repo.Lookup(t.Context(), "HEAD", name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestResolveCommit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	l.Git("branch", "topic/x", older)
	l.Git("tag", "-a", "-m", "v1", "v1", older)
	l.Git("tag", "light", older)
	l.Git("branch", "both", older)
	l.Git("tag", "both", newer)
	l.Git("update-ref", "refs/heads/-dash", older)
	l.Git("update-ref", "refs/heads/--all", older)
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", linked, "topic/x")
	detached := filepath.Join(gittest.TempDir(t), "detached")
	l.Git("worktree", "add", "-q", "--detach", detached, older)

	for _, c := range []struct {
		in, name    string
		oid, branch string
	}{
		{l.Root, "HEAD", newer, "main"},
		{l.Root, "@", newer, "main"},
		{l.Root, "main", newer, "main"},
		{l.Root, "refs/heads/main", newer, "main"},
		{l.Root, "heads/main", newer, "main"},
		{l.Root, "topic/x", older, "topic/x"},
		{l.Root, "main~1", older, ""},
		{l.Root, "HEAD^{/first}", older, ""},
		{l.Root, "v1", older, ""},
		{l.Root, "light", older, ""},
		{l.Root, "both", newer, ""}, // git prefers the tag
		{l.Root, older, older, ""},
		{l.Root, older[:10], older, ""},
		{l.Root, "-dash", older, "-dash"},
		{l.Root, "--all", older, "--all"},
		{linked, "HEAD", older, "topic/x"},
		{linked, "main", newer, "main"},
		{detached, "HEAD", older, ""},
		{l.Root, "none", "", ""},
		{l.Root, "", "", ""},
		{l.Root, "-", "", ""},
		{l.Root, "--", "", ""},
		{l.Root, "--help", "", ""},
		{l.Root, "--git-dir", "", ""},
		{l.Root, "-x", "", ""},
		{l.Root, "main..topic/x", "", ""},
		{l.Root, "main...topic/x", "", ""},
		{l.Root, "main^@", "", ""},
		{l.Root, "main main", "", ""},
		{l.Root, "main\nmain", "", ""},
		{l.Root, "HEAD:a.txt", "", ""},
		{l.Root, "HEAD^{tree}", "", ""},
		{l.Root, "a.txt", "", ""},
		{l.Root, strings.Repeat("1", 40), "", ""},
		{l.Root, "\xff", "", ""},
		{l.Root, "$(touch x)", "", ""},
	} {
		t.Run(filepath.Base(c.in)+" "+c.name, func(t *testing.T) {
			t.Parallel()
			oid, branch, ok, err := OpenRepoIn(l, c.in).ResolveCommit(t.Context(), c.name)
			if err != nil || oid != c.oid || branch != c.branch || ok != (c.oid != "") {
				t.Errorf("got %q %q %v, %v; want %q %q", oid, branch, ok, err, c.oid, c.branch)
			}
		})
	}
}

func TestUnbornHeadHasBranchButNoCommit(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	l.Git("init", "-q", "-b", "topic/x", ".")
	repo := OpenRepo(l)
	if oid, branch, ok, err := repo.ResolveCommit(t.Context(), "HEAD"); ok || err != nil {
		t.Errorf("got %q %q, %v", oid, branch, err)
	}
	if got := repo.HeadBranch(); got != "topic/x" {
		t.Errorf("branch of HEAD is %q", got)
	}
}

func TestHeadBranchBelongsToCurrentWorktree(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "-b", "of-linked", linked)
	detached := filepath.Join(gittest.TempDir(t), "detached")
	l.Git("worktree", "add", "-q", "--detach", detached)
	got := []string{OpenRepo(l).HeadBranch(), OpenRepoIn(l, linked).HeadBranch(), OpenRepoIn(l, detached).HeadBranch()}
	if want := []string{"main", "of-linked", ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIsAncestor(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	for _, c := range []struct {
		a, b      string
		want, bad bool
	}{
		{older, newer, true, false},
		{newer, older, false, false},
		{newer, newer, true, false},
		{"", newer, false, false},
		{newer, "", false, false},
		{strings.Repeat("1", 40), newer, false, true},
	} {
		if got, err := repo.IsAncestor(t.Context(), c.a, c.b); got != c.want || (err != nil) != c.bad {
			t.Errorf("%q ancestor of %q: %v, %v", c.a, c.b, got, err)
		}
	}
}

func TestResolveCommitRefusesExclusion(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	if oid, _, ok, err := repo.ResolveCommit(t.Context(), "^main"); ok || err != nil {
		t.Errorf("^main excludes commits and names none: %q, %v", oid, err)
	}
}

// ResolveCommit must accept ":/<text>", which gitrevisions(7) lists as a commit-ish.
func TestResolveCommitFindsCommitByMessage(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	if oid, _, ok, err := repo.ResolveCommit(t.Context(), ":/first"); !ok || oid != l.Git("rev-parse", ":/first") {
		t.Errorf("got %q %v, %v", oid, ok, err)
	}
}

func TestCommitTimesOmitsOtherObjects(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Env = append(l.Env, "GIT_COMMITTER_DATE=2020-02-02T02:02:02Z")
	l.Write("later", "l\n")
	old := l.Commit("older than its parent")
	repo := OpenRepo(l)
	missing := strings.Repeat("1", len(old))
	got, err := repo.CommitTimes(t.Context(), old, l.Git("rev-parse", "HEAD~1"), l.Git("rev-parse", "HEAD:later"), missing)
	l.Must(err)
	if len(got) != 2 || !got[old].Equal(time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)) ||
		!got[l.Git("rev-parse", "HEAD~1")].Equal(time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("got %v", got)
	}
	for _, oids := range [][]string{nil, {missing}} {
		if got, err := repo.CommitTimes(t.Context(), oids...); err != nil || len(got) > 0 {
			t.Errorf("%q: got %v, %v", oids, got, err)
		}
	}
}

// Lookup must ignore replace refs: with one, a process that can write refs could make new commits look like old ones.
func TestLookupIgnoresReplaceRefs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	first := l.Git("rev-parse", "main")
	l.Write("a.txt", "work\n")
	second := l.Commit("work")
	tree := l.Git("rev-parse", second+"^{tree}")
	l.Git("replace", second, first)
	found, err := repo.Lookup(t.Context(), second+"^{tree}")
	l.Must(err)
	if found[0].OID != tree {
		t.Errorf("got tree %s, want %s", found[0].OID, tree)
	}
}
