package ignore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const noLimit = 1 << 40

type ruleCase struct {
	rules         string
	ignored, kept string // paths, separated by spaces; a directory has a trailing slash
}

func splitPaths(paths string) []string {
	return strings.FieldsFunc(paths, func(c rune) bool { return c == ' ' })
}

// ruleCases has rules and the paths that they ignore or not. TestRuleCasesAgreeWithGit asks git the same.
var ruleCases = []ruleCase{
	{"a", "a a/ b/a b/a/", "b aa b/b A"},
	{"a/", "a/ b/a/", "a b/a"},
	{"/a", "a a/", "b/a"},
	{"/a/", "a/", "a b/a/"},
	{"a/b", "a/b a/b/", "b c/a/b a/bb a/b2"},
	{"b/a/", "b/a/", "b/a c/b/a/"},
	{"//a", "", "a b/a"},
	{"a//", "", "a/ b/a/"},
	{"a//b", "", "a/b"},
	{"/\n!\n\\\n\n!/", "", "a a/ b/a"},

	// the last rule decides
	{"a\n!a", "", "a b/a"},
	{"!a\na", "a b/a", ""},
	{"*\n!a", "b", "a a/"},
	{"a/\n!a/b", "a/b", ""}, // below an ignored directory
	{"a/*\n!a/b", "a/c", "a/b"},
	{"!*\na", "a", "b"},

	// asterisks
	{"*", "a a/ b/a .a", ""},
	{"*.o", "a.o .o b/a.o", "a.oo o"},
	{"a*", "a ab b/ab", "ba"},
	{"*a*", "a bab b/cab", "b"},
	{"*a*a*b", "aab xaxaxb", "ab aba"},
	{"a*/b", "a/b ac/b", "a/c/b ab"},
	{"/*/b", "a/b", "b a/c/b"},
	{"a/*", "a/b", "a/"},
	{"a/*/b", "a/c/b", "a/b a/c/d/b"},
	{"*/", "a/ b/a/", "a"},
	{"**", "a b/a", ""},
	{"***", "a b/a", ""},
	{"/**", "a b/a a/", ""},
	{"**/", "a/ a/b", "a"},
	{"**/a", "a b/a c/b/a", "ba b"},
	{"**/a/b", "a/b c/a/b", "b xa/b"},
	{"***/a/b", "a/b c/a/b", "xa/b"},
	{"a/**", "a/b a/b/c", "a/ b/a"},
	{"a/***", "a/b a/b/c", "a/"},
	{"a/**/", "a/b/ a/b/c/", "a/ a/b"},
	{"a/**/b", "a/b a/c/b a/c/d/b", "b c/a/b a/xb"},
	{"a/**/**/b", "a/b a/c/b a/c/d/b", "ab"},
	{"/**/a/**/b", "a/b c/a/b c/a/d/b", "c/b"},
	{"a**b", "ab axb c/ab", "a"},
	{"/a**b", "ab axb", "a/b"},
	{"/?**/b", "a/b ac/b", "ab a/c/b"},
	{"**a/b", "a/b xa/b", "x/a/b"},
	{"x/**a/b", "x/a/b x/ya/b", "x/y/a/b"},
	{"**/**", "a a/b", ""},
	{`a/**\/b`, "a/c/b a/c/d/b", "a/b"},
	{`a\/**/b`, "a/b a/c/b", "ab"},
	{"a/**b", "a/b a/xb", "a/x/b"},

	// question marks
	{"?", "a b/a", "aa"},
	{"a?b", "axb a?b", "ab a/b"},
	{"/a?b", "axb", "a/b"},
	{"é?", "éa", "é"},
	{"??", "é", "a"}, // bytes, not characters

	// bracket expressions
	{"[ab]", "a b", "c ab [ab]"},
	{"[a-c]", "a b c", "d - A"},
	{"[c-a]", "c", "a b -"},
	{"[a-]", "a -", "b ]"},
	{"[-a]", "a -", "b"},
	{"[a-c-e]", "a b c - e", "d"},
	{"[!ab]", "c !", "a b"},
	{"[^ab]", "c ^", "a b"},
	{"[a!]", "a !", "b"},
	{"[]]", "]", "a []]"},
	{"[]a]", "] a", "b"},
	{"[!]]", "a", "]"},
	{"[!]a]", "b", "] a"},
	{"[]-a]", "] ^ _ ` a", "b ["},
	{`[\]]`, "]", `\ a`},
	{`[\\]`, `\`, "a"},
	{`[\a]`, "a", `\`},
	{`[a-\c]`, "b c", `\ -`},
	{`[\a-c]`, "b c", `\ -`},
	{"[a-", "", "a [a-"},
	{"[a", "", "a [a"},
	{"[", "", "["},
	{"a[", "", "a a["},
	{"[]", "", "[] ]"},
	{"[!]", "", "! [!]"},
	{"[]-]", "] -", "a"},
	{`[a\`, "", `a [a\`},
	{`[a-\`, "", `a [a-\`},
	{`x[a\]`, "", `xa xa] x]`},
	{"[*?]", "* ?", "a"},
	{"/[!x]b", "ab", "xb"},
	{"/a[!x]b", "ayb", "a/b axb"},
	{"/a[/]b", "", "a/b"},
	{"/a[.-0]b", "a.b a0b", "a/b"},
	{"a[/]b", "", "a/b"},
	{"[\x01-\xff]", "a \xff", "aa"},
	{"[\xfe-\xff]", "\xff", "a z \xfd"},

	// POSIX classes
	{"[[:alpha:]]", "a Z", "0 : é \xe9"},
	{"[[:alnum:]]", "a Z 0", "- _"},
	{"[[:blank:]]x", "\tx", "\vx ax"},
	{"[[:cntrl:]]x", "\tx \x7fx \vx", "ax"},
	{"[[:digit:]]", "0 9", "a"},
	{"[[:graph:]]", "a ! ~", "\x7f \xff"},
	{"[[:lower:]]", "a", "A"},
	{"[[:print:]]x", "ax ~x", "\tx \xffx"},
	{"[[:punct:]]", "! + @ ] ^ ` } ~ - , : ;", "a 0"},
	{"[[:space:]]x", "\tx \rx", "\vx \fx ax"},
	{"[[:upper:]]", "A", "a"},
	{"[[:xdigit:]]", "0 a F", "g"},
	{"[[:alpha:]0-9_]", "a 0 _", "-"},
	{"[![:alpha:]]", "0", "a"},
	{"[[:alpha:]-z]", "a - z", "0"},
	{"[a-[:alpha:]]", "", "a b z"},
	{"[a-[:alpha:]x", ":x ax lx px hx", "[x bx zx"},
	{"[[:ALPHA:]]", "", "a A"},
	{"[[:foo:]]", "", "a f :"},
	{"[[::]]", "", ": []"},
	{"[[:]", "[ :", "a"},
	{"[[:]]", ":] []", ": ["},
	{"[[:alpha:]", "", "a : ["},
	{"[[:alpha]", "a [ : l", "z"},
	{"[[:alpha]]", "a] [] :]", "a"},
	{"[[:[:[:a]", "a [ :", "b"},

	// escapes
	{`\a`, "a", `\a`},
	{`\*`, "*", "a"},
	{`\\`, `\`, `\\`},
	{`a\`, "", `a a\`},
	{`\#a`, "#a", "a"},
	{"#a", "", "#a a"},
	{`\!a`, "!a", "a"},
	{"!!a", "", "!a a"},
	{`a\/b`, "a/b", "b ab"},
	{`\/a`, "", "a b/a"},
	{`/\a/b`, "a/b", ""},

	// lines
	{"a\r\nb\r\n", "a b", "c"},
	{"\xef\xbb\xbfa", "a", "\xef\xbb\xbfa"},
	{"a\x00b\nc\x00", "a c", "b ab"},
	{"\x00\n#\x00\nb\n", "b", "a"},
	{"a   \nb\t", "a b\t", "b"},
	{"\xff\n\xc3?", "\xff é", "a"},
	{":a", ":a", "a"},
	{"-a", "-a", "a"},
}

// foldCases are like ruleCases, with core.ignoreCase.
var foldCases = []ruleCase{
	{"ab", "ab AB Ab", "b"},
	{"AB", "ab AB Ab", "b"},
	{"*.O", "a.o a.O", "a.p"},
	{"A/B", "a/b A/B", "b"},
	{"A?c", "abC", "ab"},
	{"x/**/Y", "X/a/y x/Y", "y"},
	{"*B*", "abc ABC", "a"},
	{"*É", "É", "é"}, // ASCII only
	{"É", "É", "é"},
	{"[a]", "a A", "b"},
	{"[A]", "", "a A"}, // git folds ranges and classes, but not single letters
	{"[!A]", "a A b", ""},
	{"[A-C]", "a B", "d"},
	{"[a-c]", "a B", "d"},
	{"[Z-a]", "a z Z A _", "b"}, // A in lower case is in the range
	{"[\xfa-\xff]", "\xfb", "a Z"},
	{"[[:upper:]]", "a A", "0"},
	{"[[:lower:]]", "a A", "0"},
	{"[[:xdigit:]]", "a F", "g"},
	{`\A`, "", "a A"}, // git folds the name, but not an escaped letter
	{`\a`, "a A", "b"},
	{`a\B`, "", "ab AB"},
}

// ignored walks to a path from the top as callers do. lists maps directories to the rules of their file.
func ignored(t testing.TB, m *Matcher, lists map[string]*List, path string) bool {
	t.Helper()
	path, isDir := strings.CutSuffix(path, "/")
	var stack []*List
	for from := 0; ; {
		if l := lists[path[:from]]; l != nil {
			stack = append(stack, l)
		}
		slash := strings.IndexByte(path[from:], '/')
		name, nameIsDir := path, isDir
		if slash >= 0 {
			name, nameIsDir = path[:from+slash], true
		}
		yes, err := m.Ignored(stack, name, nameIsDir)
		if err != nil {
			t.Fatal(err)
		}
		if yes || slash < 0 {
			return yes
		}
		from += slash + 1
	}
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	check := func(rules, paths string, foldCase, want bool) {
		for _, path := range splitPaths(paths) {
			// The same rules at the top, in info/exclude and in a directory.
			at := func(base string) map[string]*List {
				return map[string]*List{base: Parse([]byte(rules), base)}
			}
			top := ignored(t, NewMatcher(nil, foldCase, noLimit), at(""), path)
			outer := ignored(t, NewMatcher([]*List{at("")[""]}, foldCase, noLimit), nil, path)
			below := ignored(t, NewMatcher(nil, foldCase, noLimit), at("d/e/"), "d/e/"+path)
			if top != want || outer != want || below != want {
				t.Errorf("rules %q, path %q, fold case %v: at the top %v, outside %v, in a directory %v, want %v", rules, path, foldCase, top, outer, below, want)
			}
		}
	}
	for _, c := range ruleCases {
		check(c.rules, c.ignored, false, true)
		check(c.rules, c.kept, false, false)
	}
	for _, c := range foldCases {
		check(c.rules, c.ignored, true, true)
		check(c.rules, c.kept, true, false)
	}
}

// Git before 2.52 takes "**" after a literal for a whole component.
func TestAsterisksAfterLiteralAreNoComponent(t *testing.T) {
	t.Parallel()
	m := NewMatcher(nil, false, noLimit)
	lists := map[string]*List{"": Parse([]byte("foo**/bar\nx/y**\n"), "")}
	for path, want := range map[string]bool{"foobar": false, "foo/bar": true, "foox/bar": true, "foo/x/bar": false, "x/y": true, "x/yz": true} {
		if got := ignored(t, m, lists, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestIgnoredTakesDeepestFile(t *testing.T) {
	t.Parallel()
	parse := func(text, base string) *List { return Parse([]byte(text), base) }
	m := NewMatcher([]*List{parse("user\nboth\n", ""), parse("!both\nexclude\n", "")}, false, noLimit)
	lists := map[string]*List{
		"":     parse("!exclude\n*.o\n/x\na/b/y\n", ""),
		"a/":   parse("!keep.o\n/x\n", "a/"),
		"a/b/": parse("keep.o\n!*\nz/\n", "a/b/"),
	}
	for path, want := range map[string]bool{
		"user": true, "both": false, "exclude": false, "a/user": true, "keep.o": true, "a/keep.o": false, "a/x.o": true, "a/b/keep.o": false,
		"a/b/x.o": false, "x": true, "a/x": true, "a/b/x": false, "c/x": false, "a/b/y": false, "a/b/z": false, "a/b/z/": true, "a/b/z/q": true, "a/b/user": false,
	} {
		if got := ignored(t, m, lists, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	// A list of another directory says nothing.
	for _, path := range []string{"b/keep.o", "a", "a.o"} {
		if yes, err := m.Ignored([]*List{parse("*\n", "a/")}, path, false); yes || err != nil {
			t.Errorf("%s: %v, %v", path, yes, err)
		}
	}
}

// Patterns that take git exponential time must take few steps.
func TestIgnoredIsPolynomial(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("a/", 1000) + "b"
	long := strings.Repeat("a", 255)
	longest := strings.Repeat(long+"/", 15) + long // 4095 bytes
	for _, c := range []struct {
		rules, path string
		most        int64
	}{
		{strings.Repeat("/**/a/", 25), deep, 500_000},
		{strings.Repeat("/**/a", 25) + "/c", deep, 500_000},
		{strings.Repeat("**/a/", 900) + "c", deep, 4_000_000},
		{strings.Repeat("**/", 300_000) + "c", deep, 2_000_000},
		{strings.Repeat("*", 1<<20) + "b", long, 2_000_000},
		{strings.Repeat("*a", 100) + "*b", long, 200_000},
		{strings.Repeat("a*", 1<<19), long, 200_000},
		{"/" + strings.Repeat("**/*a", 400) + "*b", longest, 20_000_000},
		{"/**/" + strings.Repeat("*a*", 1<<18) + "/b", longest, 20_000_000},
		{"/" + strings.Repeat("?", 1<<20), longest, 100_000},
		{strings.Repeat("a", 1<<20), long, 1_000},
		{strings.Repeat("[a]", 1<<18), long, 10_000},
		{"*[" + strings.Repeat("[:", 1<<18) + "]b", long, 2_000_000},
		{"*[" + strings.Repeat("[:", 1<<18), long, 10_000},
		{"*[" + strings.Repeat("a-z", 1<<18) + "]b", long, 2_000_000},
		{"[" + strings.Repeat(`\]`, 1<<18), long, 10_000},
	} {
		for _, foldCase := range []bool{false, true} {
			m := NewMatcher(nil, foldCase, c.most)
			if yes, err := m.Ignored([]*List{Parse([]byte(c.rules), "")}, c.path, true); yes || err != nil {
				t.Errorf("%.20s… of %d bytes, fold case %v: %v, %v", c.rules, len(c.rules), foldCase, yes, err)
			}
		}
	}
}

// Every directory of a deep path has a file with the exponential pattern.
func TestIgnoredIsPolynomialWithNestedFiles(t *testing.T) {
	t.Parallel()
	m := NewMatcher(nil, false, 20_000_000)
	var stack []*List
	rules := []byte(strings.Repeat("/**/a", 25) + "/c\n" + strings.Repeat("/**/a/", 25) + "\n" + strings.Repeat("*a", 12) + "*b\n")
	path := ""
	for range 100 {
		stack = append(stack, Parse(rules, path))
		yes, err := m.Ignored(stack, path+"a", true)
		if yes || err != nil {
			t.Fatalf("%s: %v, %v", path, yes, err)
		}
		path += "a/"
	}
}

func TestIgnoredStopsAtLimit(t *testing.T) {
	t.Parallel()
	l := Parse([]byte(strings.Repeat("*a*b\n", 100)+"keep\n"), "")
	m := NewMatcher(nil, false, 500)
	if yes, err := m.Ignored([]*List{l}, "keep", false); !yes || err != nil {
		t.Fatalf("before the limit: %v, %v", yes, err)
	}
	for _, path := range []string{"dir/aaaaaaaaaaaaa", "keep"} { // the second call has no steps left
		yes, err := m.Ignored([]*List{l}, path, false)
		var limit *LimitError
		if yes || !errors.As(err, &limit) || limit.Path != path || limit.MaxSteps != 500 || m.steps > 500 {
			t.Errorf("%s: %v, %v after %d steps", path, yes, err, m.steps)
		}
	}
	_, err := NewMatcher([]*List{l}, false, 0).Ignored(nil, "a", false)
	if want := `evaluating the ignore rules takes more than 0 steps, reached at "a"; simplify the patterns in the .gitignore files`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// typicalRules is a .gitignore file of 60 lines.
const typicalRules = `# build
/bin/
/dist/
/build/
out/
target/
*.o
*.a
*.so
*.exe
*.dll
*.dylib
*.class
*.jar
*.test
*.out
coverage.out
/vendor/

# python
__pycache__/
*.py[cod]
*$py.class
.Python
*.egg-info/
.installed.cfg
*.egg
.venv/
venv/
.tox/
.coverage
.coverage.*
.cache
.pytest_cache/

# node
node_modules/
npm-debug.log*
yarn-error.log*
.npm
.eslintcache
*.tsbuildinfo

# editors
.idea/
.vscode/*
!.vscode/settings.json
*.swp
*~
\#*\#
.DS_Store
Thumbs.db

# ours
.env
.env.*
!.env.example
/docs/_build/
docs/**/generated/
**/testdata/tmp-*
/config/local.yaml
*.log
tmp/
[Bb]ackup*/
`

func BenchmarkIgnored(b *testing.B) {
	paths := []string{"internal/server/handler_test.go", "README.md", "docs/guide/install/linux.md", "cmd/tool/main.go", "web/src/components/Button.tsx"}
	for _, foldCase := range []bool{false, true} {
		b.Run(fmt.Sprintf("60 lines, fold case %v", foldCase), func(b *testing.B) {
			m := NewMatcher([]*List{Parse([]byte("*.bak\n"), "")}, foldCase, noLimit)
			benchmarkIgnored(b, m, []*List{Parse([]byte(typicalRules), "")}, paths)
		})
	}
	for name, rule := range map[string]string{"literals": "name-%d\n", "paths": "/src/gen/name-%d\n", "suffixes": "*.x%d\n", "patterns": "*a*x%d\n"} {
		b.Run("1000000 "+name, func(b *testing.B) {
			var text strings.Builder
			for i := range 1_000_000 {
				fmt.Fprintf(&text, rule, i)
			}
			benchmarkIgnored(b, NewMatcher(nil, false, 1<<62), []*List{Parse([]byte(text.String()), "")}, paths)
		})
	}
	b.Run("25 directories in the pattern, 60 in the path", func(b *testing.B) {
		benchmarkIgnored(b, NewMatcher(nil, false, 1<<62), []*List{Parse([]byte(strings.Repeat("/**/a", 25)+"/c"), "")}, []string{strings.Repeat("a/", 60) + "b"})
	})
}

func benchmarkIgnored(b *testing.B, m *Matcher, lists []*List, paths []string) {
	i := 0
	for b.Loop() {
		yes, err := m.Ignored(lists, paths[i%len(paths)], true)
		if yes || err != nil {
			b.Fatal(paths[i%len(paths)], yes, err)
		}
		i++
	}
	b.ReportMetric(float64(m.steps)/float64(i), "steps/op")
}
