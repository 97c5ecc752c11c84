package outlet

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestSpecialKindClassifiesAddresses(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.0.1",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.51.100.1",
		"203.0.113.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
		"64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1",
		"2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254",
		"fe80::1", "fec0::1", "ff02::1", "ff0e::1",
	} {
		if specialKind(netip.MustParseAddr(a)) == "" {
			t.Errorf("%s is not classified as special", a)
		}
	}
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
		"2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888",
	} {
		if kind := specialKind(netip.MustParseAddr(a)); kind != "" {
			t.Errorf("%s is classified as %s", a, kind)
		}
	}
}

func TestNameOfPrivateAddressIsRefused(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"127.0.0.1", "::1", "10.1.2.3", "169.254.169.254", "::ffff:192.168.1.1", "64:ff9b::a00:1", "fd00::1", "0.0.0.0", "9.9.9.9"} {
		w := newFakeNetwork(t, "a.example").serve()
		w.answers["a.example"] = [][]string{{a}}
		if got := w.exchange("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"); statusCode(got) != 403 {
			t.Errorf("%s: %q", a, got)
		}
		if code, _ := w.socks("a.example", 443); code != socksNotAllowed {
			t.Errorf("%s: socks %d", a, code)
		}
		if got := w.exchange("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); statusCode(got) != 403 {
			t.Errorf("%s: %q", a, got)
		}
		if d := w.dialledAddrs(); len(d) > 0 {
			t.Errorf("%s: dialled %v", a, d)
		}
		denied := w.denials()
		if len(denied) != 3 {
			t.Fatalf("%s: %d denials", a, len(denied))
		}
		for _, d := range denied {
			// The suggested entry, which is the address itself, must allow it.
			r := mustParseRules(t, "a.example,"+d.AllowEntry)
			if !r.Allows(netip.MustParseAddr(a).Unmap().String(), 443) || !strings.Contains(d.Reason, "listed explicitly") {
				t.Errorf("%s: %+v", a, d)
			}
		}
	}
}

func TestNameOfListedAddressIsAllowed(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*,127.0.0.1:80")
	w.serveHTTP("127.0.0.1:80", func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("here")) })
	w.answers["a.example"] = [][]string{{"127.0.0.1"}}
	w.serve()
	answer, err := w.client("http").Get("http://a.example/")
	if got := readBody(t, answer, err); got != "here" {
		t.Errorf("%q", got)
	}
	// Other ports of that address stay refused.
	if got := w.exchange("CONNECT a.example:81 HTTP/1.1\r\n\r\n"); statusCode(got) != 403 {
		t.Errorf("%q", got)
	}
}

// TestDialUsesCheckedAddress lets a name resolve to a public address first and to loopback next: every request
// is checked against the address it dials.
func TestDialUsesCheckedAddress(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.serveHTTP("8.8.8.8:80", func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("outside")) })
	w.serveHTTP("127.0.0.1:80", func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("inside")) })
	w.answers["a.example"] = [][]string{{"8.8.8.8"}, {"127.0.0.1"}}
	w.serve()
	client := w.client("http")
	answer, err := client.Get("http://a.example/")
	if got := readBody(t, answer, err); got != "outside" {
		t.Errorf("first request: %q", got)
	}
	answer, err = client.Get("http://a.example/")
	if got := readBody(t, answer, err); answer.StatusCode != 403 {
		t.Errorf("second request: %d %q", answer.StatusCode, got)
	}
	if got := w.resolvedNames(); len(got) != 2 {
		t.Errorf("looked up %v", got)
	}
	if got := w.dialledAddrs(); !slices.Equal(got, []string{"8.8.8.8:80"}) {
		t.Errorf("dialled %v", got)
	}
}

func TestDialSkipsPrivateAddresses(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.serveHTTP("8.8.4.4:80", func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("outside")) })
	w.answers["a.example"] = [][]string{{"127.0.0.1", "8.8.8.8", "::1", "8.8.8.8", "8.8.4.4", "10.0.0.1"}}
	w.serve()
	answer, err := w.client("http").Get("http://a.example/")
	if got := readBody(t, answer, err); got != "outside" {
		t.Errorf("%q", got)
	}
	if got := w.dialledAddrs(); !slices.Equal(got, []string{"8.8.8.8:80", "8.8.4.4:80"}) {
		t.Errorf("dialled %v", got)
	}
	if got := w.denials(); len(got) > 0 {
		t.Errorf("denied %v", got)
	}
}

// TestUnlistedNamesAreNotResolved: a DNS query could carry data out of the sandbox.
func TestUnlistedNamesAreNotResolved(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example").serve()
	w.exchange("GET http://secret.evil.example/ HTTP/1.1\r\n\r\n")
	w.exchange("CONNECT secret.evil.example:443 HTTP/1.1\r\n\r\n")
	w.socks("secret.evil.example", 443)
	w.exchange("CONNECT a.example:22 HTTP/1.1\r\n\r\n")
	if got := w.resolvedNames(); len(got) > 0 {
		t.Errorf("looked up %v", got)
	}
	if got := w.denials(); len(got) != 4 {
		t.Errorf("denied %v", got)
	}
}

func TestDialFailsWithoutLocalAddresses(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.proxy.localAddrs = func() ([]netip.Addr, error) { return nil, errors.New("no") }
	w.serve()
	if got := w.exchange("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); statusCode(got) != 502 || len(w.dialledAddrs()) > 0 {
		t.Errorf("%q", got)
	}
}

func TestInterfaceAddrs(t *testing.T) {
	t.Parallel()
	own, err := interfaceAddrs()
	if err != nil || !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v, %v", own, err)
	}
}

func TestResolveName(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	addrs, err := resolveName(ctx, "localhost") // from a file, on every machine
	if err != nil || len(addrs) == 0 || specialKind(addrs[0]) != "a loopback address" {
		t.Errorf("%v, %v", addrs, err)
	}
}
