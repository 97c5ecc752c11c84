package runner

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Streams are written by programs behind walls: every text is untrusted. It is bounded and valid UTF-8, and escaped when
// it is printed.
const (
	maxText   = 64 << 10 // bytes of one text
	maxDenied = 100      // names in Summary.Denied
	maxCalls  = 1000     // tool calls that are remembered until their result arrives
)

// decode parses a line of JSON. A field of another type than expected stays zero, and the others are kept.
func decode(line []byte, into any) bool {
	err := json.Unmarshal(line, into)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// clip cuts a text to maxText bytes, as valid UTF-8.
func clip(text string) string { return quote.Shorten(text, maxText) }

// isSessionID reports whether a text is like the ids that agents choose. An id becomes an argument of a later command
// line, so it must not be taken for an option.
func isSessionID(id string) bool {
	const most = 128
	if id == "" || len(id) > most || id[0] == '-' {
		return false
	}
	return strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// recorder makes the events and the summary of a stream. All streams embed one.
type recorder struct {
	summary Summary
	calls   map[string]string // names of tools by the id of the call
}

// Summary returns what the stream told so far.
func (r *recorder) Summary() Summary {
	s := r.summary
	s.Denied = slices.Clone(s.Denied)
	return s
}

// ErrorLine ignores standard error, on which most agents tell nothing that their streams do not.
func (r *recorder) ErrorLine([]byte) []Event { return nil }

func (r *recorder) session(id string) {
	if isSessionID(id) {
		r.summary.Session = id
	}
}

func (r *recorder) message(text string) []Event {
	text = clip(text)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	r.summary.LastMessage = text
	return []Event{{Kind: Message, Text: text}}
}

// call records a tool call. The text is its command line, or else all arguments as JSON.
func (r *recorder) call(id, tool string, arguments json.RawMessage) []Event {
	tool = clip(tool)
	if r.calls == nil || len(r.calls) >= maxCalls {
		r.calls = map[string]string{}
	}
	r.calls[clip(id)] = tool
	var shell struct {
		Command string `json:"command"`
	}
	if !decode(arguments, &shell) || shell.Command == "" {
		shell.Command = string(arguments)
	}
	return []Event{{Kind: ToolCall, Tool: tool, Text: clip(shell.Command)}}
}

// toolOf returns the tool of the call with this id, and forgets the call.
func (r *recorder) toolOf(id string) string {
	tool := r.calls[clip(id)]
	delete(r.calls, clip(id))
	return tool
}

func (r *recorder) toolError(tool, text string) []Event {
	r.summary.ToolErrors++
	return []Event{{Kind: ToolError, Tool: clip(tool), Text: clip(text)}}
}

func (r *recorder) denied(tool, text string) []Event {
	if len(r.summary.Denied) < maxDenied {
		r.summary.Denied = append(r.summary.Denied, clip(tool))
	}
	return []Event{{Kind: Denied, Tool: clip(tool), Text: clip(text)}}
}

// warn returns the event of a failure after which the agent goes on.
func (r *recorder) warn(text string) []Event { return []Event{{Kind: Failure, Text: clip(text)}} }

// fail records why the run failed. The first reason that has a text counts.
func (r *recorder) fail(text string) []Event {
	text = clip(text)
	if strings.TrimSpace(text) == "" {
		text = "the agent failed without a reason"
	}
	r.summary.Complete = false
	if r.summary.Err == "" {
		r.summary.Err = text
	}
	return []Event{{Kind: Failure, Text: text}}
}

// usage records tokens and cost so far.
func (r *recorder) usage(tokens int64, cost float64) []Event {
	if tokens == r.summary.Tokens && cost == r.summary.CostUSD {
		return nil
	}
	r.summary.Tokens, r.summary.CostUSD = tokens, cost
	return []Event{{Kind: Usage}}
}

// count converts numbers of tokens, which JSON has as any number, and adds them.
func count(numbers ...float64) int64 {
	const most = 1 << 50
	sum := 0.0
	for _, n := range numbers {
		if n > 0 {
			sum += n
		}
	}
	return int64(math.Min(sum, most))
}

// dollars returns a cost that can be added and compared.
func dollars(cost float64) float64 {
	const most = 1e9
	if cost > 0 {
		return math.Min(cost, most)
	}
	return 0
}
