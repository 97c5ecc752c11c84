package outlet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// These tests run in synctest bubbles with fake time and net.Pipe connections.

// pipeListener is a net.Listener whose connections are pipes.
type pipeListener chan net.Conn

func (p pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipeListener) Close() error   { return nil }
func (p pipeListener) Addr() net.Addr { return nil }

// dial connects to the listener and sends text.
func (p pipeListener) dial(text string) net.Conn {
	here, there := net.Pipe()
	p <- there
	if text != "" {
		io.WriteString(here, text)
	}
	return here
}

// waitEOF reads a connection to its end and returns the text and the time it took.
func waitEOF(t *testing.T, conn net.Conn) (said string, after time.Duration) {
	t.Helper()
	start := time.Now()
	data, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	return string(data), time.Since(start)
}

func TestSlowRequestHeadTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := make(pipeListener)
		done := make(chan error)
		go func() { done <- (&Server{}).Serve(context.Background(), l) }()
		for begun, want := range map[string]int{
			"":                                     0,
			"G":                                    408,
			"GET http://a.example/ HTTP/1.1\r\nA:": 408,
			"\x05":                                 0,
			"\x05\x02\x00":                         0,
		} {
			said, after := waitEOF(t, l.dial(begun))
			if statusCode(said) != want || after != defaultLimits.HeadTimeout {
				t.Errorf("%q: %q after %s", begun, said, after)
			}
		}
		// A byte per second does not extend the deadline.
		conn := l.dial("GET http://a.example/")
		start := time.Now()
		go io.Copy(io.Discard, conn)
		for {
			time.Sleep(time.Second)
			if _, err := io.WriteString(conn, "a"); err != nil {
				break
			}
		}
		if took := time.Since(start); took > defaultLimits.HeadTimeout+lingerTime+time.Second {
			t.Errorf("a slow sender was cut off after %s", took)
		}
		close(l)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOnlyIdleConnectionsTimeOut sends a byte just before every idle timeout, so that only the final silence ends the
// connection.
func TestOnlyIdleConnectionsTimeOut(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"CONNECT a.example:80 HTTP/1.1\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			l := make(pipeListener)
			here, there := net.Pipe()
			p := &Server{
				Rules: mustParseRules(t, "a.example"),
				Resolve: func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
				},
				Dial:       func(context.Context, netip.AddrPort) (net.Conn, error) { return there, nil },
				localAddrs: func() ([]netip.Addr, error) { return nil, nil },
			}
			done := make(chan error)
			go func() { done <- p.Serve(context.Background(), l) }()
			conn := l.dial(request)
			in := bufio.NewReader(conn)
			if request[0] == 'G' {
				if _, err := readHead(bufio.NewReader(here), 1000); err != nil {
					t.Fatal(err)
				}
				go io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
			}
			if _, err := readHead(in, 1000); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				time.Sleep(defaultLimits.IdleTimeout - time.Second)
				go io.WriteString(here, ".")
				if c, err := in.ReadByte(); err != nil || c != '.' {
					t.Fatalf("%q, %v", c, err)
				}
			}
			start := time.Now()
			if c, err := in.ReadByte(); err == nil || time.Since(start) != defaultLimits.IdleTimeout {
				t.Errorf("%q: idle connection ended after %s with %q, %v", request, time.Since(start), c, err)
			}
			if _, err := here.Read(make([]byte, 1)); err == nil {
				t.Errorf("%q: the connection to the server is still open", request)
			}
			close(l)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSilentServerIsBadGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, a := net.Pipe()
		server, b := net.Pipe()
		go io.Copy(io.Discard, server)
		s := &handler{limits: defaultLimits}
		in := bufio.NewReader(a)
		go s.forwardRequest(t.Context(), bufferedConn{a, in}, in, b, request{method: "GET", path: "/", version: "HTTP/1.1", target: mustParseTarget(t, "a.example:80")})
		if said, after := waitEOF(t, client); statusCode(said) != 502 || after != defaultLimits.IdleTimeout {
			t.Errorf("%q after %s", said, after)
		}
	})
}

// halfCloser adds a CloseWrite that does nothing.
type halfCloser struct{ net.Conn }

func (halfCloser) CloseWrite() error { return nil }

func TestHalfClosedRelayTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, a := net.Pipe()
		server, b := net.Pipe()
		client.Close()
		start := time.Now()
		go relay(context.Background(), bufferedConn{halfCloser{a}, a}, bufferedConn{halfCloser{b}, b}, 0)
		if _, err := server.Read(make([]byte, 1)); err == nil || time.Since(start) != halfClosedTimeout {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestServeConnsWaitsForHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := make(pipeListener)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- serveConns(ctx, l, 9, func(ctx context.Context, _ net.Conn) {
				<-ctx.Done()
				time.Sleep(time.Hour)
			})
		}()
		l.dial("")
		synctest.Wait()
		start := time.Now()
		cancel()
		close(l)
		if err := <-done; err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestDialTargetSharesTimeoutBetweenAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &handler{
			rules: mustParseRules(t, "a.example"), limits: defaultLimits,
			resolve: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("8.8.4.4")}, nil
			},
			dial: func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
				if addr.Addr() == netip.MustParseAddr("8.8.8.8") {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				_, there := net.Pipe()
				return there, nil
			},
			localAddrs: func() ([]netip.Addr, error) { return nil, nil },
		}
		start := time.Now()
		if _, err := s.dialTarget(t.Context(), mustParseTarget(t, "a.example:443")); err != nil || time.Since(start) != defaultLimits.DialTimeout/2 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
