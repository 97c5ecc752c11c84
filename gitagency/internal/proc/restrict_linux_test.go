package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addFilter restricts a thread by a system call filter that allows everything. The status of a thread shows the number of its filters;
// the tests themselves may run under some.
func addFilter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: 1, Filter: &filter}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// filterLine returns the line of a thread's status with the number of its filters, if there are more of them than the first thread
// of the tests has.
func filterLine(t *testing.T, more int) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var filters int
	_, line, _ := strings.Cut(string(data), "\nSeccomp_filters:")
	if _, err := fmt.Sscan(line, &filters); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("Seccomp_filters:\t%d\n", filters+more)
}

func TestRestrictedProgramInheritsRestrictions(t *testing.T) {
	t.Parallel()
	status := Command{Argv: []string{"grep", "Seccomp_filters", "/proc/self/status"}}
	for name, c := range map[string]struct {
		restrict func() error
		want     string
	}{"not restricted": {nil, filterLine(t, 0)}, "restricted": {addFilter, filterLine(t, 1)}} {
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

// restrictedThreads lists the threads of this process that addFilter has restricted.
func restrictedThreads(t *testing.T) (threads []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	restricted := filterLine(t, 1)
	for _, thread := range all {
		if data, err := os.ReadFile(thread); err == nil && strings.Contains(string(data), restricted) {
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
