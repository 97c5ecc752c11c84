package fsck

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
)

func TestCountAsterisks(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{
		``: 0, `a`: 0, `*`: 0, `a*`: 0, `**`: 0, `a/**`: 0,
		`*.o`: 1, `*a*`: 1, `*a*b`: 2, `**.o`: 1,
		`*/*/*/a`: 0, `/a*/b*/c`: 0, `*a*/b`: 1,
		`**/a`: 1, `/**/a/**/b`: 2, `**/**/a`: 2, `***/a`: 1, `a**/b`: 1, `**\/a`: 1,
		`\*a\*b\*c`: 0, `\\*a`: 1, `\\\*a`: 0, `a\`: 0, `*\`: 1,
		`[*]`: 1, `[\]*]a`: 1, `[*a*`: 1, // more than there are
		strings.Repeat(`/**/a`, 22): 22,
	} {
		if got := countAsterisks([]byte(pattern)); got != want {
			t.Errorf("%q: %d, not %d", pattern, got, want)
		}
	}
}

// seven is a pattern with one asterisk more than allowed; it matches the path matchedBySeven.
const (
	seven          = `*a*a*a*a*a*a*b`
	matchedBySeven = `aaaaaab`
)

// patternLines are contents of a .gitattributes and .gitignore with seven, and whether it counts there. Git must agree.
var patternLines = []struct {
	name, content      string
	attributes, ignore bool
}{
	{"a line", seven + " x\n", true, false},
	{"a pattern alone", seven + "\n", false, true}, // and no attributes
	{"no newline", "y z\n" + seven, false, true},
	{"no newline, with attributes", "y z\n" + seven + " x", true, false},
	{"a comment", "#" + seven + " x\n", false, false},
	{"a comment after blanks", " \t#" + seven + " x\n", false, false},
	{"blanks", " \t" + seven + "\tx\n", true, false},
	{"CR", seven + " x\r\n" + seven + "\r\n", true, true},
	{"byte order mark", "\xef\xbb\xbf" + seven + " x\n", true, false},
	{"byte order mark, ignored", "\xef\xbb\xbf" + seven + "\n", false, true},
	{"quotes", `"` + seven + `" x` + "\n", true, false},
	{"octal escapes", `"\052\141*a*a*a*a*a*\142" x` + "\n", true, false},
	{"an invalid escape", `"\9` + seven + `" x` + "\n", false, false},
	{"no closing quote", `"` + seven + " x\n", false, false},
	{"a macro", "[attr]" + seven + " x\n", false, false},
	{"negated", "!" + seven + " x\n", false, false},
	{"trailing spaces", seven + "  \n", false, true},
	{"the end of a string", seven + "\x00" + " x\n", false, true},
	{"only after the end of a string", "y\x00\n" + seven + " x\n", true, false},
	{"a long line", seven + " x" + strings.Repeat(" ", 3000) + "\n", false, false},
	{"the attribute in a line", "y " + seven + " x\n", false, false},
}

// Promise: every pattern that git takes from a file is checked.
func TestCheckPatternsReadsLinesAsGitDoes(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, c := range patternLines {
		for _, name := range []string{index.AttributesFile, index.IgnoreFile} {
			for _, other := range []string{index.AttributesFile, index.IgnoreFile} {
				if err := os.RemoveAll(filepath.Join(l.Root, other)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(l.Root, name), []byte(c.content), 0o666); err != nil {
				t.Fatal(err)
			}
			want, args := c.attributes, []string{"check-attr", "x", matchedBySeven}
			if name == index.IgnoreFile {
				want, args = c.ignore, []string{"check-ignore", "--no-index", "-v", "-n", matchedBySeven}
			}
			out, _ := l.TryGit(l.Root, args...) // check-ignore exits with 1 for no match
			if got := strings.HasSuffix(out, ": set\n") || name == index.IgnoreFile && !strings.HasPrefix(out, "::"); got != want {
				t.Errorf("%s in %s: git says %q", c.name, name, out)
			}
			var refused *Error
			if err := checkPatterns(name, "sub/"+name, []byte(c.content)); want && !errors.As(err, &refused) {
				t.Errorf("%s in %s is not refused: %v", c.name, name, err)
			}
		}
	}
}

func TestCheckPatternsNamesLine(t *testing.T) {
	t.Parallel()
	err := checkPatterns(index.IgnoreFile, "sub/.gitignore", []byte("# first\n\n*a*b\n!/"+strings.Repeat("**/x/", 20)+"\n"))
	want := `its tree is refused: "sub/.gitignore": line 4: git needs time that grows exponentially with the number of asterisks to compare paths with the pattern "!/` + strings.Repeat("**/x/", 11) + `**/"...: it has 20 asterisks that a path can match in several ways; use at most 6`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nnot\n%s", err, want)
	}
	// A comment and an honest pattern.
	if err := checkPatterns(index.AttributesFile, "x", []byte("# *** a ** b * c * d * e * f * g * h\n/src/**/*test*/**/*.[ch]pp* text\n")); err != nil {
		t.Error(err)
	}
}

// FuzzCheckPatterns checks that a pattern in any line is refused which, read in the simplest way, has too many asterisks:
// a line of nothing but the pattern, raw or with all bytes escaped.
func FuzzCheckPatterns(f *testing.F) {
	for _, c := range patternLines {
		f.Add([]byte(c.content), seven)
	}
	f.Fuzz(func(t *testing.T, before []byte, pattern string) {
		if pattern == "" || strings.ContainsAny(pattern, " \t\r\n\x00\"#") || len(pattern) > 500 || len(before) > 1<<16 {
			return
		}
		slow := countAsterisks([]byte(pattern)) > maxAsterisks
		var escaped bytes.Buffer
		for _, c := range []byte(pattern) {
			escaped.WriteString(`\` + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
		}
		for name, lines := range map[string][]string{
			index.AttributesFile: {pattern + " x", `"` + escaped.String() + `" x`, "\t" + pattern + "\r"},
			index.IgnoreFile:     {pattern, pattern + "\r", pattern + " "},
		} {
			for _, line := range lines {
				err := checkPatterns(name, name, []byte(string(before)+"\n"+line+"\nz"))
				alone := checkPatterns(name, name, []byte("\n"+line))
				if (alone != nil) != slow || slow && err == nil {
					t.Fatalf("%s %q: %v, alone %v", name, line, err, alone)
				}
			}
		}
	})
}

// FuzzCountAsterisks compares countAsterisks with a matcher that backtracks as git does: the asterisks for which that
// tries more than one end must not be more than are counted.
func FuzzCountAsterisks(f *testing.F) {
	for _, c := range [][2]string{{seven, "aaaaaaac"}, {"/**/a/**/a/**/b", "a/a/a/a/c"}, {"[*]*a[[:alpha:]*", "a*a"}, {`[\]*]a*\**b`, "]a*"}, {"a**/b**", "a/b/c"}} {
		f.Add(c[0], c[1], true)
		f.Add(c[0], c[1], false)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, pathname bool) {
		if len(pattern) > 30 || len(text) > 10 || strings.Contains(pattern+text, "\x00") {
			return
		}
		m := backtracker{pattern: pattern, pathname: pathname || strings.Contains(pattern, "/"), tried: map[int]bool{}}
		m.match(0, 0, text)
		if n := countAsterisks([]byte(pattern)); len(m.tried) > n {
			t.Fatalf("%q on %q: git tries several ends at %v, %d are counted", pattern, text, m.tried, n)
		}
	})
}

// backtracker matches a pattern with a text in the way git does, as far as its asterisks are concerned, and notes those
// for which it tries more than one end.
type backtracker struct {
	pattern  string
	pathname bool         // slashes are special
	tried    map[int]bool // indexes of asterisks
	steps    int
}

// match reports whether the pattern from i on matches text. begin is the index at which this call has begun.
func (m *backtracker) match(begin, i int, text string) bool {
	for ; i < len(m.pattern); i++ {
		if m.steps++; m.steps > 100_000 {
			return false
		}
		c := m.pattern[i]
		if text == "" && c != '*' {
			return false
		}
		switch c {
		case '*':
			return m.matchAsterisks(begin, i, text)
		case '?':
			if m.pathname && text[0] == '/' {
				return false
			}
		case '[':
			end := bracketEnd(m.pattern, i)
			if end < 0 || m.pathname && text[0] == '/' {
				return false
			}
			i = end // as if it matched every byte, so that more is tried
		case '\\':
			if i++; i == len(m.pattern) || m.pattern[i] != text[0] {
				return false
			}
		default:
			if c != text[0] {
				return false
			}
		}
		text = text[1:]
	}
	return text == ""
}

func (m *backtracker) matchAsterisks(begin, i int, text string) bool {
	end := i
	for end < len(m.pattern) && m.pattern[end] == '*' {
		end++
	}
	rest := m.pattern[end:]
	isComponent := end-i > 1 && (i <= begin || m.pattern[i-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	slashes := !m.pathname || isComponent
	if rest == "" {
		return slashes || !strings.Contains(text, "/")
	}
	if isComponent && m.pathname && rest[0] == '/' && m.match(end+1, end+1, text) {
		return true
	}
	if !slashes && rest[0] == '/' {
		at := strings.IndexByte(text, '/')
		return at >= 0 && m.match(begin, end, text[at:]) // the only end
	}
	for n := 0; ; n++ {
		if n > 0 || isComponent {
			m.tried[i] = true
		}
		if m.match(end, end, text) {
			return true
		}
		if text == "" || !slashes && text[0] == '/' {
			return false
		}
		text = text[1:]
	}
}

// bracketEnd returns the index of the "]" that ends the bracket expression at pattern[i]; -1 if there is none, or if it
// names an unknown class.
func bracketEnd(pattern string, i int) int {
	i++
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		i++
	}
	for first := true; i < len(pattern); i++ {
		switch {
		case pattern[i] == ']' && !first:
			return i
		case pattern[i] == '\\':
			i++
		case strings.HasPrefix(pattern[i:], "[:"):
			end := strings.IndexByte(pattern[i+2:], ']')
			if end < 0 {
				return -1
			}
			if class, is := strings.CutSuffix(pattern[i+2:i+2+end], ":"); is {
				if !strings.Contains(" alnum alpha blank cntrl digit graph lower print punct space upper xdigit ", " "+class+" ") {
					return -1
				}
				i += 2 + end
			}
		}
		first = false
	}
	return -1
}
