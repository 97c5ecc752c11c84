package terminal

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Attach connects the user's terminal with a Host until its program has ended (ended is true), the detach keys are typed,
// or ctx ends: then the error is its cause. The program goes on. Whatever it writes is only printed. Attach fails with
// fs.ErrNotExist if there is no host.
func Attach(ctx context.Context, req AttachRequest) (ended bool, err error) {
	conn, err := dialHost(req.Dir)
	if err != nil {
		return false, err
	}
	c := &attached{
		req: req, conn: conn, matcher: keyMatcher{keys: req.DetachKeys},
		messages: make(chan message, maxTyped), left: make(chan struct{}), outputDone: make(chan struct{}),
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGCONT)
	defer signal.Stop(signals)
	if req.Keyboard != nil {
		if c.keyboard, err = openKeys(req.Keyboard, true); err != nil {
			return false, errors.Join(err, conn.Close())
		}
		go func() {
			defer close(c.left)
			c.keyboard.read(c.sendKeys)
		}()
	}
	defer func() { err = errors.Join(err, c.close()) }()
	go c.copyOutput()
	go c.sendMessages()
	c.sendSize()
	for {
		select {
		case <-c.outputDone:
			return c.outErr == nil, c.outErr
		case <-c.left:
			c.waitSent()
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case s := <-signals:
			if s == unix.SIGCONT && c.keyboard != nil { // the shell has set its own modes
				_ = c.keyboard.setModes() // a terminal that is gone ends read
			}
			c.sendSize()
		}
	}
}

// dialHost connects to the host of a directory.
func dialHost(dir string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	conn, err := net.DialUnix("unix", nil, socketAddress(d))
	if errors.Is(err, syscall.ECONNREFUSED) { // its process was killed
		err = &fs.PathError{Op: "connect", Path: dir + "/" + socketName, Err: fs.ErrNotExist}
	}
	return conn, err
}

// attached is a client from its own view.
type attached struct {
	req      AttachRequest
	conn     *net.UnixConn
	keyboard *keyboard // nil: none
	matcher  keyMatcher
	messages chan message // to the host

	left       chan struct{} // closed when the detach keys were typed or the terminal was hung up
	outputDone chan struct{} // closed when no more output comes
	outErr     error         // write error of Out; readable once outputDone is closed
	modes      modeTracker   // modes that the output has switched on; owned by copyOutput until outputDone is closed
	last       byte          // last byte of the output; the same
}

// copyOutput prints what the host sends.
func (c *attached) copyOutput() {
	defer close(c.outputDone)
	buffer := make([]byte, maxWrite)
	for {
		n, err := c.conn.Read(buffer)
		if n > 0 {
			c.modes.follow(buffer[:n])
			c.last = buffer[n-1]
			if _, c.outErr = c.req.Out.Write(buffer[:n]); c.outErr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// maxTyped is the number of messages that wait while the program does not read. What is typed after that is lost, as at any
// terminal: the detach keys must still be seen.
const maxTyped = 1024

type message struct {
	kind    byte
	content []byte
	sent    chan struct{} // not nil: no message, and closed once all before it are sent
}

func (c *attached) send(m message) {
	select {
	case c.messages <- m:
	default:
	}
}

// sendMessages sends what was typed, until the connection ends, which copyOutput notices too.
func (c *attached) sendMessages() {
	for {
		select {
		case <-c.outputDone:
			return
		case m := <-c.messages:
			if m.sent != nil {
				close(m.sent)
			} else if writeMessage(c.conn, m.kind, m.content) != nil {
				return
			}
		}
	}
}

// waitSent waits until what was typed is sent, if the program reads it.
func (c *attached) waitSent() {
	sent := make(chan struct{})
	c.send(message{sent: sent})
	select {
	case <-sent:
	case <-c.outputDone:
	case <-time.After(time.Second):
	}
}

// sendKeys sends keys to the host until the detach keys are typed.
func (c *attached) sendKeys(keys []byte) bool {
	pass, complete := c.matcher.filter(keys)
	if len(pass) > 0 {
		c.send(message{kind: keysMessage, content: slices.Clone(pass)})
	}
	return !complete
}

func (c *attached) sendSize() {
	size := unix.Winsize{}
	if c.keyboard != nil {
		size = c.keyboard.size()
	}
	c.send(message{kind: sizeMessage, content: formatSize(size)})
}

// close ends the connection and restores the terminal.
func (c *attached) close() (err error) {
	_ = c.conn.Close()
	select {
	case <-c.outputDone:
		if c.outErr == nil && Is(c.req.Out) {
			_, err = c.req.Out.Write(c.endOutput())
		}
	case <-time.After(time.Second): // the terminal accepts nothing
	}
	if c.keyboard != nil {
		err = errors.Join(err, c.keyboard.close())
	}
	return err
}

// endOutput returns what makes the terminal usable again after the output so far, with the cursor in a new line.
func (c *attached) endOutput() (out []byte) {
	if c.modes.parse != nil {
		out = append(out, 0x18) // cancels a sequence
	}
	out = append(append(out, c.modes.reset()...), "\x1b[m"...)
	if c.last != 0 && c.last != '\n' {
		out = append(out, "\r\n"...)
	}
	return out
}
