package terminal

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// modeTracker follows the modes that a program's output switches on in a terminal: the alternate screen, mouse
// reporting, a hidden cursor and the like. It knows which bytes switch them off again, for a program that was killed
// before it could. It draws no screen.
type modeTracker struct {
	parse  func(*modeTracker, byte) // consumes one byte of a sequence; nil: outside of one
	params []byte                   // parameters of the control sequence so far

	changed         []int       // private modes that are not at their default, in the order of the changes
	keypad          bool        // the keypad sends application sequences
	modifyOtherKeys string      // parameters of xterm's reporting of modified keys; empty: off
	keyboardFlags   [2][]string // parameters of pushes onto the stack of keyboard flags (kitty protocol): of the main and the alternate screen
}

// usualMode returns the default of a private mode, and whether it matters to a shell.
func usualMode(mode int) (on, known bool) {
	switch mode {
	case 7, // wrap long lines
		25: // visible cursor
		return true, true
	case 1, // application cursor keys
		47, 1047, 1049, // alternate screen
		9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016, // mouse reporting, and its formats
		1004, // focus reporting
		2004, // bracketed paste
		2026, // synchronized output
		2031, // reports of colour scheme changes
		2048: // reports of size changes
		return false, true
	}
	return false, false
}

const escape = 0x1b

const (
	// maxParams bounds the parameters of a control sequence. A longer one has no effect.
	maxParams = 256
	// maxPushes bounds the pushes of keyboard flags that are remembered. The stacks of terminals are smaller.
	maxPushes = 64
)

// follow reads the next part of the output. A sequence may be split over any number of parts.
func (t *modeTracker) follow(output []byte) {
	for rest := output; len(rest) > 0; rest = rest[1:] {
		if t.parse == nil {
			next := bytes.IndexByte(rest, escape)
			if next < 0 {
				break
			}
			rest = rest[next:]
		}
		t.consume(rest[0])
	}
}

func (t *modeTracker) consume(c byte) {
	switch {
	case c == escape: // begins a sequence, also inside of another
		t.parse = (*modeTracker).afterEscape
	case c == 0x18 || c == 0x1a: // CAN and SUB cancel a sequence
		t.parse = nil
	case c < 0x20 || c == 0x7f: // other control characters act inside of a sequence as outside
	default:
		t.parse(t, c)
	}
}

func (t *modeTracker) afterEscape(c byte) {
	t.parse = nil
	switch c {
	case '[':
		t.params, t.parse = t.params[:0], (*modeTracker).inControlSequence
	case '=':
		t.keypad = true
	case '>':
		t.keypad = false
	case 'c': // full reset
		*t = modeTracker{params: t.params}
	}
}

func (t *modeTracker) inControlSequence(c byte) {
	if c >= 0x40 {
		t.parse = nil
		if len(t.params) < maxParams {
			t.apply(string(t.params), c)
		}
		return
	}
	if len(t.params) < maxParams {
		t.params = append(t.params, c)
	}
}

// apply executes a control sequence.
func (t *modeTracker) apply(params string, final byte) {
	private, isPrivate := strings.CutPrefix(params, "?")
	switch {
	case isPrivate && (final == 'h' || final == 'l'):
		for param := range strings.SplitSeq(private, ";") {
			if mode, err := strconv.Atoi(param); err == nil {
				t.set(mode, final == 'h')
			}
		}
	case params == "!" && final == 'p': // soft reset
		t.keypad = false
		t.set(1, false)
		t.set(25, true)
	case strings.HasPrefix(params, ">4") && final == 'm':
		t.modifyOtherKeys = ""
		if strings.HasPrefix(params, ">4;") && params != ">4;" && params != ">4;0" {
			t.modifyOtherKeys = params
		}
	case strings.HasPrefix(params, ">") && final == 'u':
		flags := &t.keyboardFlags[t.screen()]
		*flags = append(*flags, params)
		*flags = (*flags)[max(len(*flags)-maxPushes, 0):]
	case strings.HasPrefix(params, "<") && final == 'u':
		count, err := strconv.Atoi(params[1:])
		if err != nil || count < 1 {
			count = 1
		}
		flags := &t.keyboardFlags[t.screen()]
		*flags = (*flags)[:max(len(*flags)-count, 0)]
	}
}

func (t *modeTracker) set(mode int, on bool) {
	usual, known := usualMode(mode)
	at := slices.Index(t.changed, mode)
	switch {
	case !known:
	case on != usual && at < 0:
		t.changed = append(t.changed, mode)
	case on == usual && at >= 0:
		t.changed = slices.Delete(t.changed, at, at+1)
	}
}

// screen returns the index of the current screen in keyboardFlags.
func (t *modeTracker) screen() int {
	if slices.ContainsFunc(t.changed, isAlternateScreen) {
		return 1
	}
	return 0
}

func isAlternateScreen(mode int) bool { return mode == 47 || mode == 1047 || mode == 1049 }

// reset returns the bytes that switch all modes to their defaults again, and takes them for written. The result is
// empty if they are there already.
func (t *modeTracker) reset() []byte {
	var out []byte
	popKeyboardFlags := func() {
		if n := len(t.keyboardFlags[t.screen()]); n > 0 {
			out = fmt.Appendf(out, "\x1b[<%du", n)
		}
	}
	setDefault := func(mode int) {
		final := 'l'
		usual, _ := usualMode(mode)
		if usual {
			final = 'h'
		}
		out = fmt.Appendf(out, "\x1b[?%d%c", mode, final)
		t.set(mode, usual)
	}
	popKeyboardFlags() // each screen has its own
	if t.modifyOtherKeys != "" {
		out = append(out, "\x1b[>4m"...)
	}
	if t.keypad {
		out = append(out, "\x1b>"...)
	}
	for _, mode := range slices.Backward(slices.Clone(t.changed)) {
		if !isAlternateScreen(mode) {
			setDefault(mode)
		}
	}
	if alternate := slices.Clone(t.changed); len(alternate) > 0 { // only these are left
		for _, mode := range slices.Backward(alternate) {
			setDefault(mode)
		}
		popKeyboardFlags()
	}
	*t = modeTracker{params: t.params}
	return out
}

// enable returns the bytes that switch all modes on a terminal that has the defaults to what they are here.
func (t *modeTracker) enable() []byte {
	var out []byte
	pushKeyboardFlags := func(screen int) {
		for _, params := range t.keyboardFlags[screen] {
			out = fmt.Appendf(out, "\x1b[%su", params)
		}
	}
	pushKeyboardFlags(0)
	for _, mode := range t.changed {
		final := 'h'
		if usual, _ := usualMode(mode); usual {
			final = 'l'
		}
		out = fmt.Appendf(out, "\x1b[?%d%c", mode, final)
	}
	pushKeyboardFlags(1)
	if t.modifyOtherKeys != "" {
		out = fmt.Appendf(out, "\x1b[%sm", t.modifyOtherKeys)
	}
	if t.keypad {
		out = append(out, "\x1b="...)
	}
	return out
}

// clone returns a copy that shares nothing with t.
func (t *modeTracker) clone() modeTracker {
	c := *t
	c.params, c.changed = slices.Clone(t.params), slices.Clone(t.changed)
	for i := range c.keyboardFlags {
		c.keyboardFlags[i] = slices.Clone(t.keyboardFlags[i])
	}
	return c
}
