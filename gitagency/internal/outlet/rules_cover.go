package outlet

import (
	"slices"
	"strings"
)

// Missing returns the rules among needed that r does not allow; it is empty if r allows all. A needed host without a port
// counts as allowed if its port 443 is: agents speak HTTPS to such a host.
func (r Rules) Missing(needed Rules) Rules {
	var missing Rules
	for _, p := range needed.patterns {
		if !r.covers(p) {
			missing.add(p)
		}
	}
	return missing
}

// covers reports whether the rules allow all that a pattern does, apart from port 80 of a host without a port.
func (r Rules) covers(p pattern) bool {
	ports := p.ports
	if slices.Equal(ports, defaultPorts[:]) {
		ports = ports[1:]
	}
	covered := func(has func(q pattern) bool) bool {
		return slices.ContainsFunc(r.patterns, func(q pattern) bool {
			hosts := q.matches(p.host) && !p.subdomains || q.subdomains && p.subdomains && isOrBelow(p.host.name, q.host.name)
			return hosts && (q.anyPort || has(q))
		})
	}
	if p.anyPort {
		return covered(func(pattern) bool { return false })
	}
	return !slices.ContainsFunc(ports, func(port uint16) bool {
		return !covered(func(q pattern) bool { return slices.Contains(q.ports, port) })
	})
}

// isOrBelow reports whether a name is another one or a subdomain of it.
func isOrBelow(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// IsEmpty reports whether the rules allow nothing.
func (r Rules) IsEmpty() bool { return len(r.patterns) == 0 }

// Targets returns the hosts that the rules name with a port each, as "host:port", for a trial connection: 443 where the
// port is not given. Wildcards name no host, so they have none.
func (r Rules) Targets() []string {
	var targets []string
	for _, p := range r.patterns {
		switch {
		case p.subdomains:
		case p.anyPort || slices.Equal(p.ports, defaultPorts[:]):
			targets = append(targets, target{p.host, defaultPorts[1]}.String())
		default:
			for _, port := range p.ports {
				targets = append(targets, target{p.host, port}.String())
			}
		}
	}
	return targets
}
