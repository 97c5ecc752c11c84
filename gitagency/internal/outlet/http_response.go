package outlet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// forwardResponse copies the response to the client as it arrives, and reports whether any of it was written. The
// server's Connection header is replaced by "Connection: close".
func (r request) forwardResponse(client io.Writer, upstream io.Reader, w *idleTimer, limit int) (started bool, err error) {
	in := bufio.NewReader(upstream)
	for {
		head, err := readHead(in, limit)
		if err != nil {
			return started, err
		}
		w.touch()
		status, passed, length, err := rewriteResponseHead(head)
		if err != nil {
			return started, err
		}
		if _, err := client.Write(passed); err != nil {
			return true, err
		}
		w.touch()
		started = true
		if status < 200 {
			continue // an informational response: the final one follows
		}
		var body io.Reader = in
		switch {
		case r.method == "HEAD" || status == 204 || status == 304:
			return true, nil
		case length >= 0:
			// Stop at the end of the body even if the server keeps the connection open.
			body = io.LimitReader(in, length)
		}
		readErr, writeErr := copyWatched(client, body, w)
		return true, errors.Join(readErr, writeErr)
	}
}

// rewriteResponseHead rewrites the head of a response. length is the length of the body, or -1 when the end of the
// connection or the last chunk ends it.
func rewriteResponseHead(head []byte) (status int, passed []byte, length int64, err error) {
	// Parsing is more lenient than for clients: no decision depends on the response.
	lines := strings.Split(strings.TrimRight(string(head), "\r\n"), "\n")
	first := strings.TrimSuffix(lines[0], "\r")
	if len(first) < len("HTTP/1.1 200") || !strings.HasPrefix(first, "HTTP/1.") || first[8] != ' ' {
		return 0, nil, 0, errors.New("not an HTTP/1 response")
	}
	status, err = strconv.Atoi(first[9:12])
	if err != nil || status < 100 || status == 101 {
		return 0, nil, 0, fmt.Errorf("a response with status %s cannot be forwarded", printable(first[9:12]))
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
