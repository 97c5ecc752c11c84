package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestARollbackThatIsCancelledIsUndoneBeforeTheFirstChangeAndFinishedAfterIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point string
		begun bool
	}{
		{"rollback/capture:before", false},
		{"rollback/ref:after", false},
		{"rollback/prepare:after", false},
		{"rollback/note:after", false},
		{"rollback/files:before", true},
		{"rollback/heads:after", true},
		{"rollback/done:before", true},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newLab(t, Options{Fault: func(_ context.Context, at string) error {
				if at == c.point {
					cancel()
				}
				return nil
			}})
			l.write("a", "1\n")
			if _, err := l.box.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.write("a", "2\n")
			l.write("later", "2\n")
			_, err := l.box.Rollback(ctx, RollbackRequest{Snapshot: l.box.ID + "/1"})
			later, _ := filepath.Glob(filepath.Join(l.box.WorkDir(), "later"))
			switch {
			case c.begun && (err != nil || len(later) > 0):
				t.Errorf("it was not finished: %v", err)
			case !c.begun && (!errors.Is(err, context.Canceled) || len(later) == 0 || strings.Contains(l.snapshots(), "/2")):
				t.Errorf("it was not undone: %v, %s", err, l.snapshots())
			}
			if l.box.hasRollbackNote() {
				t.Error("there is a note of it")
			}
			for _, left := range []string{"index.lock", "index.agency", "HEAD.lock", "HEAD.agency"} {
				if _, err := os.Lstat(filepath.Join(l.repo.git.AdminDir(l.box.ID), left)); err == nil {
					t.Errorf("%s is left", left)
				}
			}
		})
	}
}

// Somebody may edit, stage and commit in the tree of a sandbox at any time. Whatever comes between what was snapshotted
// and the lock stops a rollback, before anything has changed.
func TestARollbackOverwritesNothingThatCameAfterItsSnapshot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		do    func(l *lab)
		stops bool
	}{
		{"a file that changes", func(l *lab) { l.write("a", "3, meanwhile\n") }, true},
		{"a file that comes where one has to be", func(l *lab) { l.write("gone", "meanwhile\n") }, true},
		{"something staged", func(l *lab) { l.write("new", "x\n"); l.git("add", "new") }, true},
		{"a commit", func(l *lab) { l.git("commit", "-q", "--allow-empty", "-m", "meanwhile") }, true},
		{"a look", func(l *lab) { l.git("status") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var l *lab
			l = newLab(t, Options{Fault: func(_ context.Context, at string) error {
				if at == "rollback/ref:after" {
					c.do(l)
				}
				return nil
			}})
			l.write("a", "1\n")
			l.write("gone", "1\n")
			if _, err := l.box.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.write("a", "2\n")
			if err := os.Remove(filepath.Join(l.box.WorkDir(), "gone")); err != nil {
				t.Fatal(err)
			}
			_, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"})
			if (err != nil) != c.stops || is[*HalfWayError](err) {
				t.Fatalf("%v", err)
			}
			data, _ := os.ReadFile(filepath.Join(l.box.WorkDir(), "a"))
			if c.stops && string(data) == "1\n" {
				t.Error("it was rolled back all the same")
			}
			if l.box.hasRollbackNote() {
				t.Error("there is a note of it")
			}
		})
	}
}

// A directory that its owner may not write to, as those of module caches are, is no reason to stop half-way, and stays
// what it is.
func TestARollbackReachesIntoDirectoriesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	dir := filepath.Join(l.box.WorkDir(), "closed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.write("closed/a", "1\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("closed/a", "2\n")
	l.write("closed/later", "2\n")
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(filepath.Join(dir, "a"))
	if _, err := os.Lstat(filepath.Join(dir, "later")); err == nil || string(data) != "1\n" {
		t.Errorf("a is %q; later: %v", data, err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

// What git was told not to check out stays so, whatever it is in the other state, and what it was told to take for
// unchanged is looked at all the same.
func TestARollbackRespectsWhatIsNotCheckedOut(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	if err := os.Mkdir(filepath.Join(l.box.WorkDir(), "far"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.write("far/away", "1\n")
	l.write("near", "1\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "both")
	l.git("sparse-checkout", "set", "--no-cone", "/near")
	l.git("update-index", "--assume-unchanged", "near")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("near", "2\n")
	blob := l.git("hash-object", "-w", "near")
	l.git("update-index", "--cacheinfo", "100644,"+blob+",far/away")
	l.git("update-index", "--skip-worktree", "far/away")
	before := l.git("ls-files", "-s", "-v")
	if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	if got := l.git("ls-files", "-v"); got != "S far/away\nh near" {
		t.Errorf("%s", got)
	}
	if _, err := os.Lstat(filepath.Join(l.box.WorkDir(), "far", "away")); err == nil {
		t.Error("it was checked out")
	}
	data, _ := os.ReadFile(filepath.Join(l.box.WorkDir(), "near"))
	if string(data) != "1\n" || l.git("status", "--porcelain") != "" {
		t.Errorf("%q, %s", data, l.git("status", "--porcelain"))
	}
	if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/2"}); err != nil {
		t.Fatal(err)
	}
	if got := l.git("ls-files", "-s", "-v"); got != before {
		t.Errorf("it is\n%s\nand was\n%s", got, before)
	}
}

// A snapshot that is gone cannot be gone back to; doctor lets go of the sandbox, and so does discard.
func TestARollbackThatNobodyCanFinishIsSaidAndLetGo(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	var said []string
	l.repo.opts.Warn = func(message string) { said = append(said, message) }
	l.write("a", "1\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("a", "2\n")
	var halfWay *HalfWayError
	if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); !errors.As(err, &halfWay) || halfWay.LeftSnapshot != l.box.ID+"/2" {
		t.Fatal(err)
	}
	l.git("update-ref", "-d", snapshotRef(l.box.ID, 1))
	if _, err := l.box.Snapshot(t.Context()); !is[*LostRollbackError](err) {
		t.Fatal(err)
	}
	fixed, err := l.repo.Fix(t.Context(), l.box.ID)
	if err != nil || len(fixed) != 1 || fixed[0].Code != "interrupted-rollback" {
		t.Fatal(fixed, err)
	}
	if !strings.Contains(strings.Join(said, "\n"), "cannot be finished") {
		t.Errorf("%q", said)
	}
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A snapshot of another sandbox is a state too, on this one's own branch; and while a rollback to it waits to be
// finished, nobody prunes it.
func TestARollbackMayGoToAStateOfAnotherSandboxWhichStaysForAsLongAsItIsNeeded(t *testing.T) {
	t.Parallel()
	fail := true
	l := newLab(t, Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" && fail {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.repo.opts.Warn = nil
	l.write("theirs", "1\n")
	l.git("add", "theirs")
	l.git("commit", "-q", "-m", "theirs")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	head := l.git("rev-parse", "HEAD")
	inv, err := l.repo.Start(t.Context(), StartRequest{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.repo.Sandbox(inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); !is[*HalfWayError](err) {
		t.Fatal(err)
	}
	if _, err := l.repo.Discard(t.Context(), l.box.ID); err != nil {
		t.Fatal(err)
	}
	prune := func() string {
		t.Helper()
		pruned, err := l.repo.Prune(t.Context(), PruneRequest{Expire: "now"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pruned {
			if p.ID == l.box.ID {
				return p.Action
			}
		}
		return ""
	}
	if got := prune(); got != PruneKeep {
		t.Errorf("it is to %s", got)
	}
	fail = false
	if _, err := other.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(other.WorkDir(), "theirs"))
	if at, _ := l.repo.git.Tip(t.Context(), sandboxRef(other.ID)); err != nil || string(data) != "1\n" || at != head {
		t.Errorf("%q, %v; the branch is at %s instead of %s", data, err, at, head)
	}
	if got := prune(); got != PruneRemove {
		t.Errorf("it is to %s", got)
	}
}

// Of a submodule the commit that is staged comes back; what is checked out there is nobody's but its own.
func TestARollbackLeavesWhatIsInSubmodulesAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.git("init", "-q", "-b", "main", "sub")
	l.write("sub/file", "theirs\n")
	l.git("-C", "sub", "add", "file")
	l.git("-C", "sub", "commit", "-q", "-m", "theirs")
	l.git("update-index", "--add", "--cacheinfo", "160000,"+l.git("-C", "sub", "rev-parse", "HEAD")+",sub")
	staged := l.git("ls-files", "-s")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.git("rm", "-q", "-f", "--cached", "sub")
	l.write("sub/file", "changed\n")
	for n, want := range []string{staged, ""} {
		if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: snapshotName(l.box.ID, n+1)}); err != nil {
			t.Fatal(err)
		}
		if got := l.git("ls-files", "-s"); got != want {
			t.Errorf("staged is %q; want %q", got, want)
		}
		data, err := os.ReadFile(filepath.Join(l.box.WorkDir(), "sub", "file"))
		if err != nil || string(data) != "changed\n" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func snapshotName(id string, n int) string { return Snapshot{Invocation: id, Number: n}.name() }

// A link that stands where the snapshot has a directory leads out of the sandbox; nothing there is touched, not even
// who may write to it.
func TestARollbackFollowsNoLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	outside := filepath.Join(t.TempDir(), "outside")
	for _, dir := range []string{filepath.Join(l.box.WorkDir(), "dir", "deep"), filepath.Join(outside, "deep")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(outside, "deep"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(outside, "deep"), 0o755) })
	if err := errors.Join(os.RemoveAll(filepath.Join(l.box.WorkDir(), "dir")), os.Symlink(outside, filepath.Join(l.box.WorkDir(), "dir"))); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: snapshotName(l.box.ID, n)}); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Lstat(filepath.Join(l.box.WorkDir(), "dir"))
		if err != nil || fi.IsDir() != (n == 1) {
			t.Errorf("%v, %v", fi, err)
		}
		data, err := os.ReadFile(filepath.Join(outside, "deep", "file"))
		if err != nil || string(data) != filepath.Join(outside, "deep") {
			t.Errorf("%q, %v", data, err)
		}
		if fi, err := os.Stat(filepath.Join(outside, "deep")); err != nil || fi.Mode().Perm() != 0o555 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
}

// Whoever works without walls can write to the repository's configuration. What that names does not run; a file that
// cannot be written without it stops the rollback before anything has changed.
func TestARollbackRunsNothingThatAnAgentCouldHaveConfigured(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newLab(t, Options{}, "filter.evil.smudge", "touch "+ran+"; cat", "core.autocrlf", "true")
	l.withoutWalls()
	l.write("plain", "1\r\n")
	l.write("a.txt", "1\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("plain", "2\r\n")
	l.write("a.txt", "2\n")
	if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(filepath.Join(l.box.WorkDir(), "plain"))
	if string(data) != "1\r\n" {
		t.Errorf("%q", data)
	}
	l.write(".gitattributes", "*.txt filter=evil\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("a.txt", "3\n")
	for range 2 { // by the rules that are there, and by those of the state
		_, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/3"})
		if !is[*DistrustedFilterError](err) || !strings.Contains(err.Error(), "a.txt: what filter.evil would run") {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(l.box.WorkDir(), ".gitattributes")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("it was run")
	}
	if l.box.hasRollbackNote() || strings.Contains(l.snapshots(), "/4") {
		t.Error("something has changed")
	}
}
