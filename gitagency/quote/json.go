package quote

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// JSON escapes the characters of encoded JSON that control a terminal or are invisible, such as \u0085 and \u202e. The
// JSON keeps its value: only strings contain characters beyond ASCII. A byte that is not UTF-8 becomes \ufffd, which is
// what decoders read it as. JSON without such characters is returned as it is, not copied.
func JSON(encoded []byte) []byte {
	start := slices.IndexFunc(encoded, func(b byte) bool { return b >= 0x7f })
	if start < 0 {
		return encoded
	}
	var out bytes.Buffer
	out.Write(encoded[:start])
	for rest := encoded[start:]; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		switch {
		case c == utf8.RuneError && size == 1:
			out.WriteString(`\ufffd`)
		case !escapedInJSON(c):
			out.Write(rest[:size])
		case c > 0xffff: // a surrogate pair
			c -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
		rest = rest[size:]
	}
	return out.Bytes()
}

// escapedInJSON reports whether JSON escapes a character. The control characters below DEL are left alone: encoders
// escape them in strings, and the others are white space between values.
func escapedInJSON(c rune) bool {
	return c >= 0x7f && (!IsPrintable(c) || !unicode.IsPrint(c) || unicode.Is(unicode.Variation_Selector, c))
}
