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
type Proxy struct {
	Rules  Rules        // required: hosts and ports that may be reached
	Denied func(Denial) // called before the client gets its refusal, never concurrently; may be nil
	Limits Limits

	// Resolve resolves a name and Dial connects to an address; nil means the resolver and network of this machine.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)

	own func() ([]netip.Addr, error) // for tests: addresses of this machine
}

// Limits bound the resources that clients can make the proxy use. A zero field has its default.
type Limits struct {
	Connections int           // concurrent connections, further ones wait; default 256
	Head        int           // bytes of a request or response before its body; default 64 KiB
	HeadTime    time.Duration // from connecting to the complete request head; default 30 seconds
	Dial        time.Duration // for resolving and connecting, all addresses together; default 30 seconds
	Idle        time.Duration // without a byte in either direction; default one hour, as some responses take long
}

var defaults = Limits{Connections: 256, Head: 64 << 10, HeadTime: 30 * time.Second, Dial: 30 * time.Second, Idle: time.Hour}

// Serve serves the connections of l until ctx ends or l is closed. Then it closes l and all connections, reports the
// final counts of denials, and returns nil when all its goroutines have ended.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	s := &serving{
		rules: p.Rules,
		limits: Limits{
			Connections: cmp.Or(p.Limits.Connections, defaults.Connections),
			Head:        cmp.Or(p.Limits.Head, defaults.Head),
			HeadTime:    cmp.Or(p.Limits.HeadTime, defaults.HeadTime),
			Dial:        cmp.Or(p.Limits.Dial, defaults.Dial),
			Idle:        cmp.Or(p.Limits.Idle, defaults.Idle),
		},
		ledger:  ledger{tell: p.Denied},
		resolve: p.Resolve,
		dial:    p.Dial,
		own:     p.own,
	}
	if s.resolve == nil {
		s.resolve = lookUp
	}
	if s.dial == nil {
		s.dial = dialTCP
	}
	if s.own == nil {
		s.own = ownAddresses
	}
	defer s.ledger.close()
	return serve(ctx, l, s.limits.Connections, s.handle)
}

// handler serves the connections of a Server.
type serving struct {
	rules   Rules
	limits  Limits
	ledger  ledger
	resolve func(context.Context, string) ([]netip.Addr, error)
	dial    func(context.Context, netip.AddrPort) (net.Conn, error)
	own     func() ([]netip.Addr, error)
}

// handleConn tells the protocol by the first byte. Other protocols (TLS, an HTTP/2 preface, noise) are closed without a
// reply, as there is none that the client would understand.
func (s *serving) handle(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(s.limits.HeadTime))
	in := bufio.NewReader(conn)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	client := side{conn, in}
	switch c := first[0]; {
	case c == 5:
		s.socks5(ctx, client, in)
	case c == 4:
		socks4(client)
	case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
		s.http(ctx, client, in)
	}
}

// dialAndRecord connects to the target of a client, and records a refusal.
func (s *serving) connect(ctx context.Context, kind string, t target) (net.Conn, error) {
	conn, err := s.reach(ctx, t)
	var r *refusal
	if errors.As(err, &r) {
		s.deny(kind, t.String(), r)
	}
	return conn, err
}

func (s *serving) deny(kind, asked string, r *refusal) {
	s.ledger.add(Denial{Time: time.Now(), Kind: kind, Target: printable(asked), Reason: r.reason, Allow: r.allow})
}

// denialMessage is the one-line explanation for the client.
func (s *serving) explain(asked string, r *refusal) string {
	text := "git-agency: " + printable(asked) + " refused: " + r.reason
	if r.allow != "" {
		entries := strings.TrimPrefix(s.rules.String()+","+r.allow, ",")
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
func proceed(c net.Conn) { c.SetDeadline(time.Time{}) }
