package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attachArg makes the test binary attach its terminal to the host of a directory.
const attachArg = "attach-a-terminal"

func runAttachHelper(dir string) int {
	ended, err := Attach(context.Background(), AttachRequest{Dir: dir, Keyboard: os.Stdin, Out: os.Stdout, DetachKeys: []byte("\x10\x11")})
	fmt.Printf("left: ended %t, %v\n", ended, err)
	return 0
}

// testHost is a host whose program is the test itself.
type testHost struct {
	*Host
	t   *testing.T
	dir string
	log *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newTestHost(t *testing.T) *testHost {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12)) // longer than the address of a socket
	must(t, os.MkdirAll(dir, 0o700))
	log := &lockedBuffer{}
	h, err := OpenHost(dir, log)
	must(t, err)
	return &testHost{Host: h, t: t, dir: dir, log: log}
}

func (h *testHost) write(text string) {
	h.t.Helper()
	_, err := h.Slave.WriteString(text)
	must(h.t, err)
}

// readLine reads what clients have typed, up to a newline.
func (h *testHost) readLine() string {
	h.t.Helper()
	buffer := make([]byte, 4096)
	n, err := h.Slave.Read(buffer)
	must(h.t, err)
	return string(buffer[:n])
}

// attach attaches a terminal.
func (h *testHost) attach(columns uint16) (*testTerminal, *exec.Cmd) {
	h.t.Helper()
	self, err := os.Executable()
	must(h.t, err)
	terminal := newTestTerminal(h.t, 30, columns)
	return terminal, terminal.startSession(self, attachArg, h.dir)
}

func (h *testHost) columns() uint16 {
	h.t.Helper()
	size, err := unix.IoctlGetWinsize(int(h.Slave.Fd()), unix.TIOCGWINSZ)
	must(h.t, err)
	return size.Col
}

func TestHostServesSeveralClients(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	fi, err := os.Lstat(filepath.Join(h.dir, socketName))
	must(t, err)
	if fi.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket has the mode %v", fi.Mode())
	}
	h.write("before\n")
	first, firstTool := h.attach(91)
	first.waitFor("before\r\n")
	waitUntil(t, func() bool { return h.columns() == 91 })
	second, secondTool := h.attach(92)
	second.waitFor("before\r\n")
	waitUntil(t, func() bool { return h.columns() == 92 })
	first.resize(30, 93)
	must(t, firstTool.Process.Signal(unix.SIGWINCH))
	waitUntil(t, func() bool { return h.columns() == 93 })

	first.typeKeys("one\r")
	if line := h.readLine(); line != "one\n" {
		t.Errorf("read %q", line)
	}
	second.waitFor("one\r\n") // the echo
	second.typeKeys("two\r")
	if line := h.readLine(); line != "two\n" {
		t.Errorf("read %q", line)
	}
	first.waitFor("two\r\n")

	h.write("\x1b[?1049h\x1b[?25l\x1b[?2004h")
	first.waitFor("\x1b[?2004h")
	first.typeKeys("\x10\x11")
	first.waitFor("\x1b[?2004l\x1b[?25h\x1b[?1049l\x1b[m\r\nleft: ended false, <nil>")
	must(t, firstTool.Wait())
	first.requireRestored()

	must(t, secondTool.Process.Kill())
	_ = secondTool.Wait()
	h.write("without clients\n")
	third, thirdTool := h.attach(94)
	third.waitFor("without clients")
	if !strings.Contains(third.screenText(), "\x1b[?1049h") {
		t.Errorf("got %q", third.screenText())
	}
	h.write("last")
	must(t, h.Close())
	third.waitFor("last\x1b[?2004l\x1b[?25h\x1b[?1049l\x1b[m\r\nleft: ended true, <nil>")
	must(t, thirdTool.Wait())
	third.requireRestored()
	if log := h.log.String(); !strings.HasPrefix(log, "before\r\n") || !strings.HasSuffix(log, "last") {
		t.Errorf("the log has %q", log)
	}
	if _, err := Attach(t.Context(), AttachRequest{Dir: h.dir, Out: h.log}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("afterwards attach fails with %v", err)
	}
}

// dial connects as a client that reads nothing.
func (h *testHost) dial() *net.UnixConn {
	h.t.Helper()
	conn, err := dialHost(h.dir)
	must(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestHostIsNotBlocked checks that clients that do not read, that send nothing and that send nonsense block neither the
// program nor another client, and that one that reads again gets the last output.
func TestHostIsNotBlocked(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	h.dial() // says nothing
	_, err := h.dial().Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	must(t, err)
	slow := h.dial()
	must(t, writeMessage(slow, sizeMessage, nil))
	reader, tool := h.attach(80)
	block := strings.Repeat("0123456789abcde\n", 64<<10/16)
	for range 64 { // 4 MiB
		h.write(block)
	}
	h.write("the end\n")
	reader.waitFor("the end")
	got := make([]byte, 0, 8<<20)
	must(t, slow.SetReadDeadline(time.Now().Add(2*time.Minute)))
	for buffer := make([]byte, 1<<16); !bytes.Contains(got, []byte("the end")); {
		n, err := slow.Read(buffer)
		must(t, err)
		got = append(got, buffer[:n]...)
	}
	if len(got) > 3<<20 {
		t.Errorf("the slow client got all %d bytes", len(got))
	}
	for range 100 { // keys that no program reads
		reader.typeKeys(strings.Repeat("x", 100))
	}
	reader.typeKeys("\x10\x11")
	reader.waitFor("left: ended false")
	must(t, tool.Wait())
	must(t, h.Close())
}

// TestHostDropsClientThatReadsNothing checks that such a client is dropped after a time, and does not delay Close.
func TestHostDropsClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"timeout": 100 * time.Millisecond, "close": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t)
			h.mu.Lock()
			h.clientTimeout = timeout
			h.mu.Unlock()
			must(t, writeMessage(h.dial(), sizeMessage, nil))
			waitUntil(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.clients) == 1 })
			h.write(strings.Repeat("0123456789abcde\n", 1<<20/16))
			if timeout < time.Hour {
				waitUntil(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.clients) == 0 })
			}
			must(t, h.Close())
		})
	}
}

// TestHostReplacesSocketOfKilledProcess checks that a socket without a process is no host, and is replaced.
func TestHostReplacesSocketOfKilledProcess(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	must(t, h.listener.Close()) // leaves the socket
	if _, err := Attach(t.Context(), AttachRequest{Dir: h.dir, Out: h.log}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("attach fails with %v", err)
	}
	again, err := OpenHost(h.dir, nil)
	must(t, err)
	conn := h.dial()
	must(t, writeMessage(conn, sizeMessage, nil))
	must(t, again.Close())
}

// TestHostMakesProgramDrawAgain checks that a client of the same size changes the size for a moment.
func TestHostMakesProgramDrawAgain(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	h.redrawDelay = 2 * time.Second
	size := unix.Winsize{Row: 24, Col: 80}
	must(t, writeMessage(h.dial(), sizeMessage, formatSize(size)))
	rows := func() uint16 {
		now, err := unix.IoctlGetWinsize(int(h.Slave.Fd()), unix.TIOCGWINSZ)
		must(t, err)
		return now.Row
	}
	waitUntil(t, func() bool { return rows() == 23 })
	waitUntil(t, func() bool { return rows() == 24 })
	must(t, h.Close())
}

func TestHostClosesAfterRemovalOfItsDirectory(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	must(t, os.RemoveAll(h.dir))
	h.write("more output\n")
	must(t, h.Close())
}
