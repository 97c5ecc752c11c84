package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Limits of requests and replies. The number of requests that wait is bounded by the size of the FIFO.
const (
	maxRequestSize = 256 << 10
	maxReplySize   = 32 << 20
)

// Request asks the host for something. The host takes it as untrusted data.
type Request struct {
	Verb string          `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"` // as the verb defines them
}

// Reply is the answer of the host to a request.
type Reply struct {
	Result   json.RawMessage `json:"result,omitempty"` // as the verb defines it
	Failure  *Failure        `json:"failure,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

// Failure is the error that a request ended with.
type Failure struct {
	Message string `json:"message"`
	Kind    string `json:"kind,omitempty"` // as the handler defines it
}

func isValidVerb(verb string) bool {
	return verb != "" && len(verb) <= 32 && strings.Trim(verb, "abcdefghijklmnopqrstuvwxyz") == ""
}

// ParseRequest parses the content of a request file.
func ParseRequest(data []byte) (r Request, err error) {
	if !utf8.Valid(data) {
		return r, errors.New("the request is not valid UTF-8")
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Request{}, err
	}
	if !isValidVerb(r.Verb) {
		return Request{}, errors.New("the request has no valid verb")
	}
	return r, nil
}

func requestName(id string) string { return "request-" + id + ".json" }
func replyName(id string) string   { return "reply-" + id + ".json" }

// takeRequest removes a request from the mailbox and returns it; asked is false if another process has taken it, or it was
// never there.
func (b *Box) takeRequest(id string) (r Request, asked bool, err error) {
	name := requestName(id)
	data, _, err := b.read(name, maxRequestSize)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	// Of two processes that serve one sandbox, the one that removes the file has the request.
	if removeErr := b.dir.Remove(name); errors.Is(removeErr, fs.ErrNotExist) {
		return r, false, nil
	} else if removeErr != nil {
		return r, true, removeErr
	}
	if err == nil {
		r, err = ParseRequest(data)
	}
	return r, true, err
}

// writeReply writes the reply to a request.
func (b *Box) writeReply(id string, r Reply) error {
	data, err := json.Marshal(r)
	if err == nil && len(data) > maxReplySize {
		data, err = json.Marshal(Reply{Failure: &Failure{Message: fmt.Sprintf("the reply has more than %d bytes", maxReplySize)}})
	}
	if err != nil {
		return err
	}
	return b.write(replyName(id), data)
}
