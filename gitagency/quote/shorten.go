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

// OneLine joins the lines of a text, such as a message of another program, drops what is not printable, and shortens the result.
func OneLine(text string, most int) string {
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		line = strings.Map(func(r rune) rune {
			if r == '\t' {
				return ' '
			}
			if !IsPrintable(r) {
				return -1
			}
			return r
		}, line)
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return Shorten(strings.Join(lines, "; "), most)
}
