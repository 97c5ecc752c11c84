package object

import (
	"slices"
	"strings"
)

// WithTrailers adds trailers to the last paragraph of a message, if that is a trailer block, else in a new one. It
// replaces trailers with the same keys, and removes those of keys with an empty value. The message may be in any encoding
// that is a superset of ASCII.
func WithTrailers(message string, trailers [][2]string) string {
	const blank = " \t\n\v\f\r"
	message = strings.Trim(strings.ReplaceAll(message, "\x00", ""), blank)
	at := strings.LastIndex(message, "\n\n")
	last := ""
	if at >= 0 && isTrailerBlock(message[at+2:]) {
		for line := range strings.Lines(message[at+2:]) {
			if !slices.ContainsFunc(trailers, func(t [2]string) bool { return strings.HasPrefix(strings.ToLower(line), strings.ToLower(t[0])+":") }) {
				last += strings.TrimRight(line, "\n") + "\n"
			}
		}
		message = message[:at]
	}
	for _, t := range trailers {
		if t[1] != "" {
			last += t[0] + ": " + t[1] + "\n"
		}
	}
	return strings.Trim(strings.Trim(message, blank)+"\n\n"+strings.Trim(last, blank), blank)
}

// isTrailerBlock reports whether a paragraph consists of lines such as "Signed-off-by: name".
func isTrailerBlock(paragraph string) bool {
	for line := range strings.Lines(paragraph) {
		key, _, is := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		if !is || key == "" || strings.ContainsFunc(key, func(c rune) bool {
			return c != '-' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
		}) {
			return false
		}
	}
	return true
}
