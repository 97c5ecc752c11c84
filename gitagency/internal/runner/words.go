package runner

import (
	"errors"
	"strings"
)

// Words splits a command line into its words as a shell does, but only that: single quotes, double
// quotes and backslashes keep together what belongs together; nothing is expanded and nothing is run.
func Words(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inside bool // a word has begun, though it may still be empty
		quote  byte // the quote we are in, or 0
		escape bool // the character before was a backslash
	)
	// Byte by byte: whatever else a path is made of goes through as it is.
	for i := range len(line) {
		c := line[i]
		switch {
		case escape && c == '\n': // the line goes on
			escape = false
		case escape:
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(c)) {
				word.WriteByte('\\') // there it protects only these
			}
			word.WriteByte(c)
			escape, inside = false, true
		case c == '\\' && quote != '\'':
			escape = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inside = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inside {
				words = append(words, word.String())
				word.Reset()
				inside = false
			}
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	switch {
	case escape:
		return nil, errors.New("the command ends in a backslash")
	case quote != 0:
		return nil, errors.New("the command has a quote without an end")
	case inside:
		words = append(words, word.String())
	}
	return words, nil
}
