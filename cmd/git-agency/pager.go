package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
)

// pagedCommands are the commands with long output for people. It is paged on a terminal unless pager.agency says
// otherwise; that key can also page the output of all commands, as it does for git itself.
var pagedCommands = []string{"ls", "worktree ls", "diff", "radar", "denials", "snapshot ls", "doctor", "config", "help"}

// pagerPolicy is all that decides whether to start a pager.
type pagerPolicy struct {
	terminal bool   // whether standard output is a terminal
	inUse    bool   // whether git has started a pager already
	setting  string // always or never, by pager.agency; empty without it
	program  string // command line of the pager; empty for none
	pageable bool   // whether the output is a long listing for people
}

func (p pagerPolicy) usePager() bool {
	switch {
	case !p.terminal || p.inUse || p.program == "":
		return false
	case p.setting != "":
		return p.setting == "always"
	}
	return p.pageable
}

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

// pagerWriter writes results to standard output or to a pager. It decides on the pager at the first write, so that a
// command without results, or an error before the first of them, starts no pager.
type pagerWriter struct {
	t          *tool
	started    bool
	pager      *term.Pager
	pagerQuit  bool
	replay     bytes.Buffer // copy of the output, for the case that the pager cannot be run
	pagerReads bool
}

// pagerReplayLimit is more than the buffer of a pipe holds: a pager that was sent so much has been reading.
const pagerReplayLimit = 1 << 20

func (s *pagerWriter) Write(p []byte) (int, error) {
	if !s.started {
		s.started = true
		if isTerminal(s.t.rawStdout) {
			s.startPager()
		}
	}
	n, err := len(p), error(nil)
	if s.pager == nil {
		n, err = s.t.rawStdout.Write(p)
	} else {
		s.keepForReplay(p)
		err = s.writePager(p)
	}
	if err != nil { // a long result is written before the command has ended, so mark the error here too
		err = &outputError{err}
	}
	return n, err
}

// startPager starts the pager, if one is configured. All errors are only warnings, since the output is readable
// without a pager.
func (s *pagerWriter) startPager() {
	style, err := s.t.outputStyle()
	if err != nil {
		s.t.warn("no colour and no pager: " + err.Error())
		return
	}
	if style.pager == "" {
		return
	}
	for _, err := range style.ignored {
		s.t.warn("ignoring " + err.Error())
	}
	results, _ := s.t.rawStdout.(*os.File)
	messages, ok := s.t.rawStderr.(*os.File)
	if !ok {
		messages = results
	}
	pager, err := term.StartPager(s.t.ctx, term.PagerRequest{Command: style.pager, Env: s.t.opts.Env, Stdout: results, Stderr: messages})
	if err != nil {
		s.t.warn(err.Error())
		return
	}
	s.pager = pager
	if isTerminal(s.t.rawStderr) {
		s.t.stderr = pagerStderr{s} // as in git: the pager would draw over messages on the terminal
	}
}

// keepForReplay copies output until the pager is known to read.
func (s *pagerWriter) keepForReplay(p []byte) {
	if s.pagerReads = s.pagerReads || s.replay.Len()+len(p) > pagerReplayLimit; s.pagerReads {
		s.replay.Reset()
		return
	}
	s.replay.Write(p)
}

// writePager sends output to the pager. A pager that was quit is no error here: the command runs to its end and keeps
// its own exit code.
func (s *pagerWriter) writePager(p []byte) error {
	if s.pagerQuit {
		return nil
	}
	_, err := s.pager.Write(p)
	if errors.Is(err, term.ErrPagerQuit) {
		s.pagerQuit = true
		return nil
	}
	return err
}

// pagerStderr sends messages to the pager, in order with the results. After the pager was quit, they go to standard
// error.
type pagerStderr struct{ *pagerWriter }

func (m pagerStderr) Write(p []byte) (int, error) {
	if err := errors.Join(m.t.stdout.Flush(), m.writePager(p)); err != nil || m.pagerQuit {
		return m.t.rawStderr.Write(p)
	}
	m.keepForReplay(p)
	return len(p), nil
}

// finish waits until the user has left the pager, and returns the exit code of the program for that of the command: as
// in git, leaving the pager early is 128+SIGPIPE and Ctrl-C is 128+SIGINT, unless the command failed.
func (s *pagerWriter) finish(ctx context.Context, code int) int {
	if s.pager == nil {
		return code
	}
	err := s.pager.Close()
	s.t.stderr = s.t.rawStderr
	var (
		missing     *term.PagerMissingError
		interrupted interruptedError
	)
	switch {
	case errors.As(err, &missing) && !s.pagerReads:
		s.t.warn(err.Error())
		if _, err := io.Copy(s.t.rawStdout, &s.replay); err != nil {
			return s.t.reportError(&outputError{err})
		}
		return code
	case err != nil && !errors.Is(err, term.ErrPagerQuit):
		s.t.warn("the pager: " + err.Error())
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
