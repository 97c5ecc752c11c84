package gitagency

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
)

// onboardPoints are all at which an onboarding can fail or be killed.
var onboardPoints = []string{"onboard/repository", "onboard/capture", "onboard/ref", "onboard/record"}

// The variables by which a test tells another process of it what to do, and where to be killed.
const (
	victimVerb  = "DIRECTORY_VICTIM_VERB"
	victimPoint = "DIRECTORY_VICTIM_POINT"
	victimHome  = "DIRECTORY_VICTIM_HOME"
)

// TestDirectoryVictim is no test: it is what kill starts.
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
		t.Fatalf("it lives: %v", err)
	}
	d, err := OpenDirectory(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if verb == "snapshot" {
		_, err = d.Snapshot(t.Context(), SnapshotRequest{})
	} else {
		err = d.Forget(t.Context())
	}
	t.Fatalf("it lives: %v", err)
}

func victimOptions(home string) Options {
	return Options{Dir: home, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENCY_DATA_DIR=" + filepath.Join(home, "data"), "GIT_CONFIG_NOSYSTEM=1"}}
}

// kill does something in a process of its own, which is killed at a point.
func (l *plainLab) kill(verb, point string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), os.Args[0], "-test.run=^TestDirectoryVictim$")
	cmd.Env = append(os.Environ(), victimVerb+"="+verb, victimPoint+"="+point, victimHome+"="+l.home)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		l.t.Fatalf("killed at %s: %v: %s", point, err, out)
	}
}

// names are those of everything in the data directory, but for objects, of which there may be more than are needed, and
// for what says who holds the lock.
func (l *plainLab) names() []string {
	l.t.Helper()
	names := slices.Sorted(maps.Keys(l.contents(l.data, true)))
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.Contains(name, "/objects/") || strings.HasSuffix(name, "/lock") || strings.HasSuffix(name, "/git/agency")
	})
}

func TestAnOnboardingThatFailsAnywhereLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range onboardPoints {
		for _, point := range []string{step + ":before", step + ":after"} {
			l := newPlainLab(t)
			l.put("a/b", "b")
			before := l.contents(l.dir, true)
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
				t.Errorf("%s leaves %q", point, l.names())
			}
			l.equal(point, l.contents(l.dir, true), before)
		}
	}
}

func TestAnOnboardingThatIsKilledAnywhereIsDoneByTheNextCall(t *testing.T) {
	t.Parallel()
	whole := newPlainLab(t)
	whole.put("a/b", "b")
	whole.onboard()
	want := whole.names()
	id := filepath.Base(filepath.Dir(whole.onboard().repo.CommonDir))
	for _, step := range onboardPoints {
		for _, point := range []string{step + ":before", step + ":after"} {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				l := newPlainLab(t)
				l.put("a/b", "b")
				before := l.contents(l.dir, true)
				l.kill("onboard", point)
				done := point == "onboard/record:after"
				if _, err := OpenDirectory(t.Context(), l.dir, l.opts); done != (err == nil) || !done && !is[*NotFoundError](err) {
					t.Errorf("it is there: %v", err)
				}
				if all, err := Directories(t.Context(), l.opts); err != nil || len(all) == 1 != done {
					t.Errorf("%v, %v", all, err)
				}
				d := l.onboard()
				if d.FirstSnapshot.Created == done || d.FirstSnapshot.Number != 1 {
					t.Errorf("%+v", d.FirstSnapshot)
				}
				l.equal("what is held", l.checkout(d, d.FirstSnapshot.ID), map[string]string{"/a/b": "false b"})
				l.equal("the directory", l.contents(l.dir, true), before)
				got := strings.ReplaceAll(fmt.Sprint(l.names()), d.ID, id)
				if got != fmt.Sprint(want) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				l.must(d.Forget(t.Context()))
				if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("forgotten, there is %q", l.names())
				}
			})
		}
	}
}

func TestASnapshotOfADirectoryThatIsKilledIsThereOrNot(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"snapshot/capture:before", "snapshot/capture:after", "snapshot/ref:before", "snapshot/ref:after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := newPlainLab(t)
			l.put("a", "a")
			d := l.onboard()
			l.put("a", "b")
			l.kill("snapshot", point)
			s := l.snapshot(d, SnapshotRequest{})
			if s.Number != 2 || s.Created == (point == "snapshot/ref:after") {
				t.Errorf("%+v", s)
			}
			l.equal("what is held", l.checkout(d, s.ID), map[string]string{"/a": "false b"})
			if v, err := d.VerifySnapshot(t.Context(), VerifySnapshotRequest{Snapshot: s.ID}); err != nil || !v.Intact {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestAForgettingThatIsKilledIsDoneOrNot(t *testing.T) {
	t.Parallel()
	for point, done := range map[string]bool{"forget/directory:before": false, "forget/directory:after": true} {
		l := newPlainLab(t)
		l.put("a", "a")
		d := l.onboard()
		l.kill("forget", point)
		if _, err := OpenDirectory(t.Context(), l.dir, l.opts); done != is[*NotFoundError](err) {
			t.Errorf("%s: %v", point, err)
		}
		l.must(d.Forget(t.Context()))
		if _, err := os.Lstat(l.data); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s leaves %q", point, l.names())
		}
	}
	// Half-way, all there is goes by another name already.
	l := newPlainLab(t)
	l.put("a", "a")
	d := l.onboard()
	at := filepath.Join(l.data, "directories", d.ID)
	l.must(os.Rename(at, filepath.Join(l.data, "directories", ".tmp-"+d.ID)))
	if all, err := Directories(t.Context(), l.opts); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if again := l.onboard(); !again.FirstSnapshot.Created || strings.Contains(fmt.Sprint(l.names()), ".tmp-") {
		t.Errorf("%+v, %q", again.FirstSnapshot, l.names())
	}
}
