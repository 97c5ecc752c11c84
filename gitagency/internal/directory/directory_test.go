package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// testDirectory is a directory outside any repository, in a home directory of its own. A warning fails the test.
type testDirectory struct {
	t    *testing.T
	home string
	dir  string
	data string
	opts core.Options
}

func newTestDirectory(t *testing.T) *testDirectory {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &testDirectory{t: t, home: home, dir: filepath.Join(home, "notes"), data: filepath.Join(home, "data")}
	l.must(os.Mkdir(l.dir, 0o755))
	l.opts = core.Options{
		Dir: home, Version: "1.2.3",
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENCY_DATA_DIR=" + l.data,
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + filepath.Join(home, "gitconfig"),
			"GIT_DIR=/nowhere", "GIT_INDEX_FILE=/nowhere", // as set by a hook that runs us; must be ignored
		},
		Warn: coretest.FailOnWarning(t),
	}
	return l
}

func (l *testDirectory) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *testDirectory) writeFile(name, content string) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.must(os.WriteFile(path, []byte(content), 0o644))
}

func (l *testDirectory) git(dir string, args ...string) string {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.home, "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (l *testDirectory) onboard() *Directory {
	l.t.Helper()
	d, err := Onboard(l.t.Context(), OnboardRequest{Dir: l.dir}, l.opts)
	l.must(err)
	return d
}

func (l *testDirectory) takeSnapshot(d *Directory, req snapshots.TakeRequest) snapshots.Snapshot {
	l.t.Helper()
	s, err := d.Snapshot(l.t.Context(), req)
	l.must(err)
	return s
}

// checkoutFiles checks out a snapshot and returns its files.
func (l *testDirectory) checkoutFiles(d *Directory, snapshot string) map[string]string {
	l.t.Helper()
	to := filepath.Join(l.t.TempDir(), "copy")
	_, err := d.CheckoutSnapshot(l.t.Context(), snapshots.CheckoutRequest{Snapshot: snapshot, Dir: to})
	l.must(err)
	return l.readTree(to, false)
}

// readTree returns the files and links below a directory; with all, also the directories, and the times of everything.
func (l *testDirectory) readTree(dir string, all bool) map[string]string {
	l.t.Helper()
	found := map[string]string{}
	l.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		name, what := strings.TrimPrefix(path, dir), ""
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what = fmt.Sprintf("%t %s", fi.Mode()&0o100 != 0, data)
		case fi.Mode()&fs.ModeSymlink != 0:
			if what, err = os.Readlink(path); err != nil {
				return err
			}
			what = "-> " + what
		case !all:
			return nil
		}
		if all {
			what += fmt.Sprint(fi.Mode(), fi.ModTime(), durable.StatFingerprint(fi))
		}
		found[name] = what
		return nil
	}))
	return found
}

func (l *testDirectory) checkEqual(what string, got, want map[string]string) {
	l.t.Helper()
	if !maps.Equal(got, want) {
		l.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestDirectoryFromOnboardToForget(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	l.writeFile("a.txt", "a\n")
	l.writeFile("sub/b.txt", "b\n")
	l.writeFile(".env", "TOKEN=1\n")
	l.writeFile(".agency/file", "ours\n")
	l.must(os.Mkdir(filepath.Join(l.dir, "empty"), 0o755))
	before := l.readTree(l.dir, true)
	d := l.onboard()
	if !d.FirstSnapshot.Created || d.FirstSnapshot.Number != 1 || d.Path != l.dir || d.FirstSnapshot.Ref != "refs/agency/snapshots/"+d.ID+"/1" {
		t.Errorf("%+v", d)
	}
	if want := []snapshots.LeftOut{{Path: ".env", Reason: snapshots.LeftOutSecret}, {Path: ".agency", Reason: snapshots.LeftOutReserved}}; !slices.Equal(d.FirstSnapshot.LeftOut, want) {
		t.Errorf("%v", d.FirstSnapshot.LeftOut)
	}
	first := map[string]string{"/a.txt": "false a\n", "/sub/b.txt": "false b\n"}
	l.checkEqual("first snapshot", l.checkoutFiles(d, d.ID+"/1"), first)
	if same := l.takeSnapshot(d, snapshots.TakeRequest{}); same.Created || same.ID != d.FirstSnapshot.ID {
		t.Errorf("a snapshot without changes: %+v", same)
	}
	l.checkEqual("the directory", l.readTree(l.dir, true), before)

	l.writeFile("a.txt", "changed\n")
	l.writeFile("new.txt", "new\n")
	l.must(os.Remove(filepath.Join(l.dir, "sub/b.txt")))
	now, err := d.DiffSnapshots(t.Context(), diff.Request{})
	l.must(err)
	if len(now.Added) != 1 || len(now.Removed) != 1 || len(now.Changed) != 1 || now.Added[0].Path != "new.txt" || len(now.LeftOut) != 2 {
		t.Errorf("%+v", now)
	}
	second := l.takeSnapshot(d, snapshots.TakeRequest{Message: "second"})
	if !second.Created || second.Number != 2 {
		t.Errorf("%+v", second)
	}
	between, err := d.DiffSnapshots(t.Context(), diff.Request{From: d.ID[:6] + "/1", To: second.ID[:8]})
	l.must(err)
	if now.LeftOut = between.LeftOut; !reflect.DeepEqual(between, now) || between.Empty() { // between snapshots nothing is left out
		t.Errorf("got %+v, want %+v", between, now)
	}
	all, err := d.Snapshots(t.Context())
	l.must(err)
	if len(all) != 2 || all[1].Message != "second" || all[1].Parent != d.FirstSnapshot.ID || all[0].Parent != "" || all[1].Files != 3 || all[0].Tool != "1.2.3" || all[1].Head != "" {
		t.Errorf("%+v", all)
	}
	verified, err := d.VerifySnapshot(t.Context(), snapshots.VerifyRequest{Snapshot: second.ID})
	l.must(err)
	if !verified.Intact {
		t.Errorf("%+v", verified)
	}
	l.checkEqual("first snapshot, after the second", l.checkoutFiles(d, d.FirstSnapshot.ID), first)

	after := l.readTree(l.dir, true)
	again := l.onboard()
	if again.FirstSnapshot.Created || again.FirstSnapshot.ID != d.FirstSnapshot.ID {
		t.Errorf("%+v", again)
	}
	l.must(d.Forget(t.Context()))
	l.must(again.Forget(t.Context()))
	if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
		t.Error("Forget left the data directory")
	}
	if _, err := d.Snapshot(t.Context(), snapshots.TakeRequest{}); !fault.Is[*fault.NotFoundError](err) {
		t.Error(err)
	}
	l.checkEqual("the directory", l.readTree(l.dir, true), after)
}

func TestOpenByOtherPathAndAfterRemoval(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	l.writeFile("a", "a")
	l.must(os.Symlink("notes", filepath.Join(l.home, "link")))
	d, err := Onboard(t.Context(), OnboardRequest{Dir: "link"}, l.opts)
	l.must(err)
	if d.Path != l.dir {
		t.Error(d.Path)
	}
	if err := os.Remove(filepath.Join(l.home, "link")); err != nil {
		t.Fatal(err)
	}
	l.must(os.RemoveAll(l.dir))
	gone, err := Open(t.Context(), "./notes/", l.opts)
	l.must(err)
	if got := l.checkoutFiles(gone, gone.FirstSnapshot.ID); len(got) != 1 {
		t.Error(got)
	}
	if _, err := gone.Snapshot(t.Context(), snapshots.TakeRequest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	all, err := List(t.Context(), l.opts)
	if err != nil || len(all) != 1 || all[0].Path != l.dir || all[0].FirstSnapshot.ID != d.FirstSnapshot.ID {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := Open(t.Context(), "elsewhere", l.opts); !fault.Is[*fault.NotFoundError](err) {
		t.Error(err)
	}
}

func TestOnboardRefusesOverlapsAndRepositories(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	overlap, belongs := fault.Is[*fault.OverlapError], fault.Is[*fault.InRepositoryError]
	inside := func(name string) string { l.writeFile(name+"/file", "x"); return filepath.Join(l.dir, name) }
	marked := inside("marked")
	_, err := guard.Integration.Write(marked)
	l.must(err)
	repo := inside("repo")
	l.git(l.dir, "init", "-q", repo)
	l.must(os.Mkdir(filepath.Join(repo, "sub"), 0o755))
	l.git(l.dir, "init", "-q", "--bare", inside("bare"))
	l.writeFile("gitfile/.git", "gitdir: elsewhere\n")
	l.must(os.Mkdir(filepath.Join(l.home, "\xff"), 0o755))
	for _, c := range []struct {
		name, dir string
		refused   func(error) bool
	}{
		{"regular file", filepath.Join(marked, "file"), func(err error) bool { return errors.Is(err, syscall.ENOTDIR) }},
		{"missing directory", filepath.Join(l.dir, "nothing"), func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		{"no path", "", fault.Is[*fault.InvalidError]},
		{"not UTF-8", filepath.Join(l.home, "\xff"), fault.Is[*fault.InvalidError]},
		{"a repository", repo, belongs},
		{"in a repository", filepath.Join(repo, "sub"), belongs},
		{"a git directory", filepath.Join(l.dir, "bare"), belongs},
		{"in a git directory", filepath.Join(l.dir, "bare/objects"), belongs},
		{"a linked worktree", filepath.Join(l.dir, "gitfile"), belongs},
		{"a marked tree", marked, overlap},
		{"in a marked tree", filepath.Join(marked, ".agency"), overlap},
		{"around the data directory", l.home, overlap},
		{"root directory", "/", overlap},
	} {
		if _, err := Onboard(t.Context(), OnboardRequest{Dir: c.dir}, l.opts); !c.refused(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a refused onboarding made the data directory")
	}
	d := l.onboard()
	for _, dir := range []string{l.data, d.repo.CommonDir, filepath.Join(l.data, "directories")} {
		if _, err := Onboard(t.Context(), OnboardRequest{Dir: dir}, l.opts); !overlap(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{l.dir, filepath.Join(l.dir, "copy"), filepath.Join(l.data, "copy")} {
		if _, err := d.CheckoutSnapshot(t.Context(), snapshots.CheckoutRequest{Snapshot: d.FirstSnapshot.ID, Dir: dir}); !overlap(err) {
			t.Errorf("checkout to %s: %v", dir, err)
		}
	}
	if _, err := d.DiffSnapshots(t.Context(), diff.Request{From: diff.Head}); !fault.Is[*fault.InvalidError](err) {
		t.Error(err)
	}
	l.git(l.dir, "init", "-q")
	if _, err := d.Snapshot(t.Context(), snapshots.TakeRequest{}); !belongs(err) {
		t.Error(err)
	}
	if again, err := Open(t.Context(), l.dir, l.opts); err != nil || len(l.checkoutFiles(again, again.FirstSnapshot.ID)) == 0 {
		t.Errorf("earlier snapshots can no longer be checked out: %v", err)
	}
}

func TestDirectorySnapshotFollowsUserConfig(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	ran := filepath.Join(l.home, "ran")
	l.must(os.WriteFile(filepath.Join(l.home, "gitconfig"), fmt.Appendf(nil, `[core]
	excludesFile = %s/ignore
	autocrlf = input
[filter "upper"]
	clean = tr a-z A-Z
[agency]
	secret = *.token
`, l.home), 0o644))
	l.must(os.WriteFile(filepath.Join(l.home, "ignore"), []byte("*.bak\n"), 0o644))
	l.writeFile(".gitignore", "*.log\n!keep.log\n")
	l.writeFile("x.log", "ignored")
	l.writeFile("keep.log", "kept")
	l.writeFile("old.bak", "ignored by the user")
	l.writeFile("crlf.txt", "a\r\nb\r\n")
	l.writeFile("loud.up", "quiet")
	l.writeFile(".gitattributes", "*.up filter=upper\n*.evil filter=evil diff=evil\n")
	l.writeFile("a.evil", "evil")
	l.writeFile("my.token", "secret")
	l.writeFile(".gitconfig", "[filter \"evil\"]\n\tclean = touch "+ran+"\n[core]\n\tfsmonitor = touch "+ran+"\n")
	l.writeFile("new\nline", "x")
	l.writeFile("b\xffd", "not UTF-8")
	l.must(syscall.Mkfifo(filepath.Join(l.dir, "pipe"), 0o644))
	d := l.onboard()
	want := map[string]string{
		"/.gitignore": "false *.log\n!keep.log\n", "/keep.log": "false kept", "/crlf.txt": "false a\nb\n", "/loud.up": "false QUIET",
		"/.gitattributes": "false *.up filter=upper\n*.evil filter=evil diff=evil\n", "/a.evil": "false evil", "/new\nline": "false x", "/b\xffd": "false not UTF-8",
	}
	got := l.checkoutFiles(d, d.FirstSnapshot.ID)
	delete(got, "/.gitconfig")
	l.checkEqual("first snapshot", got, want)
	if !slices.Equal(d.FirstSnapshot.LeftOut, []snapshots.LeftOut{{Path: "my.token", Reason: snapshots.LeftOutSecret}}) {
		t.Errorf("%v", d.FirstSnapshot.LeftOut)
	}
	full := l.takeSnapshot(d, snapshots.TakeRequest{IncludeIgnored: true, IncludeSecrets: true})
	got = l.checkoutFiles(d, full.ID)
	for _, name := range []string{"/x.log", "/old.bak", "/my.token"} {
		if got[name] == "" {
			t.Errorf("%s is not in the snapshot", name)
		}
	}
	plain := l.takeSnapshot(d, snapshots.TakeRequest{})
	got = l.checkoutFiles(d, plain.ID)
	delete(got, "/.gitconfig")
	l.checkEqual("snapshot without ignored files and secrets", got, want)
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a program ran that a file in the directory configures")
	}
}

func TestConcurrentOnboardsShareFirstSnapshot(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	for i := range 50 {
		l.writeFile(fmt.Sprintf("%d/file", i), strings.Repeat("x", i))
	}
	var group sync.WaitGroup
	found := make([]*Directory, 8)
	for i := range found {
		group.Go(func() {
			d, err := Onboard(t.Context(), OnboardRequest{Dir: l.dir}, l.opts)
			if err == nil && i%2 == 0 {
				_, err = d.Snapshot(t.Context(), snapshots.TakeRequest{})
			}
			if err != nil {
				t.Error(err)
				return
			}
			found[i] = d
		})
	}
	group.Wait()
	made := 0
	for _, d := range found {
		if d == nil {
			t.FailNow()
		}
		if d.FirstSnapshot.Created {
			made++
		}
		if d.FirstSnapshot.ID != found[0].FirstSnapshot.ID {
			t.Error("two onboardings gave different first snapshots")
		}
	}
	if made != 1 {
		t.Errorf("%d of them report having created the first snapshot", made)
	}
}

func TestConcurrentOnboardAndForget(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	l.writeFile("a", "a")
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 6 {
				d, err := Onboard(t.Context(), OnboardRequest{Dir: l.dir}, l.opts)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					err = d.Forget(t.Context())
				} else {
					_, err = d.Snapshot(t.Context(), snapshots.TakeRequest{})
				}
				if err != nil && !fault.Is[*fault.NotFoundError](err) {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	d := l.onboard()
	l.checkEqual("content of the snapshot", l.checkoutFiles(d, d.FirstSnapshot.ID), map[string]string{"/a": "false a"})
}

func TestDirectorySnapshotIsConsistentDuringChanges(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	l.writeFile("a", "a")
	d := l.onboard()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			// Renames replace each file atomically, "two" after "one": no state existed in which they differ by more than one.
			for _, name := range []string{"one", "two"} {
				_ = os.WriteFile(filepath.Join(l.home, name), fmt.Appendf(nil, "%06d", i), 0o644)
				_ = os.Rename(filepath.Join(l.home, name), filepath.Join(l.dir, name))
			}
		}
	}()
	for range 5 {
		s, err := d.Snapshot(t.Context(), snapshots.TakeRequest{})
		if fault.Is[*fault.StillChangingError](err) {
			continue
		}
		l.must(err)
		files := l.checkoutFiles(d, s.ID)
		var one, two int
		_, _ = fmt.Sscanf(files["/one"], "false %d", &one)
		_, _ = fmt.Sscanf(files["/two"], "false %d", &two)
		if one-two > 1 || two > one {
			t.Errorf("one is %d and two is %d", one, two)
		}
	}
	close(stop)
	<-stopped
}

func TestOnboardKeepsCorruptRecord(t *testing.T) {
	t.Parallel()
	l := newTestDirectory(t)
	l.writeFile("a", "a")
	d := l.onboard()
	path := filepath.Join(l.data, "directories", d.ID, "meta.json")
	for _, content := range []string{"{", `{"schema_version":"1.0","directory_id":"other","path":"/x","onboarded_at":"2026-01-28T12:00:00Z"}`} {
		l.must(os.WriteFile(path, []byte(content), 0o600))
		before := l.readTree(filepath.Dir(path), false)
		if _, err := Onboard(t.Context(), OnboardRequest{Dir: l.dir}, l.opts); !fault.Is[*fault.CorruptRecordError](err) {
			t.Error(err)
		}
		if _, err := Open(t.Context(), l.dir, l.opts); !fault.Is[*fault.CorruptRecordError](err) {
			t.Error(err)
		}
		after := l.readTree(filepath.Dir(path), false)
		delete(after, "/lock.flock")
		delete(before, "/lock.flock")
		l.checkEqual("files of the record", after, before)
	}
}
