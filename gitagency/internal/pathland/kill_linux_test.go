package pathland

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
)

// Environment variables that tell TestLandVictim the id to land, the fault point to die at, and the home directory.
const (
	victimID    = "PATHLAND_VICTIM_ID"
	victimPoint = "PATHLAND_VICTIM_POINT"
	victimHome  = "PATHLAND_VICTIM_HOME"
)

// TestLandVictim is not a test: killLanding starts it as the process that is killed.
func TestLandVictim(t *testing.T) {
	id, home := os.Getenv(victimID), os.Getenv(victimHome)
	if id == "" {
		return
	}
	opts := labOptions(home)
	opts.Fault = func(_ context.Context, point string) error {
		if point == os.Getenv(victimPoint) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	r, err := pathset.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Land(t.Context(), r, id, false)
	t.Fatalf("the fault point was not reached: %v", err)
}

// killLanding lands the sandbox in another process, which kills itself with SIGKILL at a fault point.
func (l *lab) killLanding(point string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), os.Args[0], "-test.run=^TestLandVictim$")
	cmd.Env = append(os.Environ(), victimID+"="+l.id, victimPoint+"="+point, victimHome+"="+l.home)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		l.t.Fatalf("killed at %s: %v: %s", point, err, out)
	}
}

// recoverNow does what every command does that takes the lock.
func (l *lab) recoverNow() {
	l.t.Helper()
	l.open()
	_, unlock, err := l.repo.LockAndRecover(l.t.Context())
	l.must(err)
	unlock()
}

func TestKilledLandingIsUndoneOrCompleted(t *testing.T) {
	t.Parallel()
	for i, point := range landPoints() {
		if testing.Short() && i%4 != 2 && !strings.Contains(point, "done") {
			continue
		}
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, landBase)
			after := landFiles(l)
			before := l.files()
			l.killLanding(point)
			l.recoverNow()
			if isDone(point) {
				l.checkFiles("after the recovery", after)
			} else if !maps.Equal(l.files(), before) {
				t.Errorf("the directories have %q, had %q", l.files(), before)
			}
			if l.record().HasEnded() != isDone(point) {
				t.Errorf("%+v", l.record())
			}
			l.checkNothingLeft()
			l.recoverNow() // twice is fine
			if _, err := l.land(); err != nil {
				t.Fatal(err)
			}
			l.checkFiles("the next landing", after)
			if len(l.warnings) > 0 {
				t.Error(l.warnings)
			}
		})
	}
}

// What a person has done since the kill is never undone, and what the landing had taken away is kept.
func TestRecoveryKeepsLaterChangesOfAPerson(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(l *lab)
		want   map[string]string // files with another content than before; "-" for none
		kept   []string          // contents in the staging directories
	}{
		"changed in place": {
			func(l *lab) {
				f, err := os.OpenFile(l.home+"/a/change", os.O_WRONLY|os.O_APPEND, 0)
				l.must(err)
				_, err = f.WriteString("person\n")
				l.must(errors.Join(err, f.Close()))
			}, map[string]string{"a/change": "new\nperson\n"}, []string{"old\n"},
		},
		"replaced":      {func(l *lab) { l.write("a/change", "person\n") }, map[string]string{"a/change": "person\n"}, []string{"old\n"}},
		"created again": {func(l *lab) { l.write("a/gone", "person\n") }, map[string]string{"a/gone": "person\n"}, []string{"gone\n"}},
		"new in a new directory": {
			func(l *lab) { l.write("b/new/person", "person\n") }, map[string]string{"b/new/person": "person\n"}, nil,
		},
		"new file replaced": {func(l *lab) { l.write("b/new/file", "person\n") }, map[string]string{"b/new/file": "person\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, landBase)
			landFiles(l)
			l.killLanding("land/sync:before") // all is moved, and not committed
			c.change(l)
			l.recoverNow()
			want, kept := maps.Clone(landBase), []string{}
			maps.Copy(want, c.want)
			got := l.files()
			for file, content := range got {
				if strings.HasSuffix(file, "/") {
					delete(got, file)
				} else if strings.Contains(file, pathset.StagingPrefix) {
					kept = append(kept, content)
					delete(got, file)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("the directories have %q, want %q", got, want)
			}
			if strings.Join(kept, "|") != strings.Join(c.kept, "|") || len(l.warnings) != len(c.kept) {
				t.Errorf("kept %q, want %q; warnings %q", kept, c.kept, l.warnings)
			}
			if _, err := os.Lstat(journalPath(l.repo)); err == nil {
				t.Error("there is still a journal")
			}
		})
	}
}

// A landing whose directory is away is not forgotten: it is undone when the directory is back.
func TestRecoveryWaitsForItsDirectories(t *testing.T) {
	t.Parallel()
	l := newLab(t, landBase)
	after, before := landFiles(l), l.files()
	l.killLanding("land/move-5:before")
	aside := filepath.Join(l.home, "aside")
	l.must(os.Rename(filepath.Join(l.home, "b"), aside))
	l.recoverNow()
	if len(l.warnings) == 0 {
		t.Error("no warning")
	}
	l.warnings = nil
	if _, err := l.land(); !fault.Is[*fault.StuckLandingError](err) {
		t.Errorf("a landing began although an earlier one is not undone, or its error has no remedy: %v", err)
	}
	l.must(os.Rename(aside, filepath.Join(l.home, "b")))
	l.recoverNow()
	if !maps.Equal(l.files(), before) {
		t.Errorf("the directories have %q, had %q", l.files(), before)
	}
	_, err := l.land()
	l.must(err)
	l.checkFiles("the next landing", after)
}
