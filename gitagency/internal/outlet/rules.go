package outlet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rules are the hosts and ports that may be reached. The zero value allows nothing.
type Rules struct {
	patterns []pattern // sorted, each host once
}

// pattern is one host, or all names below it, with its ports.
type pattern struct {
	host       host
	subdomains bool     // matches all names below host, at any depth, and not host itself
	anyPort    bool     // every port
	ports      []uint16 // sorted; unused with anyPort
}

// defaultPorts are the ports of an entry without a port: a host usually means its web server.
var defaultPorts = [...]uint16{80, 443}

// ParseRules parses the part of a value of --outputs after "hosts:", entries separated by commas.
//
//	a.example          the host, ports 80 and 443
//	a.example:8443     one port
//	a.example:*        every port
//	*.a.example        any name below a.example, however deep, but not a.example itself; ports as above
//	192.0.2.7:5432     an address; only so can a loopback, link-local or private address be reached
//	[2001:db8::7]:22   an IPv6 address
//
// Names are not case-sensitive, and a trailing dot changes nothing. A wildcard may be as wide as *.com: the list of
// public suffixes changes too often to be built in. Errors name an entry that can be typed instead.
func ParseRules(spec string) (Rules, error) {
	if spec == "" {
		return Rules{}, errors.New("no host is listed: write at least one, such as hosts:a.example, or none to reach nothing")
	}
	var rules Rules
	for entry := range strings.SplitSeq(spec, ",") {
		p, err := parsePattern(entry)
		if err != nil {
			return Rules{}, err
		}
		rules.add(p)
	}
	return rules, nil
}

// String returns the rules in the syntax of ParseRules, equal for all spellings of the same rules.
func (r Rules) String() string {
	var entries []string
	for _, p := range r.patterns {
		entries = append(entries, p.entries()...)
	}
	return strings.Join(entries, ",")
}

func (r Rules) allows(h host, port uint16) bool {
	return slices.ContainsFunc(r.patterns, func(p pattern) bool {
		return p.matches(h) && (p.anyPort || slices.Contains(p.ports, port))
	})
}

// listsHost reports whether a host may be reached at any port.
func (r Rules) listsHost(h host) bool {
	return slices.ContainsFunc(r.patterns, func(p pattern) bool { return p.matches(h) })
}

// listsAllOfLoopback reports whether an entry names every port of a loopback address of the machine.
func (r Rules) listsAllOfLoopback() bool {
	return slices.ContainsFunc(r.patterns, func(p pattern) bool { return p.anyPort && len(p.loopbackAddrs()) > 0 })
}

// add inserts a pattern, in order and with each host once.
func (r *Rules) add(p pattern) {
	i, known := slices.BinarySearchFunc(r.patterns, p, pattern.compare)
	if !known {
		r.patterns = slices.Insert(r.patterns, i, p)
		return
	}
	q := &r.patterns[i]
	q.anyPort = q.anyPort || p.anyPort
	q.ports = append(q.ports, p.ports...)
	slices.Sort(q.ports)
	q.ports = slices.Compact(q.ports)
	if q.anyPort {
		q.ports = nil
	}
}

func (p pattern) compare(q pattern) int {
	if c := strings.Compare(p.host.String(), q.host.String()); c != 0 || p.subdomains == q.subdomains {
		return c
	}
	if p.subdomains {
		return 1
	}
	return -1
}

// matches reports whether an entry lists a host. localhost and the addresses it stands for list each other.
func (p pattern) matches(h host) bool {
	switch {
	case h.addr.IsLoopback() && p.host.isLocalhost(), h.name == "localhost" && p.host.addr.IsLoopback():
		return slices.Contains(localhostAddrs(), cmp.Or(h.addr, p.host.addr))
	case !p.subdomains:
		return p.host == h
	}
	return h.name != "" && strings.HasSuffix(h.name, "."+p.host.name)
}

func (p pattern) entries() []string {
	prefix := ""
	if p.subdomains {
		prefix = "*."
	}
	if p.anyPort {
		return []string{prefix + p.host.bracketed() + ":*"}
	}
	var entries []string
	both := slices.Contains(p.ports, defaultPorts[0]) && slices.Contains(p.ports, defaultPorts[1])
	if both {
		entries = append(entries, prefix+p.host.bracketed())
	}
	for _, port := range p.ports {
		if !both || !slices.Contains(defaultPorts[:], port) {
			entries = append(entries, prefix+target{p.host, port}.String())
		}
	}
	return entries
}

// entryProblem says why the text of an entry cannot be a host with an optional port; empty if it may be one.
func entryProblem(entry string) string {
	if entry == "" {
		return "an entry is empty: write hosts with one comma between them, such as a.example,b.example:8443"
	}
	if strings.ContainsFunc(entry, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "leave out spaces and control characters: separate hosts with one comma"
	}
	if strings.ContainsFunc(entry, func(c rune) bool { return c > 0x7f }) {
		return "write the name with ASCII letters only, as DNS has it: it begins with xn--"
	}
	if scheme, rest, found := strings.Cut(entry, "://"); found {
		authority := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority = rest[:i]
		}
		return fmt.Sprintf("leave out %s:// and any path, write %s", scheme, authority)
	}
	if _, err := netip.ParsePrefix(entry); err == nil {
		return "a network cannot be listed: write each address separately, such as 192.0.2.7:443"
	}
	if i := strings.IndexAny(entry, `/?#\`); i >= 0 {
		return fmt.Sprintf("leave out the path, write %s: only whole hosts can be allowed", entry[:i])
	}
	if i := strings.LastIndex(entry, "@"); i >= 0 {
		return fmt.Sprintf("leave out the user, write %s", entry[i+1:])
	}
	if entry == "*" || entry == "*." || strings.HasPrefix(entry, "*:") {
		return "write a suffix after the star, such as *.a.example; to allow every host, choose open instead of hosts:"
	}
	return ""
}

func parsePattern(entry string) (pattern, error) {
	wrong := func(format string, args ...any) (pattern, error) {
		return pattern{}, fmt.Errorf("%q: %s", entry, fmt.Sprintf(format, args...))
	}
	if problem := entryProblem(entry); problem != "" {
		return wrong("%s", problem)
	}
	var (
		p          pattern
		name, port string
		hasPort    bool
	)
	if inner, found := strings.CutPrefix(entry, "["); found {
		address, rest, closed := strings.Cut(inner, "]")
		if !closed || rest != "" && rest[0] != ':' {
			return wrong("write an IPv6 address as [2001:db8::7] or [2001:db8::7]:443")
		}
		addr, err := netip.ParseAddr(address)
		if err != nil || !addr.Is6() {
			return wrong("only an IPv6 address may be in brackets: write [2001:db8::7]:443")
		}
		name = address
		port, hasPort = strings.CutPrefix(rest, ":")
	} else {
		if strings.Count(entry, ":") > 1 {
			return wrong("write an IPv6 address in brackets, such as [2001:db8::7] or [2001:db8::7]:443")
		}
		name, port, hasPort = strings.Cut(entry, ":")
		name, p.subdomains = strings.CutPrefix(name, "*.")
	}
	if strings.Contains(name, "*") {
		return wrong("a star is allowed only before the first dot: write *.a.example")
	}
	var err error
	if p.host, err = parseHost(name); err != nil {
		return wrong("%v", err)
	}
	if addr, err := netip.ParseAddr(name); err == nil && addr != p.host.addr {
		return wrong("write the address as %s", p.host.bracketed())
	}
	if p.subdomains && p.host.name == "" {
		return wrong("an IP address has no subdomains: write %s", p.host.bracketed())
	}
	switch {
	case !hasPort:
		p.ports = defaultPorts[:]
	case port == "*":
		p.anyPort = true
	default:
		n, err := parsePort(port)
		if err != nil {
			return wrong("%s: write %s:443, or %[2]s:* for every port", err, p.host.bracketed())
		}
		p.ports = []uint16{n}
	}
	p.ports = slices.Clone(p.ports)
	return p, nil
}

// host is a name, in lower case without a trailing dot, or an address.
type host struct {
	name string
	addr netip.Addr // valid when name is empty
}

func (h host) String() string {
	if h.name != "" {
		return h.name
	}
	return h.addr.String()
}

func (h host) bracketed() string {
	if h.name == "" && h.addr.Is6() {
		return "[" + h.addr.String() + "]"
	}
	return h.String()
}

// target is the host and port that a client requests.
type target struct {
	host host
	port uint16
}

func (t target) String() string {
	return t.host.bracketed() + ":" + strconv.Itoa(int(t.port))
}

// ruleEntry returns the entry that would have to be listed for the target to be allowed.
func (t target) ruleEntry() string {
	if slices.Contains(defaultPorts[:], t.port) {
		return t.host.bracketed()
	}
	return t.String()
}

// parseHost parses a name or an address without brackets.
//
// Only the canonical notation of an address is accepted. Each resolver knows some other notations (127.1, 0x7f.1,
// 2130706433, 0177.0.0.1), which look like names to the rest: they are rejected, as browsers do, where every host that
// ends in a number is an address or invalid.
func parseHost(s string) (host, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return host{}, errors.New("an address with a zone is valid on one link only: write a name or a global address")
		}
		return host{addr: addr.Unmap()}, nil
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return host{}, errors.New("a host name has 1 to 253 characters, such as a.example")
	}
	lower := []byte(name)
	for i, c := range lower {
		switch {
		case c >= 'A' && c <= 'Z':
			lower[i] = c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return host{}, errors.New("a host name has only letters, digits, hyphens and dots, such as a.example")
		}
	}
	name = string(lower)
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return host{}, errors.New("a host name has 1 to 63 characters between its dots, such as a.example")
		}
		last = label
	}
	if isNumber(last) {
		return host{}, errors.New("this is neither a name nor an address: write an address as four numbers, such as 192.0.2.7")
	}
	return host{name: name}, nil
}

func isNumber(label string) bool {
	digits, set := label, "0123456789"
	if hex, found := strings.CutPrefix(label, "0x"); found {
		digits, set = hex, set+"abcdef"
	}
	return strings.Trim(digits, set) == ""
}

// parseTarget parses the host and port of a request. With a default port of 0 the port is required.
func parseTarget(s string, defaultPort uint16) (target, error) {
	var (
		t          = target{port: defaultPort}
		name, port string
		hasPort    bool
	)
	if inner, found := strings.CutPrefix(s, "["); found {
		address, rest, closed := strings.Cut(inner, "]")
		addr, err := netip.ParseAddr(address)
		if err != nil || !addr.Is6() || !closed || rest != "" && rest[0] != ':' {
			return target{}, errors.New("only an IPv6 address may be in brackets")
		}
		name = address
		port, hasPort = strings.CutPrefix(rest, ":")
	} else if name, port, hasPort = strings.Cut(s, ":"); strings.Contains(port, ":") {
		return target{}, errors.New("an IPv6 address must be in brackets")
	}
	var err error
	if t.host, err = parseHost(name); err != nil {
		return target{}, err
	}
	if hasPort {
		if t.port, err = parsePort(port); err != nil {
			return target{}, err
		}
	}
	if t.port == 0 {
		return target{}, errors.New("the port is missing")
	}
	return t, nil
}

// parsePort parses a decimal port without leading zeros.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] < '1' || s[0] > '9' {
		return 0, errors.New("a port is a number from 1 to 65535")
	}
	return uint16(n), nil
}
