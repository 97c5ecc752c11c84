package outlet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// refusal says that something must not be reached. Everything else that goes wrong on the way is a failure.
type refusal struct {
	reason string
	allow  string // the entry of the outputs that would allow it, or nothing
}

func (r *refusal) Error() string { return r.reason }

const (
	mostTried  = 8               // addresses of one name
	leastTried = 2 * time.Second // what each of them gets at least
)

// reach connects to a target, if it may be reached.
func (s *serving) reach(ctx context.Context, t target) (net.Conn, error) {
	// 1. Is it listed? Nothing is looked up that is not: a question to DNS is a way out too.
	if !s.rules.allows(t.host, t.port) {
		return nil, s.unlisted(t)
	}

	// 2. Where is it? Asked once: what is judged is what is connected to, whatever the next answer would be.
	ctx, cancel := context.WithTimeout(ctx, s.limits.Dial)
	defer cancel()
	addrs := []netip.Addr{t.host.addr}
	if t.host.name != "" {
		var err error
		if addrs, err = s.resolve(ctx, t.host.name); err != nil {
			return nil, fmt.Errorf("look up %s: %w", t.host, err)
		}
		if len(addrs) == 0 {
			return nil, fmt.Errorf("look up %s: no address", t.host)
		}
	}

	// 3. May one go there? Answers that lead inside are left out, the others serve.
	good, err := s.judge(t, addrs)
	if err != nil {
		return nil, err
	}

	// 4. Go to the first that answers.
	var failures []error
	for i, addr := range good {
		conn, err := s.try(ctx, netip.AddrPortFrom(addr, t.port), len(good)-i)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", t, errors.Join(failures...))
}

func (s *serving) unlisted(t target) *refusal {
	r := &refusal{reason: t.host.String() + " is not among the outputs of this sandbox", allow: t.entry()}
	if s.rules.knows(t.host) {
		r.reason = fmt.Sprintf("port %d of %s is not among the outputs of this sandbox", t.port, t.host)
	}
	if t.host.addr.IsLoopback() || t.host.name == "localhost" {
		r.reason += " (the proxy takes it for the machine around the sandbox; the sandbox's own ports are reached without a proxy)"
	}
	if t.host.name == "localhost" {
		// The name alone would not do: where it leads must be listed as well.
		r.allow += "," + target{host{addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})}, t.port}.entry()
	}
	return r
}

// judge leaves out the addresses that must not be reached under a name. An address that is listed itself, with the
// port, may always be reached.
func (s *serving) judge(t target, addrs []netip.Addr) ([]netip.Addr, error) {
	own, err := s.own()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var good []netip.Addr
	var first *refusal
	for _, addr := range addrs {
		// A zone would say on which link; what comes from DNS has none, and nothing on a link may be reached.
		addr = addr.Unmap().WithZone("")
		literal := target{host{addr: addr}, t.port}
		kind := inside(addr)
		if kind == "" && slices.Contains(own, addr) {
			kind = "an address of this machine"
		}
		switch {
		case kind == "" || s.rules.allows(literal.host, t.port):
			if !slices.Contains(good, addr) && len(good) < mostTried {
				good = append(good, addr)
			}
		case first == nil:
			first = &refusal{
				reason: fmt.Sprintf("%s is at %s, %s: such an address must be listed itself", t.host, addr, kind),
				allow:  literal.entry(),
			}
		}
	}
	if len(good) == 0 {
		return nil, first
	}
	return good, nil
}

// try connects to one address of several, leaving time for those after it.
func (s *serving) try(ctx context.Context, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(leastTried, time.Until(deadline)/time.Duration(left)))
		defer cancel()
	}
	return s.dial(ctx, addr)
}

// inside says what kind of address this is when it is not one of the internet at large, and nothing when it is.
// Anything whose kind is not known to be harmless is inside.
//
// One kind cannot be told: an address of a translator of the local network's own (NAT64 with a prefix of its
// operator's), behind which private IPv4 addresses may lie.
func inside(addr netip.Addr) string {
	addr = addr.Unmap()
	if addr.Is6() && nat64.Contains(addr) {
		bytes := addr.As16()
		if kind := inside(netip.AddrFrom4([4]byte(bytes[12:]))); kind != "" {
			return "by translation " + kind
		}
		return ""
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.kind
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return "a reserved address"
	}
	return ""
}

var (
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

// special are the blocks that IANA's registries of special addresses call not globally reachable, and the tunnels
// that hide an IPv4 address in an IPv6 one.
var special = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a private address"}, // carriers', and many a VPN's
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a tunnel"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a private address"}, // for benchmarks
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "a broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("2001::/32"), "a tunnel"}, // Teredo
	{netip.MustParsePrefix("2001::/23"), "a reserved address"},
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a tunnel"}, // 6to4
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a private address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

func lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	// With a dot at its end a name is what it says, and not the beginning of one in the local domain. Names
	// without any dot are only meant in the local domain.
	if strings.Contains(name, ".") {
		name += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr.String())
}

// ownAddresses are those of this machine's interfaces: what listens on one of them may count on nobody but the
// machine itself to come that way.
func ownAddresses() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ipnet.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}

// unknown reports whether a name has no address.
func unknown(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns)
}
