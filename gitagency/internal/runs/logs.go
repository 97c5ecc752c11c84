package runs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// LogsRequest says what of an agent's output to print.
type LogsRequest struct {
	ID     string // required: id of the invocation
	Raw    bool   // byte for byte; else as text that cannot control a terminal
	Follow bool   // until the run has ended

	Stdout, Stderr io.Writer          // required: receive the output of the agent
	OnEvent        func(runner.Event) // required: receives what the stream of the agent tells, instead of Stdout, unless Raw is set
}

// followInterval is how often a log is read again that is followed.
const followInterval = 100 * time.Millisecond

// Logs prints what the agent of an invocation wrote.
func Logs(ctx context.Context, r *core.Repository, req LogsRequest) (err error) {
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return err
	}
	if inv.Entry.Record.SessionID == "" {
		return &NoRunError{ID: inv.ID}
	}
	p := newLogPrinter(r, inv, req)
	defer func() { err = errors.Join(err, p.end()) }()
	for {
		inv, err := r.Invocation(inv.ID) // before the logs: what is written before the end is printed
		if err != nil {
			return err
		}
		if err := p.copyNew(); err != nil {
			return err
		}
		if !req.Follow || !inv.IsSupervised() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(followInterval):
		}
	}
}

// logPrinter prints the logs of an invocation.
type logPrinter struct {
	tails  []*tail
	texts  []*textWriter // empty if the output is raw
	stream *streamReader // nil if the agent has none, or if the output is raw
}

func newLogPrinter(r *core.Repository, inv core.Invocation, req LogsRequest) *logPrinter {
	p := &logPrinter{}
	text := func(to io.Writer, isScreen bool) io.Writer {
		if req.Raw {
			return to
		}
		p.texts = append(p.texts, &textWriter{to: to, isScreen: isScreen})
		return p.texts[len(p.texts)-1]
	}
	terminal, stdout, stderr := text(req.Stdout, true), text(req.Stdout, false), text(req.Stderr, false)
	if spec, known := findSpec(r, inv.Entry.Record.Runner); known && spec.NewStream != nil && !req.Raw {
		p.stream = &streamReader{stream: spec.NewStream(), report: req.OnEvent}
		stdout = p.stream
	}
	p.tails = []*tail{
		{path: r.Store.OutputPath(r.ID, inv.ID, "terminal"), to: terminal},
		{path: r.Store.OutputPath(r.ID, inv.ID, "stdout"), to: stdout},
		{path: r.Store.OutputPath(r.ID, inv.ID, "stderr"), to: stderr},
	}
	return p
}

// copyNew prints what was added to the logs.
func (p *logPrinter) copyNew() error {
	for _, t := range p.tails {
		if err := t.copyNew(); err != nil {
			return err
		}
	}
	for _, t := range p.texts {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// end prints what is left of incomplete lines, and closes the logs.
func (p *logPrinter) end() (err error) {
	if p.stream != nil {
		p.stream.summary() // it parses a last line without a newline
	}
	for _, t := range p.texts {
		err = errors.Join(err, t.end())
	}
	for _, t := range p.tails {
		t.close()
	}
	return err
}

// HasStream reports whether events of an agent can be read from its output.
func HasStream(r *core.Repository, runner string) bool {
	spec, known := findSpec(r, runner)
	return known && spec.NewStream != nil
}

// tail copies a log that may be written and rotated meanwhile.
type tail struct {
	path string
	to   io.Writer
	file *os.File // part of the log that is being read; nil before the first
}

// copyNew copies what was added since the last call, beginning with the older part of the log.
func (t *tail) copyNew() error {
	if t.file == nil {
		if err := t.open(store.RotatedPath(t.path)); err != nil {
			return err
		}
	}
	for {
		if t.file != nil {
			if _, err := io.Copy(t.to, t.file); err != nil {
				return err
			}
		}
		current, err := os.Stat(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if t.file != nil {
			mine, err := t.file.Stat()
			if err != nil || os.SameFile(mine, current) {
				return err
			}
			if _, err := io.Copy(t.to, t.file); err != nil { // written before it was rotated
				return err
			}
		}
		t.close()
		if err := t.open(t.path); err != nil {
			return err
		}
	}
}

// open opens a part of the log, if it exists.
func (t *tail) open(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	t.file = f
	return err
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close() // only read
		t.file = nil
	}
}
