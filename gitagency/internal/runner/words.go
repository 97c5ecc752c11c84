package runner

import (
	"errors"
	"slices"
	"strings"
)

// SplitWords splits a command line into words as a shell does, with single quotes, double quotes and backslashes. It
// expands nothing and runs nothing.
func SplitWords(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inside bool // a word has begun, though it may still be empty
		quote  byte // open quote, or 0
		escape bool // the previous character was a backslash
	)
	// Byte by byte: other bytes of a path need not be UTF-8 and pass unchanged.
	for i := range len(line) {
		c := line[i]
		switch {
		case escape && c == '\n': // line continuation
			escape = false
		case escape:
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(c)) {
				word.WriteByte('\\') // inside double quotes a backslash only escapes these four
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
		return nil, errors.New("the command has an unterminated quote")
	case inside:
		words = append(words, word.String())
	}
	return words, nil
}

// ExecLine returns a shell line that replaces the shell by its program, if it is one command: after an interrupt that the
// program handles, a shell that waits for it would end as killed by SIGINT. Other lines are returned as they are.
func ExecLine(line string) string {
	words, err := SplitWords(line)
	if err != nil || len(words) == 0 || IsShellWord(words[0]) || strings.ContainsAny(words[0], "=$`") || strings.ContainsAny(line, "|&;(){}\n") {
		return line
	}
	return "exec " + line
}

// IsShellWord reports whether a word is a command of every shell, or begins a compound command.
func IsShellWord(word string) bool {
	return slices.Contains(strings.Fields("! . : break case cd command continue do eval exec exit export for if read readonly return set shift test times trap true false ulimit umask unset until wait while echo printf ["), word)
}
