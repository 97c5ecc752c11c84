package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// startTestPager starts a shell script as a pager and returns the file its output goes to.
func startTestPager(t *testing.T, script string) (*Pager, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	f, err := StartPager(Command{Argv: []string{"sh", "-c", script}}, out, out)
	if err != nil {
		t.Fatal(err)
	}
	return f, out.Name()
}

func TestPagerReadsAllInput(t *testing.T) {
	t.Parallel()
	f, out := startTestPager(t, "cat; exit 3")
	text := strings.Repeat("more than a pipe holds\n", 10_000)
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.CloseInput(), f.CloseInput()); err != nil {
		t.Error(err)
	}
	if code, err := f.Wait(); err != nil || code != 3 {
		t.Errorf("got %d, %v", code, err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != text {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestPagerExitBreaksPipe(t *testing.T) {
	t.Parallel()
	f, _ := startTestPager(t, "exit 0")
	var err error
	for err == nil {
		_, err = f.Write([]byte(strings.Repeat("x", 1<<16)))
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
	if code, err := f.Wait(); err != nil || code != 0 {
		t.Errorf("got %d, %v", code, err)
	}
}

// TestPagerCloseInputUnblocksWrite uses a program that reads its input only after it was told to through a FIFO.
func TestPagerCloseInputUnblocksWrite(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, _ := startTestPager(t, "read x <'"+fifo+"'; cat >/dev/null; exit 5")
	failed := make(chan error)
	go func() { // more than the pipe's buffer
		_, err := f.Write([]byte(strings.Repeat("x", 1<<22)))
		failed <- err
	}()
	if err := f.CloseInput(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if code, err := f.Wait(); err != nil || code != 5 {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestPagerSharesProcessGroup(t *testing.T) {
	t.Parallel()
	f, out := startTestPager(t, `ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat`)
	if err := f.CloseInput(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(syscall.Getpgrp()); strings.TrimSpace(string(got)) != want {
		t.Errorf("the pager is in process group %q, the test in %s", got, want)
	}
}

func TestStartPagerMissingProgram(t *testing.T) {
	t.Parallel()
	var never *NotStartedError
	if _, err := StartPager(Command{Argv: []string{"no-such-program-anywhere"}}, nil, nil); !errors.As(err, &never) {
		t.Errorf("got %v", err)
	}
	if _, err := StartPager(Command{}, nil, nil); !errors.As(err, &never) {
		t.Errorf("got %v", err)
	}
}
