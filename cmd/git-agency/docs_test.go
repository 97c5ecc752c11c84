package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/landing"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// leafCommands returns the commands without subcommands, keyed by their full name with prefix.
func leafCommands(prefix string, commands []*cli.Command) map[string]*cli.Command {
	found := map[string]*cli.Command{}
	for _, c := range commands {
		name := prefix + " " + c.Name
		if len(c.Subcommands) == 0 {
			found[name] = c
			continue
		}
		for n, sub := range leafCommands(name, c.Subcommands) {
			found[n] = sub
		}
	}
	return found
}

func TestReadmeListsAllCommands(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(git agency[a-z ]*[a-z])").FindAllStringSubmatch(string(data), -1) {
		listed = append(listed, row[1])
	}
	commands := leafCommands("git agency", allCommands())
	for name := range commands {
		if !slices.Contains(listed, name) {
			t.Errorf("README does not list %q", name)
		}
	}
	for _, name := range listed {
		if commands[name] == nil && !isPlanned(name) {
			t.Errorf("README lists %q, which does not exist", name)
		}
	}
}

func TestReadmeListsLandFlags(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `git agency land .*$").FindString(readmeText(t))
	land := landing.Commands{Program: newTool(io.Discard, io.Discard, gitagency.Options{}).Program}.Land()
	for _, f := range land.Flags {
		name := f.Names()[0]
		switch name {
		case "message":
			name = "-m"
		case "commit-all":
			name = "--commit-all -m" // --commit-all requires -m
		default:
			name = "--" + name
		}
		if name != "--json" && name != "--"+program.LockTimeoutFlag && !strings.Contains(row, "`"+name+"`") {
			t.Errorf("the README row lacks %s: %q", name, row)
		}
	}
}

func TestCommandsHaveUsageAndExitStatus(t *testing.T) {
	t.Parallel()
	for name, c := range leafCommands("git agency", allCommands()) {
		if !strings.HasPrefix(c.UsageText, name) {
			t.Errorf("%s: usage is %q", name, c.UsageText)
		}
		if name != "git agency help" && name != "git agency version" && !strings.Contains(c.Description, "Exit status:") {
			t.Errorf("the description of %s has no exit status", name)
		}
	}
}

func TestReadmeListsAllSettings(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed, known []string
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:agency|color|pager)\\.[^`]+)`").FindAllStringSubmatch(string(data), -1) {
		listed = append(listed, row[1])
	}
	for _, s := range defaultSettings(t) {
		known = append(known, s.Key)
	}
	if !slices.Equal(listed, known) {
		t.Errorf("README lists the settings %q, want %q", listed, known)
	}
}

// TestReadmeSlurmExampleIsScript checks that testdata/script/platform_readme.txtar runs the example of the README.
func TestReadmeSlurmExampleIsScript(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join("..", "..", "testdata", "script", "platform_readme.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## When one machine is not enough\n")
	_, example, _ := strings.Cut(section, "```\n")
	example, _, _ = strings.Cut(example, "```\n")
	var run []string
	for line := range strings.Lines(string(script)) {
		if command, is := strings.CutPrefix(line, "exec git"); is && strings.Contains(example, "git"+command) {
			run = append(run, "git"+command)
		}
	}
	if got := strings.Join(run, ""); got != example || example == "" {
		t.Errorf("the script runs\n%s\nand the README has\n%s", got, example)
	}
}
