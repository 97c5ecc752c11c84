package outlet

import (
	"context"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bufferSize = 32 << 10

	// halfClosedTimeout is the idle timeout of a connection with one side closed for writing. Longer than any response
	// should take; but finite, as a killed program looks the same.
	halfClosedTimeout = 5 * time.Minute
)

// bufferedConn is a connection with a reader that returns the data buffered already first.
type bufferedConn struct {
	net.Conn
	reader io.Reader
}

// relay copies between two connections in both directions until both have ended, and closes them. When one side closes,
// the other is half-closed, and can still answer. When one fails, the other is aborted: only a regular end is passed on
// as an end. After idle without a byte in either direction both are aborted; 0 means never.
func relay(ctx context.Context, a, b bufferedConn, idle time.Duration) {
	breakOff := func() {
		abortConn(a)
		abortConn(b)
	}
	defer b.Close()
	defer a.Close()
	defer onCancel(ctx, breakOff)()
	w := newIdleTimer(idle, breakOff)
	defer w.stop()

	oneWay := func(dst, src bufferedConn) {
		readErr, writeErr := copyWatched(dst, src.reader, w)
		switch {
		case readErr != nil:
			breakOff()
		case writeErr == nil:
			closeWrite(dst)
			w.shorten(halfClosedTimeout)
		default:
			// A peer that reads no more may still send, and then ends: the other direction handles that.
			w.shorten(halfClosedTimeout)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { oneWay(a, b) })
	oneWay(b, a)
	other.Wait()
}

// copyWatched copies until EOF, and tells a read error from a write error.
func copyWatched(dst io.Writer, src io.Reader, w *idleTimer) (readErr, writeErr error) {
	buf := make([]byte, bufferSize)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			w.touch()
			if _, err := dst.Write(buf[:n]); err != nil {
				return nil, err
			}
			w.touch()
		}
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return err, nil
		}
	}
}

// idleTimer calls a function when nothing has happened for a time.
type idleTimer struct {
	limit atomic.Int64
	timer *time.Timer

	mu      sync.Mutex
	stopped bool
}

func newIdleTimer(limit time.Duration, act func()) *idleTimer {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	w := &idleTimer{}
	w.limit.Store(int64(limit))
	w.timer = time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.stopped {
			act()
		}
	})
	return w
}

func (w *idleTimer) touch() { w.timer.Reset(time.Duration(w.limit.Load())) }

func (w *idleTimer) shorten(limit time.Duration) {
	w.limit.Store(min(w.limit.Load(), int64(limit)))
	w.touch()
}

// stop ends the timer. The function does not run any more when it returns.
func (w *idleTimer) stop() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// closeWrite closes a connection for writing. A connection that cannot be half-closed is closed: a peer that waits for
// the end would wait for ever.
func closeWrite(c net.Conn) {
	if s, ok := c.(bufferedConn); ok {
		c = s.Conn
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	c.Close()
}

// abortConn closes a connection with a reset, so that the peer does not take it for a regular end.
func abortConn(c net.Conn) {
	if s, ok := c.(bufferedConn); ok {
		c = s.Conn
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// closeGracefully closes a connection after a response so that the response arrives: closing while the peer still sends
// would discard it.
func closeGracefully(c net.Conn, in io.Reader) {
	closeWrite(c)
	c.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, in, 1<<20)
	c.Close()
}

const lingerTime = 2 * time.Second
