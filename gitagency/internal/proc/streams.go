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
	child  [3]*os.File // standard input, output and error of the program
	passed []*os.File  // those of childFiles that we close after the start
	ends   []*os.File  // our ends of the pipes
	input  *os.File    // the one of parentEnds that we write to
	copied []func()    // functions that start copying, run once the program runs
	copies sync.WaitGroup

	mu  sync.Mutex
	err error
}

func (t Task) connect() (_ *streams, err error) {
	s := &streams{}
	defer func() {
		if err != nil {
			s.handOver()
			s.abandon()
		}
	}()
	if s.child[0], err = s.source(t.Stdin); err != nil {
		return nil, err
	}
	if s.child[1], err = s.sink(t.Stdout); err != nil {
		return nil, err
	}
	if same(t.Stdout, t.Stderr) {
		s.child[2] = s.child[1] // one pipe, so that lines stay in order and no two goroutines write at once
		return s, nil
	}
	s.child[2], err = s.sink(t.Stderr)
	return s, err
}

// sameWriter reports whether two writers are the same; not all dynamic types are comparable.
func same(a, b io.Writer) (equal bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}

func (s *streams) source(r io.Reader) (*os.File, error) {
	if f, ok := r.(*os.File); ok && f != nil {
		return f, nil
	}
	if r == nil {
		return s.null(os.O_RDONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.passed, s.ends, s.input = append(s.passed, read), append(s.ends, write), write
	// This copy is not waited for: the program need not read all of its input, and the reader may never end.
	s.copied = append(s.copied, func() {
		go func() {
			_, _ = io.Copy(write, r)
			_ = write.Close()
		}()
	})
	return read, nil
}

func (s *streams) sink(w io.Writer) (*os.File, error) {
	if f, ok := w.(*os.File); ok && f != nil {
		return f, nil
	}
	if w == nil {
		return s.null(os.O_WRONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.passed, s.ends = append(s.passed, write), append(s.ends, read)
	s.copied = append(s.copied, func() {
		s.copies.Go(func() {
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

func (s *streams) null(flag int) (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, flag, 0)
	if err == nil {
		s.passed = append(s.passed, f)
	}
	return f, err
}

// closePassed closes the descriptors that the program has inherited.
func (s *streams) handOver() {
	for _, f := range s.passed {
		_ = f.Close()
	}
}

// startCopying starts the copies once the program runs: input read for a program that never ran would be lost.
func (s *streams) begin() {
	for _, begin := range s.copied {
		begin()
	}
	s.copied = nil
}

// closeParentEnds closes our ends of the pipes of a program that did not start.
func (s *streams) abandon() {
	for _, f := range s.ends {
		_ = f.Close()
	}
}

// waitCopied waits until all output is copied. No process of the program is left to write more; but another process may
// have inherited a pipe, or the writer may block, and neither is waited for.
func (s *streams) finish() error {
	const enough = time.Second // for the content of a pipe
	if s.copied != nil {
		s.abandon()
	}
	if s.input != nil {
		_ = s.input.Close()
	}
	for _, f := range s.ends {
		_ = f.SetReadDeadline(time.Now().Add(enough)) // an end that is closed already has been read to EOF
	}
	done := make(chan struct{})
	go func() { s.copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * enough):
		return errors.New("whoever gets the output takes nothing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
