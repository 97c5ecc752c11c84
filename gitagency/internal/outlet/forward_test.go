package outlet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// startForward runs Forward and returns its address and a function that ends it.
func startForward(t *testing.T, dial func(context.Context) (net.Conn, error), failed func(error)) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Forward(ctx, l, dial, failed) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(testTimeout):
			t.Error("forwarding did not end")
		}
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func TestForwardRelaysBothDirections(t *testing.T) {
	t.Parallel()
	server := listenTCP(t, func(conn *net.TCPConn) {
		data, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "%d bytes", len(data))
	})
	addr, _ := startForward(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.String())
	}, func(err error) { t.Error(err) })
	var all sync.WaitGroup
	for i := range 20 {
		conn := connect(t, addr)
		all.Go(func() {
			conn.Write(make([]byte, i<<16))
			conn.CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || string(got) != fmt.Sprint(i<<16, " bytes") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}

func TestForwardReportsDialError(t *testing.T) {
	t.Parallel()
	nobody := errors.New("nobody listens")
	told := make(chan error, 1)
	connected := make(chan struct{})
	addr, _ := startForward(t, func(context.Context) (net.Conn, error) {
		<-connected
		return nil, nobody
	}, func(err error) { told <- err })
	conn := connect(t, addr)
	close(connected)
	if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF || isTimeout(err) {
		t.Errorf("the client sees %v", err)
	}
	if err := <-told; !errors.Is(err, nobody) {
		t.Error(err)
	}
}

func TestForwardEndsWithContext(t *testing.T) {
	t.Parallel()
	server := listenTCP(t, func(conn *net.TCPConn) { io.Copy(conn, conn) })
	addr, stop := startForward(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.String())
	}, nil)
	var conns []*net.TCPConn
	for range 5 {
		conn := connect(t, addr)
		io.WriteString(conn, "x")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	stop()
	for _, conn := range conns {
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a connection is still open: %v", err)
		}
	}
}

// TestForwardCancelWhileDiallingIsNotReported: a dial that fails because the context ended is no failure.
func TestForwardCancelWhileDiallingIsNotReported(t *testing.T) {
	t.Parallel()
	dialling := make(chan struct{})
	addr, stop := startForward(t, func(ctx context.Context) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}, func(err error) { t.Error(err) })
	connect(t, addr)
	waitDone(t, dialling)
	stop()
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	for spec, direct := range map[string]string{
		"a.example":                "localhost,127.0.0.1,::1",
		"a.example,127.0.0.1:5432": "localhost,127.0.0.1,::1",
		"127.0.0.1:*":              "",
		"localhost:*":              "",
		"10.0.0.1":                 "localhost,127.0.0.1,::1",
	} {
		got := Environment("127.0.0.1:3128", mustParseRules(t, spec))
		for _, want := range []string{
			"HTTP_PROXY=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "ALL_PROXY=socks5h://127.0.0.1:3128", "NO_PROXY=" + direct,
		} {
			name, value, _ := strings.Cut(want, "=")
			if !slices.Contains(got, want) || !slices.Contains(got, strings.ToLower(name)+"="+value) {
				t.Errorf("%s: %q lacks %s", spec, got, want)
			}
		}
	}
}
