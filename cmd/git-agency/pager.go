package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
)

// pagedCommands are the commands with long output for people. It is paged on a terminal unless pager.agency says
// otherwise; that key can also page the output of all commands, as it does for git itself.
var pagedCommands = []string{"ls", "worktree ls", "diff", "radar", "denials", "snapshot ls", "doctor", "config", "help"}

// markPageable wraps the actions of pagedCommands so that each sets t.pageable when it runs.
func (t *tool) markPageable(commands []*cli.Command, prefix string) {
	for _, c := range commands {
		path, action := prefix+c.Name, c.Action
		if action != nil && slices.Contains(pagedCommands, path) {
			c.Action = func(c *cli.Context) error {
				t.pageable = !c.Bool("json") && !c.Bool("porcelain") && !c.IsSet("format")
				return action(c)
			}
		}
		t.markPageable(c.Subcommands, path+" ")
	}
}

// pagerWriter writes results to standard output or to a pager, and marks errors as errors of the output.
type pagerWriter struct {
	t *tool
	term.PagedWriter
}

func newPagerWriter(t *tool) *pagerWriter {
	w := &pagerWriter{t: t}
	w.Stdout, w.Start = t.rawStdout, w.startPager
	return w
}

func (w *pagerWriter) Write(p []byte) (int, error) {
	n, err := w.PagedWriter.Write(p)
	if err != nil { // a long result is written before the command has ended, so mark the error here too
		err = &outputError{err}
	}
	return n, err
}

// startPager starts the pager, if one is configured, or returns nil. All errors are only warnings, since the output is
// readable without a pager.
func (w *pagerWriter) startPager() *term.Pager {
	if !term.IsTerminal(w.t.rawStdout) {
		return nil
	}
	style, err := w.t.outputStyle()
	if err != nil {
		w.t.warn("no colour and no pager: " + err.Error())
		return nil
	}
	if style.pager == "" {
		return nil
	}
	for _, err := range style.ignored {
		w.t.warn("ignoring " + err.Error())
	}
	results, _ := w.t.rawStdout.(*os.File)
	messages, ok := w.t.rawStderr.(*os.File)
	if !ok {
		messages = results
	}
	pager, err := term.StartPager(w.t.ctx, term.PagerRequest{Command: style.pager, Env: w.t.opts.Env, Stdout: results, Stderr: messages})
	if err != nil {
		w.t.warn(err.Error())
		return nil
	}
	if term.IsTerminal(w.t.rawStderr) {
		w.t.stderr = pagerStderr{w} // as in git: the pager would draw over messages on the terminal
	}
	return pager
}

// pagerStderr sends messages to the pager, in order with the results. After the pager was quit, they go to standard
// error.
type pagerStderr struct{ *pagerWriter }

func (m pagerStderr) Write(p []byte) (int, error) {
	if err := m.t.stdout.Flush(); err != nil || !m.WriteToPager(p) {
		return m.t.rawStderr.Write(p)
	}
	return len(p), nil
}

// finish waits until the user has left the pager, and returns the exit code of the program for that of the command: as
// in git, leaving the pager early is 128+SIGPIPE and Ctrl-C is 128+SIGINT, unless the command failed.
func (w *pagerWriter) finish(ctx context.Context, code int) int {
	if !w.Paged() {
		return code
	}
	err := w.Close()
	w.t.stderr = w.t.rawStderr
	var (
		missing     *term.PagerMissingError
		interrupted interruptedError
	)
	switch {
	case errors.As(err, &missing) && w.CanReplay():
		w.t.warn(err.Error())
		if err := w.Replay(); err != nil {
			return w.t.reportError(&outputError{err})
		}
		return code
	case err != nil && !errors.Is(err, term.ErrPagerQuit):
		w.t.warn("the pager: " + err.Error())
		return code
	case code != 0:
		return code
	case errors.As(context.Cause(ctx), &interrupted):
		return 128 + int(interrupted.signal)
	case errors.Is(err, term.ErrPagerQuit):
		return 128 + int(syscall.SIGPIPE)
	}
	return 0
}
