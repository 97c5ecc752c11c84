package proc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
)

func TestRunCapturesOutputAndExitCode(t *testing.T) {
	t.Parallel()
	res, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "cat; echo err >&2; exit 7"}, Stdin: strings.NewReader("in")})
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Stdout) != "in" || string(res.Stderr) != "err\n" || res.ExitCode != 7 {
		t.Errorf("got %q %q %d", res.Stdout, res.Stderr, res.ExitCode)
	}
}

func TestRunReportsDeathBySignalAs128PlusN(t *testing.T) {
	t.Parallel()
	res, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "kill -KILL $$"}})
	if err != nil || res.ExitCode != 137 {
		t.Errorf("got %d, %v", res.ExitCode, err)
	}
}

func TestRunMissingProgram(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), Command{Argv: []string{"no-such-program-anywhere"}}); err == nil {
		t.Error("no error")
	}
}

// TestRunKillsProcessGroupAfterFailure runs a leader that exits at once and leaves a child in its process group: Run
// must not return before the child is gone.
func TestRunKillsProcessGroupAfterFailure(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	script := `sh -c 'trap "" TERM; echo $$ > "$0.tmp"; mv "$0.tmp" "$0"; sleep 60' "$1" >/dev/null 2>&1 &
while ! test -e "$1"; do :; done; exit 3`
	res, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", script, "sh", pidFile}})
	if err != nil || res.ExitCode != 3 {
		t.Fatalf("got %d, %v", res.ExitCode, err)
	}
	requireProcessGone(t, pidFile)
}

func TestRunCancelKillsGroupAndReturnsCause(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	cause := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for {
			if _, err := os.Stat(pidFile); err == nil {
				cancel(cause)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	script := `trap "" TERM; sh -c 'trap "" TERM; echo $$ > "$0.tmp"; mv "$0.tmp" "$0"; sleep 60' "$1" & wait; sleep 60`
	_, err := Run(ctx, Command{Argv: []string{"sh", "-c", script, "sh", pidFile}, Grace: time.Millisecond})
	if !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	requireProcessGone(t, pidFile)
}

func TestCoprocessCancelReturnsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	talk, err := StartCoprocess(ctx, Command{Argv: []string{"sh", "-c", "echo begun; cat"}})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := talk.Stdout.ReadString('\n'); line != "begun\n" || err != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	cancel(cause)
	if line, err := talk.Stdout.ReadString('\n'); err == nil {
		t.Fatalf("got %q", line)
	}
	if res, err := talk.Close(); !errors.Is(err, cause) {
		t.Fatalf("got %d, %v", res.ExitCode, err)
	}
}

func TestRunPassesInheritedDescriptors(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "echo there >&3"}, Inherit: []*os.File{f}}); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(f.Name())
	if string(got) != "there\n" {
		t.Errorf("got %q", got)
	}
}

func requireProcessGone(t *testing.T, pidFile string) {
	t.Helper()
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return
	}
	if stat, there := procfs.ReadStat(pid); there && !stat.IsDead() {
		t.Errorf("process %d is still there", pid)
	}
}

// A program that writes more than the limit of its buffer is ended, whichever way os/exec copies its output.
func TestLimitedBufferEndsProgram(t *testing.T) {
	t.Parallel()
	out := LimitedBuffer{Limit: 100}
	res, err := Run(t.Context(), Command{Argv: []string{"head", "-c", "1000000", "/dev/zero"}, Stdout: &out})
	if err == nil && res.ExitCode == 0 || !out.Exceeded || len(out.Bytes()) > 100 {
		t.Errorf("got %d, %v, exceeded %t, %d bytes", res.ExitCode, err, out.Exceeded, len(out.Bytes()))
	}
	out = LimitedBuffer{Limit: 100}
	if _, err := Run(t.Context(), Command{Argv: []string{"head", "-c", "100", "/dev/zero"}, Stdout: &out}); err != nil || len(out.Bytes()) != 100 {
		t.Errorf("got %v, %d bytes", err, len(out.Bytes()))
	}
}
