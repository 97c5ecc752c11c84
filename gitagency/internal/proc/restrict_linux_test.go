package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func noNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

func TestRestrictedProgramInheritsRestrictions(t *testing.T) {
	t.Parallel()
	status := Command{Argv: []string{"grep", "NoNewPrivs", "/proc/self/status"}}
	for name, c := range map[string]struct {
		restrict func() error
		want     string
	}{"not restricted": {nil, "NoNewPrivs:\t0\n"}, "restricted": {noNewPrivileges, "NoNewPrivs:\t1\n"}} {
		run := status
		run.Restrict = c.restrict
		if res, err := Run(t.Context(), run); err != nil || string(res.Stdout) != c.want {
			t.Errorf("%s: %q %v", name, res.Stdout, err)
		}
		talk, err := StartCoprocess(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := talk.Stdout.ReadString('\n')
		if _, err := talk.Close(); err != nil || line != c.want {
			t.Errorf("%s, coprocess: %q %v", name, line, err)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); len(restrictedThreads(t)) > 0; time.Sleep(time.Millisecond) { // they are about to end
		if time.Now().After(deadline) {
			t.Fatalf("still there: %q", restrictedThreads(t))
		}
	}
}

// restrictedThreads lists the threads of this process that noNewPrivileges has restricted.
func restrictedThreads(t *testing.T) (threads []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, thread := range all {
		if data, err := os.ReadFile(thread); err == nil && strings.Contains(string(data), "NoNewPrivs:\t1\n") {
			threads = append(threads, thread)
		}
	}
	return threads
}

func TestProgramThatCannotBeRestrictedIsNotStarted(t *testing.T) {
	t.Parallel()
	dir, want := t.TempDir(), errors.New("cannot restrict")
	_, err := Run(t.Context(), Command{Argv: []string{"touch", "file"}, Dir: dir, Restrict: func() error { return want }})
	if !errors.Is(err, want) || !errors.As(err, new(*NotStartedError)) {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "file")); err == nil {
		t.Error("it was started")
	}
}

func TestDiscardedThreadIsNeverTheMainThread(t *testing.T) {
	t.Parallel()
	for range 200 {
		if err := onDiscardedThread(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("the main thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
