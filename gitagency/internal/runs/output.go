package runs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Sizes at which a log is renamed to <name>.1, which replaces the one before it. A terminal is drawn again and again.
const (
	maxLog         = 16 << 20
	maxTerminalLog = 256 << 10
)

// logFile appends to a log. It rotates the log, so that an agent cannot fill the disk with its output.
type logFile struct {
	path     string
	most     int64  // size at which it is rotated
	onRotate func() // called after it was rotated
	file     *os.File
	size     int64
	err      error // of a write of an agent's output; the rest of that is not kept, and the agent works on
}

func openLog(path string, most int64, onRotate func()) (*logFile, error) {
	l := &logFile{path: path, most: most, onRotate: onRotate}
	return l, l.open()
}

func (l *logFile) open() (err error) {
	l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	fi, err := l.file.Stat()
	if err != nil {
		return errors.Join(err, l.file.Close())
	}
	l.size = fi.Size()
	return nil
}

func (l *logFile) Write(p []byte) (int, error) {
	if l.size > 0 && l.size+int64(len(p)) > l.most {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) rotate() error {
	if err := errors.Join(l.file.Close(), os.Rename(l.path, store.RotatedPath(l.path))); err != nil {
		return err
	}
	l.onRotate()
	return l.open()
}

// outputLogs are the logs of both output streams of a run.
type outputLogs []*logFile

// close closes the logs, and returns why the output could not be kept.
func (l outputLogs) close() (err error) {
	for _, log := range l {
		err = errors.Join(err, log.err)
		if closeErr := log.file.Close(); log.err == nil { // after a rotation that failed it is closed already
			err = errors.Join(err, closeErr)
		}
	}
	return err
}

// connectOutput connects the output of the agent with its logs, its stream reader and the caller. The output of an
// interactive agent in the foreground is drawn for a terminal and not kept; see keepTerminal.
func (a *attempt) connectOutput(opts *sandbox.ExecOptions) (logs outputLogs, err error) {
	if a.req.Terminal {
		opts.Stdout, opts.Stderr = a.req.Stdout, a.req.Stderr
		return nil, nil
	}
	var writers [2]io.Writer
	for i, c := range []struct {
		name string
		to   io.Writer
	}{
		{"stdout", a.req.Stdout},
		{"stderr", a.req.Stderr},
	} {
		log, err := a.openLog(c.name, maxLog)
		if err != nil {
			return nil, errors.Join(err, logs.close())
		}
		logs = append(logs, log)
		writers[i] = &output{log: log, caller: c.to, budget: &a.budget}
	}
	if a.stream != nil {
		writers[0] = io.MultiWriter(writers[0], a.stream)
		writers[1] = io.MultiWriter(writers[1], errorReader{a.stream})
	}
	opts.Stdout, opts.Stderr = writers[0], writers[1]
	return logs, nil
}

// output copies what the agent writes to its log and to the caller. A caller that went away does not end the run.
type output struct {
	log    *logFile
	caller io.Writer // nil if there is none
	budget *budget
}

func (o *output) Write(p []byte) (int, error) {
	o.budget.write(len(p))
	if o.caller != nil {
		if _, err := o.caller.Write(p); err != nil {
			o.caller = nil
		}
	}
	if o.log.err == nil {
		_, o.log.err = o.log.Write(p)
	}
	return len(p), nil
}

// maxStreamLine bounds a line of an agent's stream that is parsed; a longer one is left out.
const maxStreamLine = 4 << 20

// streamReader splits the output of an agent into lines for its stream reader.
type streamReader struct {
	stream runner.Stream
	report func(runner.Event)

	mu             sync.Mutex
	stdout, stderr lineSplitter
}

// Write reads standard output.
func (s *streamReader) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stdout.split(p, s.parse)
	return len(p), nil
}

// errorReader reads standard error.
type errorReader struct{ *streamReader }

func (s errorReader) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stderr.split(p, s.parseError)
	return len(p), nil
}

func (s *streamReader) parse(line []byte)      { s.reportAll(s.stream.Line(line)) }
func (s *streamReader) parseError(line []byte) { s.reportAll(s.stream.ErrorLine(line)) }

func (s *streamReader) reportAll(events []runner.Event) {
	for _, event := range events {
		s.report(event)
	}
}

// summary parses the last lines if they have no newline, and returns what the output told.
func (s *streamReader) summary() runner.Summary {
	s.endLine()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Summary()
}

// endLine parses a line without a newline.
func (s *streamReader) endLine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stdout.flush(s.parse)
	s.stderr.flush(s.parseError)
}

// lineSplitter splits a stream into lines.
type lineSplitter struct {
	pending []byte
	skip    bool // inside a line that is too long
}

func (l *lineSplitter) split(p []byte, each func(line []byte)) {
	for {
		line, rest, complete := bytes.Cut(p, []byte{'\n'})
		if !l.skip {
			l.pending = append(l.pending, line...)
		}
		if l.skip = l.skip || len(l.pending) > maxStreamLine; l.skip {
			l.pending = nil
		}
		if !complete {
			return
		}
		if !l.skip {
			each(l.pending)
		}
		l.pending, l.skip, p = l.pending[:0], false, rest
	}
}

// flush passes a last line without a newline.
func (l *lineSplitter) flush(each func(line []byte)) {
	if len(l.pending) > 0 && !l.skip {
		each(l.pending)
	}
	l.pending, l.skip = nil, false
}

// maxEventText bounds the text of one event.
const maxEventText = 4 << 10

// reportEvent appends an event of the agent's stream to the history, and tells the caller.
func (a *attempt) reportEvent(event runner.Event) {
	event.Text = quote.Shorten(event.Text, maxEventText)
	event.Tool = quote.Shorten(event.Tool, 200)
	if event.Kind == runner.Usage {
		a.budget.spend(a.stream.stream.Summary())
	}
	a.repo.AppendEvent(a.sandbox.ID, agentEvent{a.repo.EventTime(), agentEventName, event.Kind, event.Tool, event.Text})
	if a.req.OnEvent != nil {
		a.req.OnEvent(event)
	}
}

const agentEventName = "agent"

// agentEvent is an event of the agent's own stream.
type agentEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Kind  string    `json:"kind"`
	Tool  string    `json:"tool,omitempty"`
	Text  string    `json:"text,omitempty"`
}
