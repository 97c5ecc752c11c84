package outlet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testTimeout bounds every wait of a test; only a failing test reaches it.
const testTimeout = 2 * time.Minute

func mustParseRules(t testing.TB, spec string) Rules {
	t.Helper()
	r, err := ParseRules(spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustParseTarget(t testing.TB, s string) target {
	t.Helper()
	got, err := parseTarget(s, 0)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return got
}

// fakeNetwork is a proxy in a fake network: answers are the DNS records and servers the listening addresses. Nothing
// else can be reached. Queries, dials and denials are recorded.
type fakeNetwork struct {
	t         *testing.T
	proxy     Server
	proxyAddr string // address of the proxy
	stop      func() // stops the proxy and waits for its end

	listener net.Listener // listener of the proxy

	mu       sync.Mutex
	answers  map[string][][]string // name → addresses of successive answers; the last is repeated
	servers  map[string]string     // fake address:port → real one, or refused
	resolved []string
	dialled  []string
	denied   []Denial
}

func newFakeNetwork(t *testing.T, spec string) *fakeNetwork {
	t.Helper()
	w := &fakeNetwork{t: t, answers: map[string][][]string{}, servers: map[string]string{}}
	w.proxy = Server{
		Rules: mustParseRules(t, spec),
		OnDenied: func(d Denial) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.denied = append(w.denied, d)
		},
		Resolve:    w.resolve,
		Dial:       w.dial,
		localAddrs: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("9.9.9.9")}, nil },
	}
	return w
}

func (w *fakeNetwork) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolved = append(w.resolved, name)
	lists := w.answers[name]
	if len(lists) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	if len(lists) > 1 {
		w.answers[name] = lists[1:]
	}
	var addrs []netip.Addr
	for _, a := range lists[0] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, nil
}

func (w *fakeNetwork) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, addr.String())
	real, known := w.servers[addr.String()]
	w.mu.Unlock()
	if !known {
		return nil, errors.New("nothing is there")
	}
	if real == refused {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return dialTCP(ctx, netip.MustParseAddrPort(real))
}

// refused is the real address of a fake address that refuses connections. A free real port could be taken by another
// test.
const refused = "refused"

// serve starts the proxy.
func (w *fakeNetwork) serve() *fakeNetwork {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.listener, w.proxyAddr = l, l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.proxy.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("the proxy ended with %v", err)
			}
		case <-time.After(testTimeout):
			w.t.Error("the proxy did not end")
		}
	})
	w.t.Cleanup(w.stop)
	return w
}

// serveHTTP starts a web server at a fake address.
func (w *fakeNetwork) serveHTTP(where string, handler http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	server := httptest.NewServer(handler)
	w.t.Cleanup(server.Close)
	w.addServer(where, server.Listener.Addr().String())
	return server
}

func (w *fakeNetwork) addServer(where, real string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[where] = real
}

// serveTCP starts a TCP server at a fake address.
func (w *fakeNetwork) serveTCP(where string, handle func(*net.TCPConn)) {
	w.t.Helper()
	w.addServer(where, listenTCP(w.t, handle).String())
}

// listenTCP starts a TCP server on loopback that ends with the test.
func listenTCP(t *testing.T, handle func(*net.TCPConn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var handlers sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		handlers.Wait()
	})
	handlers.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(testTimeout))
				handle(conn.(*net.TCPConn))
			})
		}
	})
	return l.Addr()
}

// client returns an HTTP client that uses the proxy.
func (w *fakeNetwork) client(scheme string) *http.Client {
	proxy := &url.URL{Scheme: scheme, Host: w.proxyAddr}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

// connect connects to the proxy.
func (w *fakeNetwork) connect() *net.TCPConn {
	w.t.Helper()
	return connect(w.t, w.proxyAddr)
}

func connect(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testTimeout))
	return conn.(*net.TCPConn)
}

// exchange sends text to the proxy and returns everything up to the end of the connection.
func (w *fakeNetwork) exchange(text string) string {
	w.t.Helper()
	conn := w.connect()
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		w.t.Fatalf("%q: after %q: %v", text, answer, err)
	}
	return string(answer)
}

// tunnel opens a CONNECT tunnel.
func (w *fakeNetwork) tunnel(where string) (*net.TCPConn, *bufio.Reader) {
	w.t.Helper()
	conn := w.connect()
	io.WriteString(conn, "CONNECT "+where+" HTTP/1.1\r\nHost: "+where+"\r\n\r\n")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil || answer.StatusCode != 200 {
		w.t.Fatalf("tunnel to %s: %v, %v", where, answer, err)
	}
	return conn, in
}

// socks requests a SOCKS5 connection to a name and returns the reply code.
func (w *fakeNetwork) socks(name string, port uint16) (byte, *net.TCPConn) {
	w.t.Helper()
	request := []byte{5, 1, 0, 3, byte(len(name))}
	request = append(request, name...)
	return w.socksRequest(append(request, byte(port>>8), byte(port)))
}

func (w *fakeNetwork) socksRequest(request []byte) (byte, *net.TCPConn) {
	w.t.Helper()
	conn := w.connect()
	conn.Write([]byte{5, 1, 0})
	conn.Write(request)
	var answer [12]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		w.t.Fatalf("socks %q: %v", request, err)
	}
	if answer[0] != 5 || answer[1] != 0 || answer[2] != 5 {
		w.t.Fatalf("socks %q: %v", request, answer)
	}
	return answer[3], conn
}

func (w *fakeNetwork) dialledAddrs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialled)
}

func (w *fakeNetwork) resolvedNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.resolved)
}

func (w *fakeNetwork) denials() []Denial {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.denied)
}

// statusCode returns the status code of an HTTP response, or 0.
func statusCode(answer string) int {
	words := strings.Fields(answer)
	if len(words) < 2 || !strings.HasPrefix(words[0], "HTTP/1.") {
		return 0
	}
	n, _ := strconv.Atoi(words[1])
	return n
}

func readBody(t *testing.T, answer *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(data), err)
	}
	return string(data)
}
