package git

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestCreateRefRefusesExistingRef(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref = "refs/heads/agency/x"
	l.Must(repo.CreateRef(t.Context(), ref, older, "why it is there"))
	if got := l.Git("rev-parse", ref); got != older {
		t.Errorf("ref is at %s", got)
	}
	if log := l.Reflog(ref); !strings.Contains(log, "why it is there") || strings.Count(log, "\n") != 1 {
		t.Errorf("reflog is %q", log)
	}
	for _, pack := range []bool{false, true} {
		if pack {
			l.Git("pack-refs", "--all")
		}
		log := l.Reflog(ref)
		for _, oid := range []string{older, newer} {
			err := repo.CreateRef(t.Context(), ref, oid, "again")
			if err == nil || !ChangedNothing(err) {
				t.Errorf("packed %v: created again: %v", pack, err)
			}
		}
		if got := l.Git("rev-parse", ref); got != older || l.Reflog(ref) != log {
			t.Errorf("packed %v: ref is at %s, reflog %q", pack, got, l.Reflog(ref))
		}
	}
	// A branch name cannot be a directory of another branch name.
	if err := repo.CreateRef(t.Context(), ref+"/below", older, "x"); !ChangedNothing(err) {
		t.Errorf("below a branch: %v", err)
	}
	if err := repo.CreateRef(t.Context(), "refs/heads/agency", older, "x"); !ChangedNothing(err) {
		t.Errorf("above a branch: %v", err)
	}
	if err := repo.CreateRef(t.Context(), "refs/heads/y", strings.Repeat("1", 40), "x"); !ChangedNothing(err) {
		t.Errorf("to a missing object: %v", err)
	}
	if got := l.Git("for-each-ref", "--format=%(refname)"); got != ref+"\nrefs/heads/main" {
		t.Errorf("refs are %q", got)
	}
}

func TestConcurrentCreateRefSucceedsOnce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := repo.CreateRef(t.Context(), "refs/heads/x", []string{older, newer}[i%2], "x"); err == nil {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 || strings.Count(l.Reflog("refs/heads/x"), "\n") != 1 {
		t.Errorf("%d calls succeeded; reflog %q", made.Load(), l.Reflog("refs/heads/x"))
	}
}

func TestMoveRefChecksOldValue(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref = "refs/agency/trash/x"
	l.Must(repo.CreateRef(t.Context(), ref, older, "made"))
	if err := repo.MoveRef(t.Context(), ref, newer, newer, "wrong"); err == nil || l.Git("rev-parse", ref) != older {
		t.Errorf("moved from a wrong old value: %v", err)
	}
	if err := repo.MoveRef(t.Context(), ref, newer, strings.Repeat("0", 40), "wrong"); err == nil || l.Git("rev-parse", ref) != older {
		t.Errorf("created over an existing ref: %v", err)
	}
	l.Must(repo.MoveRef(t.Context(), ref, newer, older, "right"))
	if l.Git("rev-parse", ref) != newer {
		t.Error("the ref was not moved")
	}
	if err := repo.MoveRef(t.Context(), "refs/agency/none", newer, older, "wrong"); err == nil {
		t.Error("moved a missing ref")
	}
	if log := l.Reflog(ref); !strings.Contains(log, "\tmade\n") || !strings.Contains(log, "\tright\n") || strings.Contains(log, "wrong") {
		t.Errorf("reflog is %q", log)
	}
}

func TestDeleteRefChecksOldValue(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref = "refs/heads/agency/x"
	l.Must(repo.DeleteRef(t.Context(), ref, older)) // deleting a missing ref is no error
	for _, pack := range []bool{false, true} {
		l.Must(repo.CreateRef(t.Context(), ref, newer, "made"))
		if pack {
			l.Git("pack-refs", "--all", "--prune")
		}
		if err := repo.DeleteRef(t.Context(), ref, older); err == nil || l.Git("rev-parse", ref) != newer || l.Reflog(ref) == "" {
			t.Errorf("packed %v: deleted with a wrong old value: %v", pack, err)
		}
		l.Must(repo.DeleteRef(t.Context(), ref, newer))
		if out, err := l.TryGit(l.Root, "rev-parse", "--verify", "-q", ref); err == nil {
			t.Errorf("packed %v: the ref is still at %s", pack, out)
		}
		if l.Reflog(ref) != "" {
			t.Errorf("packed %v: the reflog is left", pack)
		}
		l.Must(repo.DeleteRef(t.Context(), ref, newer))
	}
}

// MoveRef and DeleteRef must not follow a symbolic ref: a sandbox can make its branch a symbolic ref to main.
func TestMoveAndDeleteDoNotFollowSymbolicRef(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref = "refs/heads/agency/x"
	l.Git("symbolic-ref", ref, "refs/heads/main")
	l.Must(repo.DeleteRef(t.Context(), ref, newer))
	if _, err := l.TryGit(l.Root, "symbolic-ref", "-q", ref); err == nil || l.Git("rev-parse", "main") != newer {
		t.Errorf("main is at %s", l.Git("rev-parse", "main"))
	}
	l.Git("symbolic-ref", ref, "refs/heads/main")
	l.Must(repo.MoveRef(t.Context(), ref, older, newer, "move"))
	if l.Git("rev-parse", ref) != older || l.Git("rev-parse", "main") != newer {
		t.Errorf("%s is at %s, main at %s", ref, l.Git("rev-parse", ref), l.Git("rev-parse", "main"))
	}
}

func TestRemoveRefLeftoversOfKilledGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref, sibling = "refs/heads/agency/x", "refs/heads/agency/sibling"
	git := func(name string) string { return filepath.Join(l.Root, ".git", name) }
	initial := gittest.DiskState(t, git("refs"), git("logs"))

	l.Must(repo.RemoveRefLeftovers(t.Context(), ref)) // no leftovers
	gittest.RequireSame(t, "without leftovers", gittest.DiskState(t, git("refs"), git("logs")), initial)

	// A git killed while it creates a ref leaves a lock file and a reflog without its ref.
	l.WriteIn(l.Root, ".git/"+ref+".lock", older+"\n")
	l.WriteIn(l.Root, ".git/logs/"+ref, "rubbish\n")
	for range 2 {
		l.Must(repo.RemoveRefLeftovers(t.Context(), ref))
		gittest.RequireSame(t, "after a killed creation", gittest.DiskState(t, git("refs"), git("logs")), initial)
	}
	l.Must(repo.CreateRef(t.Context(), ref, newer, "made"))

	// An existing ref, packed or not, keeps its reflog; only the lock file is removed.
	for _, pack := range []bool{false, true} {
		if pack {
			l.Git("pack-refs", "--all", "--prune")
		}
		l.WriteIn(l.Root, ".git/"+ref+".lock", "")
		log := l.Reflog(ref)
		l.Must(repo.RemoveRefLeftovers(t.Context(), ref))
		if l.Git("rev-parse", ref) != newer || l.Reflog(ref) != log || gittest.Exists(git(ref+".lock")) {
			t.Errorf("packed %v: at %s, log %q", pack, l.Git("rev-parse", ref), l.Reflog(ref))
		}
	}

	// The files of other refs are left alone.
	l.Must(repo.CreateRef(t.Context(), sibling, older, "sibling"))
	l.WriteIn(l.Root, ".git/"+sibling+".lock", "")
	l.Must(repo.DeleteRef(t.Context(), ref, newer))
	l.WriteIn(l.Root, ".git/logs/"+ref, "rubbish\n")
	l.Must(repo.RemoveRefLeftovers(t.Context(), ref))
	if l.Reflog(sibling) == "" || !gittest.Exists(git(sibling+".lock")) || l.Git("rev-parse", sibling) != older || l.Reflog(ref) != "" {
		t.Error("files of another ref were removed, or the reflog was not")
	}
}

func TestRefPathIsPathOfLooseRef(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	for _, repo := range []*Repo{OpenRepo(l), OpenRepoIn(l, linked)} {
		if got, want := repo.RefPath("refs/heads/main"), filepath.Join(l.Root, ".git/refs/heads/main"); got != want || !gittest.Exists(got) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// DeleteRef must not report success for a broken ref that it leaves. A power cut can leave an empty ref file, a damaged
// repository a ref to a missing object. Both count as existing: git refuses to create the ref, and warns of it on every
// command.
func TestDeleteRefReportsBrokenRef(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"an empty file":    "",
		"a missing object": strings.Repeat("1", 40) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			const ref = "refs/heads/agency/x"
			main := l.Git("rev-parse", "main")
			l.Must(repo.CreateRef(t.Context(), ref, main, "test"))
			l.Must(os.WriteFile(repo.RefPath(ref), []byte(content), 0o644))
			if err := repo.DeleteRef(t.Context(), ref, main); err == nil && gittest.Exists(repo.RefPath(ref)) {
				t.Error("DeleteRef succeeded, and the ref still exists")
			}
			// The reflog is the only record of the value that the ref had.
			if err := repo.RemoveRefLeftovers(t.Context(), ref); err == nil && gittest.Exists(repo.RefPath(ref)) &&
				!gittest.Exists(filepath.Join(repo.CommonDir, "logs", ref)) {
				t.Error("the reflog of an existing ref was removed")
			}
		})
	}
}

// RemoveRefLeftovers must succeed where a branch has the name of the ref's directory, so that the ref cannot exist.
func TestRemoveRefLeftoversBelowExistingBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	l.Git("branch", "agency")
	if err := repo.RemoveRefLeftovers(t.Context(), "refs/heads/agency/x"); err != nil {
		t.Error(err)
	}
	if l.Git("rev-parse", "refs/heads/agency") != l.Git("rev-parse", "main") || !gittest.Exists(filepath.Join(repo.CommonDir, "logs/refs/heads/agency")) {
		t.Error("the branch or its reflog was changed")
	}
}

func TestRefsListsRefsBelowPrefixes(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	l.Git("update-ref", "refs/agency/trash/a", older)
	l.Git("update-ref", "refs/agency/trash/b/c", newer)
	l.Git("update-ref", "refs/agency/trashed", newer)
	l.Git("update-ref", "refs/heads/agency/x", newer)
	l.Git("update-ref", "refs/heads/other", newer)
	l.Git("pack-refs", "--all")
	l.Git("update-ref", "refs/agency/trash/d", l.Git("rev-parse", "HEAD:a.txt"))
	repo := OpenRepo(l)
	got, err := repo.Refs(t.Context(), "refs/agency/trash/", "refs/heads/agency/")
	l.Must(err)
	gittest.RequireSame(t, "refs", got, map[string]string{
		"refs/agency/trash/a": older, "refs/agency/trash/b/c": newer, "refs/heads/agency/x": newer,
		"refs/agency/trash/d": l.Git("rev-parse", "HEAD:a.txt"),
	})
	// A broken ref does not hide the others.
	l.WriteIn(repo.CommonDir, "refs/agency/trash/broken", strings.Repeat("1", len(older))+"\n")
	l.WriteIn(repo.CommonDir, "refs/agency/trash/empty", "")
	if got, err = repo.Refs(t.Context(), "refs/agency/trash/"); err != nil || got["refs/agency/trash/a"] != older {
		t.Errorf("got %v, %v", got, err)
	}
	none, err := repo.Refs(t.Context(), "refs/nothing/")
	if err != nil || len(none) > 0 {
		t.Errorf("got %v, %v", none, err)
	}
}

func TestDeleteOwnedRefRemovesRefReflogAndLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	older, newer := l.TwoCommits()
	repo := OpenRepo(l)
	const ref = "refs/agency/trash/x"
	l.Must(repo.CreateRef(t.Context(), ref, older, "test"))
	if err := repo.DeleteOwnedRef(t.Context(), ref, newer); err == nil || l.Git("rev-parse", ref) != older {
		t.Errorf("deleted with a wrong old value: %v", err)
	}
	l.WriteIn(repo.CommonDir, ref+".lock", "")
	l.Must(repo.DeleteOwnedRef(t.Context(), ref, older))
	for _, path := range []string{repo.RefPath(ref), repo.RefPath(ref) + ".lock", filepath.Join(repo.CommonDir, "logs", ref)} {
		if gittest.Exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	l.Must(repo.DeleteOwnedRef(t.Context(), ref, older)) // a second deletion is no error
}

func TestRefLeftoversListsFilesOfMissingRefs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	leftovers := func() map[string]string {
		t.Helper()
		refs, err := repo.Refs(t.Context(), "refs/agency/trash/")
		l.Must(err)
		found, err := repo.RefLeftovers("refs/agency/trash/", refs)
		l.Must(err)
		return found
	}
	gittest.RequireSame(t, "without a refs directory", leftovers(), map[string]string{})
	l.Must(repo.CreateRef(t.Context(), "refs/agency/trash/whole", l.Git("rev-parse", "HEAD"), "test"))
	locked, logged := filepath.Join(repo.CommonDir, "refs/agency/trash/locked.lock"), filepath.Join(repo.CommonDir, "logs/refs/agency/trash/logged")
	deeper := filepath.Join(repo.CommonDir, "refs/agency/trash/deeper/down.lock")
	for _, path := range []string{locked, logged, deeper, filepath.Join(repo.CommonDir, "refs/agency/trash/whole.lock")} {
		l.WriteIn(filepath.Dir(path), filepath.Base(path), "")
	}
	l.Must(os.Mkdir(filepath.Join(repo.CommonDir, "logs/refs/agency/trash/deep"), 0o755))
	want := map[string]string{"refs/agency/trash/locked": locked, "refs/agency/trash/logged": logged, "refs/agency/trash/deeper/down": deeper}
	gittest.RequireSame(t, "leftovers", leftovers(), want)
	for ref := range want {
		l.Must(repo.RemoveRefLeftovers(t.Context(), ref))
	}
	gittest.RequireSame(t, "after the removal", leftovers(), map[string]string{})
	if log := l.Reflog("refs/agency/trash/whole"); log == "" {
		t.Error("the reflog of an existing ref was removed")
	}
}

func TestDeleteOwnedRefsDeletesAllOrNone(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	head := l.Git("rev-parse", "HEAD")
	const prefix = "refs/agency/snapshots/x/"
	arrange := func() map[string]string {
		t.Helper()
		for _, name := range []string{"1", "2", "10", "deep/er"} {
			l.Must(repo.CreateRef(t.Context(), prefix+name, head, "test"))
		}
		l.Git("pack-refs", "--all")
		l.Must(repo.CreateRef(t.Context(), prefix+"11", head, "test"))
		l.Git("symbolic-ref", prefix+"12", "refs/heads/main")
		for _, path := range []string{"refs/agency/snapshots/x/2.lock", "refs/agency/snapshots/x/13.lock", "logs/refs/agency/snapshots/x/14"} {
			l.WriteIn(repo.CommonDir, path, "")
		}
		refs, err := repo.Refs(t.Context(), prefix)
		l.Must(err)
		return refs
	}
	l.Must(repo.CreateRef(t.Context(), "refs/agency/snapshots/xy/1", head, "test"))
	refs := arrange()
	if len(refs) != 6 {
		t.Fatalf("%v", refs)
	}

	// With a wrong old value of one ref, none is deleted.
	refs[prefix+"10"] = l.Git("commit-tree", "-m", "another", "main^{tree}")
	if err := repo.DeleteOwnedRefs(t.Context(), prefix, refs); err == nil {
		t.Error("refs were deleted with a wrong old value")
	}
	if now, err := repo.Refs(t.Context(), prefix); err != nil || len(now) != 6 {
		t.Errorf("%v, %v", now, err)
	}

	refs[prefix+"10"] = head
	l.Must(repo.DeleteOwnedRefs(t.Context(), prefix, refs))
	if got := l.Git("for-each-ref", "--format=%(refname)"); got != "refs/agency/snapshots/xy/1\nrefs/heads/main" {
		t.Errorf("refs left: %s", got)
	}
	for _, root := range []string{repo.RefPath(prefix), repo.ReflogPath(prefix)} {
		if gittest.Exists(root) {
			t.Errorf("%s is left: %v", root, gittest.DiskState(t, root))
		}
	}
	l.Must(repo.DeleteOwnedRefs(t.Context(), prefix, nil)) // a second deletion is no error
}

func TestTipAgreesWithGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	l.Git("branch", "packed")
	l.Git("pack-refs", "--all")
	l.Git("commit", "-q", "--allow-empty", "-m", "second")
	l.Git("branch", "loose")
	l.Git("symbolic-ref", "refs/heads/symbolic", "refs/heads/packed")
	heads := filepath.Join(l.Root, ".git/refs/heads")
	l.Must(os.MkdirAll(heads, 0o755))
	l.Must(os.Symlink("loose", filepath.Join(heads, "link")))
	for _, name := range []string{"packed", "loose", "symbolic", "main"} {
		ref := "refs/heads/" + name
		if got, err := repo.Tip(t.Context(), ref); err != nil || got != l.Git("rev-parse", ref) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := repo.Tip(t.Context(), "refs/heads/none"); err != nil || got != "" {
		t.Errorf("missing ref is at %q, %v", got, err)
	}
	for _, name := range []string{"packed", "symbolic", "link", "none", "../../HEAD", "../heads/loose"} {
		if got := repo.ReadLooseRef("refs/heads/" + name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
