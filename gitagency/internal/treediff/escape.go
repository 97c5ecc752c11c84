package treediff

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// escapeControls replaces characters that control a terminal or mislead its reader, as pagers do: ^[ for ESC, <9B>
// for an invalid byte, <U+202E> for an invisible character.
func escapeControls(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return c != '\t' && !quote.IsPrintable(c) }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		c, size := utf8.DecodeRuneInString(text)
		switch {
		case c == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, "<%02X>", text[0])
		case c == '\t' || quote.IsPrintable(c):
			b.WriteString(text[:size])
		case c < 0x20 || c == 0x7f:
			b.WriteString("^" + string(c^0x40))
		default:
			fmt.Fprintf(&b, "<U+%04X>", c)
		}
		text = text[size:]
	}
	return b.String()
}
