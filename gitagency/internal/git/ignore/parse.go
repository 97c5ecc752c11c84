package ignore

import (
	"bytes"
	"strings"
)

// List holds the rules of one file in the order of its lines. It does not change after Parse.
type List struct {
	base  string
	rules []rule
}

// rule is one line of a file.
type rule struct {
	pattern  string // without "!", the first "/" and the last "/"
	literal  int    // length of the leading part of pattern without wildcards
	negated  bool   // the line begins with "!": paths that match are not ignored
	dirOnly  bool   // the line ends in "/": only directories match
	basename bool   // there is no other "/": the pattern is compared with the last component of a path
	suffix   bool   // basename is true, and the only wildcard is a "*" in front
}

const wildcards = `*?[\`

// Parse reads the rules of a file. base is the directory of the file relative to the top directory of the worktree,
// with a trailing slash; empty for the top directory and for files outside the worktree. Every text is valid, as in
// git. The List takes the memory of data and up to 64 bytes for each rule, so callers limit the size of data.
func Parse(data []byte, base string) *List {
	l := &List{base: base}
	text := string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			l.addLine(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
	}
	return l
}

func (l *List) addLine(line string) {
	line, _, _ = strings.Cut(line, "\x00") // git's strings end there
	line = trimSpaces(line)
	var r rule
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.basename = !strings.Contains(line, "/")
	r.pattern = strings.TrimPrefix(line, "/")
	if r.pattern == "" {
		return // it matches no path
	}
	if r.literal = strings.IndexAny(r.pattern, wildcards); r.literal < 0 {
		r.literal = len(r.pattern)
	}
	r.suffix = r.basename && r.pattern[0] == '*' && !strings.ContainsAny(r.pattern[1:], wildcards)
	l.rules = append(l.rules, r)
}

// trimSpaces removes the spaces at the end of a line, up to the last one that a backslash escapes.
func trimSpaces(line string) string {
	trimmed := strings.TrimRight(line, " ")
	backslashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if backslashes%2 == 1 && len(trimmed) < len(line) {
		return line[:len(trimmed)+1]
	}
	return trimmed
}
