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

	// afterEnd is how long a connection may be silent of which one side has said all it had to say. Longer than any
	// answer should take; shorter than for ever, as a program that was killed looks the same.
	afterEnd = 5 * time.Minute
)

// side is one end of a relay: what was read of it already comes first.
type side struct {
	net.Conn
	in io.Reader
}

// relay copies between two connections, both ways, until both have ended; then it closes them. When one side ends,
// the other is told, and can still answer. When one breaks, the other is broken off too: an end is only passed on if it
// was one. After idle without a byte either way both are broken off; 0 means never.
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
			// Who takes no more may still have something to say, and then ends: the other way sees to that.
			w.shorten(afterEnd)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { oneWay(a, b) })
	oneWay(b, a)
	other.Wait()
}

// pump copies until src ends, and says which of the two failed, if one did.
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

// watch does something when nothing has happened for a time.
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

// stop ends the watch. Nothing is done any more when it returns.
func (w *watch) stop() {
	w.timer.Stop()
	w.acting.Lock()
	defer w.acting.Unlock()
	w.stopped = true
}

// closeWrite says that nothing more comes. A connection that cannot say so is closed: a peer that waits for an end
// would wait for ever.
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

// reset closes so that the peer does not take it for an end.
func reset(c net.Conn) {
	if s, ok := c.(side); ok {
		c = s.Conn
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// hangUp closes after an answer, so that the answer arrives: closing while the peer still sends would throw it away.
func hangUp(c net.Conn, in io.Reader) {
	closeWrite(c)
	c.SetReadDeadline(time.Now().Add(lingering))
	io.CopyN(io.Discard, in, 1<<20)
	c.Close()
}

const lingering = 2 * time.Second
