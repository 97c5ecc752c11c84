package proc

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// streams connect a program with what it reads and writes.
type streams struct {
	child  [3]*os.File // what the program gets
	passed []*os.File  // of those, the ones that are ours to close once it has them
	ends   []*os.File  // our ends of the pipes
	input  *os.File    // of those, the one we write to
	copied []func()    // what begins when the program runs
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
		s.child[2] = s.child[1] // one pipe, so that lines stay in order and nobody writes twice at once
		return s, nil
	}
	s.child[2], err = s.sink(t.Stderr)
	return s, err
}

// same reports whether two writers are one; not all can be compared.
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
	// A program need not read all it is given, and the reader may never end: nobody waits for this one.
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
			_ = read.Close() // a program that goes on writing shall hear of it
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

// handOver closes what the program has now.
func (s *streams) handOver() {
	for _, f := range s.passed {
		_ = f.Close()
	}
}

// begin copies, once the program runs: what was read for one that never ran would be lost.
func (s *streams) begin() {
	for _, begin := range s.copied {
		begin()
	}
	s.copied = nil
}

// abandon gives up what was prepared for a program that did not start.
func (s *streams) abandon() {
	for _, f := range s.ends {
		_ = f.Close()
	}
}

// finish waits until all that was written is copied. Of the program nobody is left who could write more;
// somebody else may have got hold of a pipe, or the other side may take nothing, and neither is waited for.
func (s *streams) finish() error {
	const enough = time.Second // for what a pipe holds
	if s.copied != nil {
		s.abandon()
	}
	if s.input != nil {
		_ = s.input.Close()
	}
	for _, f := range s.ends {
		_ = f.SetReadDeadline(time.Now().Add(enough)) // one that is closed already has come to its end
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
