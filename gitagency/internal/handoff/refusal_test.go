package handoff

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// refusalFixture is the exchange of a sandbox, and a clock.
type refusalFixture struct {
	t    *testing.T
	repo *core.Repository
	now  time.Time
}

func newRefusalFixture(t *testing.T) *refusalFixture {
	t.Helper()
	f := &refusalFixture{t: t, now: time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)}
	f.repo, _ = coretest.Open(t, core.Options{Now: func() time.Time { return f.now }})
	must(t, os.MkdirAll(filepath.Dir(f.open().refusalPath()), 0o700))
	return f
}

// open returns the exchange as the next command has it.
func (f *refusalFixture) open() *Exchange { return New(f.repo, "20260128120500-b7c9") }

// pack returns a pack with this content.
func (f *refusalFixture) pack(content string) *packStream {
	f.t.Helper()
	spool, err := os.Create(filepath.Join(f.t.TempDir(), "spool"))
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, spool.Close()) })
	_, err = spool.WriteString(content)
	must(f.t, err)
	return &packStream{strings.Repeat("1", 40), bufio.NewReader(bytes.NewReader([]byte(content))), spool}
}

// refuse has a command import a state of the upper directory, whose pack fails after some time.
func (f *refusalFixture) refuse(layer, pack string, reason error, took time.Duration) {
	f.t.Helper()
	e := f.open()
	must(f.t, e.loadRefusal(layer))
	must(f.t, e.saveRefusal(f.pack(pack), reason, took))
}

// tries reports whether a command that finds this state and pack checks the pack.
func (f *refusalFixture) tries(layer, pack string) bool {
	f.t.Helper()
	e := f.open()
	err := e.loadRefusal(layer)
	if err == nil {
		err = e.checkNotRefused(f.pack(pack))
	}
	if err != nil && !fault.Is[*GitError](err) && !fault.Is[*readlimit.ExceededError](err) {
		f.t.Fatal(err)
	}
	if err != nil { // no command may begin a check
		if got := e.receive(f.t.Context(), f.pack(pack), transport.ReceiveRequest{}); got == nil || got.Error() != err.Error() {
			f.t.Errorf("receive: got %v, want %v", got, err)
		}
	}
	return err == nil
}

func (f *refusalFixture) requireTries(want bool, layer, pack, when string) {
	f.t.Helper()
	if got := f.tries(layer, pack); got != want {
		f.t.Errorf("%s: the pack is checked: %t, want %t", when, got, want)
	}
}

var errStrict = &git.Error{Args: []string{"index-pack"}, ExitCode: 128, Stderr: "fatal: fsck error in packed object"}

// A pack that git refused after a long time must not be checked by every command, but again after ten times that long.
func TestSlowFailureIsNotTriedByEveryCommand(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	f.refuse("state", "pack", errStrict, 6*time.Second)
	f.requireTries(false, "state", "pack", "at once")
	f.requireTries(false, "other state", "pack", "with the same pack in another state")
	f.requireTries(true, "other state", "other pack", "with another pack")
	f.now = f.now.Add(60 * time.Second)
	f.requireTries(false, "state", "pack", "after a minute")
	f.now = f.now.Add(time.Second)
	f.requireTries(true, "state", "pack", "after more than a minute")

	// A second failure begins another wait.
	f.refuse("state", "pack", errStrict, 6*time.Second)
	f.requireTries(false, "state", "pack", "after the second failure")

	limits := f.repo.Git.ReadLimits
	f.repo.Git.ReadLimits.Time++
	f.requireTries(true, "state", "pack", "with other limits")
	f.repo.Git.ReadLimits = limits
}

// A failure of git that took no time may be that of a full disk, and must be tried again at once.
func TestFastFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason error
		took   time.Duration
	}{
		"git":            {errStrict, 5 * time.Second},
		"no git process": {errors.New("no space left on device"), time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRefusalFixture(t)
			f.refuse("state", "pack", c.reason, c.took)
			f.requireTries(true, "state", "pack", "at once")
			if err := SavedRefusal(f.repo, "20260128120500-b7c9"); err != nil {
				t.Errorf("saved: %v", err)
			}
		})
	}
}

// An exceeded limit holds for any time, until an import succeeds.
func TestExceededLimitIsRemembered(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	exceeded := f.repo.Git.ReadLimits.Exceeded("the pack", readlimit.Inflated)
	f.refuse("state", "pack", exceeded, 0)
	f.now = f.now.AddDate(1, 0, 0)
	f.requireTries(false, "state", "pack", "a year later")
	if err := SavedRefusal(f.repo, "20260128120500-b7c9"); err == nil || err.Error() != exceeded.Error() {
		t.Errorf("saved: %v", err)
	}
	f.repo.Git.ReadLimits.Inflated++
	if err := SavedRefusal(f.repo, "20260128120500-b7c9"); err != nil {
		t.Errorf("saved, with other limits: %v", err)
	}
	e := f.open()
	must(t, e.loadRefusal("state"))
	must(t, e.dropRefusal())
	if _, err := os.Lstat(e.refusalPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a successful import leaves the refusal: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
