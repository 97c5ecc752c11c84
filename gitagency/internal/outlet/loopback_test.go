package outlet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLoopbackRelays(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		"a.example,10.0.0.1:8765,127.0.0.1:*": nil,
		"127.0.0.1:8765":                      {"127.0.0.1:8765=127.0.0.1:8765", "[::1]:8765=127.0.0.1:8765?"},
		"[::1]:8765":                          {"127.0.0.1:8765=[::1]:8765?", "[::1]:8765=[::1]:8765"},
		"localhost:8765":                      {"127.0.0.1:8765=127.0.0.1:8765,[::1]:8765", "[::1]:8765=[::1]:8765,127.0.0.1:8765?"},
		"localhost:1,127.0.0.1:1,[::1]:1":     {"127.0.0.1:1=127.0.0.1:1,[::1]:1", "[::1]:1=[::1]:1,127.0.0.1:1"},
		"127.0.0.2:5432":                      {"127.0.0.2:5432=127.0.0.2:5432"},
		"app.localhost:3000":                  {"127.0.0.1:3000=127.0.0.1:3000,[::1]:3000", "[::1]:3000=[::1]:3000,127.0.0.1:3000?"},
		"a.example,127.0.0.1:2,127.0.0.1:1":   {"127.0.0.1:1=127.0.0.1:1", "127.0.0.1:2=127.0.0.1:2", "[::1]:1=127.0.0.1:1?", "[::1]:2=127.0.0.1:2?"},
	} {
		var got []string
		for _, r := range mustParseRules(t, spec).LoopbackRelays() {
			text := r.Inside.String() + "=" + r.String()
			if r.Optional {
				text += "?"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// TestRulesLocalhostIsLoopback: localhost and its addresses list each other, and no resolver is asked what it means.
func TestRulesLocalhostIsLoopback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules, host string
		allowed     bool
	}{
		{"localhost:9000", "127.0.0.1", true},
		{"localhost:9000", "::1", true},
		{"localhost:9000", "127.0.0.2", false},
		{"localhost:9000", "a.localhost", false},
		{"127.0.0.1:9000", "localhost", true},
		{"[::1]:9000", "localhost", true},
		{"[::1]:9000", "127.0.0.1", false},
		{"127.0.0.2:9000", "localhost", false},
		{"localhost:9001", "127.0.0.1", false},
	} {
		if got := mustParseRules(t, c.rules).Allows(c.host, 9000); got != c.allowed {
			t.Errorf("%s lists %s: %t", c.rules, c.host, got)
		}
	}
}

// TestLoopbackRelayLargeTransferAndHalfClose sends more than all buffers hold, closes for writing, and reads the answer.
func TestLoopbackRelayLargeTransferAndHalfClose(t *testing.T) {
	t.Parallel()
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	server := listenTCP(t, func(conn *net.TCPConn) {
		data, _ := io.ReadAll(conn)
		fmt.Fprint(conn, bytes.Equal(data, payload))
		conn.Write(data)
	})
	addr, _ := startRelay(t, func(err error) { t.Error(err) }, unusedAddr(t), netip.MustParseAddrPort(server.String()))
	conn := connect(t, addr)
	go func() {
		conn.Write(payload)
		conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(got, []byte("true")) || !bytes.Equal(got[4:], payload) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestLoopbackRelayReportsTargetBeforeClosing(t *testing.T) {
	t.Parallel()
	target := unusedAddr(t)
	failures := make(chan error, 1)
	addr, _ := startRelay(t, func(err error) { failures <- err }, target)
	if conn, err := net.Dial("tcp", addr); err == nil { // else it was reset already
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testTimeout))
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("the connection is open: %v", err)
		}
	}
	select {
	case err := <-failures:
		if !strings.Contains(err.Error(), target.String()) {
			t.Error(err)
		}
	default:
		t.Error("no report when the connection was closed")
	}
}

func startRelay(t *testing.T, failed func(error), targets ...netip.AddrPort) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = LoopbackRelay{Targets: targets}.Serve(ctx, l, failed)
	}()
	stop = func() { cancel(); waitDone(t, done) }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// unusedAddr returns an address on which nothing listens: a bound socket that does not listen keeps it.
func unusedAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.Dial("tcp", listenTCP(t, func(c *net.TCPConn) { _, _ = io.ReadAll(c) }).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}
