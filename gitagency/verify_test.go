package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// newTestRepoWithCommit makes a testRepo whose sandbox, without walls, has one commit to land.
func newTestRepoWithCommit(t *testing.T, opts Options) *testRepo {
	t.Helper()
	l := newTestRepo(t, opts)
	l.startWithoutWalls()
	l.writeFile("new", "new\n")
	l.git("add", "new")
	l.git("commit", "-q", "-m", "work")
	return l
}

// describeState lists everything that a landing could change or a verify sandbox could leave: records, refs, logs.
func (l *testRepo) describeState() string {
	l.t.Helper()
	files := []string{}
	if err := filepath.WalkDir(l.repo.store.RepoDir(l.repo.ID), func(path string, d os.DirEntry, err error) error {
		if d != nil && d.Name() == "tree" && strings.Contains(path, "/worktrees/") {
			return filepath.SkipDir
		}
		if d != nil && d.Name() != "verify.log" && d.Name() != "events.jsonl" {
			files = append(files, path)
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	for _, name := range []string{"refs", "logs", "worktrees"} {
		if err := filepath.WalkDir(filepath.Join(l.repo.CommonDir, name), func(path string, d os.DirEntry, err error) error {
			if d != nil && !d.IsDir() && d.Name() != "index" {
				data, _ := os.ReadFile(path)
				path += " " + string(data)
				files = append(files, path)
			}
			return err
		}); err != nil {
			l.t.Fatal(err)
		}
	}
	return strings.Join(files, "\n")
}

func TestFailedVerifyLeavesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	fail := ""
	l := newTestRepoWithCommit(t, Options{Fault: func(_ context.Context, at string) error {
		if at == fail {
			return boom
		}
		return nil
	}})
	before := l.describeState()
	for _, at := range []string{
		"verify/objects:before", "verify/objects:after", "verify/record-dir:after", "verify/checkout:after",
		"verify/sync:after", "verify/record:before", "verify/run:before", "verify/run:after",
	} {
		fail = at
		if _, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, Verify: "true"}); !errors.Is(err, boom) {
			t.Errorf("%s: got %v", at, err)
		}
		if after := l.describeState(); after != before {
			t.Errorf("%s: state before\n%s\nand after\n%s", at, before, after)
		}
	}
	fail = ""
	if landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, Verify: "true"}); err != nil || !landed.Verified {
		t.Errorf("got %+v, %v", landed, err)
	}
}

func TestLandSucceedsIfVerifySandboxIsNotRemoved(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	fail := ""
	var said []string
	l := newTestRepoWithCommit(t, Options{Fault: func(_ context.Context, at string) error {
		if at == fail {
			return boom
		}
		return nil
	}})
	l.repo.opts.Warn = func(message string) { said = append(said, message) }
	before := l.describeState()
	for _, at := range []string{
		"throw-away/end:before", "throw-away/end:after", "throw-away/tree:after", "throw-away/registration:after", "throw-away/branch:after",
		"throw-away/sandbox-dir:after", "throw-away/snapshots:after", "throw-away/trash:after",
	} {
		fail, said = at, nil
		landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, Verify: "true", DryRun: true})
		if err != nil || !landed.Verified {
			t.Fatalf("%s: got %+v, %v", at, landed, err)
		}
		if len(said) != 1 || !strings.Contains(said[0], "is still there") {
			t.Errorf("%s: warnings %q", at, said)
		}
		fail = ""
		all, err := l.repo.Invocations(ListRequest{All: true})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(i Invocation) bool { return i.Name == "verify "+l.sandbox.ID })
		if i < 0 {
			t.Fatalf("%s: the verify sandbox is not listed", at)
		}
		if at == "throw-away/end:before" { // later its record says that it was discarded
			if _, err := l.repo.Discard(t.Context(), all[i].ID); err != nil {
				t.Errorf("%s: discard: %v", at, err)
			}
		}
		for range 2 { // the first prune keeps content that it finds, the second removes it
			if _, err := l.repo.Prune(t.Context(), PruneRequest{Expire: "now"}); err != nil {
				t.Errorf("%s: prune: %v", at, err)
			}
		}
		if after := l.describeState(); after != before {
			t.Errorf("%s: state before\n%s\nand after\n%s", at, before, after)
		}
	}
}

// onWrite is an io.Writer that calls a function with the text of each write.
type onWrite func(text string)

func (f onWrite) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

func TestCancelledVerifyRemovesItsSandbox(t *testing.T) {
	t.Parallel()
	l := newTestRepoWithCommit(t, Options{})
	before := l.describeState()
	off := errors.New("called off")
	ctx, cancel := context.WithCancelCause(t.Context())
	// Files, a directory that its owner cannot read, commits and a snapshot of the verify sandbox go with it. The
	// directory is made after the snapshot: a snapshot refuses what it cannot read instead of leaving it out.
	const line = `echo x >untracked; git commit -q --allow-empty -m x; echo ready
while ! test -e snapshotted; do sleep 0.01; done; mkdir -m 0 shut; echo shut; exec sleep 1000`
	taken := false
	_, err := l.repo.Land(ctx, LandRequest{ID: l.sandbox.ID, Verify: line, Output: onWrite(func(string) {
		if taken {
			cancel(off)
			return
		}
		taken = true
		all, err := l.repo.Invocations(ListRequest{})
		if err != nil {
			t.Error(err)
		}
		for _, i := range all {
			if i.Name != "verify "+l.sandbox.ID {
				continue
			}
			if _, err := l.repo.sandboxOf(i.ID).Snapshot(t.Context()); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(i.SandboxPath, "snapshotted"), nil, 0o644); err != nil {
				t.Error(err)
			}
			return
		}
		t.Error("there is no verify sandbox")
		cancel(off)
	})})
	if !errors.Is(err, off) || is[*VerifyError](err) {
		t.Errorf("got %v", err)
	}
	if after := l.describeState(); after != before {
		t.Errorf("state before\n%s\nand after\n%s", before, after)
	}
}

func TestRepeatedVerifyWaitsForOtherLanding(t *testing.T) {
	t.Parallel()
	l := newTestRepoWithCommit(t, Options{})
	wt, err := l.repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	another, err := lock.AcquireDirExclusive(t.Context(), l.repo.store.WorktreeDir(l.repo.ID, wt.ID), 0)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	waited := false
	l.repo.opts.Warn = func(message string) {
		if said = append(said, message); strings.HasPrefix(message, "waiting for another landing") {
			waited = true
			time.AfterFunc(10*time.Millisecond, func() { _ = another.Close() })
		}
	}
	line := `test -e moved || { cd ` + wt.TreePath + ` && echo >moved && git add moved && git commit -qm moved; }`
	landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, Verify: line})
	if err != nil || !landed.Verified || !waited {
		t.Errorf("got %+v, %v, warnings %q", landed, err, said)
	}
}

func TestVerifyLogIsTruncated(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	log := verifyLog{output: &shown, file: file, remaining: 10, warn: func(format string, args ...any) { t.Errorf(format, args...) }}
	for _, text := range []string{"12345678", "9abcdef", "more"} {
		if n, err := log.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	kept, err := os.ReadFile(file.Name())
	if err != nil || string(kept) != "123456789a\n# the rest was too much to be kept\n" || shown.String() != "123456789abcdefmore" {
		t.Errorf("kept %q, shown %q, %v", kept, shown.String(), err)
	}
	_ = file.Close()
	log.remaining, log.warn = 10, func(string, ...any) { shown.WriteString("!") }
	if n, err := log.Write([]byte("x")); n != 1 || err != nil || !strings.HasSuffix(shown.String(), "!x") {
		t.Errorf("got %d, %v, %q", n, err, shown.String())
	}
}
