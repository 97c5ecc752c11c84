package fsck

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/git-agency/git-agency/gitagency/internal/git/index"
)

// maxAsterisks is the greatest number of asterisks in a pattern of a new .gitattributes or .gitignore. See
// countAsterisks for those that do not count.
//
// Git's wildmatch tries the places at which an asterisk can end in every combination, so that a pattern with k of them
// takes time in the order of n^(k-1) on a path of n components or a name of n bytes. No known repository has more than
// five. Six take 15 ms of processor time on a path of 30 components and 120 ms on a name of 60 bytes (git 2.39); longer
// paths are for the limit of time with which git runs.
const maxAsterisks = 6

// checkPatterns refuses a file of patterns, .gitattributes or .gitignore as name says, with a slow pattern, with an *Error.
// at is the path of the file for the error.
func checkPatterns(name, at string, content []byte) error {
	return checkNewPatterns(name, at, content, nil)
}

// checkNewPatterns is checkPatterns for a file that replaces an old one, whose patterns are not refused.
func checkNewPatterns(name, at string, content, old []byte) error {
	known := map[string]bool{}
	for _, pattern := range slowPatterns(name, old) {
		known[string(pattern.text)] = true
	}
	for line, pattern := range slowPatterns(name, content) {
		if !known[string(pattern.text)] {
			return &Error{Path: at, Why: fmt.Sprintf("line %d: git needs time that grows exponentially with the number of asterisks to compare paths with the pattern %s: it has %d asterisks that a path can match in several ways; use at most %d",
				line, quotePattern(pattern.text), pattern.asterisks, maxAsterisks)}
		}
	}
	return nil
}

// slowPattern is a pattern with more than maxAsterisks.
type slowPattern struct {
	text      []byte
	asterisks int
}

// slowPatterns returns the slow patterns in a file, with the numbers of their lines.
func slowPatterns(name string, content []byte) iter.Seq2[int, slowPattern] {
	patterns := ignorePatterns
	if name == index.AttributesFile {
		patterns = attributePatterns
	}
	return func(yield func(int, slowPattern) bool) {
		number := 0
		for line := range bytes.Lines(content) {
			number++
			for _, pattern := range patterns(bytes.TrimSuffix(line, []byte("\n")), number == 1) {
				if n := countAsterisks(pattern); n > maxAsterisks && !yield(number, slowPattern{pattern, n}) {
					return
				}
			}
		}
	}
}

// quotePattern quotes the beginning of a pattern for an error.
func quotePattern(pattern []byte) string {
	const most = 60
	if len(pattern) <= most {
		return fmt.Sprintf("%q", pattern)
	}
	return fmt.Sprintf("%q...", pattern[:most])
}

// countAsterisks counts the runs of asterisks in a pattern for which git tries several ends. It counts neither a run at
// the end of the pattern, which matches the rest, nor a single asterisk before a slash, which matches one component. It
// counts those in brackets, where they are ordinary bytes: to tell where a bracket expression ends is not worth a
// mistake.
func countAsterisks(pattern []byte) int {
	n := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '*':
			begin := i
			for i+1 < len(pattern) && pattern[i+1] == '*' {
				i++
			}
			rest := pattern[i+1:]
			if isComponent := i == begin && len(rest) > 0 && rest[0] == '/'; len(rest) > 0 && !isComponent {
				n++
			}
		}
	}
	return n
}

var utf8BOM = []byte("\xef\xbb\xbf")

// ignorePatterns returns the pattern in a line of a .gitignore, if there is one.
func ignorePatterns(line []byte, first bool) [][]byte {
	if first {
		line = bytes.TrimPrefix(line, utf8BOM)
	}
	if bytes.HasPrefix(line, []byte("#")) {
		return nil
	}
	line, _, _ = bytes.Cut(bytes.TrimSuffix(line, []byte("\r")), []byte{0}) // git's strings end there
	return [][]byte{bytes.TrimRight(line, " ")}
}

// attributePatterns returns the patterns that some version of git reads from a line of a .gitattributes. A git of 2022
// reads lines in pieces from files, and whole from an index; a later one ignores those that are longer than a piece. A
// byte order mark counts only in an index. Macros and patterns that git ignores, such as those with "!", are included.
func attributePatterns(line []byte, first bool) [][]byte {
	const piece = 2047 // bytes
	lines := [][]byte{line}
	if first && bytes.HasPrefix(line, utf8BOM) {
		lines = append(lines, line[len(utf8BOM):])
	}
	if len(line) > piece {
		for from := 0; from < len(line); from += piece {
			lines = append(lines, line[from:min(from+piece, len(line))])
		}
	}
	var patterns [][]byte
	for _, l := range lines {
		if pattern := attributePattern(l); len(pattern) > 0 {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}

// attributePattern returns the first word of a line, or the text in quotes if it begins with a quoted text; nothing for a
// comment.
func attributePattern(line []byte) []byte {
	const blank = " \t\r\n"
	line, _, _ = bytes.Cut(line, []byte{0}) // git's strings end there
	line = bytes.TrimLeft(line, blank)
	if len(line) == 0 || line[0] == '#' {
		return nil
	}
	if text, ok := unquoteC(line); ok {
		return text
	}
	if end := bytes.IndexAny(line, blank); end >= 0 {
		return line[:end]
	}
	return line
}

// unquoteC returns the text of the C string in double quotes at the beginning of a line. Ok is false where there is
// none, or where git does not take it for one.
func unquoteC(line []byte) (text []byte, ok bool) {
	if len(line) == 0 || line[0] != '"' {
		return nil, false
	}
	escapes := map[byte]byte{'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', '\\': '\\', '"': '"'}
	for i := 1; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"':
			return text, true
		case c != '\\':
			text = append(text, c)
			continue
		}
		if i++; i == len(line) {
			return nil, false
		}
		if c, ok := escapes[line[i]]; ok {
			text = append(text, c)
			continue
		}
		value, ok := parseOctal(line[i:])
		if !ok {
			return nil, false
		}
		text = append(text, value)
		i += 2
	}
	return nil, false
}

// parseOctal returns the byte that three octal digits at the beginning of a text stand for.
func parseOctal(text []byte) (byte, bool) {
	if len(text) < 3 || text[0] > '3' {
		return 0, false
	}
	value := byte(0)
	for _, c := range text[:3] {
		if c < '0' || c > '7' {
			return 0, false
		}
		value = value<<3 | (c - '0')
	}
	return value, true
}
