package terminal

import (
	"bytes"
	"strconv"
)

// keyMatcher finds a sequence of keys, such as Ctrl-P Ctrl-Q, in what is typed.
type keyMatcher struct {
	keys    []byte // the sequence, as a terminal without special modes sends it; empty: none
	matched int    // keys of the sequence that were typed last
	held    []byte // what was typed for these
}

// filter returns the keys to pass on, and whether the sequence is complete. Keys that may belong to the sequence are held
// back until the next key.
func (m *keyMatcher) filter(typed []byte) (pass []byte, complete bool) {
	if len(m.keys) == 0 {
		return typed, false
	}
	for len(typed) > 0 {
		key, length, released := nextKey(typed)
		text := typed[:length]
		typed = typed[length:]
		switch {
		case released && m.matched > 0:
			m.held = append(m.held, text...)
			continue
		case key != m.keys[m.matched]:
			pass = append(pass, m.held...)
			m.matched, m.held = 0, nil
		}
		if key != m.keys[m.matched] || released {
			pass = append(pass, text...)
			continue
		}
		m.matched, m.held = m.matched+1, append(m.held, text...)
		if m.matched == len(m.keys) {
			m.matched, m.held = 0, nil
			return pass, true
		}
	}
	return pass, false
}

// nextKey returns the byte of the key at the beginning of what was typed, and the length of its encoding. A program may
// have switched on another encoding of keys: that of kitty, "CSI code ; modifiers : event u", or that of xterm,
// "CSI 27 ; modifiers ; code ~". Sequences of other keys count as their first byte.
func nextKey(typed []byte) (key byte, length int, released bool) {
	body, isSequence := bytes.CutPrefix(typed, []byte("\x1b["))
	end := bytes.IndexFunc(body, func(c rune) bool { return c != ';' && c != ':' && (c < '0' || c > '9') })
	if !isSequence || end < 0 || body[end] != 'u' && body[end] != '~' {
		return typed[0], 1, false
	}
	fields := bytes.Split(body[:end], []byte{';'})
	code, modifiers := fields[0], []byte("1")
	switch {
	case body[end] == 'u' && len(fields) > 1:
		modifiers = fields[1]
	case body[end] == '~' && len(fields) == 3 && string(fields[0]) == "27":
		code, modifiers = fields[2], fields[1]
	case body[end] == '~':
		return typed[0], 1, false
	}
	number, parts := firstNumber(code), bytes.Split(modifiers, []byte{':'})
	const ctrl, locks = 4, 64 | 128 // caps lock and num lock
	held := (firstNumber(parts[0]) - 1) &^ locks
	released = len(parts) > 1 && string(parts[1]) == "3"
	length = len("\x1b[") + end + 1
	switch {
	case held == ctrl && number >= '@' && number < 0x7f:
		return byte(number) & 0x1f, length, released
	case held <= 0 && number < 0x7f:
		return byte(number), length, released
	}
	return escape, length, released
}

// firstNumber returns the first of the numbers between colons; 0 if there is none.
func firstNumber(text []byte) int {
	first, _, _ := bytes.Cut(text, []byte{':'})
	n, err := strconv.Atoi(string(first))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
