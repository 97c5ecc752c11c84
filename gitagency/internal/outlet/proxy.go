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

// Proxy is a way out to some hosts. It must not be changed while it serves.
type Proxy struct {
	Rules  Rules        // required: what may be reached
	Denied func(Denial) // told of what was refused, before the program that asked is, and never twice at once; may be nil
	Limits Limits

	// Resolve looks a name up and Dial connects to an address; nil means as this machine does.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)

	own func() ([]netip.Addr, error) // for tests: the addresses of this machine
}

// Limits bound what those inside can make the proxy spend. What is 0 has its default.
type Limits struct {
	Connections int           // at once; more wait; 256
	Head        int           // bytes of a request before its body, and of its answer; 64 KiB
	HeadTime    time.Duration // from connecting until the request is there; 30 seconds
	Dial        time.Duration // looking up and connecting, all addresses together; 30 seconds
	Idle        time.Duration // without a byte either way; an hour, as some answers are long in coming
}

var defaults = Limits{Connections: 256, Head: 64 << 10, HeadTime: 30 * time.Second, Dial: 30 * time.Second, Idle: time.Hour}

// Serve answers what l accepts until ctx ends or l is closed. Then it closes l and all connections, tells the last
// of the denials, and returns when nothing of it runs any more. Both of these ends are none of an error.
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

// serving is a proxy at work.
type serving struct {
	rules   Rules
	limits  Limits
	ledger  ledger
	resolve func(context.Context, string) ([]netip.Addr, error)
	dial    func(context.Context, netip.AddrPort) (net.Conn, error)
	own     func() ([]netip.Addr, error)
}

// handle tells by the first byte what a client speaks. What is neither (TLS, HTTP/2 by a frame, noise) is
// closed without a word, as there is none it would understand.
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

// connect connects to what a client asked for; a refusal is recorded.
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

// explain is what the program that asked is told, in one line.
func (s *serving) explain(asked string, r *refusal) string {
	text := "git-agency: " + printable(asked) + " refused: " + r.reason
	if r.allow != "" {
		entries := strings.TrimPrefix(s.rules.String()+","+r.allow, ",")
		text += "; to allow it, start the sandbox with --outputs hosts:" + entries
	}
	return text
}

// printable is a text from inside that can be shown and stored: short, and in visible ASCII.
func printable(s string) string {
	const most = 300
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "..."
	}
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], " ", `\x20`) + cut
}

// proceed gives a connection back its time: the request is there.
func proceed(c net.Conn) { c.SetDeadline(time.Time{}) }
