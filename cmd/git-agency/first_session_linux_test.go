package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeFirstSessionInATerminal types the first session of the README into a shell on a terminal. It ends with the work
// on main, and the second task of a day needs few keystrokes.
func TestReadmeFirstSessionInATerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.git("config", "agency.autoDetach", "false") // otherwise clean-up would continue in the background after the test
	project := filepath.Join(l.dir, "my-project")
	if err := os.Rename(l.repo, project); err != nil {
		t.Fatal(err)
	}
	l.repo = l.dir
	agent := filepath.Join(l.dir, "programs", "claude")
	l.write(agent, scriptedClaude)
	if err := os.Chmod(agent, 0o755); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(readmeText(t), "## A first session\n")
	session := codeExamples(rest)[0]
	var commands []string
	for line := range strings.Lines(session) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			command, _, _ = strings.Cut(command, "#")
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) < 4 || commands[0] != "cd my-project" {
		t.Fatalf("the first session is %q", session)
	}
	const prompt = "READY> "
	shell := l.startOnTerminal(100, []string{"PS1=" + prompt, "ANTHROPIC_API_KEY=of-the-test", "PATH=" + filepath.Dir(agent) + ":" + l.bin + ":" + os.Getenv("PATH"), "GIT_PAGER=cat"},
		"bash", "--norc", "--noprofile", "-i")
	shell.waitForText(prompt)
	typeAll := func(commands []string) (keystrokes int) {
		for _, command := range commands {
			printed := len(shell.text())
			shell.typeKeys(command + "\n")
			shell.waitForTextAfter(printed, prompt)
			keystrokes += len(command) + 1
		}
		return keystrokes
	}
	first := typeAll(commands)
	if !strings.Contains(shell.text(), "\aI added refunds.\n") {
		t.Errorf("run did not print the last message of the agent:\n%s", shell.text())
	}
	if got := l.git("-C", project, "show", "main:refunds"); got != "work" {
		t.Fatalf("main has %q after\n%s", got, shell.text())
	}
	if data, err := os.ReadFile(filepath.Join(project, "refunds")); string(data) != "work\n" || err != nil {
		t.Errorf("the file of the checkout is %q, %v", data, err)
	}

	// The second task: what follows the adoption, without looking at the diff.
	var second []string
	for _, command := range commands[2:] {
		if !strings.Contains(command, " diff ") {
			second = append(second, command)
		}
	}
	again := typeAll(second)
	if got := l.git("-C", project, "show", "main:refunds"); got != "work\nwork" {
		t.Errorf("main has %q after the second task\n%s", got, shell.text())
	}
	t.Logf("keystrokes: %d for the first session, %d for the second task %q", first, again, second)
	if most := 90; again > most {
		t.Errorf("the second task needs %d keystrokes, more than %d", again, most)
	}
	shell.typeKeys("exit\n")
	shell.wait()
}
