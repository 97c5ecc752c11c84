package gitagency_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

func TestExecLimitsOnlyTightenSandboxLimits(t *testing.T) {
	t.Parallel()
	p := newAdoptedRepo(t)
	inv, err := p.repo.Start(t.Context(), gitagency.StartRequest{
		Worktree: "mine", Limits: gitagency.Limits{FileSize: 1 << 20, Nice: 2, Timeout: time.Hour},
	})
	must(t, err)
	if want := (gitagency.Limits{FileSize: 1 << 20, Nice: 2, Timeout: time.Hour}); inv.Limits != want {
		t.Errorf("recorded %+v", inv.Limits)
	}
	s, err := p.repo.Sandbox(inv.ID)
	must(t, err)
	res, err := s.Exec(t.Context(), gitagency.ExecOptions{Argv: []string{"sh", "-c", "nice; ulimit -f"}, Limits: gitagency.Limits{Nice: 3}})
	if want := fmt.Sprintf("%d\n2048\n", max(3, inheritedNice(t))); err != nil || res.Stdout != want || len(res.Limits) != 3 {
		t.Errorf("got %+v, %v; want the output %q", res, err, want)
	}
	for _, l := range res.Limits {
		if want := map[gitagency.LimitKind]int64{
			gitagency.FileSizeLimit: 1 << 20, gitagency.NiceLimit: 3, gitagency.TimeoutLimit: int64(gitagency.DefaultOperationTimeout),
		}[l.Limit]; l.Value != want || l.Detail != "" {
			t.Errorf("got %+v", l)
		}
	}
	for name, opts := range map[string]gitagency.ExecOptions{
		"larger files": {Limits: gitagency.Limits{FileSize: 2 << 20}},
		"more time":    {Timeout: 2 * time.Hour},
		"no timeout":   {Timeout: -1},
		"negative":     {Limits: gitagency.Limits{Processes: -1}},
	} {
		opts.Argv = []string{"true"}
		var invalid *gitagency.InvalidError
		if _, err := s.Exec(t.Context(), opts); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// inheritedNice is the nice value of the test process. A limit makes a command nicer than that, never less nice.
func inheritedNice(t *testing.T) int {
	t.Helper()
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	must(t, err)
	return 20 - priority // the system call returns 20 minus the nice value
}

// Memory can be limited only where cgroups are delegated to the user, which most servers do not do.
func TestUnenforceableLimitIsRefusedOrReported(t *testing.T) {
	t.Parallel()
	p := newAdoptedRepo(t)
	limits := gitagency.Limits{Memory: 1 << 30}
	_, err := p.repo.Start(t.Context(), gitagency.StartRequest{Worktree: "mine", Limits: limits})
	if err == nil {
		t.Skip("skipped: this machine can limit memory")
	}
	if !gitagency.IsReason(err, reason.Limit) || !strings.Contains(err.Error(), "memory 1GiB cannot be enforced") {
		t.Fatalf("got %v", err)
	}
	if all, err := p.repo.Invocations(t.Context(), gitagency.ListRequest{All: true}); err != nil || len(all) > 0 {
		t.Errorf("the refused start made %+v, %v", all, err)
	}
	limits.BestEffort = true
	_, err = p.repo.Start(t.Context(), gitagency.StartRequest{Worktree: "mine", Limits: limits})
	if err != nil || len(p.warnings) != 1 || !strings.Contains(p.warnings[0], "memory 1GiB cannot be enforced on this machine") {
		t.Errorf("warnings %q, %v", p.warnings, err)
	}
	s := p.startSandbox(t)
	_, err = s.Exec(t.Context(), gitagency.ExecOptions{Argv: []string{"touch", "ran"}, Limits: gitagency.Limits{Memory: 1 << 30}})
	var setup *gitagency.SetupError
	if !errors.As(err, &setup) || !gitagency.IsReason(err, reason.Limit) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.WorkDir() + "/ran"); err == nil {
		t.Error("the command ran without its limit")
	}
}
