package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKilledPushEndsItsProcesses kills `land --push` with SIGKILL while the remote works. Its git, and the programs that
// git started, must end: a push that arrives later would move the branch of the remote behind the next command's back.
func TestKilledPushEndsItsProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// setUp makes the push write its process group to a file and then wait.
		setUp func(l, clone *lab, hub, group string)
	}{
		{"hook of a remote on this machine", func(l, _ *lab, hub, group string) {
			l.must("mkfifo", group+".pipe")
			l.writeProgram(filepath.Join(hub, "hooks", "pre-receive"), writeGroup(group)+fmt.Sprintf("read x <%s.pipe\n", group))
		}},
		{"ssh", func(l, clone *lab, hub, group string) {
			ssh := filepath.Join(l.dir, "ssh")
			// Like ssh it transfers its input until the end of it.
			l.writeProgram(ssh, `case "$*" in *receive-pack*) `+writeGroup(group)+"cat >/dev/null; exit;; esac\nshift; eval \"$*\"\n")
			clone.git("config", "remote.origin.url", "ssh://host.invalid"+hub)
			clone.env = append(clone.env, "GIT_SSH_COMMAND="+ssh, "GIT_SSH_VARIANT=simple")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			hub, group := filepath.Join(l.dir, "hub.git"), filepath.Join(l.dir, "group")
			l.git("clone", "-q", "--bare", l.repo, hub)
			clone := l.cloneLab(hub, "clone")
			id := clone.startWithFile("file")
			c.setUp(l, clone, hub, group)
			before := l.git("-C", hub, "rev-parse", "main")
			cmd := exec.CommandContext(t.Context(), filepath.Join(l.bin, "git-agency"), "land", id, "--commit-all", "-m", "file", "--push")
			var stderr bytes.Buffer
			cmd.Dir, cmd.Env, cmd.Stderr = clone.repo, clone.env, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !waitForFile(group) {
				t.Error("the push did not reach the remote")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed; the rest of stderr explains a failure
			t.Log(stderr.String())
			var left []string
			if !waitUntil(func() bool { left = processGroup(t, strings.TrimSpace(l.read(group))); return len(left) == 0 }) {
				t.Errorf("the push left processes:\n%s", strings.Join(left, "\n"))
				l.must("kill", "-KILL", "--", "-"+strings.TrimSpace(l.read(group)))
			}
			if now := l.git("-C", hub, "rev-parse", "main"); now != before {
				t.Errorf("the killed push moved main of the remote from %s to %s", before, now)
			}
			if hook := filepath.Join(hub, "hooks", "pre-receive"); exists(hook) { // without it, the next push arrives
				if err := os.Remove(hook); err != nil {
					t.Fatal(err)
				}
				clone.agency("land", clone.startWithFile("other"), "--commit-all", "-m", "other", "--push")
			}
		})
	}
}

// writeGroup returns shell commands that write the process group of the shell to a file at once.
func writeGroup(file string) string {
	return fmt.Sprintf("cut -d' ' -f5 /proc/$$/stat >%s.new && mv %s.new %s\n", file, file, file)
}

// writeProgram writes a shell script that can be executed.
func (l *lab) writeProgram(path, script string) {
	l.t.Helper()
	l.write(path, "#!/bin/sh\n"+script)
	if err := os.Chmod(path, 0o755); err != nil {
		l.t.Fatal(err)
	}
}

// processGroup returns the lines of /proc about the processes of a group that run.
func processGroup(t *testing.T, group string) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || group == "" {
		t.Fatalf("process group %q: %v", group, err)
	}
	var found []string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 2 && fields[0] != "Z" && fields[0] != "X" && fields[2] == group {
			found = append(found, string(data))
		}
	}
	return found
}
