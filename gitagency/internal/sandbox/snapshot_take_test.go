package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// listSnapshots lists the numbers of the sandbox's snapshot refs with their commits.
func listSnapshots(l *sandboxtest.Fixture) string {
	l.T.Helper()
	return l.Git("for-each-ref", "--format=%(refname:lstrip=4) %(objectname)", "refs/agency/snapshots/"+l.Sandbox.ID)
}

func TestSnapshotCommitRefAndEvent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	l := sandboxtest.New(t, core.Options{Version: "1.2.3", Now: func() time.Time { return now }})
	base := l.Git("rev-parse", "HEAD")
	l.WriteFile("file", "1\n")
	id, err := l.Sandbox.Snapshot(t.Context())
	if err != nil || listSnapshots(l) != "1 "+id {
		t.Fatalf("%q, %v: %s", id, err, listSnapshots(l))
	}
	if got := l.Git("log", "-1", "--format=%an <%ae>%n%B", id); got != strings.Join([]string{
		"git-agency <git-agency@localhost>", "agency: snapshot 1 of sandbox " + l.Sandbox.ID, "",
		"Agency-Invocation: " + l.Sandbox.ID, "Agency-Base: " + base, "Agency-Version: 1.2.3", "Agency-Head: " + base, "Agency-On: " + core.SandboxRef(l.Sandbox.ID), "Agency-Index: " + l.Git("rev-parse", base+"^{tree}"), "",
	}, "\n") {
		t.Errorf("%s", got)
	}
	l.WriteFile("file", "2\n")
	second, err := l.Sandbox.TakeSnapshot(t.Context(), snapshots.TakeRequest{Message: "  two\n\nSigned-off-by: x\n"})
	if err != nil || second.Number != 2 || !second.Created || second.Ref != "refs/agency/snapshots/"+l.Sandbox.ID+"/2" || second.Invocation != l.Sandbox.ID {
		t.Errorf("%+v, %v", second, err)
	}
	if got := l.Git("log", "-1", "--format=%s|%P|%(trailers:key=Agency-Invocation,valueonly)", second.ID); got != "two|"+id+"|"+l.Sandbox.ID+"\n" {
		t.Errorf("%q", got)
	}
	again, err := l.Sandbox.TakeSnapshot(t.Context(), snapshots.TakeRequest{Message: "not used"})
	if want := second; err != nil || again.Created || again.ID != want.ID || again.Ref != want.Ref || again.Number != 2 || again.Invocation != l.Sandbox.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if got := listSnapshots(l); got != "1 "+id+"\n2 "+second.ID {
		t.Errorf("%s", got)
	}
	data, err := os.ReadFile(filepath.Join(l.Repo.Store.InvocationDir(l.Repo.ID, l.Sandbox.ID), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	var event map[string]string
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &event); err != nil || len(lines) != 2 ||
		event["event"] != "snapshot" || event["snapshot"] != second.ID || event["ref"] != second.Ref || event["time"] != "2026-01-28T12:05:00Z" {
		t.Errorf("%v: %s", err, data)
	}
}

func TestSnapshotNumberFollowsHighest(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	refs := "refs/agency/snapshots/" + l.Sandbox.ID + "/"
	for _, name := range []string{"2", "10", "011", "x", "20/1", "-30", "99999999999", "0"} {
		l.Git("update-ref", refs+name, "HEAD")
	}
	got, err := l.Sandbox.TakeSnapshot(t.Context(), snapshots.TakeRequest{})
	if err != nil || got.Number != 11 || got.Ref != refs+"11" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSnapshotNeverReplacesRef(t *testing.T) {
	t.Parallel()
	var l *sandboxtest.Fixture
	l = sandboxtest.New(t, core.Options{Fault: func(_ context.Context, point string) error {
		if point == "snapshot/ref:before" {
			l.Git("update-ref", "refs/agency/snapshots/"+l.Sandbox.ID+"/1", "HEAD")
		}
		return nil
	}})
	head := l.Git("rev-parse", "HEAD")
	if got, err := l.Sandbox.Snapshot(t.Context()); err == nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	if got := listSnapshots(l); got != "1 "+head {
		t.Errorf("%s", got)
	}
}

func TestFailedSnapshotLeavesNoRef(t *testing.T) {
	t.Parallel()
	var act func(point string) error
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, point string) error {
		if act == nil {
			return nil
		}
		return act(point)
	}})
	l.WriteFile("file", "1\n")
	stop := errors.New("stop")
	for _, at := range []string{"snapshot/capture:before", "snapshot/capture:after", "snapshot/ref:before", "snapshot/ref:after"} {
		met := false
		act = func(point string) error {
			if point != at {
				return nil
			}
			met = true
			return stop
		}
		if got, err := l.Sandbox.Snapshot(t.Context()); !met || got != "" || !errors.Is(err, stop) || listSnapshots(l) != "" {
			t.Errorf("%s: %q, %v: %q", at, got, err, listSnapshots(l))
		}
		if at == "snapshot/ref:after" {
			continue // no step follows that could be cancelled
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		act = func(point string) error {
			if point == at {
				cancel(stop)
			}
			return nil
		}
		if got, err := l.Sandbox.Snapshot(ctx); got != "" || !errors.Is(err, stop) || listSnapshots(l) != "" {
			t.Errorf("%s, cancelled: %q, %v: %q", at, got, err, listSnapshots(l))
		}
	}
	act = nil
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSnapshotOperationTimeout(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{Fault: func(ctx context.Context, point string) error {
		if point == "snapshot/capture:before" {
			<-ctx.Done()
		}
		return nil
	}}, "agency.operationTimeout", "50ms")
	if _, err := l.Sandbox.Snapshot(t.Context()); !fault.Is[*fault.OperationTimeoutError](err) {
		t.Errorf("%v", err)
	}
}

func TestSnapshotRefusesMissingMarkerAndInvalidMessage(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	marker := filepath.Join(l.Sandbox.WorkDir(), ".agency", "SANDBOX_MARKER")
	if err := os.Rename(marker, marker+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); !fault.Is[*fault.NotSandboxError](err) {
		t.Errorf("without its marker: %v", err)
	}
	if err := os.Rename(marker+".away", marker); err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"a\x00b", "\xff"} {
		if _, err := l.Sandbox.TakeSnapshot(t.Context(), snapshots.TakeRequest{Message: message}); !fault.Is[*fault.InvalidError](err) {
			t.Errorf("%q: %v", message, err)
		}
	}
	if listSnapshots(l) != "" {
		t.Error(listSnapshots(l))
	}
}

func TestConcurrentSnapshotsAreNumberedInOrder(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	const many = 6
	taken := make([]snapshots.Snapshot, many)
	var all sync.WaitGroup
	for i := range taken {
		all.Go(func() {
			l.WriteFile("file", strings.Repeat("x", i))
			var err error
			if taken[i], err = l.Sandbox.TakeSnapshot(t.Context(), snapshots.TakeRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	byNumber := map[int]string{}
	for _, s := range taken {
		if id, seen := byNumber[s.Number]; seen && id != s.ID {
			t.Errorf("two snapshots have the number %d", s.Number)
		}
		byNumber[s.Number] = s.ID
	}
	history := strings.Fields(l.Git("rev-list", "--first-parent", "--reverse", byNumber[len(byNumber)]))
	for n := 1; n <= len(byNumber); n++ {
		if n >= len(history) || history[n] != byNumber[n] {
			t.Fatalf("%v in %q", byNumber, history)
		}
	}
	if refs := strings.Split(listSnapshots(l), "\n"); len(refs) != len(byNumber) || !slices.IsSorted(refs) {
		t.Errorf("%q", refs)
	}
}

// Uploads and captures exclude each other: a snapshot holds all files of an upload or none.
func TestSnapshotHoldsUploadsAtomically(t *testing.T) {
	t.Parallel()
	var l *sandboxtest.Fixture
	l = sandboxtest.New(t, core.Options{Fault: func(ctx context.Context, point string) error {
		if point != "snapshot/capture:before" {
			return nil
		}
		if f, err := lock.AcquireDirExclusive(ctx, l.Sandbox.Repo.Store.PutLockDir(l.Sandbox.Repo.ID, l.Sandbox.ID), 0); !fault.Is[*fault.LockTimeoutError](err) {
			t.Errorf("uploads can continue during the capture: %v", errors.Join(err, f.Close()))
		}
		return nil
	}})
	batch := func(content string) (files []sandbox.File) {
		for i := range 200 {
			files = append(files, sandbox.File{Path: fmt.Sprintf("d%d/f%d", i%7, i), Content: []byte(content)})
		}
		return files
	}
	var putters sync.WaitGroup
	stop := make(chan bool)
	for _, content := range []string{"one", "two"} {
		putters.Go(func() {
			for {
				if err := l.Sandbox.UploadFiles(t.Context(), batch(content)); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 8 {
		commit, err := l.Sandbox.Snapshot(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		blobs := map[string]int{}
		for line := range strings.Lines(l.Git("ls-tree", "-r", commit)) {
			blobs[strings.Fields(line)[2]]++
		}
		if len(blobs) > 1 {
			t.Errorf("the snapshot mixes uploads: %v", blobs)
		}
	}
	close(stop)
	putters.Wait()
}

// An upload that hangs blocks snapshots of its sandbox. They fail after the lock timeout, so that the repository lock is
// not held forever.
func TestSnapshotTimesOutOnUploadLock(t *testing.T) {
	t.Parallel()
	soon := 2 * time.Second // not shorter: a child that another test forks holds our lock until its exec
	l := sandboxtest.New(t, core.Options{LockTimeout: &soon})
	dir := l.Sandbox.Repo.Store.PutLockDir(l.Sandbox.Repo.ID, l.Sandbox.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := lock.AcquireDirExclusive(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); !fault.Is[*fault.BusyError](err) {
		t.Error(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
}
