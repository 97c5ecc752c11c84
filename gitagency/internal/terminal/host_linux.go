package terminal

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Host keeps a terminal for a program when there is no user's terminal. Any number of clients attach to it through a
// socket and leave again: all of them see the output, and all may type. No client can block the program.
type Host struct {
	// Slave is the terminal, for the program in place of a user's: pass it to Open. Close closes it.
	Slave *os.File

	master   *os.File
	dir      *os.File // directory of the socket
	listener *net.UnixListener
	log      io.Writer // gets all output; nil: none

	keys          chan []byte   // what clients type
	closing       chan struct{} // closed when Close begins
	outputDone    chan struct{} // closed when all output was read
	clientTimeout time.Duration // for a client that accepts nothing
	redrawDelay   time.Duration // how long a program has the wrong size before it gets the right one

	mu      sync.Mutex
	changed *sync.Cond // recent, ended or the connection of a client has changed
	recent  recentOutput
	ended   bool      // no more output comes
	endBy   time.Time // when Close stops waiting for clients; valid if ended
	clients map[*hostClient]bool
	serving sync.WaitGroup

	sizeLock sync.Mutex
	size     unix.Winsize // last one that a client asked for
}

// hostClient is a client from the view of the host.
type hostClient struct {
	conn     *net.UnixConn
	position int64       // in the output: what the client gets next; -1: nothing was sent yet
	modes    modeTracker // modes of its terminal
	gone     bool
}

const (
	socketName = "terminal.sock"
	// maxClients bounds the clients of one host.
	maxClients = 64
	// A client that accepts no output for this long is dropped. Until then it costs nothing.
	defaultClientTimeout = time.Minute
	// How long a client may take to say what it wants.
	greetingTimeout = 10 * time.Second
	// Long enough for a program to notice both sizes.
	defaultRedrawDelay = 100 * time.Millisecond
	// How long to wait after a client could not be accepted, as with too many open files.
	acceptDelay = time.Second
	// How long Close waits for clients that have not read everything.
	closeTimeout = 2 * time.Second
	// maxWrite bounds the output that is written to a client at once.
	maxWrite = 32 << 10
)

// OpenHost creates a terminal, and listens for clients of it in a directory that only the user may enter. A socket that a
// killed process has left there is replaced. All output is also written to log, which may be nil.
func OpenHost(dir string, log io.Writer) (_ *Host, err error) {
	h := &Host{
		log: log, keys: make(chan []byte), closing: make(chan struct{}), outputDone: make(chan struct{}),
		clientTimeout: defaultClientTimeout, redrawDelay: defaultRedrawDelay, clients: map[*hostClient]bool{}, size: unix.Winsize{Row: 24, Col: 80},
	}
	h.changed = sync.NewCond(&h.mu)
	if h.dir, err = os.Open(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep a terminal: %w", errors.Join(err, h.dir.Close()))
		}
	}()
	if h.master, h.Slave, err = openDevice(nil, unix.O_RDWR); err != nil {
		return nil, err
	}
	if err = errors.Join(setUTF8(h.Slave), h.applySize(h.size)); err == nil {
		h.listener, err = listenIn(h.dir)
	}
	if err != nil {
		return nil, errors.Join(err, h.master.Close(), h.Slave.Close())
	}
	go h.relayOutput()
	go h.relayKeys()
	go h.acceptClients()
	return h, nil
}

// setUTF8 makes a new terminal erase whole characters, as terminal emulators do.
func setUTF8(slave *os.File) error {
	return withFD(slave, func(fd int) error {
		modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		modes.Iflag |= unix.IUTF8
		return unix.IoctlSetTermios(fd, unix.TCSETS, modes)
	})
}

// listenIn creates the socket in a directory. The path of the directory may be too long for an address.
func listenIn(dir *os.File) (*net.UnixListener, error) {
	if err := removeSocket(dir); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", socketAddress(dir))
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // by that name, another file could be meant later
	if err := unix.Fchmodat(int(dir.Fd()), socketName, 0o600, 0); err != nil {
		return nil, errors.Join(err, listener.Close(), removeSocket(dir))
	}
	return listener, nil
}

// removeSocket removes the socket from a directory, if it is there.
func removeSocket(dir *os.File) error {
	if err := unix.Unlinkat(int(dir.Fd()), socketName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: dir.Name() + "/" + socketName, Err: err}
	}
	return nil
}

func socketAddress(dir *os.File) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)}
}

// relayOutput reads the output until Close. Without a client it is only kept.
func (h *Host) relayOutput() {
	defer close(h.outputDone)
	buffer := make([]byte, 4096)
	for {
		n, err := h.master.Read(buffer)
		if n > 0 {
			h.mu.Lock()
			h.recent.add(buffer[:n])
			h.changed.Broadcast()
			h.mu.Unlock()
			if h.log != nil {
				if _, err := h.log.Write(buffer[:n]); err != nil {
					h.log = nil // a full disk is no reason to end the program
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// relayKeys writes what clients type until Close.
func (h *Host) relayKeys() {
	for {
		select {
		case keys := <-h.keys:
			if _, err := h.master.Write(keys); err != nil {
				return
			}
		case <-h.closing:
			return
		}
	}
}

func (h *Host) acceptClients() {
	for {
		conn, err := h.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptDelay)
			continue
		}
		h.mu.Lock()
		if h.ended || len(h.clients) >= maxClients {
			_ = conn.Close()
		} else {
			c := &hostClient{conn: conn, position: -1}
			h.clients[c] = true
			h.serving.Go(func() { h.serve(c) })
		}
		h.mu.Unlock()
	}
}

// serve handles the messages of a client until it leaves.
func (h *Host) serve(c *hostClient) {
	defer h.drop(c)
	_ = c.conn.SetReadDeadline(time.Now().Add(greetingTimeout)) // a connection that cannot have one is closed already
	kind, content, err := readMessage(c.conn)
	if err != nil || kind != sizeMessage {
		return
	}
	_ = c.conn.SetReadDeadline(time.Time{})
	h.serving.Go(func() { h.sendOutput(c) })
	h.resize(parseSize(content), true)
	for {
		kind, content, err := readMessage(c.conn)
		switch {
		case err != nil:
			return
		case kind == sizeMessage:
			h.resize(parseSize(content), false)
		case kind == keysMessage:
			select {
			case h.keys <- content:
			case <-h.closing:
				return
			case <-time.After(h.clientTimeout): // the program does not read; the client may be gone meanwhile
			}
		}
	}
}

// sendOutput sends the output to a client until one of them ends.
func (h *Host) sendOutput(c *hostClient) {
	defer h.drop(c)
	for {
		output := h.nextOutput(c)
		if output == nil {
			return
		}
		c.modes.follow(output)
		if _, err := c.conn.Write(output); err != nil {
			return
		}
	}
}

// nextOutput waits for output that a client has not got yet. It is nil when there will be none. A client that is too slow
// misses some.
func (h *Host) nextOutput(c *hostClient) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() {
		deadline := h.endBy
		if !h.ended {
			deadline = time.Now().Add(h.clientTimeout)
		}
		_ = c.conn.SetWriteDeadline(deadline) // a closed connection fails in the next write
	}()
	for {
		switch {
		case c.gone:
			return nil
		case c.position < h.recent.start:
			cancel := []byte(nil)
			if c.position >= 0 {
				cancel = append([]byte{0x18}, c.modes.reset()...)
			}
			c.position = h.recent.end()
			if output := append(cancel, h.recent.replay()...); len(output) > 0 {
				return output
			}
		case c.position < h.recent.end():
			output := h.recent.from(c.position, maxWrite)
			c.position += int64(len(output))
			return output
		case h.ended:
			return nil
		default:
			h.changed.Wait()
		}
	}
}

// drop ends the connection of a client.
func (h *Host) drop(c *hostClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.gone = true
	delete(h.clients, c)
	_ = c.conn.Close()
	h.changed.Broadcast()
}

// resize gives the terminal the size of a client; zero leaves it as it is. With redraw, a program that draws the whole screen
// is made to draw it again: many ignore a signal without a change of the size.
func (h *Host) resize(size unix.Winsize, redraw bool) {
	h.sizeLock.Lock()
	defer h.sizeLock.Unlock()
	before := h.size
	if size.Row > 0 && size.Col > 0 {
		h.size = size
	}
	if redraw && h.size == before {
		other := h.size
		if other.Row--; other.Row == 0 {
			other.Row = 2
		}
		_ = h.applySize(other)
		time.AfterFunc(h.redrawDelay, func() {
			h.sizeLock.Lock()
			defer h.sizeLock.Unlock()
			_ = h.applySize(h.size)
		})
		return
	}
	_ = h.applySize(h.size)
}

// applySize sets the size of the terminal. It fails if that is closed. The kernel tells only a foreground process group of
// the terminal, and this is our own, without processes in its session: so we send the signal to ourselves, for the PTY
// that follows the size.
func (h *Host) applySize(size unix.Winsize) error {
	err := withFD(h.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
	if err == nil {
		err = unix.Kill(unix.Getpid(), unix.SIGWINCH)
	}
	return err
}

// Close is called when the program has ended and its PTY is closed. It sends the last output to the clients and ends their
// connections, which tells them that the program has ended.
func (h *Host) Close() error {
	close(h.closing)
	err := errors.Join(removeSocket(h.dir), h.listener.Close(), h.Slave.Close())
	select {
	case <-h.outputDone: // no process has the terminal open
	case <-time.After(closeTimeout):
		err = errors.Join(err, h.master.SetDeadline(time.Unix(1, 0)))
		<-h.outputDone
	}
	h.mu.Lock()
	h.ended, h.endBy = true, time.Now().Add(closeTimeout)
	h.changed.Broadcast()
	for c := range h.clients {
		_ = c.conn.SetDeadline(h.endBy)
	}
	h.mu.Unlock()
	_ = h.master.SetDeadline(time.Unix(1, 0)) // ends writes of keys that no program reads any more
	h.serving.Wait()
	return errors.Join(err, h.master.Close(), h.dir.Close())
}
