package ignore

import "strings"

// wildmatch reports whether a pattern matches the whole text. The first literal bytes of both are known to be equal.
//
// It reads the pattern once. After each element (a byte, "?", a bracket expression, a run of asterisks) m.ends has
// every length of a beginning of text that the pattern so far matches, in ascending order. There are never more than
// len(text)+1, and elements other than asterisks raise the least of them. At most two elements of asterisks follow each
// other ("**/" and "*"), so that the loop ends after at most 3*len(text)+3 elements, however long the pattern is.
// Asterisks mean:
//
//	"*"                           any bytes but slashes
//	"**"  as a whole component    any bytes
//	"**/" as a whole component    nothing, or any bytes up to and including a slash
//
// A component begins at the beginning of the pattern or after a slash, and ends at the end or before a slash. In git
// before 2.52 it begins also after the literal bytes in front of the first wildcard, so that "foo**/bar" matches
// "foobar"; this contradicts git's documentation and is not done here.
func (m *Matcher) wildmatch(pattern string, literal int, text string) bool {
	m.ends = append(m.ends[:0], literal)
	for i := literal; i < len(pattern); {
		if len(m.ends) == 0 || !m.spend(len(m.ends)) {
			return false
		}
		switch c := pattern[i]; c {
		case '*':
			next, ok := m.matchAsterisks(pattern, i, text)
			if !ok {
				return false
			}
			i = next
		case '?':
			m.matchSet(text, &byteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)})
			i++
		case '[':
			set, next, ok := parseBracket(pattern, i, m.foldCase)
			if !ok || !m.spend(next-i) {
				return false
			}
			m.matchSet(text, &set)
			i = next
		case '\\':
			if i+1 == len(pattern) {
				return false
			}
			m.matchByte(text, pattern[i+1]) // git folds only the case of the text here
			i += 2
		default:
			if m.foldCase {
				c = lower(c)
			}
			m.matchByte(text, c)
			i++
		}
	}
	return len(m.ends) > 0 && m.ends[len(m.ends)-1] == len(text)
}

// matchAsterisks matches the asterisks at pattern[i] and returns the index of the next element. Ok is false when the
// budget is used up.
func (m *Matcher) matchAsterisks(pattern string, i int, text string) (next int, ok bool) {
	next = skipAsterisks(pattern, i)
	component := next-i >= 2 && (i == 0 || pattern[i-1] == '/')
	match := m.matchInComponent
	switch rest := pattern[next:]; {
	case !component:
	case rest == "" || strings.HasPrefix(rest, `\/`):
		match = m.matchAny
	case rest[0] == '/':
		match = m.matchDirectories
		next = skipRepeated(pattern, next+1)
	}
	if !m.spend(next - i + len(text) - m.ends[0]) {
		return 0, false
	}
	m.nextEnds = m.nextEnds[:0]
	match(text)
	m.ends, m.nextEnds = m.nextEnds, m.ends
	return next, true
}

// matchAny fills m.nextEnds with the least of m.ends and all ends after it.
func (m *Matcher) matchAny(text string) {
	for end := m.ends[0]; end <= len(text); end++ {
		m.nextEnds = append(m.nextEnds, end)
	}
}

// matchDirectories fills m.nextEnds with m.ends and with every end after a slash that follows the least of them.
func (m *Matcher) matchDirectories(text string) {
	known := m.ends
	for end := m.ends[0]; end <= len(text); end++ {
		isKnown := len(known) > 0 && known[0] == end
		if isKnown {
			known = known[1:]
		}
		if isKnown || text[end-1] == '/' {
			m.nextEnds = append(m.nextEnds, end)
		}
	}
}

// matchInComponent fills m.nextEnds with m.ends and all ends after them up to the next slash.
func (m *Matcher) matchInComponent(text string) {
	done := 0 // ends below this one are in m.nextEnds or cannot be reached
	for _, end := range m.ends {
		if end < done {
			continue
		}
		m.nextEnds = append(m.nextEnds, end)
		for end < len(text) && text[end] != '/' {
			end++
			m.nextEnds = append(m.nextEnds, end)
		}
		done = end + 1
	}
}

// skipAsterisks returns the index of the first byte at or after i that is not an asterisk.
func skipAsterisks(pattern string, i int) int {
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i
}

// skipRepeated returns the index after all "**/" at pattern[i]: after another "**/" they have no effect.
func skipRepeated(pattern string, i int) int {
	for {
		slash := skipAsterisks(pattern, i)
		if slash-i < 2 || slash == len(pattern) || pattern[slash] != '/' {
			return i
		}
		i = slash + 1
	}
}

// matchByte matches one byte of text.
func (m *Matcher) matchByte(text string, c byte) {
	kept := m.ends[:0]
	for _, end := range m.ends {
		if end < len(text) && text[end] == c {
			kept = append(kept, end+1)
		}
	}
	m.ends = kept
}

// matchSet matches one byte of text that is in set and is not a slash.
func (m *Matcher) matchSet(text string, set *byteSet) {
	kept := m.ends[:0]
	for _, end := range m.ends {
		if end < len(text) && text[end] != '/' && set.has(text[end]) {
			kept = append(kept, end+1)
		}
	}
	m.ends = kept
}
