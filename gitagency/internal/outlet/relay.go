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
	afterEnd = 5 * time.Minute
)

// bufferedConn is a connection with a reader that returns the data buffered already first.
type side struct {
	net.Conn
	in io.Reader
}

// relay copies between two connections in both directions until both have ended, and closes them. When one side closes,
// the other is half-closed, and can still answer. When one fails, the other is aborted: only a regular end is passed on
// as an end. After idle without a byte in either direction both are aborted; 0 means never.
func relay(ctx context.Context, a, b side, idle time.Duration) {
	breakOff := func() {
		reset(a)
		reset(b)
	}
	defer b.Close()
	defer a.Close()
	defer onEnd(ctx, breakOff)()
	w := watchFor(idle, breakOff)
	defer w.stop()

	oneWay := func(dst, src side) {
		readErr, writeErr := pump(dst, src.in, w)
		switch {
		case readErr != nil:
			breakOff()
		case writeErr == nil:
			closeWrite(dst)
			w.shorten(afterEnd)
		default:
			// A peer that reads no more may still send, and then ends: the other direction handles that.
			w.shorten(afterEnd)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { oneWay(a, b) })
	oneWay(b, a)
	other.Wait()
}

// copyWatched copies until EOF, and tells a read error from a write error.
func pump(dst io.Writer, src io.Reader, w *watch) (readErr, writeErr error) {
	buf := make([]byte, bufferSize)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			w.alive()
			if _, err := dst.Write(buf[:n]); err != nil {
				return nil, err
			}
			w.alive()
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
type watch struct {
	limit atomic.Int64
	timer *time.Timer

	acting  sync.Mutex
	stopped bool
}

func watchFor(limit time.Duration, act func()) *watch {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	w := &watch{}
	w.limit.Store(int64(limit))
	w.timer = time.AfterFunc(limit, func() {
		w.acting.Lock()
		defer w.acting.Unlock()
		if !w.stopped {
			act()
		}
	})
	return w
}

func (w *watch) alive() { w.timer.Reset(time.Duration(w.limit.Load())) }

func (w *watch) shorten(limit time.Duration) {
	w.limit.Store(min(w.limit.Load(), int64(limit)))
	w.alive()
}

// stop ends the timer. The function does not run any more when it returns.
func (w *watch) stop() {
	w.timer.Stop()
	w.acting.Lock()
	defer w.acting.Unlock()
	w.stopped = true
}

// closeWrite closes a connection for writing. A connection that cannot be half-closed is closed: a peer that waits for
// the end would wait for ever.
func closeWrite(c net.Conn) {
	if s, ok := c.(side); ok {
		c = s.Conn
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	c.Close()
}

// abortConn closes a connection with a reset, so that the peer does not take it for a regular end.
func reset(c net.Conn) {
	if s, ok := c.(side); ok {
		c = s.Conn
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// closeGracefully closes a connection after a response so that the response arrives: closing while the peer still sends
// would discard it.
func hangUp(c net.Conn, in io.Reader) {
	closeWrite(c)
	c.SetReadDeadline(time.Now().Add(lingering))
	io.CopyN(io.Discard, in, 1<<20)
	c.Close()
}

const lingering = 2 * time.Second
