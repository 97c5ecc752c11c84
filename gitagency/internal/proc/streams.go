package proc

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// streams connect the standard streams of a program with the readers and writers of its Task.
type streams struct {
	childFiles      [3]*os.File // standard input, output and error of the program
	closeAfterStart []*os.File  // those of childFiles that we close after the start
	parentEnds      []*os.File  // our ends of the pipes
	stdinPipe       *os.File    // the one of parentEnds that we write to
	copiers         []func()    // functions that start copying, run once the program runs
	copying         sync.WaitGroup

	mu  sync.Mutex
	err error
}

func (t Task) openStreams() (_ *streams, err error) {
	s := &streams{}
	defer func() {
		if err != nil {
			s.closePassed()
			s.closeParentEnds()
		}
	}()
	if s.childFiles[0], err = s.openInput(t.Stdin); err != nil {
		return nil, err
	}
	if s.childFiles[1], err = s.openOutput(t.Stdout); err != nil {
		return nil, err
	}
	if sameWriter(t.Stdout, t.Stderr) {
		s.childFiles[2] = s.childFiles[1] // one pipe, so that lines stay in order and no two goroutines write at once
		return s, nil
	}
	s.childFiles[2], err = s.openOutput(t.Stderr)
	return s, err
}

// sameWriter reports whether two writers are the same; not all dynamic types are comparable.
func sameWriter(a, b io.Writer) (equal bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}

func (s *streams) openInput(r io.Reader) (*os.File, error) {
	if f, ok := r.(*os.File); ok && f != nil {
		return f, nil
	}
	if r == nil {
		return s.openNull(os.O_RDONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.closeAfterStart, s.parentEnds, s.stdinPipe = append(s.closeAfterStart, read), append(s.parentEnds, write), write
	// This copy is not waited for: the program need not read all of its input, and the reader may never end.
	s.copiers = append(s.copiers, func() {
		go func() {
			_, _ = io.Copy(write, r)
			_ = write.Close()
		}()
	})
	return read, nil
}

func (s *streams) openOutput(w io.Writer) (*os.File, error) {
	if f, ok := w.(*os.File); ok && f != nil {
		return f, nil
	}
	if w == nil {
		return s.openNull(os.O_WRONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.closeAfterStart, s.parentEnds = append(s.closeAfterStart, write), append(s.parentEnds, read)
	s.copiers = append(s.copiers, func() {
		s.copying.Go(func() {
			if _, err := io.Copy(w, read); !errors.Is(err, os.ErrDeadlineExceeded) {
				s.mu.Lock()
				s.err = errors.Join(s.err, err)
				s.mu.Unlock()
			}
			_ = read.Close() // the program gets SIGPIPE or EPIPE if it goes on writing
		})
	})
	return write, nil
}

func (s *streams) openNull(flag int) (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, flag, 0)
	if err == nil {
		s.closeAfterStart = append(s.closeAfterStart, f)
	}
	return f, err
}

// closePassed closes the descriptors that the program has inherited.
func (s *streams) closePassed() {
	for _, f := range s.closeAfterStart {
		_ = f.Close()
	}
}

// startCopying starts the copies once the program runs: input read for a program that never ran would be lost.
func (s *streams) startCopying() {
	for _, begin := range s.copiers {
		begin()
	}
	s.copiers = nil
}

// closeParentEnds closes our ends of the pipes of a program that did not start.
func (s *streams) closeParentEnds() {
	for _, f := range s.parentEnds {
		_ = f.Close()
	}
}

// waitCopied waits until all output is copied. No process of the program is left to write more; but another process may
// have inherited a pipe, or the writer may block, and neither is waited for.
func (s *streams) waitCopied() error {
	const enough = time.Second // for the content of a pipe
	if s.copiers != nil {
		s.closeParentEnds()
	}
	if s.stdinPipe != nil {
		_ = s.stdinPipe.Close()
	}
	for _, f := range s.parentEnds {
		_ = f.SetReadDeadline(time.Now().Add(enough)) // an end that is closed already has been read to EOF
	}
	done := make(chan struct{})
	go func() { s.copying.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * enough):
		return errors.New("the reader of the output does not read it")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
