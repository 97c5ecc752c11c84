package listing

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// list lists all invocations and returns the one of the fixture's sandbox.
func list(l *sandboxtest.Fixture) core.Invocation {
	l.T.Helper()
	all, err := l.Repo.Invocations(core.ListRequest{All: true})
	if err == nil {
		err = Fill(l.T.Context(), l.Repo, all)
	}
	if err != nil {
		l.T.Fatal(err)
	}
	for _, inv := range all {
		if inv.ID == l.Sandbox.ID {
			return inv
		}
	}
	l.T.Fatalf("%s is not listed", l.Sandbox.ID)
	return core.Invocation{}
}

// summary returns the fields that Fill sets in one line.
func summary(i core.Invocation) string {
	number := func(n *int) string {
		if n == nil {
			return "unknown"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("%s running=%t ahead=%s dirty=%s exit=%s", i.State, i.Running, number(i.Ahead), number(i.Dirty), number(i.ExitCode))
}

func requireSummary(l *sandboxtest.Fixture, want string) {
	l.T.Helper()
	for range 2 { // the second time with cached results
		if got := summary(list(l)); got != want {
			l.T.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestFillCountsCommitsAndFiles(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.StartWithoutWalls()
	requireSummary(l, "idle running=false ahead=0 dirty=0 exit=unknown")
	l.WriteFile("one", "1\n")
	l.WriteFile("two", "2\n")
	requireSummary(l, "idle running=false ahead=0 dirty=2 exit=unknown")
	l.Git("add", "one")
	l.Git("commit", "-q", "-m", "one")
	requireSummary(l, "idle running=false ahead=1 dirty=1 exit=unknown")
	l.Git("add", "two")
	l.Git("commit", "-q", "-m", "two")
	requireSummary(l, "idle running=false ahead=2 dirty=0 exit=unknown")
	// The integration branch moves.
	inv := list(l)
	l.Git("update-ref", inv.IntegrationBranch, "HEAD~1")
	requireSummary(l, "idle running=false ahead=1 dirty=0 exit=unknown")
	l.Git("pack-refs", "--all")
	requireSummary(l, "idle running=false ahead=1 dirty=0 exit=unknown")
}

func TestFillFindsRunningCommands(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*sandboxtest.Fixture){
		"walls":    func(*sandboxtest.Fixture) {},
		"no walls": (*sandboxtest.Fixture).StartWithoutWalls,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{})
			start(l)
			input, answer := io.Pipe()
			output, ready := io.Pipe()
			ended := make(chan error, 1)
			began := time.Now()
			go func() {
				_, err := l.Sandbox.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"sh", "-c", "echo up; read line; exit 7"}, Stdin: input, Stdout: ready})
				_ = ready.Close()
				ended <- err
			}()
			if _, err := output.Read(make([]byte, 3)); err != nil {
				t.Fatalf("%v: %v", err, <-ended)
			}
			inv := list(l)
			if got, want := summary(inv), "running running=true ahead=0 dirty=0 exit=unknown"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if inv.RunningSince.Before(began.Add(-2*time.Second)) || inv.RunningSince.After(time.Now()) {
				t.Errorf("running since %s, began at %s", inv.RunningSince, began)
			}
			if _, err := answer.Write([]byte("end\n")); err != nil {
				t.Error(err)
			}
			go func() { _, _ = io.Copy(io.Discard, output) }()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			requireSummary(l, "idle running=false ahead=0 dirty=0 exit=7")
			if inv = list(l); inv.FinishedAt.IsZero() || !inv.RunningSince.IsZero() {
				t.Errorf("finished at %s, running since %s", inv.FinishedAt, inv.RunningSince)
			}
		})
	}
}

// A sandbox that cannot be read has unknown numbers, and does not keep others from being listed.
func TestFillLeavesUnknownNumbers(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.StartWithoutWalls()
	admin := l.Repo.Git.AdminDir(l.Sandbox.ID)
	if err := os.Remove(filepath.Join(admin, "index")); err != nil {
		t.Fatal(err)
	}
	requireSummary(l, "idle running=false ahead=0 dirty=unknown exit=unknown")
	if err := os.WriteFile(filepath.Join(admin, "HEAD"), []byte("rubbish\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	requireSummary(l, "idle running=false ahead=0 dirty=unknown exit=unknown")
	var warned string
	l.Repo.Opts.Warn = func(message string) { warned += message }
	inv := list(l)
	if err := FillOne(t.Context(), l.Repo, &inv); err != nil || warned == "" {
		t.Errorf("got %v and the warning %q", err, warned)
	}
}

// An interrupted listing is an error, not a list without numbers.
func TestFillEndsWithContext(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	all, err := l.Repo.Invocations(core.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Fill(ended, l.Repo, all); err == nil {
		t.Error("no error")
	}
}

// A damaged cache counts as empty.
func TestFillIgnoresDamagedCache(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	requireSummary(l, "idle running=false ahead=1 dirty=0 exit=unknown")
	for _, damage := range []string{"", "rubbish", `{"version":1}`, `{"version":7,"ahead":null}`} {
		if err := l.Repo.Store.WriteRadarCache(l.Repo.ID, factCacheName, []byte(damage)); err != nil {
			t.Fatal(err)
		}
		requireSummary(l, "idle running=false ahead=1 dirty=0 exit=unknown")
	}
}
