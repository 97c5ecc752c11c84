package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// TestShellRunsInSandbox opens each shell that is installed, by its id and in the directory of the sandbox. It starts in
// the sandbox, shows the prompt, reads no startup files and passes its exit status on.
func TestShellRunsInSandbox(t *testing.T) {
	t.Parallel()
	for _, name := range thin([]string{"bash", "sh", "dash", "zsh", "fish", "no-such-shell"}) {
		path, err := exec.LookPath(name)
		if err != nil && name != "no-such-shell" {
			t.Logf("skipped %s: %v", name, err)
			continue
		}
		if name == "no-such-shell" {
			path = "/nowhere/" + name
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withAndWithoutWalls(t, func(l *execLab) {
				home := l.must("sh", "-c", "echo $HOME")
				for _, file := range []string{".bashrc", ".zshrc", ".profile", ".zshenv", ".config/fish/config.fish"} {
					l.write(filepath.Join(l.tree, file), "echo startup-file\n")
					l.write(filepath.Join(home, file), "echo startup-file\n")
				}
				s := l.startOnTerminal(80, []string{"SHELL=" + path, "ENV=" + filepath.Join(l.tree, ".bashrc"), "BASH_ENV=" + filepath.Join(l.tree, ".bashrc")}, "git", "agency", "shell", l.id)
				s.waitForText("agency:" + gitagency.ShortID(l.id) + " ")
				s.waitForText("tree ")
				s.typeKeys("echo id=$AGENCY_INVOCATION_ID\r")
				s.waitForText("id=" + l.id)
				s.typeKeys("pwd\r")
				s.waitForText(l.tree)
				s.typeKeys("exit 7\r")
				if got := s.wait(); got.code != 7 || strings.Contains(got.stdout, "startup-file") {
					l.t.Errorf("ended with %d: %q", got.code, got.stdout)
				}
			})
		})
	}
}

func TestShellSuspends(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	s := l.startJobControlShell()
	s.typeKeys("SHELL=/bin/bash git agency shell $ID\r")
	s.waitForText("agency:")
	s.typeKeys("suspend\r")
	s.waitForText("Stopped")
	before := len(s.text())
	s.typeKeys("fg\r")
	s.waitForTextAfter(before, "agency:")
	before = len(s.text())
	s.typeKeys("exit 4\r")
	s.waitForTextAfter(before, "shell> ")
	s.typeKeys("echo ended with $?; exit\r")
	s.waitForText("ended with 4")
	s.wait()
}
