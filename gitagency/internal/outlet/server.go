package outlet

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Server is a proxy that reaches only listed hosts. It must not be changed while it serves.
type Server struct {
	Rules    Rules        // required: hosts and ports that may be reached
	OnDenied func(Denial) // called before the client gets its refusal, never concurrently; may be nil
	Limits   Limits

	// Resolve resolves a name and Dial connects to an address; nil means the resolver and network of this machine.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)

	localAddrs func() ([]netip.Addr, error) // for tests: addresses of this machine
}

// Limits bound the resources that clients can make the proxy use. A zero field has its default.
type Limits struct {
	MaxConnections int           // concurrent connections, further ones wait; default 256
	MaxHead        int           // bytes of a request or response before its body; default 64 KiB
	HeadTimeout    time.Duration // from connecting to the complete request head; default 30 seconds
	DialTimeout    time.Duration // for resolving and connecting, all addresses together; default 30 seconds
	IdleTimeout    time.Duration // without a byte in either direction; default one hour, as some responses take long
}

var defaultLimits = Limits{MaxConnections: 256, MaxHead: 64 << 10, HeadTimeout: 30 * time.Second, DialTimeout: 30 * time.Second, IdleTimeout: time.Hour}

// Serve serves the connections of l until ctx ends or l is closed. Then it closes l and all connections, reports the
// final counts of denials, and returns nil when all its goroutines have ended.
func (p *Server) Serve(ctx context.Context, l net.Listener) error {
	s := &handler{
		rules: p.Rules,
		limits: Limits{
			MaxConnections: cmp.Or(p.Limits.MaxConnections, defaultLimits.MaxConnections),
			MaxHead:        cmp.Or(p.Limits.MaxHead, defaultLimits.MaxHead),
			HeadTimeout:    cmp.Or(p.Limits.HeadTimeout, defaultLimits.HeadTimeout),
			DialTimeout:    cmp.Or(p.Limits.DialTimeout, defaultLimits.DialTimeout),
			IdleTimeout:    cmp.Or(p.Limits.IdleTimeout, defaultLimits.IdleTimeout),
		},
		denials:    denialLog{report: p.OnDenied},
		resolve:    p.Resolve,
		dial:       p.Dial,
		localAddrs: p.localAddrs,
	}
	if s.resolve == nil {
		s.resolve = resolveName
	}
	if s.dial == nil {
		s.dial = dialTCP
	}
	if s.localAddrs == nil {
		s.localAddrs = interfaceAddrs
	}
	defer s.denials.reportTotals()
	return serveConns(ctx, l, s.limits.MaxConnections, s.handleConn)
}

// handler serves the connections of a Server.
type handler struct {
	rules      Rules
	limits     Limits
	denials    denialLog
	resolve    func(context.Context, string) ([]netip.Addr, error)
	dial       func(context.Context, netip.AddrPort) (net.Conn, error)
	localAddrs func() ([]netip.Addr, error)
}

// handleConn tells the protocol by the first byte. Other protocols (TLS, an HTTP/2 preface, noise) are closed without a
// reply, as there is none that the client would understand.
func (s *handler) handleConn(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(s.limits.HeadTimeout))
	in := bufio.NewReader(conn)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	client := bufferedConn{conn, in}
	switch c := first[0]; {
	case c == 5:
		s.serveSOCKS5(ctx, client, in)
	case c == 4:
		rejectSOCKS4(client)
	case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
		s.serveHTTP(ctx, client, in)
	}
}

// dialAndRecord connects to the target of a client, and records a refusal.
func (s *handler) dialAndRecord(ctx context.Context, kind string, t target) (net.Conn, error) {
	conn, err := s.dialTarget(ctx, t)
	var r *deniedError
	if errors.As(err, &r) {
		s.recordDenial(kind, t.String(), r)
	}
	return conn, err
}

func (s *handler) recordDenial(kind, asked string, r *deniedError) {
	s.denials.record(Denial{Time: time.Now(), Kind: kind, Target: printable(asked), Reason: r.reason, AllowEntry: r.allowEntry})
}

// denialMessage is the one-line explanation for the client.
func (s *handler) denialMessage(asked string, r *deniedError) string {
	text := "git-agency: " + printable(asked) + " refused: " + r.reason
	if r.allowEntry != "" {
		entries := strings.TrimPrefix(s.rules.String()+","+r.allowEntry, ",")
		text += "; to allow it, start the sandbox with --outputs hosts:" + entries
	}
	return text
}

// printable makes text from the sandbox safe to show and store: short, and in visible ASCII.
func printable(s string) string {
	const limit = 300
	cut := ""
	if len(s) > limit {
		s, cut = s[:limit], "..."
	}
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], " ", `\x20`) + cut
}

// clearDeadline removes the deadline of a connection once its request has been read.
func clearDeadline(c net.Conn) { c.SetDeadline(time.Time{}) }
