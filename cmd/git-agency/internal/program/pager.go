package program

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
)

// markPageable wraps the actions of the paged commands so that each sets p.pageable when it runs.
func (p *Program) markPageable(commands []*cli.Command, prefix string) {
	for _, c := range commands {
		path, action := prefix+c.Name, c.Action
		if action != nil && slices.Contains(p.config.Paged, path) {
			c.Action = func(c *cli.Context) error {
				p.pageable = !c.Bool("json") && !c.Bool("porcelain") && !c.IsSet("format")
				return action(c)
			}
		}
		p.markPageable(c.Subcommands, path+" ")
	}
}

// pagerWriter writes results to standard output or to a pager, and marks errors as errors of the output.
type pagerWriter struct {
	program *Program
	term.PagedWriter
}

func newPagerWriter(p *Program) *pagerWriter {
	w := &pagerWriter{program: p}
	w.Stdout, w.Start = p.RawStdout, w.startPager
	return w
}

func (w *pagerWriter) Write(p []byte) (int, error) {
	n, err := w.PagedWriter.Write(p)
	if err != nil { // a long result is written before the command has ended, so mark the error here too
		err = &OutputError{err}
	}
	return n, err
}

// startPager starts the pager, if one is configured, or returns nil. All errors are only warnings, since the output is
// readable without a pager.
func (w *pagerWriter) startPager() *term.Pager {
	if !term.IsTerminal(w.program.RawStdout) {
		return nil
	}
	style, err := w.program.Style()
	if err != nil {
		w.program.Warn("no colour and no pager: " + err.Error())
		return nil
	}
	if style.pager == "" {
		return nil
	}
	for _, err := range style.ignored {
		w.program.Warn("ignoring " + err.Error())
	}
	results, _ := w.program.RawStdout.(*os.File)
	messages, ok := w.program.RawStderr.(*os.File)
	if !ok {
		messages = results
	}
	pager, err := term.StartPager(w.program.ctx, term.PagerRequest{Command: style.pager, Env: w.program.Options.Env, Stdout: results, Stderr: messages})
	if err != nil {
		w.program.Warn(err.Error())
		return nil
	}
	if term.IsTerminal(w.program.RawStderr) {
		w.program.Stderr = pagerStderr{w} // as in git: the pager would draw over messages on the terminal
	}
	return pager
}

// pagerStderr sends messages to the pager, in order with the results. After the pager was quit, they go to standard
// error.
type pagerStderr struct{ *pagerWriter }

func (m pagerStderr) Write(p []byte) (int, error) {
	if err := m.program.Stdout.Flush(); err != nil || !m.WriteToPager(p) {
		return m.program.RawStderr.Write(p)
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
	w.program.Stderr = w.program.RawStderr
	var (
		missing     *term.PagerMissingError
		interrupted InterruptedError
	)
	switch {
	case errors.As(err, &missing) && w.CanReplay():
		w.program.Warn(err.Error())
		if err := w.Replay(); err != nil {
			return w.program.reportError(&OutputError{err})
		}
		return code
	case err != nil && !errors.Is(err, term.ErrPagerQuit):
		w.program.Warn("the pager: " + err.Error())
		return code
	case code != 0:
		return code
	case errors.As(context.Cause(ctx), &interrupted):
		return 128 + int(interrupted.Signal)
	case errors.Is(err, term.ErrPagerQuit):
		return 128 + int(syscall.SIGPIPE)
	}
	return 0
}
