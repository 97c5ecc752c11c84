package runs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/plaintext"
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
	OnNote         func(LogNote)      // receives what is not output of the agent, unless Raw is set; may be nil

	// CopyJobOutput copies the output of a run on another platform that goes on; nil if none does. With follow it returns when the run has ended.
	CopyJobOutput func(follow bool, stdout, stderr io.Writer) error
}

// LogNote says something about the output that comes after it.
type LogNote struct {
	Kind  string    // one of the kinds of notes
	Run   int       // number of the run; 0 for an agent that resolves the conflicts of a landing
	Began time.Time // begin of the run
}

// Kinds of notes.
const (
	NoteDropped = "dropped" // older output is not kept any more
	NoteRun     = "run"     // a run begins that is not the first
	NoteSetup   = "setup"   // no agent wrote anything; the output of agency.setup follows, on Stderr

	NoteUnrecorded = "unrecorded" // the agent of the run wrote on the terminal of the user, which is not kept
)

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
	var newStream func() runner.Stream
	if spec, known := findSpec(r, inv.Entry.Record.Runner); known && !req.Raw {
		newStream = spec.NewStream
	}
	p := newLogPrinter(r, inv.ID, newStream, req)
	defer func() { err = errors.Join(err, p.end()) }()
	if !req.Raw {
		if err := p.copyEarlierRuns(r, inv.ID); err != nil {
			return err
		}
	}
	for {
		inv, err := r.Invocation(inv.ID) // before the logs: what is written before the end is printed
		if err != nil {
			return err
		}
		if err := p.copyNew(); err != nil {
			return err
		}
		if inv.HasOpenJob() && req.CopyJobOutput != nil {
			return req.CopyJobOutput(req.Follow, printAtOnce(p.tails[1].to), printAtOnce(p.tails[2].to))
		}
		if !req.Follow || !inv.IsSupervised() {
			return p.copySetup(r.Store.SetupLogPath(r.ID, inv.ID))
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
	req    LogsRequest
	tails  []*tail
	texts  []*plaintext.Writer // empty if the output is raw
	stream *streamReader       // nil if the agent has none, or if the output is raw
}

// newLogPrinter returns the printer of the logs of an invocation. newStream is nil if standard output is not to be parsed.
func newLogPrinter(r *core.Repository, id string, newStream func() runner.Stream, req LogsRequest) *logPrinter {
	p := &logPrinter{req: req}
	text := func(to io.Writer, isScreen bool) io.Writer {
		if req.Raw {
			return to
		}
		p.texts = append(p.texts, &plaintext.Writer{To: to, IsScreen: isScreen})
		return p.texts[len(p.texts)-1]
	}
	terminal, stdout, stderr := text(req.Stdout, true), text(req.Stdout, false), text(req.Stderr, false)
	if newStream != nil {
		p.stream = &streamReader{stream: newStream(), report: req.OnEvent}
		stdout = p.stream
	}
	for i, to := range []io.Writer{terminal, stdout, stderr} {
		p.tails = append(p.tails, &tail{path: r.Store.OutputPath(r.ID, id, outputStreams[i]), to: to})
	}
	return p
}

func (p *logPrinter) note(note LogNote) {
	if p.req.OnNote != nil {
		p.req.OnNote(note)
	}
}

// copyEarlierRuns prints all streams of each run but the last, before those of the next.
func (p *logPrinter) copyEarlierRuns(r *core.Repository, id string) error {
	outputs, isDropped, err := readRunOutputs(r, id)
	if err != nil {
		return err
	}
	if isDropped {
		p.note(LogNote{Kind: NoteDropped})
	}
	for _, output := range outputs {
		for i, t := range p.tails {
			if err := t.copyUntil(output.starts[outputStreams[i]]); err != nil {
				return err
			}
		}
		if err := p.endLines(); err != nil {
			return err
		}
		if output.number != 1 {
			p.note(LogNote{Kind: NoteRun, Run: output.number, Began: output.began})
		}
		if output.isUnrecorded {
			p.note(LogNote{Kind: NoteUnrecorded, Run: output.number, Began: output.began})
		}
	}
	return nil
}

// endLines prints what is left of incomplete lines, with a newline.
func (p *logPrinter) endLines() (err error) {
	if p.stream != nil {
		p.stream.endLine()
	}
	for _, t := range p.texts {
		err = errors.Join(err, t.EndLine())
	}
	return err
}

// copySetup prints the output of agency.setup if there is no output of an agent: it may have failed.
func (p *logPrinter) copySetup(path string) error {
	if p.req.Raw || slices.ContainsFunc(p.tails, func(t *tail) bool { return t.copied > 0 }) {
		return nil
	}
	text := &plaintext.Writer{To: p.req.Stderr}
	log := &tail{path: path, to: text}
	defer log.close()
	if err := log.open(path); err != nil || log.file == nil {
		return err
	}
	p.note(LogNote{Kind: NoteSetup})
	return errors.Join(log.copyRest(), text.End())
}

// printAtOnce returns a writer that flushes the text after each write, so that output that is followed shows at once.
func printAtOnce(to io.Writer) io.Writer {
	if text, is := to.(*plaintext.Writer); is {
		return &flushedText{text}
	}
	return to
}

type flushedText struct{ text *plaintext.Writer }

func (w *flushedText) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	return n, errors.Join(err, w.text.Flush())
}

// copyNew prints what was added to the logs.
func (p *logPrinter) copyNew() error {
	for _, t := range p.tails {
		if err := t.copyNew(); err != nil {
			return err
		}
	}
	for _, t := range p.texts {
		if err := t.Flush(); err != nil {
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
		err = errors.Join(err, t.End())
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

	isCurrent bool  // file is not the older part
	offset    int64 // in file
	copied    int64 // bytes of all parts
}

// copyUntil copies what is before a position.
func (t *tail) copyUntil(end logPosition) error {
	if err := t.openFirst(); err != nil || t.file == nil {
		return err
	}
	switch {
	case t.isCurrent && !end.isCurrent:
		return nil
	case !t.isCurrent && end.isCurrent:
		if err := t.copyRest(); err != nil {
			return err
		}
		t.close()
		if err := t.open(t.path); err != nil || t.file == nil {
			return err
		}
	}
	return t.copyFrom(io.LimitReader(t.file, end.offset-t.offset))
}

// openFirst opens the first part of the log, if there is one and none is open.
func (t *tail) openFirst() error {
	if t.file != nil {
		return nil
	}
	if err := t.open(store.RotatedPath(t.path)); err != nil || t.file != nil {
		return err
	}
	return t.open(t.path)
}

// copyRest copies the open part to its end.
func (t *tail) copyRest() error { return t.copyFrom(t.file) }

func (t *tail) copyFrom(part io.Reader) error {
	n, err := io.Copy(t.to, part)
	t.offset, t.copied = t.offset+n, t.copied+n
	return err
}

// copyNew copies what was added since the last call, beginning with the older part of the log.
func (t *tail) copyNew() error {
	if err := t.openFirst(); err != nil {
		return err
	}
	for {
		if t.file != nil {
			if err := t.copyRest(); err != nil {
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
		next := t.path
		if t.file != nil {
			mine, err := t.file.Stat()
			if err != nil || os.SameFile(mine, current) {
				return err
			}
			if err := t.copyRest(); err != nil { // written before it was rotated
				return err
			}
			if older, err := os.Stat(store.RotatedPath(t.path)); err == nil && !os.SameFile(mine, older) {
				next = store.RotatedPath(t.path) // it was rotated more than once meanwhile
			}
		}
		t.close()
		if err := t.open(next); err != nil {
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
	t.file, t.isCurrent, t.offset = f, path == t.path, 0
	return err
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close() // only read
		t.file = nil
	}
}
