package proc

import (
	"bytes"
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

// eachWay runs a test in every containment there is here.
func eachWay(t *testing.T, test func(t *testing.T, way Containment)) {
	for _, way := range containments() {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			test(t, way)
		})
	}
}

// task is a shell script to be run in a directory of its own.
func task(t *testing.T, way Containment, script string, args ...string) Task {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return Task{
		Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Label: "test", Grace: time.Minute, within: []Containment{way},
	}
}

func TestATaskHasItsOwnStreamsAndItsExitCode(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		var stdout, stderr bytes.Buffer
		k := task(t, way, "cat; echo err >&2; pwd; echo $AGENCY; exit 7")
		k.Stdin, k.Stdout, k.Stderr, k.Env = strings.NewReader("in\n"), &stdout, &stderr, append(k.Env, "AGENCY=yes")
		ending, err := k.Run(t.Context())
		if err != nil || ending != (Ending{Exit: 7, Contained: way}) {
			t.Errorf("got %+v, %v", ending, err)
		}
		if stdout.String() != "in\n"+k.Dir.Name()+"\nyes\n" || stderr.String() != "err\n" {
			t.Errorf("got %q and %q", &stdout, &stderr)
		}
	})
}

// alive is a pipe of which everything a task starts holds an end, unless it closes it: reading ends when
// nobody does any more.
func alive(t *testing.T, k *Task) (wait func()) {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	k.Stdout = write
	t.Cleanup(func() { _ = read.Close() })
	return func() {
		t.Helper()
		must(t, write.Close())
		must(t, read.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, read); err != nil {
			t.Errorf("something is left: %v", err)
		}
	}
}

const daemons = `
setsid sleep 1000 &
(setsid sh -c 'trap "" TERM HUP; sleep 1000; sleep 1000' &) &
sleep 1000 &
`

func TestNothingOutlivesATaskThatEnds(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := task(t, way, daemons+`(setsid sh -c 'trap "" TERM; : >"$1"; sleep 1000' sh "$1" &) & : <"$1"; exit 3`, ready)
		k.Grace = 50 * time.Millisecond
		gone := alive(t, &k)
		ending, err := k.Run(t.Context())
		if err != nil || ending.Exit != 3 || ending.Leftovers < 3 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

func TestNothingOutlivesATaskThatIsCancelled(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := task(t, way, daemons+`trap "" TERM; : >"$1"; while :; do sleep 1000; done`, ready)
		k.Grace = 50 * time.Millisecond
		gone := alive(t, &k)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			f, err := os.Open(ready) // waits for the script
			if err == nil {
				_ = f.Close()
			}
			cancel(cause)
		}()
		ending, err := k.Run(ctx)
		if !errors.Is(err, cause) || ending.Signal != syscall.SIGKILL || ending.Exit != 137 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}
