package term

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// startTestPager starts a pager that writes to a file, and returns the path of that file.
func startTestPager(ctx context.Context, t *testing.T, command string, env ...string) (*Pager, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	p, err := StartPager(ctx, PagerRequest{Command: command, Env: append(env, "PATH="+os.Getenv("PATH")), Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return p, out.Name()
}

func TestPagerRunsAsShellCommandLine(t *testing.T) {
	t.Parallel()
	p, out := startTestPager(t.Context(), t, `sed "s/^/> /" | sed 's/$/ </'; exit 3`)
	if _, err := p.Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("the exit status of the pager must be ignored: %v", err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "> one <\n> two <\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPagerReadsAllInput(t *testing.T) {
	t.Parallel()
	p, out := startTestPager(t.Context(), t, "cat")
	text := strings.Repeat("more than a pipe holds\n", 10_000)
	if _, err := p.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != text {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestPagerGetsGitsDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{nil, "FRX -c\n"},
		{[]string{"LESS=S"}, "S -c\n"},
		{[]string{"LESS=", "LV=x"}, " x\n"},
	} {
		p, out := startTestPager(t.Context(), t, `echo "$LESS $LV"`, tt.env...)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != tt.want {
			t.Errorf("with %q: got %q, %v", tt.env, got, err)
		}
	}
}

func TestPagerMissing(t *testing.T) {
	t.Parallel()
	var missing *PagerMissingError
	for _, command := range []string{"no-such-pager-anywhere", ""} {
		if _, err := StartPager(t.Context(), PagerRequest{Command: command}); !errors.As(err, &missing) {
			t.Errorf("%q: got %v", command, err)
		}
	}
	p, _ := startTestPager(t.Context(), t, "no-such-pager-anywhere -R")
	if err := p.Close(); !errors.As(err, &missing) || !strings.Contains(err.Error(), "no-such-pager-anywhere -R") {
		t.Errorf("with a flag: got %v", err)
	}
}

func TestPagerLeftEarly(t *testing.T) {
	t.Parallel()
	p, _ := startTestPager(t.Context(), t, "true")
	var err error
	for err == nil {
		_, err = p.Write([]byte(strings.Repeat("x", 1<<16)))
	}
	if !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
}

// A pager that reads nothing until it is told to through a FIFO blocks a Write of more than a pipe holds.
func TestPagerCloseInputUnblocksWrite(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := startTestPager(t.Context(), t, "read x <'"+fifo+"'; cat >/dev/null; exit 5")
	failed := make(chan error)
	go func() {
		_, err := p.Write([]byte(strings.Repeat("x", 1<<22)))
		failed <- err
	}()
	if err := p.closeInput(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
}

func TestPagerIsWaitedForAfterCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p, out := startTestPager(ctx, t, "cat; echo left")
	if _, err := p.Write([]byte("shown\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	var err error
	for err == nil {
		_, err = p.Write([]byte(strings.Repeat("x", 1<<10) + "\n"))
	}
	if !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); !errors.Is(err, ErrPagerQuit) {
		t.Errorf("got %v", err)
	}
	got, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(got), "shown\n") || !strings.HasSuffix(string(got), "left\n") {
		t.Errorf("got %.40q, %v", got, err)
	}
}

// Only a pager in our process group may read the keyboard, and gets Ctrl-C and Ctrl-Z together with us.
func TestPagerSharesProcessGroup(t *testing.T) {
	t.Parallel()
	p, out := startTestPager(t.Context(), t, `ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat`)
	if err := p.Close(); err != nil {
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
