package ignore

import (
	rand "math/rand/v2"
	"strings"
	"testing"
)

// FuzzIgnored checks that any rules and path are evaluated without panic and within the budget.
func FuzzIgnored(f *testing.F) {
	for _, c := range ruleCases {
		f.Add([]byte(c.rules), "d/", "d/a/b", false, int64(100))
	}
	f.Add([]byte(strings.Repeat("/**/a/", 25)), "", strings.Repeat("a/", 40), true, int64(100_000))
	f.Fuzz(func(t *testing.T, data []byte, base, path string, isDir bool, maxSteps int64) {
		l := Parse(data, base)
		for _, foldCase := range []bool{false, true} {
			m := NewMatcher([]*List{l}, foldCase, maxSteps)
			yes, err := m.Ignored([]*List{l, Parse(data, "")}, path, isDir)
			if yes && err != nil {
				t.Fatalf("ignored, and %v", err)
			}
			if m.steps > max(maxSteps, 0) {
				t.Fatalf("%d steps of %d", m.steps, maxSteps)
			}
			// With a large budget the result is the same if there was no error, and the work is polynomial.
			size := int64(len(path) + 2)
			most := int64(len(data)+1) * 3 * size * size * 4
			wide := NewMatcher([]*List{l}, foldCase, most)
			wideYes, wideErr := wide.Ignored([]*List{l, Parse(data, "")}, path, isDir)
			if wideErr != nil {
				t.Fatalf("more than %d steps", most)
			}
			if err == nil && yes != wideYes {
				t.Fatalf("%v with %d steps, %v with %d", yes, maxSteps, wideYes, most)
			}
		}
	})
}

// FuzzWildmatch compares wildmatch with a recursive function that follows the meaning of the pattern directly.
func FuzzWildmatch(f *testing.F) {
	for _, c := range ruleCases {
		for _, path := range splitPaths(c.ignored + " " + c.kept) {
			f.Add(c.rules, path)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 24 || len(text) > 12 || strings.Contains(pattern+text, "\x00") {
			return
		}
		compareWithReference(t, pattern, text)
	})
}

// The same comparison with random patterns that match often.
func TestWildmatchAgreesWithReference(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	join := func(words []string) string {
		var text strings.Builder
		for range random.IntN(9) {
			text.WriteString(words[random.IntN(len(words))])
		}
		return text.String()
	}
	matches := 0
	const pairs = 100_000
	for range pairs {
		pattern := join([]string{"a", "a", "b", "B", "/", "/", "*", "*", "**", "**/", "**/", "/**/", "?", "[ab]", "[!a/]", "[A-C]", `\/`, `\a`, `\`})
		if compareWithReference(t, pattern, join([]string{"a", "b", "B", "/", "/"})) {
			matches++
		}
	}
	if matches < pairs/50 {
		t.Errorf("only %d patterns match", matches)
	}
}

// compareWithReference returns the result without folding of case.
func compareWithReference(t *testing.T, pattern, text string) (matches bool) {
	t.Helper()
	for _, foldCase := range []bool{true, false} {
		name := text
		if foldCase {
			name = lowerASCII(text)
		}
		matches = NewMatcher(nil, foldCase, noLimit).wildmatch(pattern, 0, name)
		if want := referenceMatch(pattern, 0, name, foldCase); matches != want {
			t.Fatalf("%q matches %q, fold case %v: %v, want %v", pattern, text, foldCase, matches, want)
		}
	}
	return matches
}

// referenceMatch reports whether pattern[i:] matches text. It takes exponential time.
func referenceMatch(pattern string, i int, text string, foldCase bool) bool {
	rest := pattern[i:]
	if rest == "" {
		return text == ""
	}
	if rest[0] == '*' {
		after := strings.TrimLeft(rest, "*")
		j := len(pattern) - len(after)
		begins, ends := i == 0 || pattern[i-1] == '/', after == "" || after[0] == '/' || strings.HasPrefix(after, `\/`)
		anything := j-i > 1 && begins && ends
		if anything && strings.HasPrefix(after, "/") && referenceMatch(pattern, j+1, text, foldCase) {
			return true
		}
		for n := 0; ; n++ {
			if referenceMatch(pattern, j, text[n:], foldCase) {
				return true
			}
			if n == len(text) || text[n] == '/' && !anything {
				return false
			}
		}
	}
	if text == "" {
		return false
	}
	c := text[0]
	switch rest[0] {
	case '?':
		return c != '/' && referenceMatch(pattern, i+1, text[1:], foldCase)
	case '\\':
		return len(rest) > 1 && c == rest[1] && referenceMatch(pattern, i+2, text[1:], foldCase)
	case '[':
		matched, size := referenceBracket(rest, c, foldCase)
		return matched && c != '/' && referenceMatch(pattern, i+size, text[1:], foldCase)
	}
	want := rest[0]
	if foldCase {
		want = lower(want)
	}
	return c == want && referenceMatch(pattern, i+1, text[1:], foldCase)
}

// referenceBracket reports whether the bracket expression at the beginning of a pattern matches a byte, and returns its
// size. It splits the expression into items first.
func referenceBracket(pattern string, c byte, foldCase bool) (matched bool, size int) {
	type item struct {
		class       string
		first, last byte
	}
	var items []item
	rest := pattern[1:]
	negated := strings.HasPrefix(rest, "!") || strings.HasPrefix(rest, "^")
	if negated {
		rest = rest[1:]
	}
	// one returns the byte at the beginning of rest, which a backslash may escape.
	one := func() (b byte, ok bool) {
		rest = strings.TrimPrefix(rest, `\`)
		if rest == "" {
			return 0, false
		}
		b, rest = rest[0], rest[1:]
		return b, true
	}
	for first := true; first || !strings.HasPrefix(rest, "]"); first = false {
		name, after, found := strings.Cut(strings.TrimPrefix(rest, "[:"), "]")
		if strings.HasPrefix(rest, "[:") && !found {
			return false, 0
		}
		if strings.HasPrefix(rest, "[:") && strings.HasSuffix(name, ":") {
			items, rest = append(items, item{class: strings.TrimSuffix(name, ":") + "."}), after
			continue
		}
		isRange := len(items) > 0 && items[len(items)-1].class == "" && items[len(items)-1].first == items[len(items)-1].last
		if isRange && len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			rest = rest[1:]
			last, ok := one()
			if !ok {
				return false, 0
			}
			// The range ends the item, so that no further range can begin with its last byte.
			items = append(items, item{first: items[len(items)-1].first, last: last}, item{class: "none."})
			continue
		}
		b, ok := one()
		if !ok {
			return false, 0
		}
		items = append(items, item{first: b, last: b})
	}
	for _, it := range items {
		in, known := referenceItem(it.class, it.first, it.last, c, foldCase)
		if !known {
			return false, 0
		}
		matched = matched || in
	}
	return matched != negated, len(pattern) - len(rest) + 1
}

// referenceItem reports whether a class, or a range when there is no class, has a byte.
func referenceItem(class string, first, last, c byte, foldCase bool) (in, known bool) {
	letters, digits, punctuation := "abcdefghijklmnopqrstuvwxyz", "0123456789", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	capitals := strings.ToUpper(letters)
	upper := capitals
	if foldCase {
		upper += letters
	}
	control := "\x7f"
	for b := range 32 {
		control += string(rune(b))
	}
	members, known := map[string]string{
		"none.": "", "alnum.": letters + capitals + digits, "alpha.": letters + capitals, "blank.": " \t", "cntrl.": control, "digit.": digits,
		"graph.": letters + capitals + digits + punctuation, "lower.": letters, "print.": letters + capitals + digits + punctuation + " ",
		"punct.": punctuation, "space.": " \t\r\n", "upper.": upper, "xdigit.": digits + "abcdefABCDEF",
	}[class]
	if class != "" {
		return strings.IndexByte(members, c) >= 0, known
	}
	capital := c
	if foldCase && first != last && strings.IndexByte(letters, c) >= 0 {
		capital = c - 'a' + 'A'
	}
	return first <= c && c <= last || first <= capital && capital <= last, true
}
