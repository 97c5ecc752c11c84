package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/manual"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/setup"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/worktrees"
	"github.com/git-agency/git-agency/gitagency"
)

// plannedCommands lists commands and flags that the manual documents and the program does not have yet, by command. A nil list
// means the whole command. An entry must be removed once the command or flag is implemented.
var plannedCommands = map[string][]string{}

// isPlanned reports whether the whole command is not implemented yet.
func isPlanned(command string) bool {
	flags, listed := plannedCommands[command]
	return listed && flags == nil
}

// allCommands returns the commands of the program, in the order of help.
func allCommands() []*cli.Command {
	var commands []*cli.Command
	for _, g := range newTool(io.Discard, io.Discard, gitagency.Options{}).commands() {
		for _, c := range g.Commands {
			if !c.Hidden {
				commands = append(commands, c)
			}
		}
	}
	return commands
}

// commandTree returns every visible command and group, with the name that the user types, in the order of help.
func commandTree() (names []string, commands map[string]*cli.Command) {
	commands = map[string]*cli.Command{}
	var walk func(prefix string, list []*cli.Command)
	walk = func(prefix string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			name := prefix + " " + c.Name
			names, commands[name] = append(names, name), c
			walk(name, c.Subcommands)
		}
	}
	walk("git agency", allCommands())
	return names, commands
}

// flagNames returns the sorted names and aliases of the flags that are not hidden.
func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		names = append(names, f.Names()...)
	}
	slices.Sort(names)
	return names
}

var codeSpanPattern = regexp.MustCompile("`([^`]+)`")

// codeSpansIn returns the contents of the code spans (`…`) of a text.
func codeSpansIn(text string) []string {
	var found []string
	for _, m := range codeSpanPattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

var flagPattern = regexp.MustCompile(`(^|[\s([|])--?([A-Za-z][A-Za-z-]*)`)

// flagsIn returns the names of the flags in a code span.
func flagsIn(literal string) []string {
	var found []string
	for _, m := range flagPattern.FindAllStringSubmatch(literal, -1) {
		found = append(found, m[2])
	}
	return found
}

// definedFlags returns the sorted names of the flags that the definitions of a section document.
func definedFlags(section []manual.Block) []string {
	var found []string
	for _, b := range section {
		if b.Kind == manual.Definition && strings.HasPrefix(b.Term, "`-") {
			for _, l := range codeSpansIn(b.Term) {
				found = append(found, flagsIn(l)...)
			}
		}
	}
	slices.Sort(found)
	return found
}

// ownBlocks returns the blocks of a section before its first subsection.
func ownBlocks(section []manual.Block) []manual.Block {
	for i, b := range section {
		if i > 0 && b.Kind == manual.Heading {
			return section[:i]
		}
	}
	return section
}

func TestManualSections(t *testing.T) {
	t.Parallel()
	want := []string{
		"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "OUTPUT", "CONFIGURATION", "ENVIRONMENT", "FILES",
		"EXIT STATUS", "EXAMPLES", "INSIDE", "CHANGESETS", "PLATFORMS", "PLAIN DIRECTORIES", "LIMITS", "SECURITY", "TROUBLE", "SEE ALSO",
	}
	var got []string
	for _, b := range manual.Parse(manualSource) {
		if b.Kind == manual.Heading && b.Level == 2 {
			got = append(got, b.Text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the sections are %q, not %q", got, want)
	}
}

func TestManualListsAllCommandsAndFlags(t *testing.T) {
	t.Parallel()
	blocks := manual.Parse(manualSource)
	names, commands := commandTree()
	for name, flags := range plannedCommands {
		if commands[name] != nil && flags == nil {
			t.Errorf("%s is implemented: remove it from plannedCommands", name)
		}
	}

	var explained []string
	for _, b := range manual.Section(blocks, "COMMANDS") {
		if b.Kind == manual.Heading && b.Level == 3 {
			explained = append(explained, b.Text)
		}
	}
	if got := slices.DeleteFunc(slices.Clone(explained), isPlanned); !slices.Equal(got, names) {
		t.Errorf("the manual documents\n%q, the commands are\n%q", got, names)
	}

	check := func(name string, section []manual.Block, have []string) {
		t.Helper()
		for _, flag := range plannedCommands[name] {
			if slices.Contains(have, flag) {
				t.Errorf("%s --%s is implemented: remove it from plannedCommands", name, flag)
			}
			have = append(have, flag)
		}
		slices.Sort(have)
		if got := definedFlags(section); !slices.Equal(got, have) {
			t.Errorf("%s: the manual documents the flags %q, the command has %q", name, got, have)
		}
	}
	app := newTool(io.Discard, io.Discard, gitagency.Options{}).NewApp()
	check("git agency", manual.Section(blocks, "OPTIONS"), flagNames(app.Flags))
	for _, name := range names {
		c, section := commands[name], ownBlocks(manual.Section(blocks, name))
		check(name, section, flagNames(c.Flags))
		if len(section) < 2 || !strings.HasPrefix(section[1].Text, "`"+name) {
			t.Errorf("%s: the section of the manual does not begin with the usage", name)
			continue
		}
		for _, alias := range c.Aliases {
			if !slices.ContainsFunc(section, func(b manual.Block) bool { return slices.Contains(codeSpansIn(b.Text), alias) }) {
				t.Errorf("%s: the manual does not mention the alias %q", name, alias)
			}
		}
	}
}

func TestManualMentionsOnlyExistingCommandsAndFlags(t *testing.T) {
	t.Parallel()
	_, commands := commandTree()
	known := slices.Concat(flagNames(newTool(io.Discard, io.Discard, gitagency.Options{}).NewApp().Flags), plannedCommands["git agency"])
	for _, c := range commands {
		known = append(known, flagNames(c.Flags)...)
	}
	blocks := manual.Parse(manualSource)
	for name, flags := range plannedCommands {
		known = append(known, flags...)
		known = append(known, definedFlags(ownBlocks(manual.Section(blocks, name)))...)
	}
	for _, b := range manual.Section(blocks, "COMMANDS") {
		for _, literal := range codeSpansIn(b.Term + " " + b.Text) {
			for _, flag := range flagsIn(literal) {
				if !slices.Contains(known, flag) {
					t.Errorf("the manual mentions %q, but no such flag exists", literal)
				}
			}
		}
	}

	// Every word after "git agency" must be a command.
	mention := regexp.MustCompile(`git agency ([a-z]+)( [a-z]+)?`)
	for _, m := range mention.FindAllStringSubmatch(manualSource, -1) {
		name := "git agency " + m[1]
		switch c := commands[name]; {
		case isPlanned(name) || name == "git agency mcp": // hidden: agents start it
		case c == nil:
			t.Errorf("the manual mentions %q, which is not a command", name)
		case len(c.Subcommands) > 0 && m[2] != "" && commands[name+m[2]] == nil:
			t.Errorf("the manual mentions %q, which is not a command", name+m[2])
		}
	}
}

var numberPattern = regexp.MustCompile(`\b[0-9]+\b`)

// exitCodesIn returns the sorted exit codes that a text lists after "Exit status:".
func exitCodesIn(text string) []string {
	_, after, _ := strings.Cut(text, "Exit status:")
	codes := numberPattern.FindAllString(after, -1)
	slices.Sort(codes)
	return slices.Compact(codes)
}

func TestManualAndHelpListSameExitCodes(t *testing.T) {
	t.Parallel()
	names, commands := commandTree()
	blocks := manual.Parse(manualSource)
	for _, name := range names {
		if len(commands[name].Subcommands) > 0 {
			continue
		}
		var text []string
		for _, b := range ownBlocks(manual.Section(blocks, name)) {
			text = append(text, b.Text)
		}
		got, want := exitCodesIn(strings.Join(text, " ")), exitCodesIn(commands[name].Description)
		if len(got) == 0 {
			t.Errorf("%s: the manual does not list exit codes", name)
		}
		if want != nil && !slices.Equal(got, want) {
			t.Errorf("%s: the manual lists the exit codes %q, help lists %q", name, got, want)
		}
	}
}

func TestManualAndReadmeListAllExitCodes(t *testing.T) {
	t.Parallel()
	// Success, and 128+n for SIGINT and SIGTERM.
	want := []string{"0", "130", "143"}
	file, err := parser.ParseFile(token.NewFileSet(), "internal/hints/hints.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Exit") && len(spec.Values) == 1 {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				want = append(want, lit.Value)
			}
		}
		return true
	})
	slices.Sort(want)
	if len(want) < 10 {
		t.Errorf("hints.go declares only the exit codes %q", want)
	}

	var documented []string
	for _, b := range manual.Section(manual.Parse(manualSource), "EXIT STATUS") {
		if b.Kind == manual.Definition {
			documented = append(documented, numberPattern.FindAllString(b.Term, -1)...)
		}
	}
	slices.Sort(documented)
	if !slices.Equal(documented, want) {
		t.Errorf("the manual lists the exit codes %q, want %q", documented, want)
	}
	var readme []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9]+(?:, [0-9]+)*) \|`).FindAllStringSubmatch(readmeText(t), -1) {
		readme = append(readme, numberPattern.FindAllString(m[1], -1)...)
	}
	slices.Sort(readme)
	if !slices.Equal(readme, want) {
		t.Errorf("the README lists the exit codes %q, want %q", readme, want)
	}
}

func TestManualListsAllSettings(t *testing.T) {
	t.Parallel()
	var explained, known []string
	for _, b := range manual.Section(manual.Parse(manualSource), "CONFIGURATION") {
		if b.Kind == manual.Definition {
			explained = append(explained, codeSpansIn(b.Term)...)
		}
	}
	for _, s := range defaultSettings(t) {
		known = append(known, s.Key)
	}
	if !slices.Equal(explained, known) {
		t.Errorf("the manual documents the settings %q, want %q", explained, known)
	}
}

// defaultSettings returns all settings where nothing is configured.
func defaultSettings(t *testing.T) []gitagency.Setting {
	t.Helper()
	dir := t.TempDir()
	settings, err := gitagency.Settings(t.Context(), gitagency.Options{Dir: dir, Env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// manualFindingCodes returns the codes of the findings that the manual explains; a test of package doctor compares them
// with those that exist.
func manualFindingCodes() []string {
	var explained []string
	for _, b := range ownBlocks(manual.Section(manual.Parse(manualSource), "git agency doctor")) {
		if b.Kind == manual.Definition && !strings.HasPrefix(b.Term, "`-") {
			explained = append(explained, codeSpansIn(b.Term)...)
		}
	}
	return explained
}

func TestManualListsAllOutputFields(t *testing.T) {
	t.Parallel()
	var json []string
	for _, v := range []any{
		gitagency.Invocation{},
		gitagency.Primitives{},
		gitagency.Worktree{},
		gitagency.RemoveWorktreeResult{},
		gitagency.SubmitResult{},
		gitagency.RejectResult{},
		gitagency.DiscardResult{},
		gitagency.Snapshot{},
		gitagency.Denial{},
		gitagency.Setting{},
		gitagency.Finding{},
		gitagency.PruneResult{},
		gitagency.PrunedSnapshot{},
		gitagency.RadarResult{},
		gitagency.RadarSandbox{},
		gitagency.RadarPair{},
		gitagency.Diagnosis{},
		gitagency.Capability{},
		setup.Result{},
		setup.InstalledFile{},
		setup.StartupHint{},
		execOutput{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				json = append(json, name)
			}
		}
	}
	output := manual.Section(manual.Parse(manualSource), "OUTPUT")
	var named []string
	for _, b := range output {
		for _, l := range codeSpansIn(b.Term + " " + b.Text) {
			named = append(named, strings.Fields(l)...)
		}
	}
	for _, name := range json {
		if !slices.Contains(named, name) {
			t.Errorf("the manual does not document the field %s", name)
		}
	}
	for _, b := range output {
		for _, name := range codeSpansIn(b.Term) {
			if !slices.Contains(json, name) {
				t.Errorf("the manual documents the field %s, which does not exist", name)
			}
		}
	}

	for what, fields := range map[string][]program.Field{
		"an invocation":           invocationFields(gitagency.Invocation{AllowedRead: make([]string, 1), AllowedWrite: make([]string, 1), Paths: make([]string, 1), CopiedPaths: make([]gitagency.CopiedPath, 1)}),
		"an integration worktree": worktrees.Fields(gitagency.Worktree{}),
		"a finding":               findingFields(gitagency.Finding{}),
		"a thing that was pruned": prunedFields(gitagency.PruneResult{Snapshots: make([]gitagency.PrunedSnapshot, 1)}),
		"a denial":                denialFields(gitagency.Denial{}),
		"a setting":               settingFields(gitagency.Setting{}),
	} {
		var keys []string
		for _, f := range fields {
			keys = append(keys, f.Key)
		}
		found := false
		for _, b := range output {
			if _, after, ok := strings.Cut(b.Text, what); ok && strings.Contains(after, "are `") {
				sentence, _, _ := strings.Cut(after, ". ")
				found = true
				sentence = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(sentence, "") // the values of a key
				if got := codeSpansIn(sentence); !slices.Equal(got, keys) {
					t.Errorf("keys of %s: the manual lists %q, want %q", what, got, keys)
				}
			}
		}
		if !found {
			t.Errorf("the manual does not list the keys of %s", what)
		}
	}
}

func TestManualPageIsUpToDate(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("the go command is needed to render the page: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./scripts/man")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stdin = strings.NewReader(manualSource)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	page, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if !bytes.Equal(page, manualPage) {
		t.Error("the manual page is out of date; run 'make man'")
	}
}

func TestManualPageRendersLikeHelp(t *testing.T) {
	t.Parallel()
	if !bytes.Contains(manualPage, []byte("\n.TH GIT-AGENCY 1 \"20")) {
		t.Error("the page has no .TH line with a date")
	}
	for i, c := range manualPage {
		if c >= 0x80 {
			t.Fatalf("the page is not plain ASCII at %q", manualPage[max(0, i-20):i+1])
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("groff is not installed: %v", err)
	}
	for _, width := range []int{60, 80, 200} {
		cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tascii", "-P-cbou", "-ww", "-rLL="+strconv.Itoa(width)+"n")
		cmd.Stdin = bytes.NewReader(manualPage)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Errorf("at width %d: %v\n%s", width, err, stderr.String())
		}
		// man and help must show the same words.
		var shown []string
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "GIT-AGENCY(1)") && !strings.HasPrefix(line, "git-agency  ") {
				shown = append(shown, strings.Fields(line)...)
			}
		}
		help := strings.Fields(manual.Render(manual.Parse(manualSource), 200, true))
		for i, word := range help {
			help[i] = escapeSequences.ReplaceAllString(word, "")
			if help[i] == "-" && i > 2 {
				help[i] = expectedBullet(shown, i)
			}
			if i >= len(shown) || shown[i] != help[i] {
				t.Errorf("at width %d, man and help differ at %q", width, help[max(0, i-8):i+1])
				break
			}
		}
		if len(shown) != len(help) {
			t.Errorf("at width %d, man shows %d words, help shows %d", width, len(shown), len(help))
		}
	}
}

// expectedBullet returns the word that groff shows at index i for a bullet, where help has a dash.
func expectedBullet(shown []string, i int) string {
	if i < len(shown) && (shown[i] == "o" || shown[i] == "+") {
		return shown[i]
	}
	return "-"
}

func readmeText(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
