package hints

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// Each reason of the library has a row with its exit code, and there is no other row.
func TestEveryReasonHasARow(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../../gitagency/reason/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[reason.Reason]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		known[reason.Reason(value)] = true
		if code := reasons[reason.Reason(value)].code; code != ExitFailed && code != ExitRefused && code != ExitSetup {
			t.Errorf("%s has the exit code %d", spec.Names[0].Name, code)
		}
		return true
	})
	for why := range reasons {
		if !known[why] {
			t.Errorf("there is no reason %q", why)
		}
	}
	if len(known) < 50 {
		t.Errorf("found only %d reasons", len(known))
	}
}

// Hints are phrases that name every value they need: an empty id or path would make a command that does something else.
func TestReasonHintsQuoteTheirValues(t *testing.T) {
	t.Parallel()
	e := &gitagency.StateError{
		ID: "the-id", Name: "the name", Path: "/the path", Branch: "the branch", Commit: "the-commit", Operation: "rebase",
		Other: "the-other", Others: []string{"one more"}, Err: errors.New("text"),
	}
	for why, row := range reasons {
		e.Reason = why
		if row.hints == nil {
			continue
		}
		for _, line := range row.hints(e, Retry{Args: []string{"land", "a b"}}) {
			if line == "" || strings.HasSuffix(line, ".") || strings.HasSuffix(line, " ") || strings.ContainsAny(line, "\n%") {
				t.Errorf("%s: %q", why, line)
			}
			if strings.Contains(line, "the path") && !strings.Contains(line, "the path'") && why != reason.StuckLanding { // there it is no command
				t.Errorf("%s does not quote the path: %q", why, line)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	refused := &gitagency.RefusedError{Reason: reason.Overlap, Err: errors.New("x")}
	state := &gitagency.StateError{Reason: reason.Dirty, Err: errors.New("x")}
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("any"), ExitFailed},
		{state, ExitFailed},
		{fmt.Errorf("start: %w", refused), ExitRefused},
		{&gitagency.ConflictsError{Err: errors.New("x")}, ExitConflict},
		{&gitagency.NotFoundError{Kind: "worktree"}, ExitNotFound},
		{&gitagency.AmbiguousError{}, ExitNotFound},
		{&gitagency.BrokenError{}, ExitBroken},
		{&gitagency.DamagedError{}, ExitBroken},
		{&gitagency.ConfinementError{}, ExitRefused},
		{fmt.Errorf("run: %w", &gitagency.PreflightError{Err: errors.New("x")}), ExitPreflight},
		{&gitagency.LockTimeoutError{Err: errors.New("x")}, ExitLocked},
		{&gitagency.BusyError{Err: errors.New("x")}, ExitLocked},
		{&gitagency.SetupError{Err: refused}, ExitSetup},
		{&gitagency.InvalidError{}, ExitUsage},
		{&gitagency.NoRepositoryError{Err: errors.New("x")}, ExitFatal},
		{&gitagency.NoCurrentDirError{Err: errors.New("x")}, ExitFatal},
		{&gitagency.NotPushedError{Err: refused}, ExitFailed},
		{&gitagency.VerifyError{Err: &gitagency.BusyError{Err: errors.New("x")}}, ExitFailed},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%T: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestHintsOfPreflightNameTheChecks(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("run: %w", &gitagency.PreflightError{Err: errors.New("x"), Checks: []gitagency.PreflightCheck{
		{Name: "login", Remedy: "log in"},
		{Name: "base", Err: &gitagency.NoRepositoryError{GitDir: "/gone", Err: errors.New("x")}},
		{Name: "walls", Err: errors.New("no hints")},
		{Name: "wrong", Err: &gitagency.BusyError{Err: errors.New("x")}, Remedy: "its own"},
	}})
	got := For(err, Retry{})
	if len(got) != 3 || got[0] != "login: log in" || !strings.HasPrefix(got[1], "base: ") || !strings.Contains(got[1], "git agency doctor") || got[2] != "wrong: its own" {
		t.Errorf("got %q", got)
	}
}

func TestRetryDropsFlagsAndSecrets(t *testing.T) {
	t.Parallel()
	r := Retry{Args: []string{"land", "x", "--verify", "make test", "--remote=origin", "-m", "a b"}}
	if got, want := r.Command("", "-verify"), "git agency land x --remote=origin -m 'a b'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := r.Command("a.b=c d", "-remote", "-verify"), "git -c 'a.b=c d' agency land x -m 'a b'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.HasConfigArgs = true
	if got := r.Command(""); !slices.Contains(strings.Fields(got), "…") {
		t.Errorf("got %q", got)
	}
}

func TestRetryRunsCommandBehindFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"worktree finish wt":         true,
		"--color=never worktree ls":  true,
		"land worktree":              false,
		"--color=never":              false,
		"":                           false,
		"worktrees":                  false,
		"--no-color land --worktree": false,
	} {
		if got := (Retry{Args: strings.Fields(line)}).runs("worktree"); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}
