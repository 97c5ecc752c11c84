package ignore

import (
	"fmt"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// checkIgnore is a repository in which git is asked which paths are ignored.
type checkIgnore struct {
	*gittest.Fixture
	outer []*List          // core.excludesFile and info/exclude
	lists map[string]*List // .gitignore files by directory
	asked []string         // a directory has a trailing slash
}

func newCheckIgnore(t *testing.T) *checkIgnore {
	t.Helper()
	c := &checkIgnore{Fixture: gittest.NewEmpty(t), lists: map[string]*List{}}
	c.Git("init", "-q", "-b", "main", ".")
	return c
}

// addFile writes a .gitignore file.
func (c *checkIgnore) addFile(base, rules string) {
	c.T.Helper()
	c.Write(base+".gitignore", rules)
	c.lists[base] = Parse([]byte(rules), base)
}

// addOuter writes core.excludesFile and info/exclude.
func (c *checkIgnore) addOuter(excludesFile, exclude string) {
	c.T.Helper()
	c.Write("../excludes", excludesFile)
	c.Write(".git/info/exclude", exclude)
	c.outer = []*List{Parse([]byte(excludesFile), ""), Parse([]byte(exclude), "")}
}

// ask adds a path to the question. The directories in it are created, because git looks at their type; files need not
// exist.
func (c *checkIgnore) ask(path string) {
	c.T.Helper()
	c.Must(os.MkdirAll(filepath.Join(c.Root, path[:strings.LastIndexByte(path, '/')+1]), 0o755))
	c.asked = append(c.asked, path)
}

// compare asks one git about all paths and compares its answers with those of a Matcher. It returns how many paths are
// ignored.
func (c *checkIgnore) compare(foldCase bool) (count int) {
	c.T.Helper()
	var question strings.Builder
	for _, path := range c.asked {
		question.WriteString("./" + strings.TrimSuffix(path, "/") + "\x00") // otherwise a leading colon would be pathspec magic
	}
	cmd := exec.CommandContext(c.T.Context(), "git", "-c", "core.excludesFile="+filepath.Join(c.Root, "../excludes"), "-c", fmt.Sprint("core.ignoreCase=", foldCase),
		"check-ignore", "--no-index", "-z", "--stdin", "--verbose", "--non-matching")
	cmd.Dir, cmd.Env, cmd.Stdin = c.Root, c.Env, strings.NewReader(question.String())
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		c.T.Fatal(err)
	}
	fields := strings.Split(string(out), "\x00") // source file, line number, pattern and path for each
	if len(fields) != 4*len(c.asked)+1 {
		c.T.Fatalf("git answered %d fields to %d paths", len(fields), len(c.asked))
	}
	m := NewMatcher(c.outer, foldCase, noLimit)
	for i, path := range c.asked {
		source, line, pattern := fields[4*i], fields[4*i+1], fields[4*i+2]
		want := pattern != "" && pattern[0] != '!'
		if want {
			count++
		}
		if got := ignored(c.T, m, c.lists, path); got != want {
			c.T.Errorf("%q, fold case %v: ignored is %v, but git says %v (%s:%s: %q)", path, foldCase, got, want, source, line, pattern)
		}
	}
	return count
}

func TestRuleCasesAgreeWithGit(t *testing.T) {
	t.Parallel()
	for _, foldCase := range []bool{false, true} {
		c, want := newCheckIgnore(t), 0
		c.addOuter("", "")
		cases := ruleCases
		if foldCase {
			cases = foldCases
		}
		for i, r := range cases {
			ignored := splitPaths(r.ignored)
			want += len(ignored)
			for j, path := range append(ignored, splitPaths(r.kept)...) {
				base := fmt.Sprint(i, "-", j, "/") // a path may be a file in one and a directory in another
				c.addFile(base, r.rules)
				c.ask(base + path)
			}
		}
		if got := c.compare(foldCase); got != want {
			t.Errorf("fold case %v: git ignores %d paths, want %d", foldCase, got, want)
		}
	}
}

// Random rules must have the same effect as in git, in .gitignore files in several directories and in the files outside
// the worktree.
func TestIgnoredAgreesWithGit(t *testing.T) {
	t.Parallel()
	rounds, directories := 6, 250
	if testing.Short() {
		rounds = 2
	}
	oldGit := asterisksAfterLiteralAreComponent(t)
	count, asked := 0, 0
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 20))
		g := generator{random, oldGit}
		c := newCheckIgnore(t)
		c.addOuter(g.file(round), g.file(round)+"\n!/[0-9]*\n") // the directories at the top are not ignored
		for n := range directories {
			base := fmt.Sprint(n, "/")
			if random.IntN(2) == 0 {
				c.addFile(base, g.file(1))
			} else {
				c.addFile(base, g.file(5))
			}
			dirs := []string{base, base + "a/", base + "B/", base + "a/b/", base + g.name() + "d/"}
			for _, dir := range dirs[1:] {
				c.ask(dir)
				if random.IntN(8) == 0 {
					c.addFile(dir, g.file(2))
				}
			}
			for range 20 {
				c.ask(dirs[random.IntN(len(dirs))] + g.name() + "c") // no directory has this name
			}
			for _, name := range []string{"a/a", "b", "ab", "aab", "a/bb", "a/b/a", "a/b/ab", "B/b", "B/A"} {
				c.ask(base + name)
			}
		}
		count += c.compare(round%2 == 1)
		asked += len(c.asked)
	}
	if least := asked / 10; count < least || count > asked-least {
		t.Errorf("git ignores %d of %d paths", count, asked)
	}
}

// asterisksAfterLiteralAreComponent reports whether git has the error that wildmatch describes.
func asterisksAfterLiteralAreComponent(t *testing.T) bool {
	t.Helper()
	l := gittest.NewEmpty(t)
	l.Git("init", "-q", "-b", "main", ".")
	l.Write(".gitignore", "x**/y\n")
	out, err := l.TryGit(l.Root, "check-ignore", "xy", "x/y") // one is ignored in any case
	l.Must(err)
	return strings.Contains(out, "xy")
}

// generator makes rules and names.
type generator struct {
	*rand.Rand
	noAsterisksAfterLiteral bool // leave out rules that only git before 2.52 understands in another way
}

func (g generator) pick(words []string) string { return words[g.IntN(len(words))] }

// name returns the name of a file.
func (g generator) name() string {
	words := []string{"a", "b", "A", "B", "c", "a", "b", "*", "?", "[", "]", `\`, "!", "#", "-", " ", "^", ":", "\xff", "é", "\t"}
	var name strings.Builder
	for range 1 + g.IntN(3) {
		name.WriteString(g.pick(words))
	}
	return name.String()
}

// file returns a file of at most the given number of rules.
func (g generator) file(most int) string {
	var text strings.Builder
	if g.IntN(20) == 0 {
		text.WriteString("\xef\xbb\xbf")
	}
	for range 1 + g.IntN(max(most, 1)) {
		text.WriteString(g.rule())
		text.WriteString(g.pick([]string{"\n", "\n", "\n", "\r\n", "\n\n", " \n", "  \r\n"}))
	}
	if g.IntN(4) == 0 {
		return strings.TrimSuffix(text.String(), "\n")
	}
	return text.String()
}

// rule returns a line, sometimes with characters that have no meaning where they are.
func (g generator) rule() string {
	simple := []string{"a", "b", "*", "?", "/", "**", "a", "b", "*", "/**/", "[ab]", "c"}
	words := append([]string{
		"A", "B", "**/", "/**", `**\/`, `\/`, "***", "[", "]", "[!a]", "[^b]", "[a-c]", "[A-C]", "[]", "[!]", "[]a]", `[\]a]`, "[a-", "-", "!", "^", "#", `\`, `\a`, `\B`, `\*`, `\[`,
		" ", `\ `, "\t", "\r", "[[:alpha:]]", "[[:upper:]]", "[[:punct:]]", "[[:space:]a]", "[![:lower:]]", "[[:x:]]", "[[:", ":]", "[:", "\x00", "\xff", "é", "[\xc3]",
	}, simple...)
	for {
		var rule strings.Builder
		rule.WriteString(g.pick([]string{"", "", "", "", "", "!", "/", "!/", `\!`, `\#`}))
		from := words
		if g.IntN(2) == 0 {
			from = simple
		}
		for range 1 + g.IntN(5) {
			rule.WriteString(g.pick(from))
		}
		rule.WriteString(g.pick([]string{"", "", "", "", "/", " ", `\ `}))
		if l := Parse([]byte(rule.String()), ""); !g.noAsterisksAfterLiteral || len(l.rules) == 0 || !hasAsterisksAfterLiteral(l.rules[0]) {
			return rule.String()
		}
	}
}

// hasAsterisksAfterLiteral reports whether the first wildcard of a rule is "**" in the middle of a component.
func hasAsterisksAfterLiteral(r rule) bool {
	return !r.basename && r.literal > 0 && r.pattern[r.literal-1] != '/' && strings.HasPrefix(r.pattern[r.literal:], "**")
}
