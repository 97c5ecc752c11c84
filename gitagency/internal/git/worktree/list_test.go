package worktree

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// testOID is the name of no particular object.
const testOID = "0123456789abcdef0123456789abcdef01234567"

// encodeWorktrees writes worktrees in the format of git worktree list --porcelain -z (show_worktree_porcelain in
// builtin/worktree.c).
func encodeWorktrees(trees []Worktree) string {
	var b strings.Builder
	for _, w := range trees {
		attr := func(key, value string) {
			b.WriteString(key)
			if value != "" {
				b.WriteString(" " + value)
			}
			b.WriteByte(0)
		}
		attr("worktree", w.Path)
		if w.Bare {
			attr("bare", "")
		}
		if w.Head != "" {
			attr("HEAD", w.Head)
		}
		if w.Detached {
			attr("detached", "")
		}
		if w.Branch != "" {
			attr("branch", w.Branch)
		}
		if w.Locked {
			attr("locked", w.LockReason)
		}
		if w.Prunable {
			attr("prunable", w.PrunableReason)
		}
		b.WriteByte(0)
	}
	return b.String()
}

func TestParseWorktreesReadsEveryKindOfEntry(t *testing.T) {
	t.Parallel()
	main := Worktree{Path: "/repo", Head: testOID, Branch: "refs/heads/main"}
	for name, want := range map[string][]Worktree{
		"none":                          nil,
		"the main one":                  {main},
		"bare":                          {{Path: "/repo.git", Bare: true}},
		"detached":                      {main, {Path: "/d", Head: testOID, Detached: true}},
		"spaces":                        {main, {Path: "/a b  c ", Head: testOID, Branch: "refs/heads/x"}},
		"a newline":                     {main, {Path: "/a\nworktree /b\n\nHEAD x", Head: testOID, Branch: "refs/heads/x"}},
		"a path that ends in a newline": {main, {Path: "/a\n", Head: testOID, Detached: true}},
		"not UTF-8":                     {main, {Path: "/\xff\xfe", Head: testOID, Detached: true}},
		"a leading dash":                {main, {Path: "-x", Head: testOID, Detached: true}},
		"locked":                        {main, {Path: "/l", Head: testOID, Detached: true, Locked: true}},
		"locked, with a reason":         {main, {Path: "/l", Head: testOID, Detached: true, Locked: true, LockReason: "on a stick"}},
		"locked, with lines":            {main, {Path: "/l", Head: testOID, Detached: true, Locked: true, LockReason: "one\ntwo\n\nprunable no"}},
		"prunable":                      {main, {Path: "/p", Head: testOID, Detached: true, Prunable: true}},
		"prunable, with a reason":       {main, {Path: "/p", Head: testOID, Detached: true, Prunable: true, PrunableReason: "gitdir file points to non-existent location"}},
		"both":                          {main, {Path: "/p", Head: testOID, Detached: true, Locked: true, LockReason: "l", Prunable: true, PrunableReason: "p"}},
		"unborn":                        {main, {Path: "/u", Head: strings.Repeat("0", 40), Branch: "refs/heads/unborn"}},
		"many":                          slices.Repeat([]Worktree{main, {Path: "/b", Bare: true}}, 100),
		"a path that looks like a HEAD attribute": {main, {Path: "/HEAD " + testOID, Head: testOID, Branch: "refs/heads/branch"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseWorktrees(encodeWorktrees(want))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestParseWorktreesIgnoresUnknownAttributes(t *testing.T) {
	t.Parallel()
	got, err := parseWorktrees("worktree /x\x00HEAD " + testOID + "\x00future thing\x00detached\x00another\x00\x00")
	want := []Worktree{{Path: "/x", Head: testOID, Detached: true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseWorktreesRefusesMalformedOutput(t *testing.T) {
	t.Parallel()
	for _, out := range []string{
		"worktree /x", "worktree /x\x00", "\x00\x00", "worktree \x00\x00", "worktree\x00\x00", "HEAD " + testOID + "\x00\x00",
		"HEAD " + testOID + "\x00worktree /x\x00\x00", "worktree /x\x00worktree /y\x00\x00", "worktree /x\x00bare\x00\x00worktree /y",
		"worktree /x\nHEAD " + testOID + "\n\n",
	} {
		if got, err := parseWorktrees(out); err == nil {
			t.Errorf("%q: %+v", out, got)
		}
	}
}

func FuzzParseWorktrees(f *testing.F) {
	f.Add("worktree /repo\x00HEAD " + testOID + "\x00branch refs/heads/main\x00\x00worktree /b\x00bare\x00\x00")
	f.Add("worktree /a\nb\x00HEAD " + testOID + "\x00detached\x00locked why\nnot\x00prunable gone\x00\x00")
	f.Add("worktree /x\x00locked\x00prunable\x00\x00")
	f.Fuzz(func(t *testing.T, out string) {
		trees, err := parseWorktrees(out)
		if err != nil {
			return
		}
		for _, w := range trees {
			if w.Path == "" {
				t.Errorf("an entry without a path: %+v", w)
			}
		}
		again, err := parseWorktrees(encodeWorktrees(trees))
		if err != nil || !reflect.DeepEqual(again, trees) {
			t.Errorf("%+v became %+v, %v", trees, again, err)
		}
	})
}

// FuzzWorktreeRoundTrip checks that parseWorktrees reads back arbitrary values. NUL separates them and cannot be part of
// one.
func FuzzWorktreeRoundTrip(f *testing.F) {
	f.Add("/a b", testOID, "refs/heads/main", "why", "gone", uint8(0))
	f.Add("/a\nb", "", "", "one\ntwo", "", uint8(0xff))
	f.Add("-\xff", testOID, "", "", "", uint8(0x0a))
	f.Fuzz(func(t *testing.T, path, head, branch, locked, prunable string, flags uint8) {
		if path == "" || strings.Contains(path+head+branch+locked+prunable, "\x00") {
			t.Skip()
		}
		w := Worktree{
			Path: path, Head: head, Branch: branch, Bare: flags&1 != 0, Detached: flags&2 != 0,
			Locked: flags&4 != 0, Prunable: flags&8 != 0,
		}
		if w.Locked {
			w.LockReason = locked
		}
		if w.Prunable {
			w.PrunableReason = prunable
		}
		want := []Worktree{w, {Path: "/between", Bare: true}, w}
		got, err := parseWorktrees(encodeWorktrees(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	})
}

// addUnusualWorktrees adds worktrees of every kind with git and returns, sorted by path, how git must list them. The
// reason of a prunable worktree is left out.
func addUnusualWorktrees(l *gittest.Fixture) []Worktree {
	l.T.Helper()
	head := l.Git("rev-parse", "HEAD")
	root := gittest.TempDir(l.T)
	want := []Worktree{{Path: l.Root, Head: head, Branch: "refs/heads/main"}}
	for _, name := range []string{"with space", " lead", "new\nline", "trailing\n", "-dash", "non\xffutf8", "é", "same/name", "other/name", "q\"uote"} {
		path := filepath.Join(root, name)
		l.Must(os.MkdirAll(filepath.Dir(path), 0o755))
		l.Git("worktree", "add", "-q", "--detach", path)
		want = append(want, Worktree{Path: path, Head: head, Detached: true})
	}
	l.Git("worktree", "add", "-q", "-b", "on/branch", filepath.Join(root, "on-branch"))
	want = append(want, Worktree{Path: filepath.Join(root, "on-branch"), Head: head, Branch: "refs/heads/on/branch"})
	for name, reason := range map[string]string{"locked": "", "why": "on a stick", "lines": "one\ntwo\n\nfour"} {
		path := filepath.Join(root, name)
		l.Git("worktree", "add", "-q", "--detach", path)
		l.Git("worktree", "lock", "--reason", reason, path)
		want = append(want, Worktree{Path: path, Head: head, Detached: true, Locked: true, LockReason: reason})
	}
	for _, locked := range []bool{false, true} {
		path := filepath.Join(root, map[bool]string{false: "gone", true: "gone and locked"}[locked])
		l.Git("worktree", "add", "-q", "--detach", path)
		if locked {
			l.Git("worktree", "lock", path)
		}
		l.Must(os.RemoveAll(path))
		want = append(want, Worktree{Path: path, Head: head, Detached: true, Locked: locked, Prunable: !locked})
	}
	slices.SortFunc(want, compareByPath)
	return want
}

// compareByPath orders worktrees by path.
func compareByPath(a, b Worktree) int { return cmp.Compare(a.Path, b.Path) }

func TestListHasEveryWorktreeOfGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	want := addUnusualWorktrees(l)
	for from, repo := range map[string]*git.Repo{"the main worktree": OpenRepo(l), "a linked worktree": OpenRepoIn(l, want[len(want)-1].Path)} {
		listing, err := List(t.Context(), repo)
		l.Must(err)
		if len(listing.Damaged) > 0 {
			t.Errorf("from %s: damaged entries %v", from, listing.Damaged)
		}
		if first := listing.Worktrees[0].Path; first != l.Root {
			t.Errorf("from %s: the first is %s, not the main worktree", from, first)
		}
		got := slices.SortedFunc(slices.Values(listing.Worktrees), compareByPath)
		for i := range got {
			if got[i].Prunable && got[i].PrunableReason == "" {
				t.Errorf("from %s: %q is prunable without a reason", from, got[i].Path)
			}
			got[i].PrunableReason = ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("from %s: got %+v\nwant %+v", from, got, want)
		}
	}
}

// ListWithoutGit, the fallback for a failing git worktree list, must return what git would list.
func TestReadEntriesAgreesWithGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	want := addUnusualWorktrees(l)
	listing, err := ListWithoutGit(OpenRepo(l), nil)
	l.Must(err)
	if len(listing.Damaged) > 0 || listing.Worktrees[0].Path != l.Root {
		t.Errorf("got %+v", listing)
	}
	got := slices.SortedFunc(slices.Values(listing.Worktrees), compareByPath)
	for i := range want {
		want[i].Prunable = false // not determined from the files
		if want[i].Branch != "" {
			want[i].Head = ""
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestListOfBareRepository(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	bare := filepath.Join(gittest.TempDir(t), "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	l.GitIn(bare, "worktree", "add", "-q", "--detach", filepath.Join(filepath.Dir(bare), "linked"))
	want := []Worktree{
		{Path: bare, Bare: true},
		{Path: filepath.Join(filepath.Dir(bare), "linked"), Head: l.Git("rev-parse", "HEAD"), Detached: true},
	}
	repo := OpenRepoIn(l, want[1].Path)
	got, err := List(t.Context(), repo)
	if err != nil || !reflect.DeepEqual(got.Worktrees, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	read, err := ListWithoutGit(repo, nil)
	if err != nil || !reflect.DeepEqual(read.Worktrees, want) {
		t.Errorf("from the files: %+v, %v", read, err)
	}
}

// List must read the entries itself, and name the damaged one, when git worktree list fails: an empty commondir file
// makes it fail for every worktree.
func TestListReadsFilesWhenGitListFails(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	bad := RegisterWorktree(l, repo, "bad", filepath.Join(gittest.TempDir(t), "bad"))
	good := RegisterWorktree(l, repo, "good", filepath.Join(gittest.TempDir(t), "go\nod"))
	l.Must(adminDirDamages["commondir is empty"](repo.AdminDir("bad")))
	if out, err := l.TryGit(l.Root, "worktree", "list"); err == nil {
		t.Fatalf("git lists a damaged entry: %s", out)
	}
	got, err := List(t.Context(), repo)
	l.Must(err)
	want := Listing{
		Worktrees: []Worktree{
			{Path: l.Root, Branch: "refs/heads/main"},
			{Path: bad.Tree, Branch: bad.Branch},
			{Path: good.Tree, Branch: good.Branch},
		},
		Damaged: []DamagedEntry{{Name: "bad", Path: repo.AdminDir("bad"), Problem: "commondir is empty"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	l.Must(RemoveAdminDir(repo, "bad"))
	got, err = List(t.Context(), repo)
	if err != nil || len(got.Damaged) > 0 || len(got.Worktrees) != 2 || got.Worktrees[1].Path != good.Tree || got.Worktrees[1].Head == "" {
		t.Errorf("after the removal: %+v, %v", got, err)
	}
}

// List must return an error, not an empty list, when git fails for another reason.
func TestListReturnsErrorOfGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if got, err := List(ctx, repo); !errors.Is(err, stop) {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	l.Must(os.WriteFile(filepath.Join(repo.CommonDir, "config"), []byte("[core\n"), 0o644))
	var failed *git.Error
	if got, err := List(t.Context(), repo); !errors.As(err, &failed) {
		t.Errorf("with a broken configuration: %+v, %v", got, err)
	}
}
