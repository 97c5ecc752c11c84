package quote

import (
	"strings"
	"unicode/utf8"
)

// Shorten returns a text as valid UTF-8, cut to a number of bytes. An ellipsis follows a text that was cut. It keeps
// control characters.
func Shorten(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
