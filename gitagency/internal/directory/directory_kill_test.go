package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// onboardSteps are the steps of an onboarding; each has a fault point before and after it.
var onboardSteps = []string{"onboard/repository", "onboard/capture", "onboard/ref", "onboard/record"}

// Environment variables that tell TestDirectoryVictim its operation, the fault point to die at, and the home directory.
const (
	victimVerb  = "DIRECTORY_VICTIM_VERB"
	victimPoint = "DIRECTORY_VICTIM_POINT"
	victimHome  = "DIRECTORY_VICTIM_HOME"
)

// TestDirectoryVictim is not a test: runKilled starts it as the process that is killed.
func TestDirectoryVictim(t *testing.T) {
	verb, home := os.Getenv(victimVerb), os.Getenv(victimHome)
	if verb == "" {
		return
	}
	opts := victimOptions(home)
	opts.Fault = func(_ context.Context, point string) error {
		if point == os.Getenv(victimPoint) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	dir := filepath.Join(home, "notes")
	if verb == "onboard" {
		_, err := Onboard(t.Context(), OnboardRequest{Dir: dir}, opts)
		t.Fatalf("the fault point was not reached: %v", err)
	}
	d, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if verb == "snapshot" {
		_, err = d.Snapshot(t.Context(), snapshots.TakeRequest{})
	} else {
		err = d.Forget(t.Context())
	}
	t.Fatalf("the fault point was not reached: %v", err)
}

func victimOptions(home string) core.Options {
	return core.Options{Dir: home, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENCY_DATA_DIR=" + filepath.Join(home, "data"), "GIT_CONFIG_NOSYSTEM=1"}}
}

// runKilled runs an operation in another process, which kills itself with SIGKILL at the fault point.
func (l *testDirectory) runKilled(verb, point string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), os.Args[0], "-test.run=^TestDirectoryVictim$")
	cmd.Env = append(os.Environ(), victimVerb+"="+verb, victimPoint+"="+point, victimHome+"="+l.home)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		l.t.Fatalf("killed at %s: %v: %s", point, err, out)
	}
}

// listData lists all paths in the data directory, except objects, which may include unused ones, and the files that
// say who holds the lock.
func (l *testDirectory) listData() []string {
	l.t.Helper()
	names := slices.Sorted(maps.Keys(l.readTree(l.data, true)))
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.Contains(name, "/objects/") || strings.HasSuffix(name, "/lock") || strings.HasSuffix(name, "/git/agency")
	})
}

func TestFailedOnboardLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range onboardSteps {
		for _, point := range []string{step + ":before", step + ":after"} {
			l := newTestDirectory(t)
			l.writeFile("a/b", "b")
			before := l.readTree(l.dir, true)
			opts, failure := l.opts, errors.New("fault")
			opts.Fault = func(_ context.Context, at string) error {
				if at == point {
					return failure
				}
				return nil
			}
			if _, err := Onboard(t.Context(), OnboardRequest{Dir: l.dir}, opts); !errors.Is(err, failure) {
				t.Fatalf("%s: %v", point, err)
			}
			if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s leaves %q", point, l.listData())
			}
			l.checkEqual(point, l.readTree(l.dir, true), before)
		}
	}
}

func TestKilledOnboardIsCompletedByNextOnboard(t *testing.T) {
	t.Parallel()
	whole := newTestDirectory(t)
	whole.writeFile("a/b", "b")
	whole.onboard()
	want := whole.listData()
	id := filepath.Base(filepath.Dir(whole.onboard().repo.CommonDir))
	for _, step := range onboardSteps {
		for _, point := range []string{step + ":before", step + ":after"} {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				l := newTestDirectory(t)
				l.writeFile("a/b", "b")
				before := l.readTree(l.dir, true)
				l.runKilled("onboard", point)
				done := point == "onboard/record:after"
				if _, err := Open(t.Context(), l.dir, l.opts); done != (err == nil) || !done && !fault.Is[*fault.NotFoundError](err) {
					t.Errorf("Open: %v", err)
				}
				if all, err := List(t.Context(), l.opts); err != nil || len(all) == 1 != done {
					t.Errorf("%v, %v", all, err)
				}
				d := l.onboard()
				if d.FirstSnapshot.Created == done || d.FirstSnapshot.Number != 1 {
					t.Errorf("%+v", d.FirstSnapshot)
				}
				l.checkEqual("content of the snapshot", l.checkoutFiles(d, d.FirstSnapshot.ID), map[string]string{"/a/b": "false b"})
				l.checkEqual("the directory", l.readTree(l.dir, true), before)
				got := strings.ReplaceAll(fmt.Sprint(l.listData()), d.ID, id)
				if got != fmt.Sprint(want) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				l.must(d.Forget(t.Context()))
				if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Forget leaves %q", l.listData())
				}
			})
		}
	}
}

func TestKilledDirectorySnapshotIsAtomic(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"snapshot/capture:before", "snapshot/capture:after", "snapshot/ref:before", "snapshot/ref:after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := newTestDirectory(t)
			l.writeFile("a", "a")
			d := l.onboard()
			l.writeFile("a", "b")
			l.runKilled("snapshot", point)
			s := l.takeSnapshot(d, snapshots.TakeRequest{})
			if s.Number != 2 || s.Created == (point == "snapshot/ref:after") {
				t.Errorf("%+v", s)
			}
			l.checkEqual("content of the snapshot", l.checkoutFiles(d, s.ID), map[string]string{"/a": "false b"})
			if v, err := d.VerifySnapshot(t.Context(), snapshots.VerifyRequest{Snapshot: s.ID}); err != nil || !v.Intact {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestKilledForgetIsAtomic(t *testing.T) {
	t.Parallel()
	for point, done := range map[string]bool{"forget/directory:before": false, "forget/directory:after": true} {
		l := newTestDirectory(t)
		l.writeFile("a", "a")
		d := l.onboard()
		l.runKilled("forget", point)
		if _, err := Open(t.Context(), l.dir, l.opts); done != fault.Is[*fault.NotFoundError](err) {
			t.Errorf("%s: %v", point, err)
		}
		l.must(d.Forget(t.Context()))
		if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s leaves %q", point, l.listData())
		}
	}
	// An interrupted removal has renamed the directory of the records already; the next onboarding removes it.
	l := newTestDirectory(t)
	l.writeFile("a", "a")
	d := l.onboard()
	at := filepath.Join(l.data, "directories", d.ID)
	l.must(os.Rename(at, filepath.Join(l.data, "directories", ".tmp-"+d.ID)))
	if all, err := List(t.Context(), l.opts); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if again := l.onboard(); !again.FirstSnapshot.Created || strings.Contains(fmt.Sprint(l.listData()), ".tmp-") {
		t.Errorf("%+v, %q", again.FirstSnapshot, l.listData())
	}
}
