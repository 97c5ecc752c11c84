package term

import (
	"bytes"
	"errors"
	"io"
)

// PagedWriter writes to standard output or to a pager. It decides on the pager at the first write, so that a command
// without results, or an error before the first of them, starts no pager.
type PagedWriter struct {
	Stdout io.Writer     // required
	Start  func() *Pager // required: starts the pager, or returns nil to write to Stdout

	started    bool
	pager      *Pager
	pagerQuit  bool
	replay     bytes.Buffer // copy of the output, for the case that the pager cannot be run
	pagerReads bool
}

// replayLimit is more than the buffer of a pipe holds: a pager that was sent so much has been reading.
const replayLimit = 1 << 20

func (w *PagedWriter) Write(p []byte) (int, error) {
	if !w.started {
		w.started = true
		w.pager = w.Start()
	}
	if w.pager == nil {
		return w.Stdout.Write(p)
	}
	w.keepForReplay(p)
	return len(p), w.writePager(p)
}

// WriteToPager sends a message to the pager. It reports false where the pager cannot show it.
func (w *PagedWriter) WriteToPager(p []byte) bool {
	if err := w.writePager(p); err != nil || w.pagerQuit {
		return false
	}
	w.keepForReplay(p)
	return true
}

// keepForReplay copies output until the pager is known to read.
func (w *PagedWriter) keepForReplay(p []byte) {
	if w.pagerReads = w.pagerReads || w.replay.Len()+len(p) > replayLimit; w.pagerReads {
		w.replay.Reset()
		return
	}
	w.replay.Write(p)
}

// writePager sends output to the pager. A pager that was quit is no error here: the command runs to its end and keeps
// its own exit code.
func (w *PagedWriter) writePager(p []byte) error {
	if w.pagerQuit {
		return nil
	}
	_, err := w.pager.Write(p)
	if errors.Is(err, ErrPagerQuit) {
		w.pagerQuit = true
		return nil
	}
	return err
}

// Paged reports whether a pager was started.
func (w *PagedWriter) Paged() bool { return w.pager != nil }

// Close waits until the user has left the pager; see Pager.Close.
func (w *PagedWriter) Close() error { return w.pager.Close() }

// CanReplay reports whether a pager that could not be run has lost nothing, because Replay still has all output.
func (w *PagedWriter) CanReplay() bool { return !w.pagerReads }

// Replay writes the output again, to standard output.
func (w *PagedWriter) Replay() error {
	_, err := io.Copy(w.Stdout, &w.replay)
	return err
}
