package outlet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseRulesNormalizes(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"a.example":                            "a.example",
		"A.Example.":                           "a.example",
		"a.example:443":                        "a.example:443",
		"a.example:443,a.example:80":           "a.example",
		"a.example,a.example:443":              "a.example",
		"a.example:*,a.example,a.example:9":    "a.example:*",
		"a.example,a.example:8443":             "a.example,a.example:8443",
		"b.example,a.example,b.example":        "a.example,b.example",
		"*.a.example,a.example":                "a.example,*.a.example",
		"*.com":                                "*.com",
		"*.A.example.:8443":                    "*.a.example:8443",
		"*.a.example:*":                        "*.a.example:*",
		"127.0.0.1:8080":                       "127.0.0.1:8080",
		"8.8.8.8":                              "8.8.8.8",
		"[::1]:8080":                           "[::1]:8080",
		"[0:0:0:0:0:0:0:1]":                    "[::1]",
		"[2001:DB8::1]:*":                      "[2001:db8::1]:*",
		"localhost:3000":                       "localhost:3000",
		"my_service-1.internal":                "my_service-1.internal",
		"xn--bcher-kva.example":                "xn--bcher-kva.example",
		"1.1.1.1.nip.example":                  "1.1.1.1.nip.example",
		"a.example:65535,a.example:1":          "a.example:1,a.example:65535",
		strings.Repeat("a", 63) + ".example:1": strings.Repeat("a", 63) + ".example:1",
	} {
		r, err := ParseRules(spec)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v; want %q", spec, r, err, want)
		}
	}
}

func TestParseRulesErrorsSuggestEntry(t *testing.T) {
	t.Parallel()
	for spec, advice := range map[string]string{
		"":                         "hosts:a.example",
		",":                        "one comma",
		"a.example,":               "one comma",
		"a.example,,b.example":     "one comma",
		"a.example, b.example":     "leave out spaces",
		"a.example\n":              "leave out spaces",
		"a\x00.example":            "leave out spaces",
		"*":                        "choose open",
		"*.":                       "choose open",
		"*:443":                    "choose open",
		"*.*.example":              "*.a.example",
		"a.*.example":              "*.a.example",
		"a*.example":               "*.a.example",
		"*example":                 "*.a.example",
		"https://a.example":        "write a.example",
		"http://a.example:81/x?y":  "write a.example:81",
		"a.example/path":           "write a.example:",
		"a.example?x":              "write a.example:",
		`a.example\x`:              "write a.example:",
		"user@a.example":           "write a.example",
		"10.0.0.0/8":               "192.0.2.7:443",
		"fd00::/8":                 "192.0.2.7:443",
		"bücher.example":           "xn--",
		"a.example:":               "a.example:443",
		"a.example:0":              "a.example:443",
		"a.example:65536":          "a.example:443",
		"a.example:-1":             "a.example:443",
		"a.example:+1":             "a.example:443",
		"a.example:0443":           "a.example:443",
		"a.example:http":           "a.example:443",
		"a.example:1-9":            "a.example:443",
		"::1":                      "[2001:db8::7]:443",
		"2001:db8::1:443":          "[2001:db8::7]:443",
		"[::1":                     "[2001:db8::7]:443",
		"[::1]443":                 "[2001:db8::7]:443",
		"[a.example]:443":          "[2001:db8::7]:443",
		"[127.0.0.1]:443":          "[2001:db8::7]:443",
		"[fe80::1%eth0]:443":       "global address",
		"[::ffff:127.0.0.1]:443":   "write the address as 127.0.0.1",
		"127.1":                    "192.0.2.7",
		"127.0.0.1.":               "192.0.2.7",
		"0177.0.0.1":               "192.0.2.7",
		"0x7f.1":                   "192.0.2.7",
		"0x7f000001":               "192.0.2.7",
		"2130706433":               "192.0.2.7",
		"1.2.3.4.5":                "192.0.2.7",
		"256.1.1.1":                "192.0.2.7",
		"*.127.0.0.1":              "write 127.0.0.1",
		"*.1":                      "192.0.2.7",
		".a.example":               "such as a.example",
		"a..example":               "such as a.example",
		"a.example..":              "such as a.example",
		".":                        "such as a.example",
		"a!.example":               "such as a.example",
		strings.Repeat("a", 64):    "such as a.example",
		strings.Repeat("a.", 128):  "such as a.example",
		strings.Repeat("a.", 9999): "such as a.example",
	} {
		r, err := ParseRules(spec)
		if err == nil {
			t.Errorf("%q is %q", spec, r)
		} else if !strings.Contains(err.Error(), advice) {
			t.Errorf("%q: %v; without %q", spec, err, advice)
		}
		if len(r.patterns) > 0 {
			t.Errorf("%q: both an error and rules", spec)
		}
	}
}

func TestRulesAllowOnlyListedTargets(t *testing.T) {
	t.Parallel()
	r := mustParseRules(t, "a.example,b.example:8443,c.example:*,*.d.example,*.e.example:22,127.0.0.1:9000,[2001:db8::7]:443")
	for _, yes := range []target{
		mustParseTarget(t, "a.example:80"), mustParseTarget(t, "a.example:443"), mustParseTarget(t, "A.EXAMPLE.:443"),
		mustParseTarget(t, "b.example:8443"),
		mustParseTarget(t, "c.example:1"), mustParseTarget(t, "c.example:65535"),
		mustParseTarget(t, "x.d.example:443"), mustParseTarget(t, "x.y.z.d.example:80"),
		mustParseTarget(t, "x.e.example:22"),
		mustParseTarget(t, "127.0.0.1:9000"), mustParseTarget(t, "[::ffff:127.0.0.1]:9000"), mustParseTarget(t, "[2001:db8:0::7]:443"),
	} {
		if !r.Allows(yes.host.String(), yes.port) {
			t.Errorf("%s is not allowed", yes)
		}
	}
	for _, no := range []struct {
		host string
		port uint16
	}{
		{"a.example", 8080},
		{"a.example", 0},
		{"sub.a.example", 443},
		{"xa.example", 443},
		{"a.example.com", 443},
		{"a.example..", 443},
		{"b.example", 443},
		{"d.example", 443},
		{"xd.example", 443},
		{".d.example", 443},
		{"x..d.example", 443},
		{"x.d.example", 22},
		{"x.d.example.evil.example", 443},
		{"x.d.example\x00.evil.example", 443},
		{"evil.example/x.d.example", 443},
		{"evil.example#.d.example", 443},
		{"evil@x.d.example", 443},
		{"127.0.0.1", 80},
		{"127.1", 9000},
		{"0x7f.0.0.1", 9000},
		{"2130706433", 9000},
		{"127.0.0.1.", 9000},
		{"127.000.000.001", 9000},
		{"127.0.0.2", 9000},
		{"x.localhost", 9000},
		{"::1", 9000},
		{"2001:db8::7%lo", 443},
		{"", 443},
		{"*", 443},
		{"*.d.example", 443},
		{"x.d.exam\u212Ale", 443}, // KELVIN SIGN becomes k in lower case
		{"ａ.example", 443},
	} {
		if r.Allows(no.host, no.port) {
			t.Errorf("%q port %d is allowed", no.host, no.port)
		}
	}
	if (Rules{}).Allows("a.example", 443) {
		t.Error("empty rules allow a host")
	}
}

// FuzzParseRules checks that String round-trips and that rules allow only hosts matched by an entry.
func FuzzParseRules(f *testing.F) {
	for _, seed := range []string{
		"a.example", "*.a.example:*", "127.0.0.1:80,[::1]:443", "A.b.:1", "0x7f.1", "*.com,com", "[::ffff:1.2.3.4]", "a:80,a:443",
		"https://x/", "[fe80::1%1]:1", "ü", "1.2.3.4.", "a,b,,c",
	} {
		f.Add(seed, "127.0.0.1", uint16(80))
	}
	f.Fuzz(func(t *testing.T, spec, host string, port uint16) {
		r, err := ParseRules(spec)
		if err != nil {
			return
		}
		again, err := ParseRules(r.String())
		if err != nil || again.String() != r.String() {
			t.Errorf("%q is written as %q, which is %q, %v", spec, r, again, err)
		}
		if !r.Allows(host, port) {
			return
		}
		if addr, err := netip.ParseAddr(host); err == nil && !strings.Contains(r.String(), addr.Unmap().String()) {
			t.Errorf("%q allows the address %q", r, host)
		} else if err != nil {
			name := strings.ToLower(strings.TrimSuffix(host, "."))
			_, parent, _ := strings.Cut(name, ".")
			for parent != "" && !strings.Contains(r.String(), "*."+parent) {
				_, parent, _ = strings.Cut(parent, ".")
			}
			if parent == "" && !strings.Contains(r.String(), name) {
				t.Errorf("%q allows the name %q", r, host)
			}
		}
	})
}

// FuzzParseTarget checks that String round-trips and that ruleEntry allows the target.
func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"a.example:443", "[::1]:80", "127.1:1", "[::ffff:127.0.0.1]:9", "a", ":", "[", "]:1", "a:b:c", "a@b:1", "a.:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s, 0)
		if err != nil {
			return
		}
		again, err := parseTarget(got.String(), 0)
		if err != nil || again != got || again.port == 0 {
			t.Errorf("%q is %q, which is %q, %v", s, got, again, err)
		}
		if got.host.name != "" {
			if _, err := netip.ParseAddr(got.host.name); err == nil || got.host.addr.IsValid() {
				t.Errorf("%q is a name that is an address", s)
			}
		}
		if r := mustParseRules(t, got.ruleEntry()); !r.allows(got.host, got.port) {
			t.Errorf("%q does not allow %s", r, got)
		}
	})
}

// Allows reports whether a host, a name or an address without brackets, may be reached at a port. The addresses of a
// name are checked separately, after it is resolved.
func (r Rules) Allows(host string, port uint16) bool {
	h, err := parseHost(host)
	return err == nil && r.allows(h, port)
}
