// Package quote writes paths and words so that git or a shell reads them back, and a terminal shows them safely.
package quote

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Characters with an escape letter in git's quoting, and these letters in the same order.
const (
	escapedChars  = "\a\b\t\n\v\f\r\"\\"
	escapeLetters = `abtnvfr"\`
)

// Path writes a path as git does, so that git can read it back: unchanged, or in quotes if it contains characters
// that are ambiguous or control a terminal. Letters of all scripts stay readable.
func Path(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, func(c rune) bool { return c == '"' || c == '\\' || !IsPrintable(c) }) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(path) > 0 {
		c, size := utf8.DecodeRuneInString(path)
		at := strings.IndexByte(escapedChars, path[0])
		switch {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(escapeLetters[at])
		case c == utf8.RuneError && size == 1, !IsPrintable(c):
			for _, octet := range []byte(path[:size]) {
				fmt.Fprintf(&b, `\%03o`, octet)
			}
		default:
			b.WriteString(path[:size])
		}
		path = path[size:]
	}
	b.WriteByte('"')
	return b.String()
}

// IsPrintable reports whether a character is visible and does not control the terminal. Spaces, and marks that change
// the character before them, count as visible.
func IsPrintable(c rune) bool {
	return !unicode.IsControl(c) && !unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// Printable replaces the unprintable characters of a text with question marks.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if IsPrintable(c) {
			return c
		}
		return '?'
	}, text)
}

// ParsePath parses a path as git writes it, and returns the rest of the text.
func ParsePath(text string) (path, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, '\t')
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], end > 0
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], b.Len() > 0
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(text):
			return "", "", false
		case strings.IndexByte(escapeLetters, text[i+1]) >= 0:
			b.WriteByte(escapedChars[strings.IndexByte(escapeLetters, text[i+1])])
			i++
		default:
			octet := 0
			if i+3 >= len(text) {
				return "", "", false
			}
			for _, d := range []byte(text[i+1 : i+4]) {
				if d < '0' || d > '7' {
					return "", "", false
				}
				octet = octet*8 + int(d-'0')
			}
			if octet > 0xff {
				return "", "", false
			}
			b.WriteByte(byte(octet))
			i += 3
		}
	}
	return "", "", false
}
