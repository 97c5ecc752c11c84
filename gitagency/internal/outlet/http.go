package outlet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// serveHTTP answers one request: a CONNECT tunnel, or an http:// URL. The connection ends with it, so that every request
// is checked, and none can be smuggled behind another.
func (s *handler) serveHTTP(ctx context.Context, client bufferedConn, in *bufio.Reader) {
	head, err := readHead(in, s.limits.MaxHead)
	if err != nil {
		var wrong *httpError
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			wrong = &httpError{408, "git-agency: the request did not arrive in time"}
		}
		if wrong != nil || errors.As(err, &wrong) {
			s.writeError(client, in, "", wrong)
		}
		return
	}
	req, err := parseRequest(head)
	if err != nil {
		var wrong *httpError
		if !errors.As(err, &wrong) {
			// The request is well-formed, but its target is not.
			r := &deniedError{reason: err.Error()}
			s.recordDenial(req.denialKind(), req.rawTarget, r)
			wrong = &httpError{400, s.denialMessage(req.rawTarget, r)}
		}
		s.writeError(client, in, req.method, wrong)
		return
	}
	upstream, err := s.dialAndRecord(ctx, req.denialKind(), req.target)
	if err != nil {
		wrong := &httpError{502, "git-agency: " + err.Error()}
		if r := (*deniedError)(nil); errors.As(err, &r) {
			wrong = &httpError{403, s.denialMessage(req.target.String(), r)}
		}
		s.writeError(client, in, req.method, wrong)
		return
	}
	if !req.isConnect {
		s.forwardRequest(ctx, client, in, upstream, req)
		return
	}
	client.SetDeadline(time.Now().Add(s.limits.HeadTimeout))
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		upstream.Close()
		return
	}
	clearDeadline(client)
	relay(ctx, client, bufferedConn{upstream, upstream}, s.limits.IdleTimeout)
}

// forwardRequest sends one request to the server, and streams the response back.
func (s *handler) forwardRequest(ctx context.Context, client bufferedConn, in *bufio.Reader, upstream net.Conn, req request) {
	clearDeadline(client)
	defer upstream.Close()
	defer onCancel(ctx, func() {
		abortConn(upstream)
		abortConn(client)
	})()
	w := newIdleTimer(s.limits.IdleTimeout, func() {
		// Release goroutines that wait for the client before the server's connection is aborted, so that the client can
		// still be sent an error.
		client.SetDeadline(time.Unix(1, 0))
		abortConn(upstream)
	})
	defer w.stop()

	// The body is sent while the response may already arrive. A truncated body must not look complete, so a read error
	// aborts the server's connection.
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
			abortConn(upstream)
			return
		}
		if writeErr != nil {
			return
		}
		// The request is complete. If the client closes its side now, that is passed on as a half-close; any further
		// data from it is dropped.
		if _, err := in.ReadByte(); err == io.EOF {
			closeWrite(upstream)
			w.shorten(halfClosedTimeout)
		} else if err != nil && ctx.Err() == nil && !isTimeout(err) {
			abortConn(upstream)
		}
	}()
	started, err := req.forwardResponse(client, upstream, w, s.limits.MaxHead)

	// End the goroutine that reads from the client.
	upstream.Close()
	client.SetReadDeadline(time.Unix(1, 0))
	<-sent
	switch {
	case err == nil:
		client.SetReadDeadline(time.Time{})
		closeGracefully(client, in)
	case started:
		abortConn(client) // a truncated response must not look complete
	case broken.Load() != nil:
		s.writeError(client, in, req.method, broken.Load())
	default:
		s.writeError(client, in, req.method, &httpError{502, fmt.Sprintf("git-agency: no response from %s: %v", req.target, err)})
	}
}

// isTimeout reports whether a read ended because of a deadline that we set.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// httpError is a response of the proxy itself: a status, and one line of text.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func badRequest(format string, args ...any) *httpError {
	return &httpError{400, "git-agency: " + fmt.Sprintf(format, args...)}
}

var statusTexts = map[int]string{
	400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 431: "Request Header Fields Too Large",
	501: "Not Implemented", 502: "Bad Gateway", 505: "HTTP Version Not Supported",
}

func (s *handler) writeError(client bufferedConn, in io.Reader, method string, e *httpError) {
	client.SetDeadline(time.Now().Add(s.limits.HeadTimeout))
	// Parts of the text come from elsewhere: system errors may have several lines.
	body := strings.Join(strings.Fields(e.text), " ") + "\n"
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n", e.status, statusTexts[e.status], len(body))
	if method == "HEAD" {
		body = ""
	}
	io.WriteString(client, head+body)
	closeGracefully(client, in)
}

// readHead reads a request or response up to and including the empty line.
func readHead(in *bufio.Reader, limit int) ([]byte, error) {
	var head []byte
	for {
		line, err := in.ReadSlice('\n')
		if len(head)+len(line) > limit {
			return nil, &httpError{431, fmt.Sprintf("git-agency: the head of the request is longer than %d bytes", limit)}
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
