package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// scriptedAgents are programs with the names of agents, which write streams that the real programs wrote.
type scriptedAgents struct {
	*lab
	programs string
	key      string // of each agent
}

func newScriptedAgents(t *testing.T) *scriptedAgents {
	// Claude Code records the last 20 characters of a key, in its own state.
	l := &scriptedAgents{lab: newLab(t), key: rand.Text() + "-0123456789-0123456789"}
	l.programs = filepath.Join(l.dir, "programs")
	l.env = append(l.env, "PATH="+l.programs+":"+l.bin+":"+os.Getenv("PATH"),
		"ANTHROPIC_API_KEY="+l.key, "OPENAI_API_KEY="+l.key, "GEMINI_API_KEY="+l.key)
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
	for v, agent := range []string{"claude", "codex", "gemini", "opencode"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			l := newScriptedAgents(t)
			for i, c := range []struct {
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
				if !isRotated(i, v) {
					continue
				}
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

// A task with quotes, newlines, a leading dash and 200 KB arrives intact at each agent, whatever way it is given. The kernel
// limits an argument to 128 KB.
func TestTaskArrivesIntactInEveryWay(t *testing.T) {
	t.Parallel()
	const begin = "-p --task-file \"quotes\" 'x' $(id) `id` \\n %s\n- \x1b[31m\n/second é\n"
	for _, agent := range thin([]string{"claude", "codex", "gemini", "opencode", ""}) {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			l := newScriptedAgents(t)
			const script = "cat >input; cmp input $AGENCY_TASK_FILE || exit 9; sha256sum <input >sum; rm input; git add sum; git commit -qm sum --allow-empty"
			to := []string{"--", "sh", "-c", script}
			if agent != "" {
				l.install(agent, script, recorded(t, agent+"-commit.jsonl"))
				to = nil
			}
			file := filepath.Join(l.dir, "task file")
			id := ""
			for i, way := range []string{"-p", "--task-file", "-"} {
				size := 200 << 10
				if way == "-p" {
					size = 120 << 10
				}
				task := begin + strings.Repeat("0123456789abcde\n", size/16) + way
				l.write(file, task)
				sum := strings.Fields(l.must("sha256sum", file))[0]
				value := map[string][]string{"-p": {"-p", task}, "--task-file": {"--task-file", file}, "-": {"-"}}[way]
				argv := []string{"git-agency", "resume", id}
				if i == 0 {
					argv = []string{"git-agency", "run", "wt"}
					if agent != "" {
						argv = append(argv, "--runner", agent)
					}
				}
				argv = append(argv, value...)
				if i == 0 {
					argv = append(argv, to...)
				}
				if way == "-" { // the shell connects the file with standard input
					argv = append([]string{"sh", "-c", `exec "$@" <"$0"`, file}, argv...)
				}
				if o := l.try(nil, argv...); o.code != 0 {
					t.Fatalf("%s: %d %s", way, o.code, o.stderr)
				}
				id = strings.Fields(l.agency("ls", "--format", "%(invocation_id)"))[0]
				if got := l.agency("exec", id, "--", "git", "show", "HEAD:sum"); !strings.HasPrefix(got, sum) {
					t.Errorf("%s: the agent got another task: %s, want %s", way, got, sum)
				}
			}
		})
	}
}

// Neither the task nor the key of an agent is in a process list, and the task is in no environment. No file that git-agency
// writes has the key, and only those of the tasks have more than the first line of a task.
func TestTaskAndKeyStaySecret(t *testing.T) {
	t.Parallel()
	l := newScriptedAgents(t)
	task, key := rand.Text(), strings.Split(l.key, "-")[0]
	gate := filepath.Join(l.dir, "gate")
	l.write(filepath.Join(gate, "closed"), "")
	l.git("config", "--global", "agency.sandbox.read", gate)
	l.install("claude", `cat >/dev/null; echo w >>w; git add w; git commit -qm w; until test -e `+gate+`/open; do sleep 0.02; done`, recorded(t, "claude-commit.jsonl"))
	id := l.agency("run", "wt", "--runner", "claude", "--detach", "-p", "first line\n"+task)
	if !waitUntil(func() bool { return processesWith(t, "cmdline", filepath.Join(l.programs, "claude")) != nil }) {
		t.Fatalf("the agent does not work: %s", l.agency("logs", id))
	}
	for _, text := range []string{task, key} {
		if found := processesWith(t, "cmdline", text); found != nil {
			t.Errorf("%s is an argument of %q", text, found)
		}
	}
	if found := processesWith(t, "environ", task); found != nil {
		t.Errorf("the task is in the environment of %q", found)
	}
	if processesWith(t, "environ", key) == nil {
		t.Error("no process has the key, so this test finds nothing")
	}
	l.write(filepath.Join(gate, "open"), "")
	l.agency("wait", id)
	l.agency("resume", id, "-p", "again\n"+task)
	l.agency("land", id)
	for _, args := range [][]string{{"events"}, {"ls", "--all", "--json"}, {"logs", id}, {"doctor"}} {
		out := l.try(nil, append([]string{"git-agency"}, args...)...)
		if strings.Contains(out.stdout+out.stderr, task) || strings.Contains(out.stdout+out.stderr, key) {
			t.Errorf("%q tells it: %+v", args, out)
		}
	}
	var with []string
	if err := filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(task)) || bytes.Contains(text, []byte(key)) {
			with = append(with, filepath.Base(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(with)
	if got := strings.Join(with, " "); got != "inputs.jsonl task" {
		t.Errorf("files with the task or the key: %s", got)
	}
}

// processesWith returns the processes in whose environment or arguments a text occurs.
func processesWith(t *testing.T, file, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(text)) { // processes end, or are of others
			found = append(found, filepath.Dir(name))
		}
	}
	return found
}

// Codex gives its MCP servers only the variables that are named on its command line. Those are all that a run sets, also
// after an answer.
func TestCodexPassesAllVariablesOfRun(t *testing.T) {
	t.Parallel()
	l := newScriptedAgents(t)
	l.git("config", "--global", "agency.askTimeout", "1ms")
	l.install("codex", `cat >/dev/null; test -n "$AGENCY_ANSWER_FILE" || echo '{"question":"which?"}' >"$AGENCY_QUESTION_FILE"
env | sed -n 's/^\(AGENCY_[A-Z_]*\)=.*/variable \1/p' | sort >&2; printf 'argument %s\n' "$@" >&2`, recorded(t, "codex-commit.jsonl"))
	o, inv := l.run("codex")
	if o.code != 7 {
		t.Fatalf("%+v", o)
	}
	if o = l.try(nil, "git-agency", "resume", inv.ID, "--answer", "this"); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	var set, passed []string
	for line := range strings.Lines(o.stderr) {
		if name, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "variable "); is {
			set = append(set, name)
		}
		if _, list, is := strings.Cut(line, ",env_vars=["); is {
			list, _, _ = strings.Cut(list, "]")
			for name := range strings.SplitSeq(list, ",") {
				passed = append(passed, strings.Trim(name, `"`))
			}
		}
	}
	slices.Sort(passed)
	if len(set) == 0 || !slices.Equal(set, passed) {
		t.Errorf("a run sets %q, and codex passes %q\n%s", set, passed, o.stderr)
	}
}

// Text of an agent gets to the terminal of the user only with its control characters escaped: from its stream, its question,
// its submission and its errors.
func TestRunEscapesTextOfAgent(t *testing.T) {
	t.Parallel()
	const steer = "\x1b]0;owned\x07\x1b[2J\x1b[8mx\u009b31m\u202e\u2066\u200b"
	l := newScriptedAgents(t)
	text := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	type object = map[string]any
	message := func(kind string, content object) string {
		return text(object{"type": kind, "message": object{"id": "m", "content": []object{content}}}) + "\n"
	}
	stream := message("assistant", object{"type": "tool_use", "id": "1", "name": "Bash" + steer, "input": object{"command": "ls " + steer}}) +
		message("user", object{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": "no " + steer}) +
		message("assistant", object{"type": "text", "text": "first " + steer + "\nsecond " + steer}) +
		text(object{"type": "system", "subtype": "api_retry", "error": "again " + steer}) + "\n"
	result := object{"type": "result", "subtype": "success", "result": "last " + steer, "permission_denials": []object{{"tool_name": "Edit" + steer}}}
	failure := object{"type": "result", "is_error": true, "result": "failed " + steer}
	question := text(object{"question": "which " + steer, "options": []string{"one " + steer}, "context": "about " + steer})

	onTerminal := func(args ...string) outcome {
		t.Helper()
		out := l.startOnTerminal(100, []string{"GIT_PAGER=cat", "PATH=" + l.programs + ":" + l.bin + ":" + os.Getenv("PATH")}, append([]string{"git-agency"}, args...)...).wait()
		for _, raw := range []string{"\x1b]0;", "\x1b[2J", "\x1b[8m", "\u009b", "\u202e", "\u2066", "\u200b"} {
			if strings.Contains(out.stdout, raw) {
				t.Errorf("%q prints %q: %q", args, raw, out.stdout)
			}
		}
		return out
	}
	shows := false
	for _, c := range []struct {
		script string
		result any
		code   int
	}{
		{`echo w >w; git add w; git commit -qm w; git agency submit -m "$(printf 'note \033[2J')"`, result, 0},
		{"cat >$AGENCY_QUESTION_FILE <<'END OF QUESTION'\n" + question + "\nEND OF QUESTION", result, 7},
		{"true", failure, 1},
	} {
		l.install("claude", "cat >/dev/null\n"+c.script, stream+text(c.result)+"\n")
		out := onTerminal("run", "wt", "--runner", "claude", "-p", "task "+steer)
		if out.code != c.code {
			t.Errorf("exit code %d, want %d: %s", out.code, c.code, out.stdout)
		}
		const id = "@"
		for _, args := range [][]string{
			{"ls"},
			{"ls", "--json"},
			{"ls", "--porcelain"},
			{"ls", "--format", "%(last_message) %(question) %(status_reason)"},
			{"show", id},
			{"show", id, "--json"},
			{"questions"},
			{"questions", "--json"},
			{"questions", "--porcelain"},
			{"wait", id},
			{"log", id},
			{"log", id, "--json"},
			{"events", id},
			{"logs", id},
			{"attach", id},
			{"resume", id, "--answer", ""},
		} {
			shows = strings.Contains(onTerminal(args...).stdout, `\x1b[2J`) || shows
		}
	}
	if !shows {
		t.Error("no command shows the text of the agent, so this test finds nothing")
	}
}
