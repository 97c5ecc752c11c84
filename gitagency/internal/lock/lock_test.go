package lock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// testTimeout bounds every wait of a test; only a failing test reaches it.
const testTimeout = 2 * time.Minute

func TestLockExcludesGoroutines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var inside, entries atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				l, err := Acquire(t.Context(), Request{Dir: dir, Timeout: -1})
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				before := entries.Load()
				entries.Store(before + 1) // loses updates if two goroutines hold the lock
				inside.Add(-1)
				if err := errors.Join(l.LabelErr, l.Release()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := entries.Load(); n != 800 {
		t.Errorf("%d of 800 entries counted", n)
	}
}

// TestLockExcludesProcessesWhileHoldersAreKilled checks a journal that the holders write. A second flock would not prove
// exclusion: a killed process loses its descriptors one after the other, so the second lock outlives the first.
func TestLockExcludesProcessesWhileHoldersAreKilled(t *testing.T) {
	t.Parallel()
	testExclusion(t, filepath.Join(t.TempDir(), "agency"))
}

func testExclusion(t *testing.T, dir string) {
	t.Helper()
	const processes, kills = 16, 60
	work := t.TempDir()
	stop := filepath.Join(work, "stop")

	var mu sync.Mutex
	running := map[int]*os.Process{}
	killed := map[string]bool{}
	var wg sync.WaitGroup
	for slot := range processes {
		wg.Go(func() {
			// A killed worker is replaced, until one exits by itself.
			for life := 0; ; life++ {
				name := fmt.Sprintf("w%d.%d", slot, life)
				cmd := helperCommand(t, "contend", dir, work, name)
				mu.Lock()
				err := cmd.Start()
				if err == nil {
					running[cmd.Process.Pid] = cmd.Process
				}
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				err = cmd.Wait()
				mu.Lock()
				delete(running, cmd.Process.Pid)
				mu.Unlock()
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
					mu.Lock()
					killed[name] = true
					mu.Unlock()
					continue
				}
				if err != nil {
					t.Errorf("worker %s: %v", name, err)
				}
				return
			}
		})
	}

	deadline := time.Now().Add(testTimeout)
	for n := 0; n < kills; {
		if time.Now().After(deadline) {
			t.Errorf("only %d of %d kills", n, kills)
			break
		}
		h := holderOnDisk(dir)
		mu.Lock()
		victim := running[h.PID]
		delete(running, h.PID)
		mu.Unlock()
		if victim == nil {
			time.Sleep(50 * time.Microsecond) // the holder ended or has not written its label yet: retry
			continue
		}
		if victim.Kill() == nil {
			n++
		}
	}
	writeFile(t, stop, "")
	wg.Wait()

	// This process has not held the lock, and all processes that did have been waited for.
	if held, err := IsHeld(dir); held || err != nil {
		t.Errorf("after the last holder: Held = %v, %v", held, err)
	}
	l := acquire(t, dir)
	if left := namesIn(t, dir); left != "lock lock.flock" {
		t.Errorf("orphans after one more acquire: %s", left)
	}
	release(t, l)

	entered, left, last := 0, 0, -1
	var open []string // fields of the last "enter" without "exit"
	for _, line := range strings.Split(strings.TrimSpace(readFile(t, filepath.Join(work, "journal"))), "\n") {
		fields := strings.Fields(line) // enter|exit, worker, round[, counter written]
		switch fields[0] {
		case "enter":
			entered++
			if open != nil && !killed[open[1]] {
				t.Errorf("%q while %q held the lock", line, open)
			}
			open = fields
		case "exit":
			left++
			if open == nil || open[1] != fields[1] || open[2] != fields[2] {
				t.Errorf("%q, but the holder was %q", line, open)
			}
			open = nil
			counter, err := strconv.Atoi(fields[3])
			if err != nil || counter <= last {
				t.Errorf("lost update: %q after counter %d", line, last)
			}
			last = counter
		}
	}
	counter, err := strconv.Atoi(strings.TrimSpace(readFile(t, filepath.Join(work, "counter"))))
	if err != nil || counter < left || counter > entered {
		t.Errorf("counter is %d (%v) after %d entries, %d of them completed", counter, err, entered, left)
	}
	t.Logf("%d workers killed, %d entries, %d killed inside", len(killed), entered, entered-left)
	if len(killed) < kills/2 {
		t.Errorf("only %d workers were killed", len(killed))
	}
}

func TestZeroTimeoutFailsAndNamesHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	defer release(t, l)
	_, err := Acquire(t.Context(), Request{Dir: dir, Command: "second"})
	timeout := asTimeout(t, err)
	if timeout.Holder.PID != os.Getpid() || timeout.Holder.Command != "the test" {
		t.Errorf("holder is %+v", timeout.Holder)
	}
	for _, want := range []string{timeout.Path, fmt.Sprintf("is held by pid %d (the test, ", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
}

func TestTimeoutEndsWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	_, err := Acquire(t.Context(), Request{Dir: dir, Timeout: 50 * time.Millisecond})
	timeout := asTimeout(t, err)
	if timeout.Waited < 50*time.Millisecond || timeout.Holder.PID != os.Getpid() {
		t.Errorf("timeout is %+v", timeout)
	}
	if want := "; gave up after "; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not contain %q", err, want)
	}
	release(t, l)
	release(t, acquire(t, dir)) // the timed-out Acquire must not get the lock later
}

func TestOnSlowGetsHolderAfterOneSecond(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	start := time.Now()
	second, err := Acquire(t.Context(), Request{Dir: dir, Timeout: -1, OnSlow: func(h Holder) {
		if waited := time.Since(start); waited < time.Second {
			t.Errorf("OnSlow called after %s", waited)
		}
		if h.PID != os.Getpid() || h.Command != "the test" {
			t.Errorf("OnSlow called with %+v", h)
		}
		release(t, l) // without this call the wait would never end
	}})
	must(t, err)
	release(t, second)
}

func TestNegativeTimeoutWaitsUntilReleased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	second := startWaiting(t, t.Context(), dir)
	release(t, l)
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	release(t, got.lock)
}

func TestCancelledWaitReturnsCauseAndLeaksNoLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	cause := errors.New("the user pressed ^C")
	ctx, cancel := context.WithCancelCause(t.Context())
	second := startWaiting(t, ctx, dir)
	cancel(cause)
	if got := <-second; !errors.Is(got.err, cause) { // while l is still held
		t.Errorf("error is %v", got.err)
	}
	release(t, l)
	release(t, acquire(t, dir))
}

func TestCancelledContextChangesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "agency")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Acquire(ctx, Request{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory was made: %v", err)
	}
}

func TestPIDFileNeverBlocksAcquire(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, path string){
		"garbage":      func(t *testing.T, path string) { writeFile(t, path, "\x00not a pid") },
		"empty":        func(t *testing.T, path string) { writeFile(t, path, "") },
		"init":         func(t *testing.T, path string) { writeFile(t, path, "1\n") },
		"live foreign": func(t *testing.T, path string) { writeFile(t, path, fmt.Sprintln(os.Getppid())) },
		"own":          func(t *testing.T, path string) { writeFile(t, path, fmt.Sprintln(os.Getpid())) },
		"unreadable": func(t *testing.T, path string) {
			writeFile(t, path, "1\n")
			must(t, os.Chmod(path, 0))
		},
		"directory":     func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) },
		"fifo":          func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o644)) },
		"dangling link": func(t *testing.T, path string) { must(t, os.Symlink("nowhere", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, filepath.Join(dir, "lock"))
			l := acquire(t, dir)
			if got := readFile(t, filepath.Join(dir, "lock")); got != fmt.Sprintln(os.Getpid()) {
				t.Errorf("pid file says %q", got)
			}
			release(t, l)
			if left := namesIn(t, dir); left != "lock.flock" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

func TestLabelErrorDoesNotBlockAcquire(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "lock", "full"), 0o755))
	l, err := Acquire(t.Context(), Request{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if l.LabelErr == nil {
		t.Error("no LabelErr")
	}
	if held, err := IsHeld(dir); !held || err != nil {
		t.Errorf("Held = %v, %v", held, err)
	}
	release(t, l)
}

func TestAcquireRemovesOnlyOrphans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"lock.1234567", "lock.0", "lock.flock.new", "lock.replace", "lock.12a", "lock.", "lock-9", "other.77"} {
		writeFile(t, filepath.Join(dir, name), "")
	}
	must(t, os.Mkdir(filepath.Join(dir, "lock.42"), 0o755))
	release(t, acquire(t, dir))
	if left := namesIn(t, dir); left != "lock-9 lock. lock.12a lock.42 lock.flock other.77" {
		t.Errorf("left: %s", left)
	}
}

func TestReplacedLockFileStaysExclusive(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"file":      func(dir string) error { return os.Remove(filepath.Join(dir, "lock.flock")) },
		"directory": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := acquire(t, dir)
			waiter := startWaiting(t, t.Context(), dir) // on the file that is removed next
			must(t, remove(dir))
			second := acquire(t, dir) // on the new file
			var inside atomic.Bool
			inside.Store(true)
			release(t, first) // the waiter gets the lock of the removed file
			go func() {
				inside.Store(false)
				release(t, second)
			}()
			got := <-waiter
			if inside.Load() {
				t.Error("two holders at once")
			}
			must(t, got.err)
			path := filepath.Join(dir, "lock.flock")
			if current, err := isCurrent(got.lock.File(), path); !current || err != nil {
				t.Errorf("the waiter holds a file that is not %s any more (%v)", path, err)
			}
			release(t, got.lock)
		})
	}
}

func TestInheritedLockOutlivesKilledParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	parent := helperCommand(t, "parent", dir)
	parent.ExtraFiles = []*os.File{r} // the child runs until this pipe closes
	startUntilReady(t, parent)
	r.Close()
	must(t, parent.Process.Kill())
	parent.Wait() // a zombie would keep its pid

	if held, err := IsHeld(dir); !held || err != nil {
		t.Errorf("Held = %v, %v", held, err)
	}
	_, err = Acquire(t.Context(), Request{Dir: dir})
	timeout := asTimeout(t, err)
	host, err := os.Hostname()
	must(t, err)
	want := fmt.Sprintf(`^pid \d+ \(cat\), started by pid %d \(parent, \d+s, host %s\), which has died$`, parent.Process.Pid, regexp.QuoteMeta(host))
	if runtime.GOOS != "linux" { // nothing shows which process holds a lock
		want = fmt.Sprintf(`^an unknown process, after pid %d \(parent, \d+s, host %s\), which has died$`, parent.Process.Pid, regexp.QuoteMeta(host))
	}
	if got := timeout.Holder.String(); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("held by %q, want %q", got, want)
	}

	w.Close()
	release(t, acquire(t, dir)) // released by the end of the child
}

func TestReleaseLeavesLockToRunningChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{l.File()}
	stdin, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	release(t, l)
	_, err = Acquire(t.Context(), Request{Dir: dir})
	if timeout := asTimeout(t, err); timeout.Holder.Command != "the test" {
		t.Errorf("holder is %+v", timeout.Holder)
	}
	must(t, stdin.Close())
	must(t, child.Wait())
	release(t, acquire(t, dir))
}

func TestKilledHolderFreesLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := helperCommand(t, "hold", dir)
	startUntilReady(t, holder)
	waiter := startWaiting(t, t.Context(), dir)
	must(t, holder.Process.Kill())
	got := <-waiter
	holder.Wait()
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.lock.LabelErr != nil {
		t.Errorf("label: %v", got.lock.LabelErr)
	}
	release(t, got.lock)
}

func TestReleaseIsIdempotentAndNilSafe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	release(t, l)
	next := acquire(t, dir)
	release(t, l) // must not touch the label of the next holder
	if got := namesIn(t, dir); got != "lock lock.flock" {
		t.Errorf("files: %s", got)
	}
	release(t, next)
	var none *Lock
	release(t, none)
	if none.File() != nil {
		t.Error("a nil lock has a file")
	}
}

func TestIsHeldCreatesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if held, err := IsHeld(d); held || err != nil {
			t.Errorf("Held(%s) = %v, %v", d, held, err)
		}
	}
	if left := namesIn(t, dir); left != "" {
		t.Errorf("created: %s", left)
	}
	// Held by another process: a child forked by a parallel test would briefly keep a descriptor of this process open.
	holder := helperCommand(t, "hold", dir)
	startUntilReady(t, holder)
	if held, err := IsHeld(dir); !held || err != nil {
		t.Errorf("Held = %v, %v", held, err)
	}
	must(t, holder.Process.Kill())
	holder.Wait()
	if held, err := IsHeld(dir); held || err != nil {
		t.Errorf("Held = %v, %v", held, err)
	}
}

func TestModesFollowParentDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ parent, dir, file fs.FileMode }{
		{0o775 | fs.ModeSetgid, 0o775 | fs.ModeSetgid, 0o664},
		{0o755, 0o755, 0o644},
		{0o700, 0o700, 0o600},
		{0o777 | fs.ModeSticky, 0o777, 0o666},
	} {
		t.Run(c.parent.String(), func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			must(t, os.Chmod(parent, c.parent))
			dir := filepath.Join(parent, "agency")
			if out := acquireInProcess(t, dir, "umask"); out != "" {
				t.Fatal(out)
			}
			if got := modeOf(t, dir); got&^fs.ModeDir != c.dir {
				t.Errorf("directory has mode %s", got)
			}
			if got := modeOf(t, filepath.Join(dir, "lock.flock")); got != c.file {
				t.Errorf("file has mode %s", got)
			}
		})
	}
}

func TestModeOfExistingLockFileIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.flock")
	writeFile(t, path, "")
	must(t, os.Chmod(path, 0o600))
	release(t, acquire(t, dir))
	if got := modeOf(t, path); got != 0o600 {
		t.Errorf("mode is %s", got)
	}
}

func TestErrorNamesUnwritableDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	must(t, os.Chmod(filepath.Dir(parent), 0o755)) // the helper runs as uid 65534 when the tests run as root
	must(t, os.Chmod(parent, 0o555))
	for _, c := range []struct{ dir, names string }{
		{parent, filepath.Join(parent, "lock.flock")},
		{filepath.Join(parent, "agency"), filepath.Join(parent, "agency")},
	} {
		out := acquireInProcess(t, c.dir, "nobody")
		if !strings.HasPrefix(out, "acquire lock: ") || !strings.Contains(out, c.names+": permission denied") {
			t.Errorf("error is %q", out)
		}
	}
}

func TestWritableLockFileInUnwritableDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.flock")
	writeFile(t, path, "")
	must(t, os.Chmod(path, 0o666))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o755) // so that it can be cleaned up
	if out := acquireInProcess(t, dir, "nobody"); !strings.HasPrefix(out, "label: ") {
		t.Errorf("got %q", out)
	}
}

func TestOddLockFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, path string){
		"link":      func(t *testing.T, path string) { must(t, os.Symlink("target", path)) },
		"directory": func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) },
		"fifo":      func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "lock.flock")
			put(t, path)
			if _, err := Acquire(t.Context(), Request{Dir: dir, Timeout: -1}); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("error is %v", err)
			}
			if left := namesIn(t, dir); left != "lock.flock" {
				t.Errorf("files: %s", left)
			}
		})
	}
}

func TestDirectoryIsRequired(t *testing.T) {
	t.Parallel()
	if _, err := Acquire(t.Context(), Request{}); err == nil {
		t.Error("no error")
	}
}

func TestLockFileHoldsHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.flock")
	writeFile(t, path, strings.Repeat("left by a longer command ", 100))
	l := acquire(t, dir)
	defer release(t, l)
	text := readFile(t, path)
	var h Holder
	if err := json.Unmarshal([]byte(text), &h); err != nil || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("%v in %q", err, text)
	}
	if host, _ := os.Hostname(); h.PID != os.Getpid() || h.Command != "the test" || h.Host != host || h.Since.IsZero() {
		t.Errorf("holder is %+v", h)
	}
}

func TestUnreadableHolderIsUnknownProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	defer release(t, l)
	for _, text := range []string{"", "\n", "{\"pid\":", "null\n", strings.Repeat("x", 1<<20)} {
		writeFile(t, filepath.Join(dir, "lock.flock"), text)
		_, err := Acquire(t.Context(), Request{Dir: dir})
		timeout := asTimeout(t, err)
		timeout.Holder.found = nil // as for a process of another user
		if timeout.Holder.String() != "an unknown process" {
			t.Errorf("held by %q", timeout.Holder)
		}
	}
}

func TestHolderString(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must(t, err)
	ended := helperCommand(t, "nothing")
	must(t, ended.Run())
	dead, alive := ended.Process.Pid, os.Getpid()
	ago := time.Now().Add(-12 * time.Second)
	busy := regexp.MustCompile(`\b1[2-9]s\b`) // tolerates delays of the machine
	for _, c := range []struct {
		holder Holder
		want   string
	}{
		{Holder{}, "an unknown process"},
		{Holder{PID: -1, Command: "x"}, "an unknown process"},
		{Holder{PID: alive}, fmt.Sprintf("pid %d", alive)},
		{Holder{PID: alive, Command: "git agency start wt", Host: host, Since: ago}, fmt.Sprintf("pid %d (git agency start wt, 12s, host %s)", alive, host)},
		{Holder{PID: dead, Command: "git agency start wt", Host: host, Since: ago}, fmt.Sprintf("an unknown process, after pid %d (git agency start wt, 12s, host %s), which has died", dead, host)},
		{Holder{PID: dead, Host: host, found: []process{{pid: 4711, command: "sleep 9"}}}, "pid 4711 (sleep 9)"},
		{Holder{PID: dead, Host: host, Offset: 5, found: []process{{4710, "sleep 9", 0}, {4711, "git reset", 5}}}, fmt.Sprintf("pid 4711 (git reset), started by pid %d (host %s), which has died", dead, host)},
		{Holder{PID: alive, Host: host, Offset: 5, found: []process{{4711, "", 5}}}, fmt.Sprintf("pid 4711, started by pid %d (host %s)", alive, host)},
		{Holder{PID: alive, Host: host, Offset: 5, found: []process{{4711, "git reset", 5}, {alive, "x", 5}}}, fmt.Sprintf("pid %d (host %s)", alive, host)},
		{Holder{found: []process{{pid: 4711, command: "a\x1b[2Jb"}}}, "pid 4711 (a?[2Jb)"},
		{Holder{PID: dead, Host: "elsewhere." + host}, fmt.Sprintf("pid %d (host elsewhere.%s)", dead, host)},
		{Holder{PID: alive, Since: time.Now().Add(time.Hour)}, fmt.Sprintf("pid %d (0s)", alive)},
		{Holder{PID: alive, Command: "a\x1b[2Jb\nc"}, fmt.Sprintf("pid %d (a?[2Jb?c)", alive)},
	} {
		if got := busy.ReplaceAllString(c.holder.String(), "12s"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// acquireResult holds the results of Acquire.
type acquireResult struct {
	lock *Lock
	err  error
}

// startWaiting starts an Acquire of a held lock and returns when it waits.
func startWaiting(t *testing.T, ctx context.Context, dir string) <-chan acquireResult {
	t.Helper()
	queued := make(chan struct{})
	done := make(chan acquireResult, 1)
	go func() {
		l, err := Acquire(ctx, Request{
			Dir: dir, Command: "waiter", Timeout: -1,
			OnSlow: func(Holder) { close(queued) }, slowAfter: time.Nanosecond, // a second call would panic
		})
		done <- acquireResult{l, err}
	}()
	select {
	case <-queued:
	case got := <-done:
		t.Fatalf("did not wait: %+v", got)
	}
	return done
}

// acquire waits for the lock instead of trying once: a child forked by a parallel test has a copy of every descriptor
// until its exec, and a cancelled Acquire may get the lock for a moment.
func acquire(t *testing.T, dir string) *Lock {
	t.Helper()
	l, err := Acquire(t.Context(), Request{Dir: dir, Command: "the test", Timeout: testTimeout})
	if err != nil {
		t.Fatal(err)
	}
	if l.LabelErr != nil {
		t.Errorf("label: %v", l.LabelErr)
	}
	return l
}

func release(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func asTimeout(t *testing.T, err error) *TimeoutError {
	t.Helper()
	timeout, ok := errors.AsType[*TimeoutError](err)
	if !ok {
		t.Fatalf("error is %v, not a timeout", err)
	}
	return timeout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func holderOnDisk(dir string) Holder {
	f, err := os.Open(filepath.Join(dir, "lock.flock"))
	if err != nil {
		return Holder{}
	}
	defer f.Close()
	return readHolder(f)
}

// systemRoles are roles of helper processes that need system calls of one system.
var systemRoles = map[string]func(words []string) error{}

// helperEnv makes the test binary run as a helper process; its arguments are the role and the role's arguments.
const helperEnv = "LOCK_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := runHelper(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func helperCommand(t *testing.T, role string, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{role}, words...)...)
	cmd.Env = append(os.Environ(), helperEnv+"=1", "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// startUntilReady starts a helper and returns when it holds the lock.
func startUntilReady(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	_, err = cmd.StdinPipe() // stays open: the helper exits at the end of its input
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("helper wrote %q (%v)", line, err)
	}
}

// acquireInProcess acquires and releases the lock of dir in another process and returns its error text.
func acquireInProcess(t *testing.T, dir, as string) string {
	t.Helper()
	out, err := helperCommand(t, "try", dir, as).Output()
	must(t, err)
	return string(out)
}

func runHelper(role string, words []string) error {
	switch role {
	case "nothing":
		return nil
	case "hold and end":
		l, err := Acquire(context.Background(), Request{Dir: words[0], Command: role})
		return errors.Join(err, l.Release())
	case "try":
		return tryAcquire(words[0], words[1])
	case "hold", "parent":
		return holdLock(role, words[0])
	case "contend":
		return contend(words[0], words[1], words[2])
	}
	if role, is := systemRoles[role]; is {
		return role(words)
	}
	return fmt.Errorf("no such role: %s", role)
}

func tryAcquire(dir, as string) error {
	switch as {
	case "umask":
		syscall.Umask(0o077)
	case "nobody":
		if os.Getuid() == 0 { // root may write everywhere
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
	}
	l, err := Acquire(context.Background(), Request{Dir: dir})
	if err != nil {
		fmt.Print(err)
		return nil
	}
	if l.LabelErr != nil {
		fmt.Print("label: ", l.LabelErr)
	}
	return l.Release()
}

func holdLock(role, dir string) error {
	l, err := Acquire(context.Background(), Request{Dir: dir, Command: role, Timeout: -1})
	if err != nil {
		return err
	}
	if role == "parent" {
		child := exec.Command("cat")
		child.Stdin = os.NewFile(3, "pipe")
		child.ExtraFiles = []*os.File{l.File()}
		if err := child.Start(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, l.Release())
}

// contend acquires the lock in a loop until the file stop exists, and writes every acquisition and release to the journal.
func contend(dir, work, name string) error {
	journal, err := os.OpenFile(filepath.Join(work, "journal"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	counter, err := os.OpenFile(filepath.Join(work, "counter"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		if _, err := os.Stat(filepath.Join(work, "stop")); err == nil {
			return nil
		}
		l, err := Acquire(context.Background(), Request{Dir: dir, Command: name, Timeout: -1})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(journal, "enter %s %d\n", name, round); err != nil {
			return err
		}
		n, err := increment(counter)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(journal, "exit %s %d %d\n", name, round, n); err != nil {
			return err
		}
		if err := errors.Join(l.LabelErr, l.Release()); err != nil {
			return err
		}
	}
}

// increment adds one to the counter after a pause, so that two holders would lose an update. The number has a fixed width
// and is written by one call, so a kill cannot leave part of it.
func increment(counter *os.File) (int, error) {
	text := make([]byte, 10)
	n := 0
	if _, err := counter.ReadAt(text, 0); err == nil {
		if n, err = strconv.Atoi(string(text)); err != nil {
			return 0, err
		}
	} else if !errors.Is(err, io.EOF) {
		return 0, err
	}
	time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
	n++
	_, err := counter.WriteAt(fmt.Appendf(nil, "%010d", n), 0)
	return n, err
}
