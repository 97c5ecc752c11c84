package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// setSetup sets agency.setup in the user's configuration.
func setSetup(l *sandboxtest.Fixture, line string) {
	l.Repo.Settings.Config[settings.SetupKey] = []config.Setting{{Value: line, Scope: "global", Origin: "test"}}
}

// isSetUp reports whether the record says that agency.setup has succeeded.
func isSetUp(l *sandboxtest.Fixture) bool {
	return l.Repo.Store.Invocation(l.Repo.ID, l.Sandbox.ID, nil).Record.SetupAt != nil
}

func readSetupLog(l *sandboxtest.Fixture) string {
	l.T.Helper()
	data, err := os.ReadFile(l.Repo.Store.SetupLogPath(l.Repo.ID, l.Sandbox.ID))
	if err != nil {
		l.T.Fatal(err)
	}
	return string(data)
}

func TestSetupRunsOncePerSandbox(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	if err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{}); err != nil || isSetUp(l) {
		t.Fatalf("without a command: %v", err)
	}
	setSetup(l, "echo ran >>count; echo to stdout; echo to stderr >&2; test -n $AGENCY_ISOLATION")
	var group sync.WaitGroup
	var shown strings.Builder
	for range 3 {
		group.Go(func() {
			if err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{Output: &shown}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	count, err := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "count"))
	if err != nil || string(count) != "ran\n" {
		t.Errorf("got %q, %v, want one run", count, err)
	}
	if log := readSetupLog(l); !strings.HasSuffix(log, "\nto stdout\nto stderr\n") || shown.String() != "to stdout\nto stderr\n" {
		t.Errorf("log %q, shown %q", log, shown.String())
	}
	if !isSetUp(l) {
		t.Error("the record has no setup_at")
	}
	if _, err := os.Stat(l.Repo.Store.SetupLockDir(l.Repo.ID, l.Sandbox.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is left: %v", err)
	}
}

func TestSetupRunsAgainAfterFailure(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	setSetup(l, "echo why; exit 3")
	var failed *fault.SetupCommandError
	err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{})
	if !errors.As(err, &failed) || failed.ExitCode != 3 || failed.Log == "" || !strings.Contains(err.Error(), failed.Log) {
		t.Fatalf("got %v", err)
	}
	if log := readSetupLog(l); !strings.Contains(log, "why\n") {
		t.Errorf("log %q", log)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	setSetup(l, "echo started; sleep 600")
	if err := l.Sandbox.Setup(ctx, sandbox.SetupRequest{Output: writerFunc(func() { stop(stopped) })}); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	setSetup(l, "sleep 600")
	if err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{Timeout: 1}); !errors.As(err, &failed) || !failed.TimedOut {
		t.Errorf("got %v", err)
	}
	if isSetUp(l) {
		t.Error("the sandbox counts as set up")
	}
	setSetup(l, "true")
	if err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{}); err != nil || !isSetUp(l) {
		t.Errorf("got %v", err)
	}
}

// writerFunc is a writer that calls a function for each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestSetupOfRepositoryIsIgnored(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{}, settings.SetupKey, "touch ran")
	var warnings []string
	l.Repo.Settings.Warn = func(format string, args ...any) { warnings = append(warnings, format) }
	err := l.Sandbox.Setup(t.Context(), sandbox.SetupRequest{})
	if _, statErr := os.Stat(filepath.Join(l.Sandbox.WorkDir(), "ran")); err != nil || statErr == nil || len(warnings) != 1 {
		t.Errorf("got %v, ran: %v, warnings %q", err, statErr == nil, warnings)
	}
}
