// Package runs has the commands that run agents, follow them and answer them. As in package main, each command has a file
// named after it: its flags, the request that it passes to package gitagency, and the output.
package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Commands builds the commands of this package for one run of git-agency.
type Commands struct{ *program.Program }

// KeepsDashDash reports whether a command of this package keeps the words after -- apart from its arguments: they are the
// command line of another program.
func KeepsDashDash(c *cli.Command) bool { return c.Name == runName || c.Name == preflightName }

// readTask returns the text of -p, of the file of --task-file, or of standard input for "-"; nil if none was given.
func readTask(c *cli.Context, args []string) (task []byte, rest []string, err error) {
	sources := 0
	for _, arg := range args {
		if arg == "-" {
			sources++
			if task, err = readInput(c, func() (*os.File, error) { return os.Stdin, nil }); err != nil {
				return nil, nil, fmt.Errorf("read the task from standard input: %w", err)
			}
			continue
		}
		rest = append(rest, arg)
	}
	if c.IsSet("prompt") {
		sources++
		task = []byte(c.String("prompt"))
	}
	if c.IsSet("task-file") {
		sources++
		if task, err = readInput(c, func() (*os.File, error) { return os.Open(c.String("task-file")) }); err != nil {
			if c.Context.Err() == nil {
				err = program.NewUsageError(c, fmt.Errorf("--task-file: %w", err))
			}
			return nil, nil, err
		}
	}
	switch {
	case sources > 1:
		return nil, nil, program.NewUsageError(c, errors.New("give the task once: with -p, --task-file or -"))
	case sources == 1 && strings.TrimSpace(string(task)) == "":
		return nil, nil, program.NewUsageError(c, errors.New("the task is empty"))
	}
	return task, rest, nil
}

// readInput reads a task to its end, and at most one byte more than a task may have. A pipe that never ends or is never
// opened by its writer does not keep an interrupt from ending the command.
func readInput(c *cli.Context, open func() (*os.File, error)) (text []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var f *os.File
		if f, err = open(); err == nil {
			text, err = io.ReadAll(io.LimitReader(f, gitagency.MaxTask+1))
			_ = f.Close() // only read
		}
	}()
	select {
	case <-done:
		return text, err
	case <-c.Context.Done():
		return nil, context.Cause(c.Context)
	}
}

// endError returns the error of a run that did not finish, with its exit code; nil for one that did. What the user needs
// to know is printed before.
func (t Commands) endError(res gitagency.RunResult) error {
	for _, warning := range res.Warnings {
		t.Warn(fmt.Sprintf("%s: %s", gitagency.ShortID(res.ID), term.OneLine(warning)))
	}
	switch res.Status {
	case gitagency.StatusFinished:
		return nil
	case gitagency.StatusBlocked:
		t.printQuestion(res.ID, res.Question, res.QuestionOptions)
		return &program.ChildError{Code: hints.ExitBlocked}
	}
	var message strings.Builder
	fmt.Fprintf(&message, "%s %s", res.ID, describeStatus[res.Status])
	if res.Reason != "" && (res.Status == gitagency.StatusFailed || res.Status == gitagency.StatusStopped && res.Reason != gitagency.StoppedReason) {
		message.WriteString(": " + res.Reason)
	}
	for _, path := range res.Uncommitted {
		message.WriteString("\n  " + quote.Path(path))
	}
	if len(res.Uncommitted) > 0 {
		message.WriteString("\nits sandbox is kept at " + quote.Path(res.Path))
	}
	return &runError{ChildError: program.ChildError{Code: res.ExitCode, Err: errors.New(message.String())}, res: res}
}

// describeStatus says how a run ended.
var describeStatus = map[string]string{
	gitagency.StatusFailed: "failed", gitagency.StatusStopped: "was stopped", gitagency.StatusTimedOut: "timed out, and was ended",
}

// runError is the error of a run that did not finish.
type runError struct {
	program.ChildError
	res      gitagency.RunResult
	unlogged bool // the agent wrote on the terminal of the user, whose output is not kept
}

// Unwrap makes the exit code of the run that of the command.
func (e *runError) Unwrap() error { return &e.ChildError }

// Hints says what to type after a run that did not finish; known is false for any other error.
func Hints(err error) (lines []string, known bool) {
	if hints.Is[*preflightError](err) { // the result has the remedies
		return nil, true
	}
	var setup *gitagency.SetupError
	if errors.As(err, &setup) && setup.Submitting {
		return []string{resumeHint(setup.ID)}, true
	}
	var run *runError
	if !errors.As(err, &run) {
		return nil, false
	}
	id, res := run.res.ID, run.res
	switch {
	case len(res.Uncommitted) > 0:
		return []string{
			"commit and land them: git agency land " + id + " --commit-all -m '<message>'; 'run --commit-all' commits them at the end of a run",
			"or let the agent go on: git agency resume " + id + " -p '<what to do>'",
		}, true
	case res.Status == gitagency.StatusTimedOut:
		return []string{"'git agency logs " + id + "' shows its output; 'git agency resume " + id + " --timeout <longer>' lets it go on"}, true
	case res.Exceeded != "":
		return []string{"'git agency logs " + id + "' shows its output; 'git agency resume " + id + " " + res.Exceeded + " <more>' lets it go on"}, true
	case res.SetupFailed:
		return []string{
			"'git agency logs " + id + "' shows the output of agency.setup",
			"when that is repaired, 'git agency resume " + id + "' runs both; 'git agency discard " + id + "' ends it",
		}, true
	case res.Exec.ContainedBy == "": // the message says why it was not run
		return []string{resumeHint(id)}, true
	}
	if run.unlogged {
		return []string{"'git agency resume " + id + "' lets it go on"}, true
	}
	return []string{"'git agency logs " + id + "' shows its output; 'git agency resume " + id + "' lets it go on"}, true
}

// resumeHint says what to type after a run that could not begin, of which the message says why.
func resumeHint(id string) string {
	return "when that is repaired, 'git agency resume " + id + "' runs it; 'git agency discard " + id + "' ends it"
}

// printQuestion prints the question of an agent on standard error, and how to answer it.
func (t Commands) printQuestion(id, question string, options []string) {
	fmt.Fprintf(t.Stderr, "%s asks: %s\n", gitagency.ShortID(id), term.Printable(question))
	for _, option := range numberOptions(options) {
		fmt.Fprintf(t.Stderr, "  %s\n", option)
	}
	t.PrintHint("to answer: git agency resume " + id + " --answer '<answer>'")
}
