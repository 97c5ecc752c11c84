package ignore

import "strings"

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) has(c byte) bool { return s[c/64]&(1<<(c%64)) != 0 }

func (s *byteSet) add(c byte) { s[c/64] |= 1 << (c % 64) }

// addRange adds the bytes from first to last, both included; none when last is less than first.
func (s *byteSet) addRange(first, last int) {
	for word := range s {
		from, to := max(first-64*word, 0), min(last-64*word, 63)
		if from <= to {
			s[word] |= ^uint64(0) >> (63 - (to - from)) << from
		}
	}
}

// parseBracket reads the bracket expression that begins at pattern[i] and returns the bytes it matches and the index
// after it. Ok is false for an expression that is not terminated or names an unknown class; in git its pattern matches
// no path. With foldCase the set is for text in lower case, and upper case counts in ranges and classes only, as in
// git.
func parseBracket(pattern string, i int, foldCase bool) (set byteSet, next int, ok bool) {
	i++
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}
	closing := 0     // index of a "]" found by an earlier search
	rangeFirst := -1 // the byte that a following "-" takes as the first of a range
	for begin := i; i == begin || i < len(pattern) && pattern[i] != ']'; i++ {
		if i >= len(pattern) {
			return set, 0, false
		}
		c := pattern[i]
		switch {
		case c == '\\':
			if i++; i == len(pattern) {
				return set, 0, false
			}
			c = pattern[i]
		case c == '-' && rangeFirst >= 0 && i+1 < len(pattern) && pattern[i+1] != ']':
			if i++; pattern[i] == '\\' {
				i++
			}
			if i == len(pattern) {
				return set, 0, false
			}
			set.addFolded(rangeFirst, int(pattern[i]), foldCase)
			rangeFirst = -1
			continue
		case c == '[' && strings.HasPrefix(pattern[i+1:], ":"):
			if name := i + 2; closing < name {
				found := strings.IndexByte(pattern[name:], ']')
				if found < 0 {
					return set, 0, false
				}
				closing = name + found
			}
			if name, isClass := strings.CutSuffix(pattern[i+2:closing], ":"); isClass {
				if !set.addClass(name, foldCase) {
					return set, 0, false
				}
				i, rangeFirst = closing, -1
				continue
			}
		}
		set.add(c)
		rangeFirst = int(c)
	}
	if i >= len(pattern) {
		return set, 0, false
	}
	if negated {
		set = byteSet{^set[0], ^set[1], ^set[2], ^set[3]}
	}
	return set, i + 1, true
}

// addFolded adds a range and, with foldCase, the letters whose upper case is in it.
func (s *byteSet) addFolded(first, last int, foldCase bool) {
	s.addRange(first, last)
	if foldCase {
		s.addRange(max(first, 'A')+'a'-'A', min(last, 'Z')+'a'-'A')
	}
}

// addClass adds the bytes of a POSIX class. It returns false when there is no class of that name.
func (s *byteSet) addClass(name string, foldCase bool) bool {
	switch name {
	case "alnum":
		s.addRange('0', '9')
		s.addRange('A', 'Z')
		s.addRange('a', 'z')
	case "alpha":
		s.addRange('A', 'Z')
		s.addRange('a', 'z')
	case "blank":
		s.add(' ')
		s.add('\t')
	case "cntrl":
		s.addRange(0, 31)
		s.add(127)
	case "digit":
		s.addRange('0', '9')
	case "graph":
		s.addRange('!', '~')
	case "lower":
		s.addRange('a', 'z')
	case "print":
		s.addRange(' ', '~')
	case "punct":
		s.addRange('!', '/')
		s.addRange(':', '@')
		s.addRange('[', '`')
		s.addRange('{', '~')
	case "space":
		for _, c := range []byte(" \t\n\r") { // git counts neither form feed nor vertical tab
			s.add(c)
		}
	case "upper":
		s.addFolded('A', 'Z', foldCase)
	case "xdigit":
		s.addRange('0', '9')
		s.addRange('A', 'F')
		s.addRange('a', 'f')
	default:
		return false
	}
	return true
}
