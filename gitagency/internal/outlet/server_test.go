package outlet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// echoHandler answers with the request line, the headers and a hash of the body.
func echoHandler(rw http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fmt.Fprintf(rw, "%s %s %s host=%s length=%d te=%v sum=%x\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.TransferEncoding, sha256.Sum256(data))
	r.Header.Write(rw)
}

func TestAllowedHostIsReached(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.serveHTTP("8.8.8.8:80", echoHandler)
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		answer, err := w.client(scheme).Get("http://a.example/path?q=1")
		if got := readBody(t, answer, err); answer.StatusCode != 200 || !strings.HasPrefix(got, "GET /path?q=1 HTTP/1.1 host=a.example ") {
			t.Errorf("%s: %d %q", scheme, answer.StatusCode, got)
		}
	}
}

func TestListedAddressIsReachedByDefaultDialer(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(echoHandler))
	t.Cleanup(server.Close)
	w := newFakeNetwork(t, server.Listener.Addr().String())
	w.proxy.Resolve, w.proxy.Dial, w.proxy.localAddrs = nil, nil, nil
	w.serve()
	for _, scheme := range []string{"http", "socks5"} {
		transport := server.Client().Transport.(*http.Transport).Clone()
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: w.proxyAddr})
		answer, err := (&http.Client{Transport: transport, Timeout: testTimeout}).Get(server.URL + "/x")
		if got := readBody(t, answer, err); !strings.HasPrefix(got, "GET /x ") {
			t.Errorf("%s: %q", scheme, got)
		}
		transport.CloseIdleConnections()
	}
}

func TestRefusalSuggestsAllowEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, kind, target, allow string }{
		{"GET http://b.example/ HTTP/1.1", KindHTTP, "b.example:80", "b.example"},
		{"GET http://B.example:8080/ HTTP/1.1", KindHTTP, "b.example:8080", "b.example:8080"},
		{"CONNECT b.example:443 HTTP/1.1", KindConnect, "b.example:443", "b.example"},
		{"CONNECT a.example:22 HTTP/1.1", KindConnect, "a.example:22", "a.example:22"},
		{"CONNECT 127.0.0.1:5432 HTTP/1.1", KindConnect, "127.0.0.1:5432", "127.0.0.1:5432"},
		{"CONNECT [::1]:443 HTTP/1.1", KindConnect, "[::1]:443", "[::1]"},
		{"GET http://localhost:3000/ HTTP/1.1", KindHTTP, "localhost:3000", "localhost:3000"},
	} {
		w := newFakeNetwork(t, "a.example").serve()
		got := w.exchange(c.asked + "\r\n\r\n")
		_, text, _ := strings.Cut(got, "\r\n\r\n")
		host, _, _ := strings.Cut(c.target, ":")
		if statusCode(got) != 403 || strings.Count(text, "\n") != 1 || !strings.Contains(text, host) || !strings.Contains(text, "outputs of this sandbox") ||
			!strings.HasSuffix(text, "--outputs hosts:a.example,"+c.allow+"\n") {
			t.Errorf("%s: %q", c.asked, got)
		}
		denied := w.denials()
		if len(denied) != 1 {
			t.Fatalf("%s: %v", c.asked, denied)
		}
		d := denied[0]
		if d.Kind != c.kind || d.Target != c.target || d.AllowEntry != c.allow || d.Count != 1 || time.Since(d.Time) > testTimeout || d.Reason == "" {
			t.Errorf("%s: %+v", c.asked, d)
		}
	}
}

// TestRefusalArrivesWithUnreadBody: closing the connection of a client that still sends would reset it, and the client
// would not read the answer.
func TestRefusalArrivesWithUnreadBody(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example").serve()
	conn := w.connect()
	io.WriteString(conn, "POST http://b.example/ HTTP/1.1\r\nContent-Length: 900000\r\n\r\n")
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 9 {
		if _, err := conn.Write(make([]byte, 100_000)); err != nil && time.Since(start) < lingerTime/2 {
			t.Fatal(err)
		}
	}
	if got, err := io.ReadAll(in); err != nil || statusCode(string(got)) != 403 || !strings.HasSuffix(string(got), "b.example\n") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSOCKSReplyCodes(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example,b.example,c.example,9.8.7.6:1,[2606:4700::1]:1")
	w.addServer("8.8.8.8:80", refused)
	w.serveTCP("9.8.7.6:1", func(*net.TCPConn) {})
	w.serveTCP("[2606:4700::1]:1", func(*net.TCPConn) {})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.answers["c.example"] = [][]string{{"8.8.8.9"}}
	w.serve()
	for name, c := range map[string]struct {
		request []byte
		code    byte
		denied  bool
	}{
		"connection refused":   {append([]byte("\x05\x01\x00\x03\x09a.example"), 0, 80), socksConnectionRefused, false},
		"no such name":         {append([]byte("\x05\x01\x00\x03\x09b.example"), 0, 80), socksHostUnreachable, false},
		"another failure":      {append([]byte("\x05\x01\x00\x03\x09c.example"), 0, 80), socksGeneralFailure, false},
		"not listed":           {append([]byte("\x05\x01\x00\x03\x09d.example"), 0, 80), socksNotAllowed, true},
		"a port not listed":    {append([]byte("\x05\x01\x00\x03\x09a.example"), 0, 22), socksNotAllowed, true},
		"port 0":               {append([]byte("\x05\x01\x00\x03\x09a.example"), 0, 0), socksNotAllowed, true},
		"an empty name":        {[]byte{5, 1, 0, 3, 0, 0, 80}, socksNotAllowed, true},
		"a NUL in the name":    {append([]byte("\x05\x01\x00\x03\x0ba.example\x00x"), 0, 80), socksNotAllowed, true},
		"a short IPv4 form":    {append([]byte("\x05\x01\x00\x03\x05127.1"), 0, 80), socksNotAllowed, true},
		"an address":           {[]byte{5, 1, 0, 1, 9, 8, 7, 6, 0, 1}, socksSucceeded, false},
		"an address as name":   {append([]byte("\x05\x01\x00\x03\x079.8.7.6"), 0, 1), socksSucceeded, false},
		"IPv4-mapped address":  {[]byte{5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 9, 8, 7, 6, 0, 1}, socksSucceeded, false},
		"an IPv6 address":      {append(append([]byte{5, 1, 0, 4}, netip.MustParseAddr("2606:4700::1").AsSlice()...), 0, 1), socksSucceeded, false},
		"another address":      {[]byte{5, 1, 0, 1, 127, 0, 0, 1, 0, 80}, socksNotAllowed, true},
		"bind":                 {[]byte{5, 2, 0, 1, 9, 8, 7, 6, 0, 1}, socksCommandNotSupported, true},
		"UDP":                  {[]byte{5, 3, 0, 1, 0, 0, 0, 0, 0, 0}, socksCommandNotSupported, true},
		"unknown command":      {[]byte{5, 99, 0, 1, 9, 8, 7, 6, 0, 1}, socksCommandNotSupported, true},
		"unknown address type": {[]byte{5, 1, 0, 9, 9, 8, 7, 6, 0, 1}, socksAddressNotSupported, false},
	} {
		before := len(w.denials())
		if code, _ := w.socksRequest(c.request); code != c.code {
			t.Errorf("%s: %d, want %d", name, code, c.code)
		}
		if denied := w.denials()[before:]; (len(denied) == 1) != c.denied {
			t.Errorf("%s: denied %v", name, denied)
		}
	}
	if got := w.exchange("\x05\x01\x02"); got != "\x05\xff" {
		t.Errorf("with a password only: %q", got)
	}
	if got := w.exchange("\x04\x01\x00\x50\x09\x08\x07\x06me\x00"); got != "\x00\x5b\x00\x00\x00\x00\x00\x00" {
		t.Errorf("SOCKS4: %q", got)
	}
}

func TestHopByHopHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:8080")
	heads := make(chan string, 1)
	w.serveTCP("8.8.8.8:8080", func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		head, err := readHead(in, 1<<20)
		if err != nil {
			return
		}
		heads <- string(head)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=9\r\nX-A: 1\r\n\r\nokEXTRA")
		io.Copy(io.Discard, in) // does not close the connection
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	got := w.exchange("GET HTTP://A.Example:8080?x=1 HTTP/1.1\r\nhOST: a.example:8080\r\nProxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\n" +
		"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\nX-Own: a\r\nx-own:  b \r\nAccept: */*\r\n\r\n")
	if want := "GET /?x=1 HTTP/1.1\r\nHost: a.example:8080\r\nX-Own: a\r\nx-own: b\r\nAccept: */*\r\nConnection: close\r\n\r\n"; <-heads != want {
		t.Errorf("the relayed head is not %q", want)
	}
	if want := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\nConnection: close\r\n\r\nok"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBodiesAreRelayedUnchanged(t *testing.T) {
	t.Parallel()
	big := make([]byte, 20<<20)
	rand.Read(big)
	w := newFakeNetwork(t, "a.example")
	w.serveHTTP("8.8.8.8:80", func(rw http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rw.Header().Set("X-Framing", fmt.Sprint(r.ContentLength, r.TransferEncoding))
		rw.Write(data)
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, scheme := range []string{"http", "socks5"} {
		for _, size := range []int{0, 1, 4095, 4096, 4097, len(big)} {
			for framing, reader := range map[string]io.Reader{
				fmt.Sprint(size, " []"): bytes.NewReader(big[:size]),
				"-1 [chunked]":          struct{ io.Reader }{bytes.NewReader(big[:size])},
			} {
				answer, err := w.client(scheme).Post("http://a.example/", "x", reader)
				if got := readBody(t, answer, err); got != string(big[:size]) {
					t.Errorf("%s %d %s: %d bytes came back", scheme, size, framing, len(got))
				}
				if got := answer.Header.Get("X-Framing"); got != framing && size > 0 {
					t.Errorf("%s %d: framed as %s, not %s", scheme, size, got, framing)
				}
			}
		}
	}
}

func TestChunksAreNormalized(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.serveTCP("8.8.8.8:80", func(conn *net.TCPConn) {
		io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\n")
		io.Copy(conn, conn)
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	conn := w.connect()
	io.WriteString(conn, "POST http://a.example/ HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n"+
		"003;ext=\"v\"\r\nabc\r\nA \r\n0123456789\r\n00;last\r\nTrailer: x\r\nHost: evil\r\n\r\nGET http://evil.example/ HTTP/1.1\r\n\r\n")
	conn.CloseWrite()
	in := bufio.NewReader(conn)
	if _, err := readHead(in, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := readHead(in, 1000); err != nil {
		t.Fatal(err)
	}
	want := "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// TestSecondRequestOnConnectionIsDropped pipelines requests: only the first reaches a server.
func TestSecondRequestOnConnectionIsDropped(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example,b.example")
	var heard sync.Map
	w.serveHTTP("8.8.8.8:80", func(rw http.ResponseWriter, r *http.Request) { heard.Store(r.URL.Path, r.Host) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.answers["b.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, first := range []string{
		"GET http://a.example/1 HTTP/1.1\r\n\r\n",
		"POST http://a.example/1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
		"POST http://a.example/1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET http://a.example/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	} {
		got := w.exchange(first + "GET http://b.example/2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nHost: b.example\r\n\r\n")
		if statusCode(got) != 200 || strings.Count(got, "HTTP/1.") != 1 || !strings.Contains(got, "\r\nConnection: close\r\n") {
			t.Errorf("%q: %q", first, got)
		}
	}
	for _, path := range []string{"/2", "/3"} {
		if _, found := heard.Load(path); found {
			t.Errorf("%s reached a server", path)
		}
	}
}

func TestResponseIsStreamed(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	more := make(chan struct{})
	w.serveHTTP("8.8.8.8:80", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			select {
			case <-more: // the client has read this event
			case <-r.Context().Done():
				return
			}
		}
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, scheme := range []string{"http", "socks5"} {
		answer, err := w.client(scheme).Get("http://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(answer.Body)
		for i := range 5 {
			if line, err := in.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%s: %q, %v", scheme, line, err)
			}
			in.ReadString('\n')
			more <- struct{}{}
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("%s: ends in %v", scheme, err)
		}
		answer.Body.Close()
	}
}

func TestServerSeesClientDisconnect(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	gone := make(chan struct{})
	w.serveHTTP("8.8.8.8:80", func(rw http.ResponseWriter, r *http.Request) {
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	answer, err := w.client("http").Get("http://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	waitDone(t, gone)
}

func waitDone(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("timeout")
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.serveHTTP("8.8.8.8:80", echoHandler)
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	conn := w.connect()
	io.WriteString(conn, "POST http://a.example/ HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	in := bufio.NewReader(conn)
	if head, err := readHead(in, 1000); err != nil || statusCode(string(head)) != 100 {
		t.Fatalf("%q, %v", head, err)
	}
	io.WriteString(conn, "abc")
	answer, err := http.ReadResponse(in, nil)
	sum := sha256.Sum256([]byte("abc"))
	if got := readBody(t, answer, err); !strings.Contains(got, "length=3 te=[] sum="+hex.EncodeToString(sum[:])) {
		t.Errorf("%q", got)
	}
}

func TestResponseWithoutBodyEnds(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	var head string
	w.serveTCP("8.8.8.8:80", func(conn *net.TCPConn) {
		readHead(bufio.NewReader(conn), 1<<20)
		io.WriteString(conn, head)
		io.Copy(io.Discard, conn) // stays open
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, c := range [][2]string{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"GET", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 0\n\n"},
	} {
		head = c[1]
		if got := w.exchange(c[0] + " http://a.example/ HTTP/1.1\r\n\r\n"); !strings.HasSuffix(got, "\r\nConnection: close\r\n\r\n") {
			t.Errorf("%q: %q", c, got)
		}
	}
	if got := w.exchange("HEAD http://b.example/ HTTP/1.1\r\n\r\n"); statusCode(got) != 403 || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("%q", got)
	}
}

// TestAbortOnOneSideAbortsOther: the other side must not take a truncated message for a complete one.
func TestAbortOnOneSideAbortsOther(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*")
	w.serveTCP("8.8.8.8:80", func(conn *net.TCPConn) {
		readHead(bufio.NewReader(conn), 1<<20)
		io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\npart")
		conn.Read(make([]byte, 1)) // the client has read the part
		conn.SetLinger(0)
	})
	bodies := make(chan error, 2)
	w.serveTCP("8.8.8.8:81", func(conn *net.TCPConn) {
		_, err := io.ReadAll(conn)
		bodies <- err
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()

	conn := w.connect()
	io.WriteString(conn, "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\n\r\n")
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('p'); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "x")
	if rest, err := io.ReadAll(in); err == nil {
		t.Errorf("an aborted response ended without error after %q", rest)
	}

	for _, rest := range []string{"Content-Length: 9\r\n\r\npart", "Transfer-Encoding: chunked\r\n\r\n9\r\npart"} {
		conn = w.connect()
		io.WriteString(conn, "POST http://a.example:81/ HTTP/1.1\r\n"+rest)
		conn.CloseWrite()
		if err := <-bodies; err == nil {
			t.Errorf("%q: an aborted body ended without error at the server", rest)
		}
		if answer, err := io.ReadAll(conn); err != nil || statusCode(string(answer)) != 400 {
			t.Errorf("%q: %q, %v", rest, answer, err)
		}
	}

	conn, _ = w.tunnel("a.example:81")
	io.WriteString(conn, "part")
	conn.SetLinger(0)
	conn.Close()
	if err := <-bodies; err == nil {
		t.Error("an aborted tunnel ended without error at the server")
	}
}

func TestTunnelHalfClose(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*")
	w.serveTCP("8.8.8.8:1", func(conn *net.TCPConn) { // answers after the end of input
		data, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "%d bytes", len(data))
	})
	listened := make(chan struct{})
	w.serveTCP("8.8.8.8:2", func(conn *net.TCPConn) { // writes and half-closes, then reads
		defer close(listened)
		io.WriteString(conn, "welcome")
		conn.CloseWrite()
		data, _ := io.ReadAll(conn)
		if len(data) != 1<<20 {
			t.Errorf("the server got %d bytes", len(data))
		}
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	big := make([]byte, 1<<20)

	conn, in := w.tunnel("a.example:1")
	conn.Write(big)
	conn.CloseWrite()
	if got, err := io.ReadAll(in); err != nil || string(got) != "1048576 bytes" {
		t.Errorf("%q, %v", got, err)
	}
	conn, in = w.tunnel("a.example:2")
	if got, err := io.ReadAll(in); err != nil || string(got) != "welcome" {
		t.Errorf("%q, %v", got, err)
	}
	conn.Write(big)
	conn.CloseWrite()
	waitDone(t, listened)
	code, socks := w.socks("a.example", 1)
	if code != socksSucceeded {
		t.Fatal(code)
	}
	socks.Write(big)
	socks.CloseWrite()
	if got, err := io.ReadAll(socks); err != nil || string(got) != "1048576 bytes" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTunnelKeepsEarlyData: some clients send data before the proxy has answered.
func TestTunnelKeepsEarlyData(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*")
	w.serveTCP("8.8.8.8:1", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	early := strings.Repeat("early ", 1000)
	conn := w.connect()
	io.WriteString(conn, "CONNECT a.example:1 HTTP/1.1\r\n\r\n"+early)
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\r\n\r\n"+early) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	conn = w.connect()
	io.WriteString(conn, "\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x01"+early)
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\x00\x00"+early) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestUpstreamFailureIsBadGateway(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example,b.example,c.example,d.example,e.example")
	w.answers["b.example"] = [][]string{{"8.8.8.8"}} // no server
	w.answers["c.example"] = [][]string{{"8.8.8.9"}}
	w.serveTCP("8.8.8.9:80", func(conn *net.TCPConn) { readHead(bufio.NewReader(conn), 1000) }) // closes without an answer
	w.answers["d.example"] = [][]string{{"8.8.8.10"}}
	w.serveTCP("8.8.8.10:80", func(conn *net.TCPConn) {
		readHead(bufio.NewReader(conn), 1000)
		io.WriteString(conn, "220 mail ready\r\n\r\n")
	})
	w.answers["e.example"] = [][]string{{"8.8.8.11"}}
	w.serveTCP("8.8.8.11:80", func(conn *net.TCPConn) {
		readHead(bufio.NewReader(conn), 1000)
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	})
	w.serve()
	for _, host := range []string{"a", "b", "c", "d", "e"} {
		got := w.exchange("GET http://" + host + ".example/ HTTP/1.1\r\n\r\n")
		_, text, _ := strings.Cut(got, "\r\n\r\n")
		if statusCode(got) != 502 || strings.Count(text, "\n") != 1 || !strings.Contains(text, host+".example") && host < "d" {
			t.Errorf("%s: %q", host, got)
		}
	}
	if got := w.denials(); len(got) > 0 {
		t.Errorf("denied %v", got)
	}
}

func TestConcurrentConnections(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*")
	w.serveHTTP("8.8.8.8:80", echoHandler)
	w.serveTCP("8.8.8.8:1", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	client := w.client("http")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			text := strings.Repeat(fmt.Sprint(i, " "), 10000)
			sum := sha256.Sum256([]byte(text))
			answer, err := client.Post("http://a.example/", "x", strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if got, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(got), hex.EncodeToString(sum[:])) {
				t.Errorf("%q, %v", got, err)
			}
		})
		all.Go(func() {
			conn, err := net.Dial("tcp", w.proxyAddr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(testTimeout))
			fmt.Fprintf(conn, "CONNECT a.example:1 HTTP/1.1\r\n\r\n%d", i)
			conn.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), fmt.Sprint("\r\n\r\n", i)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}

func TestMaxConnectionsQueuesOthers(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*")
	w.serveTCP("8.8.8.8:1", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.proxy.Limits.MaxConnections = 2
	w.serve()
	first, _ := w.tunnel("a.example:1")
	w.tunnel("a.example:1")
	third := w.connect()
	io.WriteString(third, "CONNECT a.example:1 HTTP/1.1\r\n\r\n")
	third.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the third was answered: %v", err)
	}
	first.Close()
	third.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := third.Read(make([]byte, 1)); err != nil {
		t.Errorf("the third connection got no answer: %v", err)
	}
}

// TestServeLeavesNothingRunning is not parallel, because it looks at the stacks of all goroutines.
func TestServeLeavesNothingRunning(t *testing.T) {
	w := newFakeNetwork(t, "a.example:*")
	w.serveTCP("8.8.8.8:1", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	release := make(chan struct{})
	w.serveTCP("8.8.8.8:3", func(conn *net.TCPConn) { // keeps the connection after the client's end
		io.Copy(io.Discard, conn)
		<-release
	})
	t.Cleanup(func() { close(release) })
	dialling := make(chan struct{})
	w.proxy.Dial = func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
		if addr.Port() != 2 {
			return w.dial(ctx, addr)
		}
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.serve()
	var conns []*net.TCPConn
	for range 10 {
		tunnel, _ := w.tunnel("a.example:1")
		request := w.connect()
		io.WriteString(request, "POST http://a.example:1/ HTTP/1.1\r\nContent-Length: 100000\r\n\r\nbegun")
		silent := w.connect()
		half := w.connect()
		io.WriteString(half, "GET http://")
		_, socks := w.socks("a.example", 1)
		ended, _ := w.tunnel("a.example:3")
		ended.CloseWrite()
		conns = append(conns, tunnel, request, silent, half, socks, ended)
	}
	dials := w.connect()
	io.WriteString(dials, "CONNECT a.example:2 HTTP/1.1\r\n\r\n")
	waitDone(t, dialling)

	w.stop()
	for _, conn := range append(conns, dials) {
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Error("a connection is still open")
		}
	}
	if _, err := w.listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
	// Goroutines of the test's servers may still run; those of the proxy must have ended when Serve returns.
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "outlet.(*handler)") || strings.Contains(stack, "outlet.relay") || strings.Contains(stack, "outlet.serveConns(") {
			t.Errorf("still running:\n%s", stack)
		}
	}
}

func TestServeEndsWithListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- (&Server{}).Serve(context.Background(), l) }()
	conn := connect(t, l.Addr().String())
	io.WriteString(conn, "CONNECT a.example:1 HTTP/1.1\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || statusCode(line) != 403 {
		t.Errorf("a proxy without rules: %q, %v", line, err)
	}
	l.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the proxy did not end")
	}
}

func TestCurlThroughProxy(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	server := httptest.NewServer(http.HandlerFunc(echoHandler))
	t.Cleanup(server.Close)
	w := newFakeNetwork(t, server.Listener.Addr().String())
	w.proxy.Dial = nil
	w.serve()
	run := func(args ...string) (string, error) {
		cmd := exec.Command(curl, append([]string{"-q", "-sS", "--max-time", "10", "--noproxy", ""}, args...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, Environment(w.proxyAddr, w.proxy.Rules)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{}, {"-p"}, {"-x", "socks5h://" + w.proxyAddr}, {"-x", "socks5://" + w.proxyAddr}, {"-0"}, {"--http2"}, {"-d", "@/dev/null"}} {
		if out, err := run(append(args, server.URL+"/x")...); err != nil || !strings.Contains(out, " /x HTTP/1.") {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
	if out, err := run("http://b.example/", "http://c.example/"); err != nil || strings.Count(out, "--outputs hosts:") != 2 {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run("https://b.example/"); err == nil || !strings.Contains(out, "403") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run("-x", "socks4://"+w.proxyAddr, server.URL); err == nil {
		t.Errorf("socks4: %q", out)
	}
}
