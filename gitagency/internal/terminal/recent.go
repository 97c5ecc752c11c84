package terminal

import (
	"bytes"
	"slices"
)

// maxRecent is how much of the last output is kept for a client that attaches.
const maxRecent = 256 << 10

// recentOutput keeps the last output of a program: at least maxRecent bytes, and less than twice that. Positions count
// the bytes since the program began.
type recentOutput struct {
	data  []byte
	start int64       // position of data[0]
	modes modeTracker // modes at start
}

func (r *recentOutput) add(output []byte) {
	r.data = append(r.data, output...)
	if excess := len(r.data) - maxRecent; excess >= maxRecent {
		r.modes.follow(r.data[:excess])
		r.data = r.data[:copy(r.data, r.data[excess:])]
		r.start += int64(excess)
	}
}

func (r *recentOutput) end() int64 { return r.start + int64(len(r.data)) }

// from returns a copy of at most limit bytes from a position on, which is not before start.
func (r *recentOutput) from(position int64, limit int) []byte {
	rest := r.data[position-r.start:]
	return slices.Clone(rest[:min(limit, len(rest))])
}

// replay returns what draws the recent output on a terminal with default modes.
func (r *recentOutput) replay() []byte {
	modes, rest := r.modes.clone(), r.data
	for len(rest) > 0 && modes.parse != nil { // the end of a sequence whose beginning is not there any more
		modes.consume(rest[0])
		rest = rest[1:]
	}
	for r.start > 0 && len(rest) > 0 && rest[0]&0xc0 == 0x80 { // the same of a character
		rest = rest[1:]
	}
	return append(modes.enable(), withoutRequests(rest)...)
}

// withoutRequests returns output without that which makes a terminal do something else than to draw: answer, ring, set the
// clipboard, notify. The program got the answers when it wrote that; one more would look like keys.
func withoutRequests(output []byte) []byte {
	var kept []byte
	for len(output) > 0 {
		next := bytes.IndexAny(output, "\x1b\x05\a")
		if next < 0 {
			break
		}
		kept, output = append(kept, output[:next]...), output[next:]
		length, drop := 1, true
		if output[0] == escape {
			if length, drop = sequence(output); length == 0 {
				break // not complete: its end is still to come
			}
		}
		if !drop {
			kept = append(kept, output[:length]...)
		}
		output = output[length:]
	}
	return append(kept, output...)
}

// sequence returns the length of the escape sequence at the beginning of output, 0 if it is not complete, and whether it
// does something else than to draw.
func sequence(output []byte) (length int, request bool) {
	if len(output) < 2 {
		return 0, false
	}
	switch output[1] {
	case '[':
		end := bytes.IndexFunc(output[2:], func(c rune) bool { return c >= 0x40 || c < 0x20 })
		if end < 0 {
			return 0, false
		}
		return end + 3, isRequest(output[2:2+end], output[2+end])
	case ']', 'P', '_', '^', 'X': // strings: operating system commands, device controls and the like
		end := bytes.IndexAny(output[2:], "\a\x1b\x18\x1a")
		if end < 0 {
			return 0, false
		}
		length = end + 3
		if output[2+end] == escape { // ESC \ ends it; with anything else, a new sequence begins there
			if length--; len(output) > length+1 && output[length+1] == '\\' {
				length += 2
			} else if len(output) <= length+1 {
				return 0, false
			}
		}
		return length, output[1] != ']' || !drawsOrNames(output[2:2+end])
	case 'Z': // an old request for the type of the terminal
		return 2, true
	}
	return 1, false
}

// isRequest reports whether a terminal answers a control sequence.
func isRequest(params []byte, final byte) bool {
	var first, last byte
	if len(params) > 0 {
		first, last = params[0], params[len(params)-1]
	}
	switch final {
	case 'c', 'n', 'x', 't': // type, status and position, parameters, window
		return true
	case 'p', 'w': // state of a mode, of the presentation
		return last == '$'
	case 'y': // checksum of the screen
		return last == '*'
	case 'u', 'm', 'S': // keyboard flags, modified keys, graphics
		return first == '?'
	case 'q': // version
		return first == '>'
	}
	return false
}

// drawsOrNames reports whether an operating system command only sets the title or a link.
func drawsOrNames(command []byte) bool {
	number, _, _ := bytes.Cut(command, []byte{';'})
	return slices.Contains([]string{"0", "1", "2", "8"}, string(number))
}
