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

// paged are the commands whose output for people may be long. It is paged on a terminal unless
// pager.agency says otherwise; that key can also have everything paged, as it does for git itself.
var paged = []string{"ls", "worktree ls", "diff", "radar", "denials", "snapshot ls", "doctor", "config", "help"}

// pagerQuestion is all that decides whether to start a pager.
type pagerQuestion struct {
	terminal bool   // results go to a terminal
	inUse    bool   // git has started a pager already
	setting  string // always or never: pager.agency; empty without it
	program  string // the pager; empty for none
	listing  bool   // a long listing for people is about to be printed
}

func (q pagerQuestion) answer() bool {
	switch {
	case !q.terminal || q.inUse || q.program == "":
		return false
	case q.setting != "":
		return q.setting == "always"
	}
	return q.listing
}

// noticePaging lets every command say, when it is run, whether what it prints is paged.
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

// screen is where results go. Before the first of them it finds out whether they are to be paged; an
// error before any result, or no result at all, starts no pager.
type screen struct {
	t      *tool
	begun  bool
	pager  *gitagency.Pager
	quit   bool
	kept   bytes.Buffer // what the pager was given, until it is sure that there is one
	proved bool
}

// proof is more than a pipe holds: who was given as much and took it, is there.
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
	if err != nil { // also of a long result, which is written before the command has ended
		err = &outputError{err}
	}
	return n, err
}

// start starts the pager, if there is to be one. Without it, one can still read: so nothing that goes
// wrong here is more than a warning.
func (s *screen) start() {
	look, err := s.t.look()
	if err != nil {
		s.t.warn("no colour and no pager: " + err.Error())
		return
	}
	if look.pager == "" {
		return
	}
	for _, err := range look.ignored {
		s.t.warn("ignoring " + err.Error())
	}
	results, _ := s.t.results.(*os.File)
	messages, ok := s.t.messages.(*os.File)
	if !ok {
		messages = results
	}
	pager, err := gitagency.StartPager(s.t.ctx, gitagency.PagerRequest{Command: look.pager, Env: s.t.opts.Env, Stdout: results, Stderr: messages})
	if err != nil {
		s.t.warn(err.Error())
		return
	}
	s.pager = pager
	if isTerminal(s.t.messages) {
		s.t.stderr = pagedMessages{s} // as git does: they would be painted over
	}
}

func (s *screen) keep(p []byte) {
	if s.proved = s.proved || s.kept.Len()+len(p) > proof; s.proved {
		s.kept.Reset()
		return
	}
	s.kept.Write(p)
}

// show gives the pager something. When nobody reads any more, that is no error yet: the command goes
// on to its end and keeps its own exit code.
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

// pagedMessages are shown by the pager too, in their place between the results. Where it shows nothing
// any more, they are still told.
type pagedMessages struct{ *screen }

func (m pagedMessages) Write(p []byte) (int, error) {
	if err := errors.Join(m.t.stdout.Flush(), m.show(p)); err != nil || m.quit {
		return m.t.messages.Write(p)
	}
	m.keep(p)
	return len(p), nil
}

// end waits until the user has left the pager, and turns the exit code of the command into that of the
// program: as in git, leaving early is 128+SIGPIPE and Ctrl-C 128+SIGINT, unless the command failed.
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
