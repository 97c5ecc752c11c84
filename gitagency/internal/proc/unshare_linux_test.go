package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runUnshared runs a program in its own namespaces, or skips the test where the kernel allows none.
func runUnshared(t *testing.T, c Command) Result {
	t.Helper()
	res, err := Run(t.Context(), c)
	var never *NotStartedError
	if errors.As(err, &never) {
		t.Skipf("skipped: no namespaces here: %v", err)
	}
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("ended with %d, %v: %s", res.ExitCode, err, res.Stderr)
	}
	return res
}

func TestUnshareMapsCallerToRoot(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	res := runUnshared(t, Command{
		Argv:    []string{"sh", "-c", `id -u; id -g; echo >"$1"`, "sh", file},
		Unshare: &Unshare{},
	})
	if string(res.Stdout) != "0\n0\n" {
		t.Errorf("uid and gid inside: %q", res.Stdout)
	}
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if owner := int(fi.Sys().(*syscall.Stat_t).Uid); owner != os.Geteuid() {
		t.Errorf("its file belongs to uid %d", owner)
	}
}

func TestUnshareMountIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	res := runUnshared(t, Command{
		Argv:    []string{"sh", "-c", `mount -t tmpfs none "$1" && echo >"$1/file" && ls "$1"`, "sh", dir},
		Unshare: &Unshare{Mount: true},
	})
	if string(res.Stdout) != "file\n" {
		t.Errorf("the program saw %q", res.Stdout)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the mount is visible outside: %v, %v", left, err)
	}
}

// TestUnsharePIDKillsDaemons uses a daemon, which leaves its process group but not its pid namespace.
func TestUnsharePIDKillsDaemons(t *testing.T) {
	t.Parallel()
	alive, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	res := runUnshared(t, Command{
		Argv:    []string{"sh", "-c", `setsid sleep 600 >/dev/null 2>&1 & echo $$`},
		Inherit: []*os.File{held},
		Unshare: &Unshare{PID: true},
	})
	if strings.TrimSpace(string(res.Stdout)) != "1" {
		t.Errorf("pid inside: %q", res.Stdout)
	}
	// The daemon inherited the write end of the pipe; reading ends when no process holds it.
	must(t, held.Close())
	must(t, alive.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the daemon is still running: %d, %v", n, err)
	}
}

func TestRunCancelKillsProcessOneIgnoringSIGTERM(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(ready); err == nil {
				cancel(cause)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := Run(ctx, Command{
		Argv:    []string{"sh", "-c", `echo >"$1"; sleep 600`, "sh", ready},
		Unshare: &Unshare{PID: true},
		Grace:   50 * time.Millisecond,
	})
	var never *NotStartedError
	if errors.As(err, &never) {
		t.Skipf("skipped: no namespaces here: %v", err)
	}
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
