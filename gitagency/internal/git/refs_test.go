package git

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// two makes a second commit and returns both, the older first.
func (l *lab) two() (older, newer string) {
	l.t.Helper()
	older = l.git("rev-parse", "HEAD")
	l.write("second", "2\n")
	return older, l.commit("second")
}

func (l *lab) log(ref string) string {
	data, err := os.ReadFile(filepath.Join(l.dir, ".git/logs", ref))
	if err != nil {
		return ""
	}
	return string(data)
}

func TestCreateRefMakesOnlyWhatIsNotThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref = "refs/heads/agency/x"
	l.must(repo.CreateRef(t.Context(), ref, older, "why it is there"))
	if got := l.git("rev-parse", ref); got != older {
		t.Errorf("it is at %s", got)
	}
	if log := l.log(ref); !strings.Contains(log, "why it is there") || strings.Count(log, "\n") != 1 {
		t.Errorf("its log is %q", log)
	}
	for _, pack := range []bool{false, true} {
		if pack {
			l.git("pack-refs", "--all")
		}
		log := l.log(ref)
		for _, oid := range []string{older, newer} {
			err := repo.CreateRef(t.Context(), ref, oid, "again")
			if err == nil || !ChangedNothing(err) {
				t.Errorf("packed %v: made again: %v", pack, err)
			}
		}
		if got := l.git("rev-parse", ref); got != older || l.log(ref) != log {
			t.Errorf("packed %v: it is at %s, its log %q", pack, got, l.log(ref))
		}
	}
	// In the way of each other: a branch cannot lie inside a branch.
	if err := repo.CreateRef(t.Context(), ref+"/below", older, "x"); !ChangedNothing(err) {
		t.Errorf("below a branch: %v", err)
	}
	if err := repo.CreateRef(t.Context(), "refs/heads/agency", older, "x"); !ChangedNothing(err) {
		t.Errorf("above a branch: %v", err)
	}
	if err := repo.CreateRef(t.Context(), "refs/heads/y", strings.Repeat("1", 40), "x"); !ChangedNothing(err) {
		t.Errorf("to nothing: %v", err)
	}
	if got := l.git("for-each-ref", "--format=%(refname)"); got != ref+"\nrefs/heads/main" {
		t.Errorf("refs are %q", got)
	}
}

func TestOfManyWhoCreateARefOneDoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
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
	if made.Load() != 1 || strings.Count(l.log("refs/heads/x"), "\n") != 1 {
		t.Errorf("%d made it; log %q", made.Load(), l.log("refs/heads/x"))
	}
}

func TestMoveRefMovesOnlyFromWhereItWasSaidToBe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref = "refs/agency/trash/x"
	l.must(repo.CreateRef(t.Context(), ref, older, "made"))
	if err := repo.MoveRef(t.Context(), ref, newer, newer, "wrong"); err == nil || l.git("rev-parse", ref) != older {
		t.Errorf("moved from elsewhere: %v", err)
	}
	if err := repo.MoveRef(t.Context(), ref, newer, strings.Repeat("0", 40), "wrong"); err == nil || l.git("rev-parse", ref) != older {
		t.Errorf("moved though it exists: %v", err)
	}
	l.must(repo.MoveRef(t.Context(), ref, newer, older, "right"))
	if l.git("rev-parse", ref) != newer {
		t.Error("not moved")
	}
	if err := repo.MoveRef(t.Context(), "refs/agency/none", newer, older, "wrong"); err == nil {
		t.Error("moved a ref that is not there")
	}
	if log := l.log(ref); !strings.Contains(log, "\tmade\n") || !strings.Contains(log, "\tright\n") || strings.Contains(log, "wrong") {
		t.Errorf("its log is %q", log)
	}
}

func TestDeleteRefDeletesOnlyWhatIsWhereItWasSaidToBe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref = "refs/heads/agency/x"
	l.must(repo.DeleteRef(t.Context(), ref, older)) // not there: fine
	for _, pack := range []bool{false, true} {
		l.must(repo.CreateRef(t.Context(), ref, newer, "made"))
		if pack {
			l.git("pack-refs", "--all", "--prune")
		}
		if err := repo.DeleteRef(t.Context(), ref, older); err == nil || l.git("rev-parse", ref) != newer || l.log(ref) == "" {
			t.Errorf("packed %v: a ref that was moved: %v", pack, err)
		}
		l.must(repo.DeleteRef(t.Context(), ref, newer))
		if out, err := l.try(l.dir, "rev-parse", "--verify", "-q", ref); err == nil {
			t.Errorf("packed %v: it is still at %s", pack, out)
		}
		if l.log(ref) != "" {
			t.Errorf("packed %v: its log stayed", pack)
		}
		l.must(repo.DeleteRef(t.Context(), ref, newer))
	}
}

// Somebody in a sandbox can make its branch another name of main.
func TestASymbolicRefIsMovedAndDeletedItselfAndNotWhatItLeadsTo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref = "refs/heads/agency/x"
	l.git("symbolic-ref", ref, "refs/heads/main")
	l.must(repo.DeleteRef(t.Context(), ref, newer))
	if _, err := l.try(l.dir, "symbolic-ref", "-q", ref); err == nil || l.git("rev-parse", "main") != newer {
		t.Errorf("main is at %s", l.git("rev-parse", "main"))
	}
	l.git("symbolic-ref", ref, "refs/heads/main")
	l.must(repo.MoveRef(t.Context(), ref, older, newer, "move"))
	if l.git("rev-parse", ref) != older || l.git("rev-parse", "main") != newer {
		t.Errorf("%s is at %s, main at %s", ref, l.git("rev-parse", ref), l.git("rev-parse", "main"))
	}
}

func TestSweepRefRemovesWhatAKilledGitLeft(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref, sibling = "refs/heads/agency/x", "refs/heads/agency/sibling"
	git := func(name string) string { return filepath.Join(l.dir, ".git", name) }
	nothing := states(t, git("refs"), git("logs"))

	l.must(repo.RemoveRefLeftovers(t.Context(), ref)) // nothing there
	requireSame(t, "after nothing", states(t, git("refs"), git("logs")), nothing)

	// Killed while it made the ref: a lock, and a log of nothing.
	l.put(l.dir, ".git/"+ref+".lock", older+"\n")
	l.put(l.dir, ".git/logs/"+ref, "rubbish\n")
	for range 2 {
		l.must(repo.RemoveRefLeftovers(t.Context(), ref))
		requireSame(t, "after a killed creation", states(t, git("refs"), git("logs")), nothing)
	}
	l.must(repo.CreateRef(t.Context(), ref, newer, "made"))

	// A ref that lives keeps its log; only the lock goes. Packed or not.
	for _, pack := range []bool{false, true} {
		if pack {
			l.git("pack-refs", "--all", "--prune")
		}
		l.put(l.dir, ".git/"+ref+".lock", "")
		log := l.log(ref)
		l.must(repo.RemoveRefLeftovers(t.Context(), ref))
		if l.git("rev-parse", ref) != newer || l.log(ref) != log || exists(git(ref+".lock")) {
			t.Errorf("packed %v: at %s, log %q", pack, l.git("rev-parse", ref), l.log(ref))
		}
	}

	// Neighbours are not touched.
	l.must(repo.CreateRef(t.Context(), sibling, older, "sibling"))
	l.put(l.dir, ".git/"+sibling+".lock", "")
	l.must(repo.DeleteRef(t.Context(), ref, newer))
	l.put(l.dir, ".git/logs/"+ref, "rubbish\n")
	l.must(repo.RemoveRefLeftovers(t.Context(), ref))
	if l.log(sibling) == "" || !exists(git(sibling+".lock")) || l.git("rev-parse", sibling) != older || l.log(ref) != "" {
		t.Error("a neighbour was swept too, or the log was not")
	}
}

func TestRefPathIsWhereGitKeepsALooseRef(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	linked := filepath.Join(tempDir(t), "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	for _, repo := range []*Repo{l.open(), l.openIn(linked)} {
		if got, want := repo.RefPath("refs/heads/main"), filepath.Join(l.dir, ".git/refs/heads/main"); got != want || !exists(got) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A power cut can leave an empty file, a damaged repository a ref to nothing. Both are refs that
// exist: git refuses to create them again, and warns of them for ever.
func TestDeleteRefDoesNotTakeABrokenRefForNone(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"an empty file":               "",
		"an object that is not there": strings.Repeat("1", 40) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			const ref = "refs/heads/agency/x"
			main := l.git("rev-parse", "main")
			l.must(repo.CreateRef(t.Context(), ref, main, "test"))
			l.must(os.WriteFile(repo.RefPath(ref), []byte(content), 0o644))
			if err := repo.DeleteRef(t.Context(), ref, main); err == nil && exists(repo.RefPath(ref)) {
				t.Error("it says that it is done, and the ref is there")
			}
			// Its log is the only place that knows where it was.
			if err := repo.RemoveRefLeftovers(t.Context(), ref); err == nil && exists(repo.RefPath(ref)) &&
				!exists(filepath.Join(repo.CommonDir, "logs", ref)) {
				t.Error("the log of a ref that exists was removed")
			}
		})
	}
}

// Somebody made a branch of the name that ours only begin with. Ours cannot be there then.
func TestSweepRefOfARefThatCannotExistIsFine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	l.git("branch", "agency")
	if err := repo.RemoveRefLeftovers(t.Context(), "refs/heads/agency/x"); err != nil {
		t.Error(err)
	}
	if l.git("rev-parse", "refs/heads/agency") != l.git("rev-parse", "main") || !exists(filepath.Join(repo.CommonDir, "logs/refs/heads/agency")) {
		t.Error("somebody's branch was touched")
	}
}

func TestRefsListsWhatIsBelowAPrefixAndNothingElse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	l.git("update-ref", "refs/agency/trash/a", older)
	l.git("update-ref", "refs/agency/trash/b/c", newer)
	l.git("update-ref", "refs/agency/trashed", newer)
	l.git("update-ref", "refs/heads/agency/x", newer)
	l.git("update-ref", "refs/heads/other", newer)
	l.git("pack-refs", "--all")
	l.git("update-ref", "refs/agency/trash/d", l.git("rev-parse", "HEAD:a.txt"))
	repo := l.open()
	got, err := repo.Refs(t.Context(), "refs/agency/trash/", "refs/heads/agency/")
	l.must(err)
	requireSame(t, "refs", got, map[string]string{
		"refs/agency/trash/a": older, "refs/agency/trash/b/c": newer, "refs/heads/agency/x": newer,
		"refs/agency/trash/d": l.git("rev-parse", "HEAD:a.txt"),
	})
	// One that leads nowhere does not hide the others.
	l.put(repo.CommonDir, "refs/agency/trash/broken", strings.Repeat("1", len(older))+"\n")
	l.put(repo.CommonDir, "refs/agency/trash/empty", "")
	if got, err = repo.Refs(t.Context(), "refs/agency/trash/"); err != nil || got["refs/agency/trash/a"] != older {
		t.Errorf("got %v, %v", got, err)
	}
	none, err := repo.Refs(t.Context(), "refs/nothing/")
	if err != nil || len(none) > 0 {
		t.Errorf("got %v, %v", none, err)
	}
}

func TestRemoveRefTakesTheRefItsLogAndWhatAKilledGitLeftOfThem(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	older, newer := l.two()
	repo := l.open()
	const ref = "refs/agency/trash/x"
	l.must(repo.CreateRef(t.Context(), ref, older, "test"))
	if err := repo.DeleteOwnedRef(t.Context(), ref, newer); err == nil || l.git("rev-parse", ref) != older {
		t.Errorf("removed from elsewhere: %v", err)
	}
	l.put(repo.CommonDir, ref+".lock", "")
	l.must(repo.DeleteOwnedRef(t.Context(), ref, older))
	for _, path := range []string{repo.RefPath(ref), repo.RefPath(ref) + ".lock", filepath.Join(repo.CommonDir, "logs", ref)} {
		if exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	l.must(repo.DeleteOwnedRef(t.Context(), ref, older)) // it is gone already
}

func TestRefScrapsAreOfRefsThatAreNotThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	look := func() map[string]string {
		t.Helper()
		refs, err := repo.Refs(t.Context(), "refs/agency/trash/")
		l.must(err)
		scraps, err := repo.RefLeftovers("refs/agency/trash/", refs)
		l.must(err)
		return scraps
	}
	requireSame(t, "where nothing ever was", look(), map[string]string{})
	l.must(repo.CreateRef(t.Context(), "refs/agency/trash/whole", l.git("rev-parse", "HEAD"), "test"))
	locked, logged := filepath.Join(repo.CommonDir, "refs/agency/trash/locked.lock"), filepath.Join(repo.CommonDir, "logs/refs/agency/trash/logged")
	deeper := filepath.Join(repo.CommonDir, "refs/agency/trash/deeper/down.lock")
	for _, path := range []string{locked, logged, deeper, filepath.Join(repo.CommonDir, "refs/agency/trash/whole.lock")} {
		l.put(filepath.Dir(path), filepath.Base(path), "")
	}
	l.must(os.Mkdir(filepath.Join(repo.CommonDir, "logs/refs/agency/trash/deep"), 0o755))
	want := map[string]string{"refs/agency/trash/locked": locked, "refs/agency/trash/logged": logged, "refs/agency/trash/deeper/down": deeper}
	requireSame(t, "scraps", look(), want)
	for ref := range want {
		l.must(repo.RemoveRefLeftovers(t.Context(), ref))
	}
	requireSame(t, "swept", look(), map[string]string{})
	if log := l.log("refs/agency/trash/whole"); log == "" {
		t.Error("the log of another is gone")
	}
}

func TestRefsBelowAPrefixGoTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	head := l.git("rev-parse", "HEAD")
	const prefix = "refs/agency/snapshots/x/"
	arrange := func() map[string]string {
		t.Helper()
		for _, name := range []string{"1", "2", "10", "deep/er"} {
			l.must(repo.CreateRef(t.Context(), prefix+name, head, "test"))
		}
		l.git("pack-refs", "--all")
		l.must(repo.CreateRef(t.Context(), prefix+"11", head, "test"))
		l.git("symbolic-ref", prefix+"12", "refs/heads/main")
		for _, path := range []string{"refs/agency/snapshots/x/2.lock", "refs/agency/snapshots/x/13.lock", "logs/refs/agency/snapshots/x/14"} {
			l.put(repo.CommonDir, path, "")
		}
		refs, err := repo.Refs(t.Context(), prefix)
		l.must(err)
		return refs
	}
	l.must(repo.CreateRef(t.Context(), "refs/agency/snapshots/xy/1", head, "test"))
	refs := arrange()
	if len(refs) != 6 {
		t.Fatalf("%v", refs)
	}

	// One of them is not where it was any more.
	refs[prefix+"10"] = l.git("commit-tree", "-m", "another", "main^{tree}")
	if err := repo.DeleteOwnedRefs(t.Context(), prefix, refs); err == nil {
		t.Error("a ref went that had been moved")
	}
	if now, err := repo.Refs(t.Context(), prefix); err != nil || len(now) != 6 {
		t.Errorf("%v, %v", now, err)
	}

	refs[prefix+"10"] = head
	l.must(repo.DeleteOwnedRefs(t.Context(), prefix, refs))
	if got := l.git("for-each-ref", "--format=%(refname)"); got != "refs/agency/snapshots/xy/1\nrefs/heads/main" {
		t.Errorf("left: %s", got)
	}
	for _, root := range []string{repo.RefPath(prefix), repo.ReflogPath(prefix)} {
		if exists(root) {
			t.Errorf("%s is left: %v", root, states(t, root))
		}
	}
	l.must(repo.DeleteOwnedRefs(t.Context(), prefix, nil)) // they are gone already
}

func TestTipIsWhereGitSaysTheRefIs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	l.git("branch", "packed")
	l.git("pack-refs", "--all")
	l.git("commit", "-q", "--allow-empty", "-m", "second")
	l.git("branch", "loose")
	l.git("symbolic-ref", "refs/heads/symbolic", "refs/heads/packed")
	heads := filepath.Join(l.dir, ".git/refs/heads")
	l.must(os.MkdirAll(heads, 0o755))
	l.must(os.Symlink("loose", filepath.Join(heads, "link")))
	for _, name := range []string{"packed", "loose", "symbolic", "main"} {
		ref := "refs/heads/" + name
		if got, err := repo.Tip(t.Context(), ref); err != nil || got != l.git("rev-parse", ref) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := repo.Tip(t.Context(), "refs/heads/none"); err != nil || got != "" {
		t.Errorf("what is not there is at %q, %v", got, err)
	}
	for _, name := range []string{"packed", "symbolic", "link", "none", "../../HEAD", "../heads/loose"} {
		if got := repo.readLooseRef("refs/heads/" + name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
