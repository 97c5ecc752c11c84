package outlet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// LoopbackRelay is an address on the loopback of a sandbox whose connections go to the loopback of this machine.
type LoopbackRelay struct {
	Inside   netip.AddrPort
	Targets  []netip.AddrPort // addresses of this machine, in the order in which they are tried
	Optional bool             // another address of the sandbox leads to the same targets
}

// LoopbackRelays returns the relays of the entries that list loopback, sorted by address. A listed 127.0.0.1, ::1 or
// localhost can be reached at 127.0.0.1 and ::1, as programs differ in what they take localhost for. An entry for every
// port has none: its ports are reached through the proxy only.
func (r Rules) LoopbackRelays() []LoopbackRelay {
	relays := map[netip.AddrPort]LoopbackRelay{}
	add := func(inside, to netip.Addr, port uint16, optional bool) {
		at := netip.AddrPortFrom(inside, port)
		relay, known := relays[at]
		relay.Inside, relay.Optional = at, optional && (relay.Optional || !known)
		if target := netip.AddrPortFrom(to, port); !slices.Contains(relay.Targets, target) {
			relay.Targets = append(relay.Targets, target)
		}
		relays[at] = relay
	}
	for _, p := range r.patterns {
		for _, to := range p.loopbackAddrs() {
			for _, port := range p.ports {
				add(to, to, port, p.host.name != "" && to.Is6())
				for _, inside := range localhostAddrs() {
					if inside != to && slices.Contains(localhostAddrs(), to) {
						add(inside, to, port, true)
					}
				}
			}
		}
	}
	for _, relay := range relays {
		slices.SortStableFunc(relay.Targets, func(a, b netip.AddrPort) int {
			return cmp.Compare(familyOrder(a, relay.Inside), familyOrder(b, relay.Inside))
		})
	}
	return slices.SortedFunc(maps.Values(relays), func(a, b LoopbackRelay) int { return a.Inside.Compare(b.Inside) })
}

// familyOrder sorts targets of the address family of the relay before those of the other.
func familyOrder(target, inside netip.AddrPort) int {
	if target.Addr().Is4() == inside.Addr().Is4() {
		return 0
	}
	return 1
}

// Serve connects every connection that l accepts with the first target that answers, until ctx ends or l is closed. It
// calls failed for each connection that no target accepted, before that is closed, possibly concurrently.
func (r LoopbackRelay) Serve(ctx context.Context, l net.Listener, failed func(error)) error {
	return Forward(ctx, l, func(ctx context.Context) (net.Conn, error) {
		var failures []error
		for _, target := range r.Targets {
			conn, err := dialTCP(ctx, target)
			if err == nil {
				return conn, nil
			}
			failures = append(failures, err)
		}
		return nil, errors.Join(failures...)
	}, failed)
}

// String returns the addresses of this machine, separated by commas.
func (r LoopbackRelay) String() string {
	var targets []string
	for _, t := range r.Targets {
		targets = append(targets, t.String())
	}
	return strings.Join(targets, ",")
}

// localhostAddrs returns the addresses that localhost stands for (RFC 6761).
func localhostAddrs() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// isLocalhost reports whether a name stands for loopback, whatever a resolver says (RFC 6761).
func (h host) isLocalhost() bool {
	return h.name == "localhost" || strings.HasSuffix(h.name, ".localhost")
}

// loopbackAddrs returns the loopback addresses of an entry; none for any other host.
func (p pattern) loopbackAddrs() []netip.Addr {
	switch {
	case p.host.isLocalhost():
		return localhostAddrs()
	case p.host.addr.IsLoopback():
		return []netip.Addr{p.host.addr}
	}
	return nil
}
