package quote

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shell quotes a word for pasting into a shell. Unprintable characters are escaped, so that they stay visible and
// cannot control the terminal.
func Shell(word string) string {
	switch {
	case word != "" && strings.Trim(word, shellSafeChars) == "" && word[0] != '=': // some shells expand =x to a command path
		return word
	case utf8.ValidString(word) && !strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(word) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

// ShellLine returns a command line for pasting into a shell.
func ShellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = Shell(word)
	}
	return strings.Join(words, " ")
}

const shellSafeChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
