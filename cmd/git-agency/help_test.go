package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/manual"
	"github.com/git-agency/git-agency/gitagency"
)

// runCommand runs a command line in this process and returns its exit code and output.
func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = newTool(&out, &err, gitagency.Options{}).RunCommandLine(t.Context(), append([]string{"git-agency"}, args...))
	return code, out.String(), err.String()
}

// TestShortHelpGolden compares the short help of every command with the golden files in testdata/help; -update
// writes them.
func TestShortHelpGolden(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "testdata", "help")
	names, _ := commandTree()
	kept := map[string]bool{}
	for _, name := range append([]string{"git agency"}, names...) {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".txt")
		kept[filepath.Base(file)] = true
		words := append(strings.Fields(name)[2:], "-h")
		code, got, stderr := runCommand(t, words...)
		of := name
		if name == "git agency help" {
			of = "git agency" // "help -h" prints the help of the program
		}
		if code != 0 || stderr != "" || !strings.HasPrefix(got, "NAME:\n   "+of+" - ") {
			t.Errorf("%q ended with %d and %q", words, code, stderr)
		}
		if *update {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Errorf("the help of %q has no golden file; run the test with -update", name)
		case err != nil:
			t.Error(err)
		case got != string(want):
			t.Errorf("the help of %q changed; if intended, run the test with -update\ngot:\n%s\nwant:\n%s", name, got, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case kept[e.Name()]:
		case *update:
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("golden file %s belongs to no command", e.Name())
		}
	}
}

// TestCommandsAreListedByTask checks that the program without a command, -h and the manual name the same commands for the
// same tasks, and every command once.
func TestCommandsAreListedByTask(t *testing.T) {
	t.Parallel()
	_, alone, _ := runCommand(t)
	_, short, _ := runCommand(t, "-h")
	inManual := map[string][]string{}
	for _, b := range ownBlocks(manual.Section(manual.Parse(manualSource), "COMMANDS")) {
		if b.Kind == manual.Definition {
			inManual[b.Term] = codeSpansIn(b.Text)
		}
	}
	width := 0
	for _, c := range allCommands() {
		width = max(width, len(strings.Join(c.Names(), ", ")))
	}
	seen := map[string]bool{}
	for _, g := range newTool(io.Discard, io.Discard, gitagency.Options{}).commands() {
		var names []string
		want := g.Task + "\n"
		for _, c := range g.Commands {
			if c.Hidden {
				continue
			}
			if seen[c.Name] {
				t.Errorf("%s is in two groups", c.Name)
			}
			seen[c.Name], names = true, append(names, c.Name)
			want += fmt.Sprintf("   %-*s  %s\n", width, strings.Join(c.Names(), ", "), c.Usage)
		}
		if !strings.Contains(alone, "\n"+want) || !strings.Contains(short, "\n   "+strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "\n", "\n   ")) {
			t.Errorf("the commands of %q are not listed as\n%sin\n%s\nand\n%s", g.Task, want, alone, short)
		}
		if !slices.Equal(inManual[g.Task], names) {
			t.Errorf("COMMANDS in the manual lists %q under %q, want %q", inManual[g.Task], g.Task, names)
		}
	}
}

func TestHelpPrintsManual(t *testing.T) {
	t.Parallel()
	code, whole, stderr := runCommand(t, "help")
	if code != 0 || stderr != "" || !strings.HasPrefix(whole, "NAME\n    git-agency - ") || !strings.Contains(whole, "\nSEE ALSO\n") {
		t.Errorf("ended with %d, %q and %.200q", code, stderr, whole)
	}
	names, commands := commandTree()
	for _, name := range names {
		words := append([]string{"help"}, strings.Fields(name)[2:]...)
		code, part, stderr := runCommand(t, words...)
		if code != 0 || stderr != "" || !strings.HasPrefix(part, name+"\n    "+name) {
			t.Errorf("%q ended with %d, %q and %.200q", words, code, stderr, part)
		}
		for _, other := range names {
			about := strings.Contains(part, "\n"+other+"\n")
			if of := strings.HasPrefix(other, name+" "); about != of {
				t.Errorf("the section of %q contains the section of %q: %v, want %v", name, other, about, of)
			}
		}
		if len(commands[name].Subcommands) == 0 && !strings.Contains(part, "\n    Exit status: ") {
			t.Errorf("the section of %q has no exit status", name)
		}
	}
}

func TestHelpAcceptsAliases(t *testing.T) {
	t.Parallel()
	_, want, _ := runCommand(t, "help", "worktree", "ls")
	if code, got, _ := runCommand(t, "help", "worktree", "list"); code != 0 || got != want {
		t.Errorf("ended with %d and %q", code, got)
	}
}

func TestHelpPrintsSectionOfManual(t *testing.T) {
	t.Parallel()
	for _, section := range manual.Sections(manual.Parse(manualSource)) {
		for _, words := range [][]string{{section}, strings.Fields(section), {strings.ToLower(section)}} {
			code, got, stderr := runCommand(t, append([]string{"help"}, words...)...)
			if code != 0 || stderr != "" || !strings.HasPrefix(got, section+"\n") {
				t.Errorf("help %q ended with %d, %q and %.100q", words, code, stderr, got)
			}
			if section != "SEE ALSO" && strings.Contains(got, "\nSEE ALSO\n") {
				t.Errorf("help %q prints more than the section", words)
			}
		}
	}
	code, _, stderr := runCommand(t, "help", "securty")
	for _, want := range []string{`"securty" is not a command of git agency; did you mean "SECURITY"?`, "hint: ", "EXIT STATUS, EXAMPLES, INSIDE, CHANGESETS, PLATFORMS, PLAIN DIRECTORIES, LIMITS, SECURITY"} {
		if code != hints.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("ended with %d and %q, want %q", code, stderr, want)
		}
	}
}

func TestHelpUnknownCommandSuggestion(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"strat":         `error: "strat" is not a command of git agency; did you mean "start"?`,
		"frobnicate":    `error: "frobnicate" is not a command of git agency` + "\n",
		"worktree mr":   `error: "mr" is not a command of git agency worktree; did you mean "rm"?`,
		"start now":     `error: "now" is not a command of git agency start` + "\n",
		"worktree ls x": "error: unexpected argument",
	} {
		code, stdout, stderr := runCommand(t, append([]string{"help"}, strings.Fields(words)...)...)
		if code != hints.ExitUsage || stdout != "" || !strings.HasPrefix(stderr, want) || !strings.Contains(stderr, "\nusage: git agency help [<command>") {
			t.Errorf("help %s ended with %d, %q and\n%s", words, code, stdout, stderr)
		}
	}
}

// escapeSequences matches the color and hyperlink sequences that git-agency prints.
var escapeSequences = regexp.MustCompile("\x1b\\[[0-9;]*m|\x1b\\]8;;[^\x1b]*\x1b\\\\")
