package handoff

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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

// noLayer is the fingerprint of the upper directory of the fixture, which has none.
const noLayer = ""

// requireShown checks the reason that show and doctor print; empty for none.
func (f *refusalFixture) requireShown(want, when string) {
	f.t.Helper()
	saved, err := SavedRefusal(f.repo, f.open().id)
	must(f.t, err)
	got := ""
	if saved != nil {
		got = saved.Err.Error()
	}
	if got != want {
		f.t.Errorf("%s: show prints %q, want %q", when, got, want)
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
			f.refuse(noLayer, "pack", c.reason, c.took)
			f.requireTries(true, noLayer, "pack", "at once")
			f.requireShown("", "although no import failed")
		})
	}
}

// An exceeded limit holds for any time, until an import succeeds.
func TestExceededLimitIsRemembered(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	exceeded := f.repo.Git.ReadLimits.Exceeded("the pack", readlimit.Inflated)
	f.refuse(noLayer, "pack", exceeded, 0)
	f.now = f.now.AddDate(1, 0, 0)
	f.requireTries(false, noLayer, "pack", "a year later")
	f.requireShown(exceeded.Error(), "a year later")
	f.repo.Git.ReadLimits.Inflated++
	f.requireShown("", "with other limits")
	e := f.open()
	must(t, e.loadRefusal(noLayer))
	must(t, e.dropRefusal())
	if _, err := os.Lstat(e.refusalPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a successful import leaves the refusal: %v", err)
	}
}

// fail has the import of a state of the upper directory fail.
func (f *refusalFixture) fail(layer string, reason error) {
	f.t.Helper()
	e := f.open()
	if err := e.loadRefusal(layer); err != nil && err.Error() != reason.Error() {
		f.t.Fatal(err)
	}
	e.importTip = strings.Repeat("2", 40)
	must(f.t, e.saveFailure(reason))
}

// Every refusal that the sandbox is the cause of is saved for show and doctor, and the next command tries again.
func TestFailedImportIsShown(t *testing.T) {
	t.Parallel()
	invalid := &fault.InvalidTreeError{Path: ".gitignore", Why: "slow"}
	for name, c := range map[string]struct {
		reason    error
		tip, path string
	}{
		"git":            {reason: errStrict},
		"script":         {reason: &GitError{errors.New("HEAD does not point to a commit")}},
		"missing object": {reason: &object.IncompleteError{OID: strings.Repeat("3", 40), Want: "blob"}},
		"invalid tree":   {invalid, strings.Repeat("2", 40), ".gitignore"},
		"invalid commit": {reason: &fault.InvalidCommitError{Commit: strings.Repeat("3", 40)}, tip: strings.Repeat("2", 40)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRefusalFixture(t)
			f.fail(noLayer, c.reason)
			f.requireTries(true, noLayer, "pack", "at once")
			f.requireShown(c.reason.Error(), "at once")
			if saved, err := SavedRefusal(f.repo, f.open().id); err != nil || saved.Tip != c.tip || saved.Path != c.path {
				t.Errorf("saved: %+v, %v", saved, err)
			}
			f.repo.Git.ReadLimits.Inflated++
			f.requireShown(c.reason.Error(), "with other limits")
			must(t, os.MkdirAll(filepath.Join(f.open().upper, "objects"), 0o700))
			f.requireShown("", "when the upper directory has changed")
		})
	}
}

func TestFailureOfTheMachineIsNotShown(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	f.fail(noLayer, errors.New("no space left on device"))
	f.requireShown("", "at once")
}

// A saved limit must not be forgotten when a later import of the same pack, in another state, is refused because of it.
func TestShownFailureKeepsExceededLimit(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	exceeded := f.repo.Git.ReadLimits.Exceeded("the pack", readlimit.Inflated)
	f.refuse("state", "pack", exceeded, 0)
	f.requireShown("", "in another state")
	f.fail(noLayer, fmt.Errorf("import: %w", exceeded))
	f.requireShown(exceeded.Error(), "in the state of the last import")
	f.requireTries(false, "third state", "pack", "with the same pack")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
