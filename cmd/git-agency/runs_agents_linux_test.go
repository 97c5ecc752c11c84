package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// scriptedAgents are programs with the names of agents, which write streams that the real programs wrote.
type scriptedAgents struct {
	*lab
	programs string
}

func newScriptedAgents(t *testing.T) *scriptedAgents {
	l := &scriptedAgents{lab: newLab(t)}
	l.programs = filepath.Join(l.dir, "programs")
	l.env = append(l.env, "PATH="+l.programs+":"+l.bin+":"+os.Getenv("PATH"),
		"ANTHROPIC_API_KEY=key-zq48-of-the-test", "OPENAI_API_KEY=key-zq48-of-the-test", "GEMINI_API_KEY=key-zq48-of-the-test")
	l.agency("worktree", "create", "wt")
	return l
}

// install writes the program of an agent: a shell script, and then the lines of a stream.
func (l *scriptedAgents) install(agent, script, stream string) {
	l.t.Helper()
	program := filepath.Join(l.programs, agent)
	l.write(program, "#!/bin/sh\n"+script+"\ncat <<'END OF STREAM'\n"+stream+"END OF STREAM\n")
	if err := os.Chmod(program, 0o755); err != nil {
		l.t.Fatal(err)
	}
}

// recorded returns a file that package runner has of a real agent; "" if there is none.
func recorded(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "gitagency", "internal", "runner", "testdata", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// run runs an agent with a task, and returns what is recorded of it.
func (l *scriptedAgents) run(agent string, flags ...string) (outcome, gitagency.Invocation) {
	l.t.Helper()
	o := l.try(nil, append([]string{"git-agency", "run", "wt", "--runner", agent, "-p", "task"}, flags...)...)
	return o, l.invocation(strings.Fields(l.agency("ls", "--format", "%(invocation_id)"))[0])
}

// An agent that exits with 0 after a denied tool, an error of the model, or without a change is not reported as success
// without a word: on standard error, in the record and in the events.
func TestRunSaysWhatExitCodeHides(t *testing.T) {
	t.Parallel()
	const commit = "cat >/dev/null; echo w >w; git add w; git commit -qm w"
	for _, agent := range []string{"claude", "codex", "gemini", "opencode"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			l := newScriptedAgents(t)
			for _, c := range []struct {
				stream, script string
				code           int
				status, said   string
			}{
				{"commit", commit, 0, "finished", ""},
				{"commit", "cat >/dev/null", 0, "finished", "it committed nothing"},
				{"denied", commit, 0, "finished", "it was not permitted to use "},
				{"api-error", commit, 1, "failed", "scripted error"},
				{"cut", commit, 1, "failed", "its output ended without a result"},
				{"none", commit, 1, "failed", "its output ended without a result"},
			} {
				stream, script := recorded(t, agent+"-"+c.stream+".jsonl"), c.script
				switch lines := strings.SplitAfter(recorded(t, agent+"-commit.jsonl"), "\n"); {
				case c.stream == "cut":
					stream = strings.Join(lines[:len(lines)-2], "")
				case c.stream != "none" && stream == "":
					t.Fatalf("no stream %s of %s is recorded", c.stream, agent)
				}
				if log := recorded(t, agent+"-"+c.stream+".stderr"); log != "" {
					script += "\ncat >&2 <<'END OF LOG'\n" + log + "END OF LOG"
				}
				l.install(agent, script, stream)
				o, inv := l.run(agent)
				if o.code != c.code || inv.Status != c.status || inv.ExitCode == nil || *inv.ExitCode != 0 {
					t.Errorf("%s: exit code %d, %s (%s)\n%s", c.stream, o.code, inv.Status, inv.StatusReason, o.stderr)
				}
				told := inv.StatusReason + strings.Join(inv.Warnings, "\n")
				if !strings.Contains(told, c.said) || c.said == "" && told != "" {
					t.Errorf("%s: the record says %q, want %q", c.stream, told, c.said)
				}
				if !strings.Contains(o.stderr, c.said) || c.said == "" && strings.Contains(o.stderr, "warning") {
					t.Errorf("%s: want %q in\n%s", c.stream, c.said, o.stderr)
				}
				if events := l.agency("events", inv.ID); !strings.Contains(events, c.said) {
					t.Errorf("%s: want %q in\n%s", c.stream, c.said, events)
				}
				l.agency("discard", inv.ID)
			}
		})
	}
}
