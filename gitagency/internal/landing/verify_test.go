package landing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

func TestFailedVerifyLeavesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	fail := ""
	l := sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == fail {
			return boom
		}
		return nil
	}})
	before := sandboxtest.DescribeState(l)
	for _, at := range []string{
		"verify/objects:before", "verify/objects:after", "verify/record-dir:after", "verify/checkout:after",
		"verify/sync:after", "verify/record:before", "verify/run:before", "verify/run:after",
	} {
		fail = at
		if _, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, Verify: "true"}); !errors.Is(err, boom) {
			t.Errorf("%s: got %v", at, err)
		}
		if after := sandboxtest.DescribeState(l); after != before {
			t.Errorf("%s: state before\n%s\nand after\n%s", at, before, after)
		}
	}
	fail = ""
	if landed, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, Verify: "true"}); err != nil || !landed.Verified {
		t.Errorf("got %+v, %v", landed, err)
	}
}

// onWrite is an io.Writer that calls a function with the text of each write.
type onWrite func(text string)

func (f onWrite) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

func TestCancelledVerifyRemovesItsSandbox(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	before := sandboxtest.DescribeState(l)
	off := errors.New("called off")
	ctx, cancel := context.WithCancelCause(t.Context())
	// Files, a directory that its owner cannot read, commits and a snapshot of the verify sandbox go with it. The
	// directory is made after the snapshot: a snapshot refuses what it cannot read instead of leaving it out.
	const line = `echo x >untracked; git commit -q --allow-empty -m x; echo ready
while ! test -e snapshotted; do sleep 0.01; done; mkdir -m 0 shut; echo shut; exec sleep 1000`
	taken := false
	_, err := Land(ctx, l.Repo, Request{ID: l.Sandbox.ID, Verify: line, Output: onWrite(func(string) {
		if taken {
			cancel(off)
			return
		}
		taken = true
		all, err := l.Repo.Invocations(core.ListRequest{})
		if err != nil {
			t.Error(err)
		}
		for _, i := range all {
			if i.Name != "verify "+l.Sandbox.ID {
				continue
			}
			if _, err := sandbox.Of(l.Repo, i.ID).Snapshot(t.Context()); err != nil {
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
	if !errors.Is(err, off) || fault.Is[*VerifyError](err) {
		t.Errorf("got %v", err)
	}
	if after := sandboxtest.DescribeState(l); after != before {
		t.Errorf("state before\n%s\nand after\n%s", before, after)
	}
}

func TestRepeatedVerifyWaitsForOtherLanding(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	wt, err := l.Repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	another, err := lock.AcquireDirExclusive(t.Context(), l.Repo.Store.WorktreeDir(l.Repo.ID, wt.ID), 0)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	waited := false
	l.Repo.Opts.Warn = func(message string) {
		if said = append(said, message); strings.HasPrefix(message, "waiting for another landing") {
			waited = true
			time.AfterFunc(10*time.Millisecond, func() { _ = another.Close() })
		}
	}
	line := `test -e moved || { cd ` + wt.TreePath + ` && echo >moved && git add moved && git commit -qm moved; }`
	landed, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, Verify: line})
	if err != nil || !landed.Verified || !waited {
		t.Errorf("got %+v, %v, warnings %q", landed, err, said)
	}
}
