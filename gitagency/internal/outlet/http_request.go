package outlet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// request is one that can be passed on, or a tunnel.
type request struct {
	method, version string
	asked           string // where to, as it was written
	target          target
	connect         bool
	path            string  // for the server, with its query
	fields          []field // that are passed on
	chunked         bool
	length          int64 // of the body; -1 when none was given
}

type field struct{ name, value string }

func (r request) kind() string {
	if r.connect {
		return KindConnect
	}
	return KindHTTP
}

// parseRequest reads a head, and refuses whatever another reader might read otherwise. An error that is no *httpError
// says that it cannot be told where the request would go to.
func parseRequest(head []byte) (request, error) {
	req := request{length: -1}
	lines, err := splitHead(head)
	if err != nil {
		return req, err
	}
	words := strings.Split(lines[0], " ")
	if len(words) != 3 || !token(words[0]) || strings.Contains(lines[0], "\t") {
		return req, badRequest("the first line of a request has a method, an address and a version, with one blank between them")
	}
	var address string
	req.method, address, req.version = words[0], words[1], words[2]
	if req.version != "HTTP/1.1" && req.version != "HTTP/1.0" {
		return req, &httpError{505, "git-agency: the proxy speaks HTTP/1.1 and HTTP/1.0"}
	}
	fields, err := parseFields(lines[1:])
	if err != nil {
		return req, err
	}
	if err := req.frame(fields); err != nil {
		return req, err
	}
	hosts := values(fields, "host")
	if len(hosts) > 1 {
		return req, badRequest("a request has one Host")
	}

	if req.connect = req.method == "CONNECT"; req.connect {
		if req.chunked || req.length > 0 {
			return req, badRequest("CONNECT has no body")
		}
		if strings.Contains(address, "@") {
			return req, errUser
		}
		req.asked = address
		req.target, err = parseTarget(address, 0)
		return req, err
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return req, badRequest("this is a proxy, not a web server: ask for a whole address, such as GET http://a.example/ HTTP/1.1")
	}
	if !strings.EqualFold(scheme, "http") {
		return req, badRequest("only http:// addresses can be asked for: use CONNECT for everything else")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.Contains(rest[:end], "@") {
		return req, errUser
	}
	req.asked, req.path = rest[:end], rest[end:]
	if strings.Contains(req.path, "#") {
		return req, badRequest("an address has no fragment (#) in a request")
	}
	if !strings.HasPrefix(req.path, "/") {
		req.path = "/" + req.path
	}
	if req.target, err = parseTarget(req.asked, 80); err != nil {
		return req, err
	}
	if len(hosts) == 1 {
		// It is replaced in any case; one that says something else is up to something.
		if t, err := parseTarget(hosts[0], 80); err != nil || t != req.target {
			return req, badRequest("the field Host says another host than the address")
		}
	}
	return req, req.choose(fields)
}

// errUser keeps passwords out of the records, where an address that cannot be understood would end up.
var errUser = badRequest("an address has no user name: use the field Authorization")

// frame finds out how long the body is, in the one way in which everybody would.
func (r *request) frame(fields []field) error {
	lengths, codings := values(fields, "content-length"), values(fields, "transfer-encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return badRequest("a request has a Content-Length or a Transfer-Encoding, not both")
	case len(lengths) > 1:
		return badRequest("a request has one Content-Length")
	case len(codings) > 1 || len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return &httpError{501, "git-agency: the only Transfer-Encoding that can be passed on is chunked"}
	case len(codings) == 1 && r.version == "HTTP/1.0":
		return badRequest("HTTP/1.0 has no Transfer-Encoding")
	case len(codings) == 1:
		r.chunked = true
	case len(lengths) == 1:
		n, ok := parseLength(lengths[0])
		if !ok {
			return badRequest("a Content-Length is a number")
		}
		r.length = n
	}
	return nil
}

func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strings.Trim(s, "0123456789") == ""
}

// choose keeps the fields that are meant for the server. Those about a connection end with it, and so do those for
// proxies; where to and how long are said anew.
func (r *request) choose(fields []field) error {
	drop := map[string]bool{
		"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "keep-alive": true,
		"te": true, "trailer": true, "upgrade": true, "http2-settings": true,
	}
	for _, v := range values(fields, "connection") {
		for name := range strings.SplitSeq(v, ",") {
			drop[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	for _, v := range values(fields, "upgrade") {
		// Who offers HTTP/2 takes HTTP/1.1 too; whoever wants another protocol does not.
		if !strings.EqualFold(v, "h2c") {
			return &httpError{501, "git-agency: a plain request cannot become " + printable(v) + ": use CONNECT"}
		}
	}
	for _, f := range fields {
		name := strings.ToLower(f.name)
		if !drop[name] && !strings.HasPrefix(name, "proxy-") {
			r.fields = append(r.fields, f)
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
	for _, f := range r.fields {
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

// sendBody passes the body on, and says which side failed, if one did.
func (r request) sendBody(dst io.Writer, in *bufio.Reader, w *watch) (readErr, writeErr error) {
	if r.chunked {
		return sendChunks(dst, in, w)
	}
	if r.length <= 0 {
		return nil, nil
	}
	rest := &io.LimitedReader{R: in, N: r.length}
	readErr, writeErr = pump(dst, rest, w)
	if readErr == nil && writeErr == nil && rest.N > 0 {
		readErr = io.ErrUnexpectedEOF
	}
	return readErr, writeErr
}

// sendChunks passes chunks on in a spelling of its own, so that nobody can read another end into them: what has come
// of one is a chunk. Extensions and fields after the body are left out.
func sendChunks(dst io.Writer, in *bufio.Reader, w *watch) (readErr, writeErr error) {
	const before, after = len("8000\r\n"), len("\r\n")
	buf := make([]byte, bufferSize)
	for {
		line, err := chunkLine(in)
		if err != nil {
			return err, nil
		}
		digits, _, _ := strings.Cut(line, ";")
		digits = strings.TrimRight(digits, " \t")
		left, err := strconv.ParseUint(digits, 16, 63)
		if err != nil || strings.Trim(digits, "0123456789abcdefABCDEF") != "" || len(digits) > 16 {
			return badRequest("a chunk begins with its size"), nil
		}
		if left == 0 {
			break
		}
		for left > 0 {
			n, err := in.Read(buf[before:][:min(left, uint64(len(buf)-before-after))])
			if err != nil {
				return err, nil // the end is one too early
			}
			w.alive()
			left -= uint64(n)
			size := strconv.FormatInt(int64(n), 16) + "\r\n"
			copy(buf[before-len(size):], size)
			copy(buf[before+n:], "\r\n")
			if _, err := dst.Write(buf[before-len(size) : before+n+after]); err != nil {
				return nil, err
			}
			w.alive()
		}
		if line, err := chunkLine(in); err != nil || line != "" {
			return badRequest("a chunk ends with its size"), nil
		}
	}
	for range 100 {
		line, err := chunkLine(in)
		if err != nil {
			return err, nil
		}
		if line == "" {
			_, err := io.WriteString(dst, "0\r\n\r\n")
			return nil, err
		}
	}
	return badRequest("a body has at most 100 fields after it"), nil
}

// chunkLine reads a line of the chunks' own, without its end.
func chunkLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return "", badRequest("a chunk begins with its size, on a short line")
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	text, found := strings.CutSuffix(string(line), "\r\n")
	if !found || strings.ContainsAny(text, "\r\x00") {
		return "", badRequest("lines end in CR LF")
	}
	return text, nil
}

// splitHead splits a head into lines, all of which end in CR LF and have nothing invisible in them.
func splitHead(head []byte) ([]string, error) {
	text, found := strings.CutSuffix(string(head), "\r\n\r\n")
	if !found {
		return nil, badRequest("lines end in CR LF")
	}
	lines := strings.Split(text, "\r\n")
	for _, line := range lines {
		if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return nil, badRequest("a request has no invisible characters, and its lines end in CR LF")
		}
	}
	return lines, nil
}

func parseFields(lines []string) ([]field, error) {
	var fields []field
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if !found || !token(name) {
			return nil, badRequest("a field is a name, a colon and a value, on one line")
		}
		fields = append(fields, field{name, strings.Trim(value, " \t")})
	}
	return fields, nil
}

// values are those of all fields of a name, which is in lower case.
func values(fields []field, name string) []string {
	var all []string
	for _, f := range fields {
		if strings.ToLower(f.name) == name {
			all = append(all, f.value)
		}
	}
	return all
}

// token reports whether s is a word as HTTP has them for methods and names.
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}
