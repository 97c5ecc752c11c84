package outlet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// http answers one request: a tunnel, or an http:// address with its answer. The connection ends with it, so that
// each request is judged, and none can hide behind another.
func (s *serving) http(ctx context.Context, client side, in *bufio.Reader) {
	head, err := readHead(in, s.limits.Head)
	if err != nil {
		var wrong *httpError
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			wrong = &httpError{408, "git-agency: the request did not arrive in time"}
		}
		if wrong != nil || errors.As(err, &wrong) {
			s.answer(client, in, "", wrong)
		}
		return
	}
	req, err := parseRequest(head)
	if err != nil {
		var wrong *httpError
		if !errors.As(err, &wrong) {
			// It can be read, but not where it would go to.
			r := &refusal{reason: err.Error()}
			s.deny(req.kind(), req.asked, r)
			wrong = &httpError{400, s.explain(req.asked, r)}
		}
		s.answer(client, in, req.method, wrong)
		return
	}
	upstream, err := s.connect(ctx, req.kind(), req.target)
	if err != nil {
		wrong := &httpError{502, "git-agency: " + err.Error()}
		if r := (*refusal)(nil); errors.As(err, &r) {
			wrong = &httpError{403, s.explain(req.target.String(), r)}
		}
		s.answer(client, in, req.method, wrong)
		return
	}
	if !req.connect {
		s.exchange(ctx, client, in, upstream, req)
		return
	}
	client.SetDeadline(time.Now().Add(s.limits.HeadTime))
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		upstream.Close()
		return
	}
	proceed(client)
	relay(ctx, client, side{upstream, upstream}, s.limits.Idle)
}

// exchange passes one request on, and its answer back as it comes.
func (s *serving) exchange(ctx context.Context, client side, in *bufio.Reader, upstream net.Conn, req request) {
	proceed(client)
	defer upstream.Close()
	defer context.AfterFunc(ctx, func() {
		reset(upstream)
		reset(client)
	})()
	w := watchFor(s.limits.Idle, func() {
		// Whoever waits for the client lets go, before the server's side is broken off: after that it is told.
		client.SetDeadline(time.Unix(1, 0))
		reset(upstream)
	})
	defer w.stop()

	// The body goes up while the answer may already come down. A body that breaks off must not look like a whole
	// one, so the server's side is broken off with it.
	var broken atomic.Pointer[httpError]
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := upstream.Write(req.upstreamHead()); err != nil {
			return
		}
		readErr, writeErr := req.sendBody(upstream, in, w)
		if readErr != nil {
			wrong := &httpError{400, "git-agency: the body of the request ended too early"}
			errors.As(readErr, &wrong)
			broken.Store(wrong)
			reset(upstream)
			return
		}
		if writeErr != nil {
			return
		}
		// The one request is there. A client that goes away now is passed on as what it is, an end; what it
		// sends instead is for nobody.
		if _, err := in.ReadByte(); err == io.EOF {
			closeWrite(upstream)
			w.shorten(afterEnd)
		} else if err != nil && ctx.Err() == nil && !stopped(err) {
			reset(upstream)
		}
	}()
	begun, err := req.passAnswer(client, upstream, w, s.limits.Head)

	// Whoever reads from the client lets go of it.
	upstream.Close()
	client.SetReadDeadline(time.Unix(1, 0))
	<-sent
	switch {
	case err == nil:
		client.SetReadDeadline(time.Time{})
		hangUp(client, in)
	case begun:
		reset(client) // not to be taken for the whole
	case broken.Load() != nil:
		s.answer(client, in, req.method, broken.Load())
	default:
		s.answer(client, in, req.method, &httpError{502, fmt.Sprintf("git-agency: %s gave no answer: %v", req.target, err)})
	}
}

// stopped reports whether reading ended because we wanted it to.
func stopped(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// httpError is an answer of the proxy's own: a status, and one line.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func badRequest(format string, args ...any) *httpError {
	return &httpError{400, "git-agency: " + fmt.Sprintf(format, args...)}
}

var reasons = map[int]string{
	400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 431: "Request Header Fields Too Large",
	501: "Not Implemented", 502: "Bad Gateway", 505: "HTTP Version Not Supported",
}

func (s *serving) answer(client side, in io.Reader, method string, e *httpError) {
	client.SetDeadline(time.Now().Add(s.limits.HeadTime))
	// Some of what a text is made of comes from elsewhere: errors of the system may have several lines.
	body := strings.Join(strings.Fields(e.text), " ") + "\n"
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n", e.status, reasons[e.status], len(body))
	if method == "HEAD" {
		body = ""
	}
	io.WriteString(client, head+body)
	hangUp(client, in)
}

// readHead reads up to and including the empty line.
func readHead(in *bufio.Reader, most int) ([]byte, error) {
	var head []byte
	for {
		line, err := in.ReadSlice('\n')
		if len(head)+len(line) > most {
			return nil, &httpError{431, fmt.Sprintf("git-agency: the head of a request may have %d bytes", most)}
		}
		begins := len(head) == 0 || head[len(head)-1] == '\n'
		head = append(head, line...)
		if err != nil && err != bufio.ErrBufferFull {
			return nil, err
		}
		if begins && (string(line) == "\r\n" || string(line) == "\n") {
			return head, nil
		}
	}
}

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
	req.asked, req.path = rest[:end], rest[end:]
	if strings.Contains(req.asked, "@") {
		return req, badRequest("an address has no user name: use the field Authorization")
	}
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

// passAnswer passes the answer on as it comes, and says whether any of it was. The server's word about the connection
// is replaced: it ends.
func (r request) passAnswer(client io.Writer, upstream io.Reader, w *watch, most int) (begun bool, err error) {
	in := bufio.NewReader(upstream)
	for {
		head, err := readHead(in, most)
		if err != nil {
			return begun, err
		}
		w.alive()
		status, passed, length, err := answerHead(head)
		if err != nil {
			return begun, err
		}
		if _, err := client.Write(passed); err != nil {
			return true, err
		}
		w.alive()
		begun = true
		if status < 200 {
			continue // the answer proper follows
		}
		var body io.Reader = in
		switch {
		case r.method == "HEAD" || status == 204 || status == 304:
			return true, nil
		case length >= 0:
			// So that a server that does not end the connection keeps nobody waiting.
			body = io.LimitReader(in, length)
		}
		readErr, writeErr := pump(client, body, w)
		return true, errors.Join(readErr, writeErr)
	}
}

// answerHead rewrites the head of an answer. The length is that of the body, or -1 when it ends with the connection
// or with the last chunk.
func answerHead(head []byte) (status int, passed []byte, length int64, err error) {
	// Servers are forgiven more than clients: nothing is decided by what they say.
	lines := strings.Split(strings.TrimRight(string(head), "\r\n"), "\n")
	first := strings.TrimSuffix(lines[0], "\r")
	if len(first) < len("HTTP/1.1 200") || !strings.HasPrefix(first, "HTTP/1.") || first[8] != ' ' {
		return 0, nil, 0, errors.New("this is not an answer of HTTP/1")
	}
	status, err = strconv.Atoi(first[9:12])
	if err != nil || status < 100 || status == 101 {
		return 0, nil, 0, fmt.Errorf("an answer with status %s cannot be passed on", printable(first[9:12]))
	}
	b := bytes.NewBufferString(first + "\r\n")
	lengths, chunked, dropped := []string(nil), false, false
	for _, line := range lines[1:] {
		line = strings.TrimSuffix(line, "\r")
		name, value, _ := strings.Cut(line, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		folded := line != "" && (line[0] == ' ' || line[0] == '\t')
		if !folded {
			switch name {
			case "connection", "keep-alive", "proxy-connection", "upgrade":
				dropped = true
			default:
				dropped = false
			}
			switch name {
			case "content-length":
				lengths = append(lengths, strings.TrimSpace(value))
			case "transfer-encoding":
				chunked = true
			}
		}
		if !dropped && line != "" {
			b.WriteString(line + "\r\n")
		}
	}
	if status >= 200 {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	length = -1
	if n, ok := int64(0), false; len(lengths) == 1 && !chunked {
		if n, ok = parseLength(lengths[0]); ok {
			length = n
		}
	}
	return status, b.Bytes(), length, nil
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
