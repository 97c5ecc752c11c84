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

	"github.com/git-agency/git-agency/gitagency"
)

// pagedCommands are the commands with long output for people. It is paged on a terminal unless pager.agency says
// otherwise; that key can also page the output of all commands, as it does for git itself.
var paged = []string{"ls", "worktree ls", "diff", "radar", "denials", "snapshot ls", "doctor", "config", "help"}

// pagerPolicy is all that decides whether to start a pager.
type pagerQuestion struct {
	terminal bool   // whether standard output is a terminal
	inUse    bool   // whether git has started a pager already
	setting  string // always or never, by pager.agency; empty without it
	program  string // command line of the pager; empty for none
	listing  bool   // whether the output is a long listing for people
}

func (p pagerQuestion) answer() bool {
	switch {
	case !p.terminal || p.inUse || p.program == "":
		return false
	case p.setting != "":
		return p.setting == "always"
	}
	return p.listing
}

// markPageable wraps the actions of pagedCommands so that each sets t.pageable when it runs.
func (t *tool) noticePaging(commands []*cli.Command, prefix string) {
	for _, c := range commands {
		path, action := prefix+c.Name, c.Action
		if action != nil && slices.Contains(paged, path) {
			c.Action = func(c *cli.Context) error {
				t.pages = !c.Bool("json") && !c.Bool("porcelain") && !c.IsSet("format")
				return action(c)
			}
		}
		t.noticePaging(c.Subcommands, path+" ")
	}
}

// pagerWriter writes results to standard output or to a pager. It decides on the pager at the first write, so that a
// command without results, or an error before the first of them, starts no pager.
type screen struct {
	t      *tool
	begun  bool
	pager  *gitagency.Pager
	quit   bool
	kept   bytes.Buffer // copy of the output, for the case that the pager cannot be run
	proved bool
}

// pagerProof is more than the buffer of a pipe holds: a pager that was sent so much has been reading.
const proof = 1 << 20

func (s *screen) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		if isTerminal(s.t.results) {
			s.start()
		}
	}
	n, err := len(p), error(nil)
	if s.pager == nil {
		n, err = s.t.results.Write(p)
	} else {
		s.keep(p)
		err = s.show(p)
	}
	if err != nil { // a long result is written before the command has ended, so mark the error here too
		err = &outputError{err}
	}
	return n, err
}

// startPager starts the pager, if one is configured. All errors are only warnings, since the output is readable
// without a pager.
func (s *screen) start() {
	style, err := s.t.look()
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
	results, _ := s.t.results.(*os.File)
	messages, ok := s.t.messages.(*os.File)
	if !ok {
		messages = results
	}
	pager, err := gitagency.StartPager(s.t.ctx, gitagency.PagerRequest{Command: style.pager, Env: s.t.opts.Env, Stdout: results, Stderr: messages})
	if err != nil {
		s.t.warn(err.Error())
		return
	}
	s.pager = pager
	if isTerminal(s.t.messages) {
		s.t.stderr = pagedMessages{s} // as in git: the pager would draw over messages on the terminal
	}
}

// keepForReplay copies output until the pager is known to read.
func (s *screen) keep(p []byte) {
	if s.proved = s.proved || s.kept.Len()+len(p) > proof; s.proved {
		s.kept.Reset()
		return
	}
	s.kept.Write(p)
}

// writePager sends output to the pager. A pager that was quit is no error here: the command runs to its end and keeps
// its own exit code.
func (s *screen) show(p []byte) error {
	if s.quit {
		return nil
	}
	_, err := s.pager.Write(p)
	if errors.Is(err, gitagency.ErrPagerQuit) {
		s.quit = true
		return nil
	}
	return err
}

// pagerStderr sends messages to the pager, in order with the results. After the pager was quit, they go to standard
// error.
type pagedMessages struct{ *screen }

func (m pagedMessages) Write(p []byte) (int, error) {
	if err := errors.Join(m.t.stdout.Flush(), m.show(p)); err != nil || m.quit {
		return m.t.messages.Write(p)
	}
	m.keep(p)
	return len(p), nil
}

// finish waits until the user has left the pager, and returns the exit code of the program for that of the command: as
// in git, leaving the pager early is 128+SIGPIPE and Ctrl-C is 128+SIGINT, unless the command failed.
func (s *screen) end(ctx context.Context, code int) int {
	if s.pager == nil {
		return code
	}
	err := s.pager.Close()
	s.t.stderr = s.t.messages
	var (
		missing     *gitagency.PagerMissingError
		interrupted interruptedError
	)
	switch {
	case errors.As(err, &missing) && !s.proved:
		s.t.warn(err.Error())
		if _, err := io.Copy(s.t.results, &s.kept); err != nil {
			return s.t.report(&outputError{err})
		}
		return code
	case err != nil && !errors.Is(err, gitagency.ErrPagerQuit):
		s.t.warn("the pager: " + err.Error())
		return code
	case code != 0:
		return code
	case errors.As(context.Cause(ctx), &interrupted):
		return 128 + int(interrupted.signal)
	case errors.Is(err, gitagency.ErrPagerQuit):
		return 128 + int(syscall.SIGPIPE)
	}
	return 0
}
