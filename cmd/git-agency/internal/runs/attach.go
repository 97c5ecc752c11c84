package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// defaultDetachKeys are those of docker.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// Attach builds the command that connects the terminal with a detached agent.
func (t Commands) Attach() *cli.Command {
	return &cli.Command{
		Name:      "attach",
		Usage:     "connect the terminal with a detached agent",
		UsageText: "git agency attach [<id>] [--detach-keys <keys>] [--no-stdin]",
		Description: `Connects the terminal with the interactive agent of <id>, which 'run --detach' started. The last output is
shown first. Ctrl-P Ctrl-Q detaches again, and the run goes on; it also goes on when the terminal is closed
or this command is killed. Several terminals may be attached at once: all see the output, all may type, and
the last one that attached or changed its size sets the size.

Without <id> and outside of a sandbox, it is the only agent that runs.

Of an agent that works on a task, the output is followed as with 'logs -f'; there Ctrl-C detaches as well.
With --no-stdin, and without a terminal, the agent is only watched.

Exit status: 0 detached; when the run ends, as of run; 1 the run has ended already, or is in the foreground
of another terminal; 3 no such invocation; 4 broken; 129 usage; 130, 143 interrupted.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "detach-keys", Usage: "detach with `KEYS`, such as ctrl-a,d", Value: defaultDetachKeys},
			&cli.BoolFlag{Name: "no-stdin", Usage: "only watch: type nothing, and leave the size of the terminal as it is"},
		},
		Action: func(c *cli.Context) error {
			keys, err := parseKeys(c.String("detach-keys"))
			if err != nil {
				return program.NewUsageError(c, fmt.Errorf("--detach-keys: %w", err))
			}
			repo, query, err := t.openForRun(c, runningAgents)
			if err != nil {
				return err
			}
			return t.attach(c.Context, repo, query, keys, c.Bool("no-stdin"))
		},
	}
}

func (t Commands) attach(ctx context.Context, repo *gitagency.Repository, query string, keys []byte, watch bool) error {
	ctx, stop := interrupt.OnParentExit(ctx, program.InterruptedError{Signal: syscall.SIGTERM})
	defer stop()
	req := gitagency.AttachRunRequest{
		ID: query, DetachKeys: keys, Screen: t.RawStdout,
		Stdout: t.RawStdout, Stderr: t.RawStderr, OnEvent: eventPrinter(t.RawStdout),
		OnNote: func(note gitagency.LogNote) { printNote(t.RawStderr, query, note) },
	}
	if !watch && t.hasTerminal() {
		req.Keyboard = os.Stdin
	}
	if term.IsTerminal(t.RawStderr) {
		fmt.Fprintf(t.Stderr, "%s detaches\n", describeKeys(keys))
	}
	res, err := repo.AttachRun(ctx, req)
	cause := context.Cause(ctx)
	switch {
	case err == nil && res.Ended:
		return t.reportEnded(res.Invocation)
	case err == nil || cause != nil && errors.Is(err, cause):
		fmt.Fprintf(t.Stderr, "detached from %s; the run goes on\n", res.Invocation.ID)
		t.PrintHint("to attach again: git agency attach " + res.Invocation.ID)
	}
	var interrupted program.InterruptedError
	if errors.As(cause, &interrupted) && interrupted.Signal == syscall.SIGINT && errors.Is(err, cause) { // Ctrl-C, with which one leaves
		return nil
	}
	return err
}

// reportEnded says how the run of an invocation ended, and returns its error as run does.
func (t Commands) reportEnded(inv gitagency.Invocation) error {
	res := gitagency.RunResult{
		ID: inv.ID, Path: inv.SandboxPath, Status: inv.Status, Reason: inv.StatusReason, Warnings: inv.Warnings, Question: inv.Question, QuestionOptions: inv.Options,
	}
	if inv.ExitCode != nil {
		res.ExitCode = *inv.ExitCode
	}
	switch {
	case res.Status == gitagency.StatusFinished:
		fmt.Fprintf(t.Stderr, "%s finished\n", inv.ID)
	case res.ExitCode == 0: // no process was left to record another
		res.ExitCode = hints.ExitFailed
	}
	return t.endError(res)
}

// describeKeys names keys for people.
func describeKeys(keys []byte) string {
	var names []string
	for _, key := range keys {
		if key < ' ' {
			names = append(names, "Ctrl-"+string(rune(key+'@')))
		} else {
			names = append(names, string(rune(key)))
		}
	}
	return strings.Join(names, " ")
}

// parseKeys returns the bytes that a terminal sends for keys in the notation of docker: characters and ctrl-<character>,
// separated by commas.
func parseKeys(text string) (keys []byte, err error) {
	for name := range strings.SplitSeq(text, ",") {
		character, isCtrl := strings.CutPrefix(strings.ToLower(name), "ctrl-")
		switch {
		case isCtrl && len(character) == 1 && strings.Contains("@abcdefghijklmnopqrstuvwxyz[\\]^_", character):
			keys = append(keys, character[0]&0x1f)
		case !isCtrl && len(name) == 1 && name[0] >= ' ' && name[0] < 0x7f:
			keys = append(keys, name[0])
		default:
			return nil, fmt.Errorf("unknown key %q: want characters and ctrl-<letter>, separated by commas, such as %s", name, defaultDetachKeys)
		}
	}
	return keys, nil
}
