package outlet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// deniedError says that a target must not be reached. Every other error on the way is a failure.
type deniedError struct {
	reason     string
	allowEntry string // entries of --outputs that would allow it, or empty
}

func (r *deniedError) Error() string { return r.reason }

const (
	maxAddrs    = 8               // addresses of one name
	minDialTime = 2 * time.Second // for each of them
)

// dialTarget connects to a target, if the rules allow it.
func (s *handler) dialTarget(ctx context.Context, t target) (net.Conn, error) {
	// 1. Is it listed? Nothing else is looked up: a DNS query can carry data out of the sandbox, too.
	if !s.rules.allows(t.host, t.port) {
		return nil, s.unlistedError(t)
	}

	// 2. Resolve the name, once: the addresses checked are those connected to, whatever the next answer would be.
	ctx, cancel := context.WithTimeout(ctx, s.limits.DialTimeout)
	defer cancel()
	addrs := []netip.Addr{t.host.addr}
	switch {
	case t.host.isLocalhost():
		addrs = localhostAddrs()
	case t.host.name != "":
		var err error
		if addrs, err = s.resolve(ctx, t.host.name); err != nil {
			return nil, fmt.Errorf("look up %s: %w", t.host, err)
		}
		if len(addrs) == 0 {
			return nil, fmt.Errorf("look up %s: no address", t.host)
		}
	}

	// 3. Check the addresses. Those that lead to internal networks are dropped, the others are used.
	allowed, err := s.filterAddrs(t, addrs)
	if err != nil {
		return nil, err
	}

	// 4. Connect to the first address that answers.
	var failures []error
	for i, addr := range allowed {
		conn, err := s.dialOne(ctx, netip.AddrPortFrom(addr, t.port), len(allowed)-i)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", t, errors.Join(failures...))
}

func (s *handler) unlistedError(t target) *deniedError {
	r := &deniedError{reason: t.host.String() + " is not among the outputs of this sandbox", allowEntry: t.ruleEntry()}
	if s.rules.listsHost(t.host) {
		r.reason = fmt.Sprintf("port %d of %s is not among the outputs of this sandbox", t.port, t.host)
	}
	if t.host.addr.IsLoopback() || t.host.isLocalhost() {
		r.reason += " (for the proxy it is the host machine; ports of the sandbox itself are reached without a proxy)"
	}
	return r
}

// filterAddrs drops the addresses that must not be reached through a name. An address that is listed itself, with the
// port, may always be reached.
func (s *handler) filterAddrs(t target, addrs []netip.Addr) ([]netip.Addr, error) {
	local, err := s.localAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var allowed []netip.Addr
	var first *deniedError
	for _, addr := range addrs {
		// A zone would select a link; answers of DNS have none, and link-local addresses are not allowed anyway.
		addr = addr.Unmap().WithZone("")
		literal := target{host{addr: addr}, t.port}
		kind := specialKind(addr)
		if kind == "" && slices.Contains(local, addr) {
			kind = "an address of this machine"
		}
		switch {
		case kind == "" || s.rules.allows(literal.host, t.port):
			if !slices.Contains(allowed, addr) && len(allowed) < maxAddrs {
				allowed = append(allowed, addr)
			}
		case first == nil:
			first = &deniedError{
				reason:     fmt.Sprintf("%s resolves to %s, %s: such an address must be listed explicitly", t.host, addr, kind),
				allowEntry: literal.ruleEntry(),
			}
		}
	}
	if len(allowed) == 0 {
		return nil, first
	}
	return allowed, nil
}

// dialOne connects to one address of several, and leaves time for the remaining ones.
func (s *handler) dialOne(ctx context.Context, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(minDialTime, time.Until(deadline)/time.Duration(left)))
		defer cancel()
	}
	return s.dial(ctx, addr)
}

// specialKind describes an address that is not globally reachable, and returns "" for one that is. Every address that is
// not known to be harmless counts as special.
//
// One case cannot be detected: NAT64 with a network-specific prefix, behind which private IPv4 addresses may lie.
func specialKind(addr netip.Addr) string {
	addr = addr.Unmap()
	if addr.Is6() && nat64().Contains(addr) {
		bytes := addr.As16()
		if kind := specialKind(netip.AddrFrom4([4]byte(bytes[12:]))); kind != "" {
			return kind + " behind NAT64"
		}
		return ""
	}
	for _, s := range specialBlocks() {
		if s.Contains(addr) {
			return s.kind
		}
	}
	if addr.Is6() && !globalUnicast().Contains(addr) {
		return "a reserved address"
	}
	return ""
}

// specialBlock is a block of addresses, and what they are.
type specialBlock struct {
	netip.Prefix
	kind string
}

var (
	nat64         = sync.OnceValue(func() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") })
	globalUnicast = sync.OnceValue(func() netip.Prefix { return netip.MustParsePrefix("2000::/3") })
)

// specialBlocks returns the blocks that the IANA special-purpose address registries call not globally reachable, and the
// tunnels that embed an IPv4 address in an IPv6 address.
var specialBlocks = sync.OnceValue(func() []specialBlock {
	return []specialBlock{
		{netip.MustParsePrefix("169.254.169.254/32"), "the metadata service of a cloud provider"},
		{netip.MustParsePrefix("fd00:ec2::254/128"), "the metadata service of a cloud provider"},
		{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
		{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
		{netip.MustParsePrefix("100.64.0.0/10"), "a private address"}, // carrier-grade NAT, and many VPNs
		{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
		{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
		{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
		{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
		{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
		{netip.MustParsePrefix("192.88.99.0/24"), "a tunnel address"},
		{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
		{netip.MustParsePrefix("198.18.0.0/15"), "a private address"}, // for benchmarks
		{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
		{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
		{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
		{netip.MustParsePrefix("255.255.255.255/32"), "a broadcast address"},
		{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
		{netip.MustParsePrefix("::/128"), "an unspecified address"},
		{netip.MustParsePrefix("::1/128"), "a loopback address"},
		{netip.MustParsePrefix("2001::/32"), "a tunnel address"}, // Teredo
		{netip.MustParsePrefix("2001::/23"), "a reserved address"},
		{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
		{netip.MustParsePrefix("2002::/16"), "a tunnel address"}, // 6to4
		{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
		{netip.MustParsePrefix("fc00::/7"), "a private address"},
		{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
		{netip.MustParsePrefix("fec0::/10"), "a private address"},
		{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	}
})

func resolveName(ctx context.Context, name string) ([]netip.Addr, error) {
	// A trailing dot makes a name fully qualified, so that the local search domains are not applied. Names without any
	// dot are only meaningful in a search domain.
	if strings.Contains(name, ".") {
		name += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr.String())
}

// interfaceAddrs lists the addresses of this machine's interfaces: a service that listens on one of them may assume
// that only the machine itself connects from there.
func interfaceAddrs() ([]netip.Addr, error) {
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

// isDNSError reports whether a name could not be resolved.
func isDNSError(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns)
}
