package outlet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// request is a CONNECT or a request that can be forwarded.
type request struct {
	method, version string
	rawTarget       string // target as written
	target          target
	isConnect       bool
	path            string   // request target for the server, with its query
	headers         []header // headers that are forwarded
	chunked         bool
	length          int64 // of the body; -1 when not given
}

type header struct{ name, value string }

func (r request) denialKind() string {
	if r.isConnect {
		return KindConnect
	}
	return KindHTTP
}

// parseRequest parses a head, and rejects everything that another parser might read differently. An error that is not an
// *httpError means that the target is invalid.
func parseRequest(head []byte) (request, error) {
	req := request{length: -1}
	lines, err := splitHead(head)
	if err != nil {
		return req, err
	}
	words := strings.Split(lines[0], " ")
	if len(words) != 3 || !isToken(words[0]) || strings.Contains(lines[0], "\t") {
		return req, badRequest("malformed request line: want a method, a URL and a version, with one space between them")
	}
	var address string
	req.method, address, req.version = words[0], words[1], words[2]
	if req.version != "HTTP/1.1" && req.version != "HTTP/1.0" {
		return req, &httpError{505, "git-agency: the proxy supports only HTTP/1.1 and HTTP/1.0"}
	}
	fields, err := parseHeaders(lines[1:])
	if err != nil {
		return req, err
	}
	if err := req.setBodyLength(fields); err != nil {
		return req, err
	}
	hosts := headerValues(fields, "host")
	if len(hosts) > 1 {
		return req, badRequest("a request must have exactly one Host field")
	}

	if req.isConnect = req.method == "CONNECT"; req.isConnect {
		if req.chunked || req.length > 0 {
			return req, badRequest("CONNECT must not have a body")
		}
		if strings.Contains(address, "@") {
			return req, errUserInfo
		}
		req.rawTarget = address
		req.target, err = parseTarget(address, 0)
		return req, err
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return req, badRequest("this is a proxy, not a web server: request an absolute URL, such as GET http://a.example/ HTTP/1.1")
	}
	if !strings.EqualFold(scheme, "http") {
		return req, badRequest("only http:// URLs can be requested: use CONNECT for everything else")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.Contains(rest[:end], "@") {
		return req, errUserInfo
	}
	req.rawTarget, req.path = rest[:end], rest[end:]
	if strings.Contains(req.path, "#") {
		return req, badRequest("the URL of a request must not have a fragment (#)")
	}
	if !strings.HasPrefix(req.path, "/") {
		req.path = "/" + req.path
	}
	if req.target, err = parseTarget(req.rawTarget, 80); err != nil {
		return req, err
	}
	if len(hosts) == 1 {
		// It is replaced in any case; a different Host is suspicious.
		if t, err := parseTarget(hosts[0], 80); err != nil || t != req.target {
			return req, badRequest("the Host field does not match the URL")
		}
	}
	return req, req.selectHeaders(fields)
}

// errUserInfo keeps passwords out of the records, which contain invalid targets.
var errUserInfo = badRequest("the URL must not have a user name: use the Authorization field")

// setBodyLength determines the length of the body, and rejects requests on which parsers could disagree.
func (r *request) setBodyLength(fields []header) error {
	lengths, codings := headerValues(fields, "content-length"), headerValues(fields, "transfer-encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return badRequest("a request must not have both Content-Length and Transfer-Encoding")
	case len(lengths) > 1:
		return badRequest("a request must not have several Content-Length fields")
	case len(codings) > 1 || len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return &httpError{501, "git-agency: the only supported Transfer-Encoding is chunked"}
	case len(codings) == 1 && r.version == "HTTP/1.0":
		return badRequest("HTTP/1.0 has no Transfer-Encoding")
	case len(codings) == 1:
		r.chunked = true
	case len(lengths) == 1:
		n, ok := parseLength(lengths[0])
		if !ok {
			return badRequest("the Content-Length must be a number")
		}
		r.length = n
	}
	return nil
}

func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strings.Trim(s, "0123456789") == ""
}

// selectHeaders keeps the headers meant for the server. Hop-by-hop headers and those for proxies are dropped; Host and
// the length of the body are written anew.
func (r *request) selectHeaders(fields []header) error {
	drop := map[string]bool{
		"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "keep-alive": true,
		"te": true, "trailer": true, "upgrade": true, "http2-settings": true,
	}
	for _, v := range headerValues(fields, "connection") {
		for name := range strings.SplitSeq(v, ",") {
			drop[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	for _, v := range headerValues(fields, "upgrade") {
		// A client that offers h2c accepts HTTP/1.1, too; clients of other protocols do not.
		if !strings.EqualFold(v, "h2c") {
			return &httpError{501, "git-agency: a plain request cannot be upgraded to " + printable(v) + ": use CONNECT"}
		}
	}
	for _, f := range fields {
		name := strings.ToLower(f.name)
		if !drop[name] && !strings.HasPrefix(name, "proxy-") {
			r.headers = append(r.headers, f)
		}
	}
	return nil
}

func (r request) upstreamHead() []byte {
	var b bytes.Buffer
	host := r.target.String()
	if r.target.port == 80 {
		host = r.target.host.bracketed()
	}
	fmt.Fprintf(&b, "%s %s %s\r\nHost: %s\r\n", r.method, r.path, r.version, host)
	for _, f := range r.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	if r.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	} else if r.length >= 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", r.length)
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// sendBody forwards the body, and tells a read error from a write error.
func (r request) sendBody(dst io.Writer, in *bufio.Reader, w *idleTimer) (readErr, writeErr error) {
	if r.chunked {
		return sendChunked(dst, in, w)
	}
	if r.length <= 0 {
		return nil, nil
	}
	rest := &io.LimitedReader{R: in, N: r.length}
	readErr, writeErr = copyWatched(dst, rest, w)
	if readErr == nil && writeErr == nil && rest.N > 0 {
		readErr = io.ErrUnexpectedEOF
	}
	return readErr, writeErr
}

// sendChunked forwards a chunked body in chunks of our own, so that no parser can find another end in them: the data of
// each read becomes one chunk. Chunk extensions and trailers are dropped.
func sendChunked(dst io.Writer, in *bufio.Reader, w *idleTimer) (readErr, writeErr error) {
	const before, after = len("8000\r\n"), len("\r\n")
	buf := make([]byte, bufferSize)
	for {
		line, err := readChunkLine(in)
		if err != nil {
			return err, nil
		}
		digits, _, _ := strings.Cut(line, ";")
		digits = strings.TrimRight(digits, " \t")
		left, err := strconv.ParseUint(digits, 16, 63)
		if err != nil || strings.Trim(digits, "0123456789abcdefABCDEF") != "" || len(digits) > 16 {
			return badRequest("a chunk must begin with its size"), nil
		}
		if left == 0 {
			break
		}
		for left > 0 {
			n, err := in.Read(buf[before:][:min(left, uint64(len(buf)-before-after))])
			if err != nil {
				return err, nil // also EOF, which is too early here
			}
			w.touch()
			left -= uint64(n)
			size := strconv.FormatInt(int64(n), 16) + "\r\n"
			copy(buf[before-len(size):], size)
			copy(buf[before+n:], "\r\n")
			if _, err := dst.Write(buf[before-len(size) : before+n+after]); err != nil {
				return nil, err
			}
			w.touch()
		}
		if line, err := readChunkLine(in); err != nil || line != "" {
			return badRequest("a chunk is longer than its size"), nil
		}
	}
	for range 100 {
		line, err := readChunkLine(in)
		if err != nil {
			return err, nil
		}
		if line == "" {
			_, err := io.WriteString(dst, "0\r\n\r\n")
			return nil, err
		}
	}
	return badRequest("a body must not have more than 100 trailer fields"), nil
}

// readChunkLine reads a line of the chunk framing, without its CR LF.
func readChunkLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return "", badRequest("the line with the size of a chunk is too long")
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	text, found := strings.CutSuffix(string(line), "\r\n")
	if !found || strings.ContainsAny(text, "\r\x00") {
		return "", badRequest("lines must end in CR LF")
	}
	return text, nil
}

// splitHead splits a head into lines, all of which must end in CR LF and contain no control characters.
func splitHead(head []byte) ([]string, error) {
	text, found := strings.CutSuffix(string(head), "\r\n\r\n")
	if !found {
		return nil, badRequest("lines must end in CR LF")
	}
	lines := strings.Split(text, "\r\n")
	for _, line := range lines {
		if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return nil, badRequest("a request must not have control characters, and its lines must end in CR LF")
		}
	}
	return lines, nil
}

func parseHeaders(lines []string) ([]header, error) {
	var fields []header
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if !found || !isToken(name) {
			return nil, badRequest("malformed header field: want a name, a colon and a value, on one line")
		}
		fields = append(fields, header{name, strings.Trim(value, " \t")})
	}
	return fields, nil
}

// headerValues returns the values of all headers with a name, which is given in lower case.
func headerValues(fields []header, name string) []string {
	var all []string
	for _, f := range fields {
		if strings.ToLower(f.name) == name {
			all = append(all, f.value)
		}
	}
	return all
}

// isToken reports whether s is a token as HTTP defines it for methods and header names.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}
