package outlet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestHostileRequestsReachNoServer sends ambiguous and malformed requests: none may reach a server.
func TestHostileRequestsReachNoServer(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example:*,*.sub.example")
	var heard atomic.Int32
	for _, port := range []int{1, 25, 80, 443, 3128} {
		w.serveHTTP(fmt.Sprintf("8.8.8.8:%d", port), func(http.ResponseWriter, *http.Request) { heard.Add(1) })
		w.serveHTTP(fmt.Sprintf("127.0.0.1:%d", port), func(http.ResponseWriter, *http.Request) { heard.Add(1) })
	}
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.answers["evil.example"] = [][]string{{"8.8.8.8"}}
	w.answers["localhost"] = [][]string{{"127.0.0.1"}}
	w.serve()
	const get, end = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n", "\r\n"
	const post = "POST http://a.example/ HTTP/1.1\r\n"
	for request, want := range map[string]int{
		// Request targets that are invalid for a proxy.
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                                     400,
		"GET /http://a.example/ HTTP/1.1\r\n\r\n":                                       400,
		"GET //a.example/ HTTP/1.1\r\n\r\n":                                             400,
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n":                                 400,
		"GET a.example:80 HTTP/1.1\r\n\r\n":                                             400,
		"GET https://a.example/ HTTP/1.1\r\n\r\n":                                       400,
		"GET ftp://a.example/ HTTP/1.1\r\n\r\n":                                         400,
		"GET file:///etc/passwd HTTP/1.1\r\n\r\n":                                       400,
		"GET ?http://a.example/ HTTP/1.1\r\n\r\n":                                       400,
		"connect a.example:443 HTTP/1.1\r\n\r\n":                                        400,
		"CONNECT http://a.example:443 HTTP/1.1\r\n\r\n":                                 400,
		"CONNECT a.example HTTP/1.1\r\n\r\n":                                            400,
		"CONNECT a.example: HTTP/1.1\r\n\r\n":                                           400,
		"CONNECT a.example:0 HTTP/1.1\r\n\r\n":                                          400,
		"CONNECT a.example:65979 HTTP/1.1\r\n\r\n":                                      400, // 443 in 16 bits
		"CONNECT a.example:443/x HTTP/1.1\r\n\r\n":                                      400,
		"CONNECT :443 HTTP/1.1\r\n\r\n":                                                 400,
		"CONNECT a.example:443:80 HTTP/1.1\r\n\r\n":                                     400,
		"CONNECT user@a.example:443 HTTP/1.1\r\n\r\n":                                   400,
		"CONNECT user:pass@evil.example:443 HTTP/1.1\r\n\r\n":                           400,
		"CONNECT [a.example]:443 HTTP/1.1\r\n\r\n":                                      400,
		"CONNECT a.example%00.evil:443 HTTP/1.1\r\n\r\n":                                400,
		"CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello":              400,
		"CONNECT a.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,

		// Invalid host names, and hosts that differ from the allowed one.
		"GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":    400,
		"GET http://evil.example#a.example/ HTTP/1.1\r\n\r\n":             400,
		"GET http://evil.example\\a.example/ HTTP/1.1\r\n\r\n":            400,
		"GET http://evil.example\\@a.example/ HTTP/1.1\r\n\r\n":           400,
		"GET http://evil.example%2f@a.example/ HTTP/1.1\r\n\r\n":          400,
		"GET http://a.example@evil.example/ HTTP/1.1\r\n\r\n":             400,
		"GET http://a.example:80@evil.example/ HTTP/1.1\r\n\r\n":          400,
		"GET http://user:pass@a.example/ HTTP/1.1\r\n\r\n":                400,
		"GET http:///a.example/ HTTP/1.1\r\n\r\n":                         400,
		"GET http://a.example:/ HTTP/1.1\r\n\r\n":                         400,
		"GET http://a.example:080/ HTTP/1.1\r\n\r\n":                      400,
		"GET http://a.example../ HTTP/1.1\r\n\r\n":                        400,
		"GET http://a.exampl\xc3\xa9/ HTTP/1.1\r\n\r\n":                   400,
		"GET http://a.example/#x HTTP/1.1\r\n\r\n":                        400,
		"GET http://sub.example/ HTTP/1.1\r\n\r\n":                        403,
		"GET http://evilsub.example/ HTTP/1.1\r\n\r\n":                    403,
		"GET http://localhost/ HTTP/1.1\r\n\r\n":                          403,
		"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n":                          403,
		"GET http://127.1/ HTTP/1.1\r\n\r\n":                              400,
		"GET http://0x7f.1/ HTTP/1.1\r\n\r\n":                             400,
		"GET http://0177.0.0.1/ HTTP/1.1\r\n\r\n":                         400,
		"GET http://2130706433/ HTTP/1.1\r\n\r\n":                         400,
		"GET http://0/ HTTP/1.1\r\n\r\n":                                  400,
		"GET http://[::1]/ HTTP/1.1\r\n\r\n":                              403,
		"GET http://[::ffff:127.0.0.1]/ HTTP/1.1\r\n\r\n":                 403,
		"GET http://[::ffff:7f00:1]/ HTTP/1.1\r\n\r\n":                    403,
		"GET http://[64:ff9b::7f00:1]/ HTTP/1.1\r\n\r\n":                  403,
		"GET http://[fe80::1%25lo]/ HTTP/1.1\r\n\r\n":                     400,
		"GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\n\r\n":   403,
		"GET http://8.8.8.8/ HTTP/1.1\r\n\r\n":                            403,
		"GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":    400,
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example:8080\r\n\r\n":  400,
		"GET http://a.example/ HTTP/1.1\r\nHost: \r\n\r\n":                400,
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example, evil\r\n\r\n": 400,
		get + "Host: a.example\r\n" + end:                                 400,
		get + "host: evil.example\r\n" + end:                              400,

		// Ambiguous body lengths, and invalid syntax.
		post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":        400,
		post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n":        400,
		post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab":                        400,
		post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na":                         400,
		post + "Content-Length: 1, 1\r\n\r\na":                                           400,
		post + "Content-Length: +1\r\n\r\na":                                             400,
		post + "Content-Length: -1\r\n\r\na":                                             400,
		post + "Content-Length: 0x1\r\n\r\na":                                            400,
		post + "Content-Length: \r\n\r\na":                                               400,
		post + "Content-Length: 99999999999999999999\r\n\r\na":                           400,
		post + "Content-Length : 1\r\n\r\na":                                             400,
		post + " Content-Length: 1\r\n\r\na":                                             400,
		post + "Transfer-Encoding: identity\r\n\r\n":                                     501,
		post + "Transfer-Encoding: gzip, chunked\r\n\r\n":                                501,
		post + "Transfer-Encoding: xchunked\r\n\r\n":                                     501,
		post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n":       501,
		post + "Transfer-Encoding: \x0bchunked\r\n\r\n":                                  400,
		post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n":                         400,
		"POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
		get + "Connection: Upgrade\r\nUpgrade: websocket\r\n" + end:                      501,
		get + "Upgrade: h2c, websocket\r\n" + end:                                        501,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                               505,
		"GET http://a.example/ HTTP/2.0\r\n\r\n":                                         505,
		"GET http://a.example/ HTTP/1.9\r\n\r\n":                                         505,
		"GET http://a.example/\r\n\r\n":                                                  400,
		"GET  http://a.example/ HTTP/1.1\r\n\r\n":                                        400,
		"GET http://a.example/ x HTTP/1.1\r\n\r\n":                                       400,
		"GET http://a.example/\tx HTTP/1.1\r\n\r\n":                                      400,
		"GET http://a.example/\rx HTTP/1.1\r\n\r\n":                                      400,
		"GET\thttp://a.example/\tHTTP/1.1\r\n\r\n":                                       400,
		"G(T http://a.example/ HTTP/1.1\r\n\r\n":                                         400,
		"GET http://a.example/ HTTP/1.1\n\n":                                             400,
		"GET http://a.example/ HTTP/1.1\r\nX: a\nContent-Length: 5\r\n\r\n":              400,
		"GET http://a.example/ HTTP/1.1\r\nX: a\r\n\n":                                   400,
		get + "X: a\x00b\r\n" + end:                                                      400,
		get + "X: a\rContent-Length: 5\r\n" + end:                                        400,
		get + "no colon\r\n" + end:                                                       400,
		get + ": no name\r\n" + end:                                                      400,
		get + "X: " + strings.Repeat("a", 70<<10) + "\r\n" + end:                         431,
		get + strings.Repeat("X: a\r\n", 20000) + end:                                    431,
		"GET http://a.example/" + strings.Repeat("a", 70<<10) + " HTTP/1.1\r\n\r\n":      431,

		// Not HTTP: closed without an answer.
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": 0,
		"\x00":                         0,
		"\r\n" + get + end:             0,
		" " + get + end:                0,
		"\xff\xfe\xfd":                 0,
		"\x06\x01\x00":                 0,
		"\x05\x00":                     0,
		"\x05\x01\x00\x04\x01\x00\x01": 0,
	} {
		if got := w.exchange(request); statusCode(got) != want {
			t.Errorf("%.200q: %.300q, want %d", request, got, want)
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("%d requests reached a server", n)
	}
	for _, d := range w.denials() {
		if strings.ContainsFunc(d.Target+d.AllowEntry, func(c rune) bool { return c <= ' ' || c > '~' }) || strings.ContainsAny(d.Reason, "\r\n\x00") {
			t.Errorf("control characters in %#v", d)
		}
		if strings.Contains(d.Target, "@") {
			t.Errorf("a password was recorded: %s", d.Target)
		}
	}
}

// TestHostileChunksAbortRequest: chunks are parsed while they are relayed, so an invalid one aborts the request.
func TestHostileChunksAbortRequest(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	type heard struct {
		body string
		err  error
	}
	bodies := make(chan heard, 1)
	w.serveTCP("8.8.8.8:80", func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		readHead(in, 1000)
		data, err := io.ReadAll(in)
		bodies <- heard{string(data), err}
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for _, chunks := range []string{
		"\r\n", "x\r\n", "-1\r\n", "+1\r\na\r\n", "0x1\r\na\r\n", " 1\r\na\r\n", "1_0\r\n", "1\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n",
		"1\r\na\n0\r\n\r\n", "1\r\na0\r\n\r\n", "ffffffffffffffff\r\n", "10000000000000001\r\na\r\n", "00000000000000001\r\na\r\n", "0\r\nX: y\n\r\n",
		"1;\rx\r\na\r\n0\r\n\r\n", "1;" + strings.Repeat("x", 5000) + "\r\n", "0\r\n" + strings.Repeat("X: y\r\n", 101) + "\r\n",
	} {
		got := w.exchange("POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
		if statusCode(got) != 400 {
			t.Errorf("%.100q: %q", chunks, got)
		}
		if h := <-bodies; h.err == nil || strings.Contains(h.body, "0\r\n\r\n") {
			t.Errorf("%.100q: the server got %q as a complete body", chunks, h.body)
		}
	}
}

func TestHostileResponses(t *testing.T) {
	t.Parallel()
	w := newFakeNetwork(t, "a.example")
	var answer []byte
	w.serveTCP("8.8.8.8:80", func(conn *net.TCPConn) {
		readHead(bufio.NewReader(conn), 1000)
		conn.Write(answer)
	})
	w.answers["a.example"] = [][]string{{"8.8.8.8"}}
	w.serve()
	for text, want := range map[string]int{
		"":                           502,
		"\n\n":                       502,
		"HTTP/1.1\r\n\r\n":           502,
		"HTTP/1.1 \r\n\r\n":          502,
		"HTTP/1.1 abc OK\r\n\r\n":    502,
		"HTTP/1.1 -99 OK\r\n\r\n":    502,
		"HTTP/1.1 099 OK\r\n\r\n":    502,
		"HTTP/2.0 200 OK\r\n\r\n":    502,
		"\x00\x00\x12\x04\x00\r\n\n": 502,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n":                   502,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nx":                  200,
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx":                                      200,
		"HTTP/1.1 200\r\nConnection: keep-alive,\r\n x\r\nno colon\r\n\r\nx":                  200,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n": 200,
	} {
		answer = []byte(text)
		got := w.exchange("GET http://a.example/ HTTP/1.1\r\n\r\n")
		if statusCode(got) != want || strings.Contains(got, "keep-alive") || strings.Contains(got, "\r\n x") {
			t.Errorf("%.100q: %.300q", text, got)
		}
	}
}

// FuzzParseRequest checks that net/http reads a relayed request head in the same way as parseRequest did.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"POST http://a.example:81?x HTTP/1.1\r\nContent-Length: 3\r\nConnection: x\r\nx: y\r\n\r\n",
		"PUT http://[::1]/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\n\r\n",
		"GET http://a@b/ HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\r\n\r\n", "A B C\r\n:\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		head, err := readHead(bufio.NewReader(bytes.NewReader(data)), 1<<20)
		if err != nil {
			return
		}
		req, err := parseRequest(head)
		if err != nil || req.isConnect {
			return
		}
		sent := req.upstreamHead()
		got, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(sent)))
		if err != nil {
			if strings.Contains(err.Error(), "malformed Host") || strings.Contains(err.Error(), "invalid URL") || strings.Contains(err.Error(), "parse ") {
				return // the path is not checked by the proxy
			}
			t.Fatalf("%q is relayed as %q: %v", data, sent, err)
		}
		if h, err := parseTarget(got.Host, 80); err != nil || h != req.target {
			t.Errorf("%q: for %q, relayed to %q", data, req.target, got.Host)
		}
		if got.Method != req.method || !got.Close {
			t.Errorf("%q is relayed as %q", data, sent)
		}
		if chunked := len(got.TransferEncoding) > 0; chunked != req.chunked || !chunked && got.ContentLength != max(req.length, 0) {
			t.Errorf("%q: net/http reads the body of %q differently", data, sent)
		}
		for name := range got.Header {
			if strings.HasPrefix(strings.ToLower(name), "proxy-") || name == "Upgrade" {
				t.Errorf("%q: %s is relayed", data, name)
			}
		}
	})
}
