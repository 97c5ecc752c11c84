//go:build realagents

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/scripts/fakemodel"
)

// These tests run the real agents behind walls, against a model server on the loopback interface. make test-agents
// installs the agents and runs the tests.

var realAgents = []string{"claude", "codex", "gemini", "opencode"}

// agentLab is a lab whose user has the agents installed and configured for a model server.
type agentLab struct {
	*lab
	server *fakemodel.Server
	agent  string
}

// forEachRealAgent runs a test with every agent and a model server with one script, named task.
func forEachRealAgent(t *testing.T, steps []fakemodel.Step, test func(*agentLab)) {
	agents := os.Getenv("GIT_AGENCY_TEST_AGENTS")
	if agents == "" {
		t.Fatal("GIT_AGENCY_TEST_AGENTS is not set; run make test-agents")
	}
	for _, agent := range realAgents {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			server, err := fakemodel.Start(map[string][]fakemodel.Step{scriptedTask: steps})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			l := &agentLab{lab: newLab(t), server: server, agent: agent}
			l.configure(agents)
			test(l)
		})
	}
}

// scriptedTask is a part of each task, by which the model server finds the script.
const scriptedTask = "Scripted task."

// configure sets up the agents as a user would, each with an MCP server that does not work behind walls.
func (l *agentLab) configure(agents string) {
	l.env = append(l.env, "PATH="+strings.Join([]string{l.bin, filepath.Join(agents, "bin"), os.Getenv("PATH")}, ":"),
		"ANTHROPIC_BASE_URL="+l.server.URL, "ANTHROPIC_API_KEY=sk-fake-key-of-the-test",
		"GOOGLE_GEMINI_BASE_URL="+l.server.URL, "GEMINI_API_KEY=fake", "GATEWAY_KEY=fake")
	home := filepath.Join(l.dir, "home")
	l.write(filepath.Join(home, ".codex", "config.toml"), fmt.Sprintf(`model_provider = "gateway"
model = "any"
[model_providers.gateway]
name = "gateway"
base_url = "%s/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"
request_max_retries = 1
stream_max_retries = 1
[mcp_servers.broken]
command = "/no/such/program"
`, l.server.URL))
	for name, key := range map[string]string{".claude.json": "mcpServers", ".gemini/settings.json": "mcpServers", ".config/opencode/config.json": "mcp"} {
		server := `{"command": "/no/such/program", "args": []}`
		if key == "mcp" {
			server = `{"type": "local", "command": ["/no/such/program"], "enabled": true}`
		}
		l.write(filepath.Join(home, name), `{"`+key+`": {"broken": `+server+`}}`)
	}
	l.write(filepath.Join(home, ".config", "opencode", "opencode.jsonc"), fmt.Sprintf(`{
  // of the user
  "model": "gateway/any",
  "provider": {"gateway": {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "%s/v1", "apiKey": "{env:GATEWAY_KEY}"},
    "models": {"any": {"tool_call": true, "limit": {"context": 1000000, "output": 8000}}},
  }},
}
`, l.server.URL))
	l.git("config", "--global", "agency.sandbox.read", agents)
	program, err := os.Executable() // the target of git-agency in l.bin
	if err != nil {
		l.t.Fatal(err)
	}
	l.git("config", "--global", "--add", "agency.sandbox.read", program)
	l.agency("worktree", "adopt")
}

// run runs the agent with a task on standard input, and further arguments.
func (l *agentLab) run(task string, args ...string) outcome {
	l.t.Helper()
	return l.agencyWithInput(task, append([]string{"run", "--runner", l.agent, "--isolation", "os", "--outputs", "hosts:" + l.server.Addr}, append(args, "-")...)...)
}

func (l *agentLab) agencyWithInput(input string, args ...string) outcome {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.bin, "git-agency"), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = l.repo, l.env, strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// require fails the test unless a command ended with a code.
func (l *agentLab) require(o outcome, code int) {
	l.t.Helper()
	if o.code != code {
		l.t.Fatalf("exit code %d, want %d; stdout:\n%s\nstderr:\n%s\nrequests: %s", o.code, code, o.stdout, o.stderr, l.steps())
	}
}

// agentRecord is what the tests compare of an invocation.
type agentRecord struct {
	ID        string `json:"invocation_id"`
	State     string `json:"state"`
	SessionID string `json:"session_id"`
	Question  string `json:"question"`
	Message   string `json:"last_message"`
	Tokens    int    `json:"tokens"`
	PID       int    `json:"pid"`
}

// record returns the only invocation.
func (l *agentLab) record() agentRecord {
	l.t.Helper()
	var records []agentRecord
	if err := json.Unmarshal([]byte(l.agency("ls", "--json")), &records); err != nil || len(records) != 1 {
		l.t.Fatalf("%d invocations, %v", len(records), err)
	}
	return records[0]
}

// steps returns the steps of the script that the agent asked the model for.
func (l *agentLab) steps() string {
	var steps []string
	for _, r := range l.server.Requests() {
		if r.Script != "" {
			steps = append(steps, fmt.Sprint(r.Step))
		}
	}
	return strings.Join(steps, " ")
}

// received reports whether the agent sent a text of the user to the model, whatever it wrote around it.
func (l *agentLab) received(text string) bool {
	return slices.ContainsFunc(l.server.Requests(), func(r fakemodel.Request) bool {
		return r.Script != "" && strings.Contains(strings.Join(r.Users, "\n"), text)
	})
}

func TestRealAgentLandsItsWork(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{
		{Shell: "cat readme"},
		{Shell: "echo more >>readme && git commit -qam 'add more'"},
		{Say: "Added more."},
	}, func(l *agentLab) {
		task := "-p " + scriptedTask + " \"quotes\" 'too' $HOME `id`\n/second line\n" + strings.Repeat("long ", 40_000) + "end"
		l.require(l.run(task, "--timeout", "3m"), 0)
		if !l.received(task) {
			l.t.Error("the task did not arrive as it is")
		}
		record := l.record()
		if record.State != "finished" || record.Message != "Added more." || record.Tokens == 0 {
			l.t.Errorf("%+v", record)
		}
		l.agency("land", record.ID)
		if got := l.read(filepath.Join(l.repo, "readme")); got != "hello\nmore\n" {
			l.t.Errorf("readme is %q", got)
		}
		if l.steps() != "0 1 2" {
			l.t.Errorf("steps %s", l.steps())
		}
	})
}

// The model server counts the answers in the history that the agent sends, so an agent that lost its session would begin
// at step 0 again.
func TestRealAgentAsksAndResumesItsSession(t *testing.T) {
	t.Parallel()
	ask := func(question string) fakemodel.Step {
		return fakemodel.Step{Shell: `echo '{"question":"` + question + `"}' >"$AGENCY_QUESTION_FILE"`}
	}
	forEachRealAgent(t, []fakemodel.Step{
		ask("First?"),
		{Say: "I asked."},
		ask("Second?"),
		{Say: "I asked again."},
		{Shell: "echo answered >>readme && git commit -qam answered"},
		{Say: "Done."},
	}, func(l *agentLab) {
		l.require(l.run(scriptedTask, "--timeout", "3m"), 7)
		first := l.record()
		if first.State != "blocked" || first.Question != "First?" {
			l.t.Errorf("%+v", first)
		}
		l.require(l.agencyWithInput("", "resume", first.ID, "--answer", "-answer one"), 7)
		second := l.record()
		if second.Question != "Second?" || second.SessionID != first.SessionID {
			l.t.Errorf("%+v, before %+v", second, first)
		}
		l.require(l.agencyWithInput("", "resume", first.ID, "--answer", "answer two"), 0)
		if got := l.record(); got.State != "finished" || got.SessionID != first.SessionID || got.Message != "Done." {
			l.t.Errorf("%+v", got)
		}
		if l.steps() != "0 1 2 3 4 5" {
			l.t.Errorf("steps %s", l.steps())
		}
		for _, answer := range []string{"-answer one", "answer two"} {
			if !l.received(answer) {
				l.t.Errorf("%q did not arrive", answer)
			}
		}
		l.agency("land", first.ID)
	})
}

// Each agent is given the tools of git-agency itself: it asks, goes on with the answer, and submits its work.
func TestRealAgentAsksAndSubmitsByTools(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{
		{Tool: "ask", Args: map[string]any{"question": "Which?", "options": []string{"a", "b"}}},
		{Say: "I wait."},
		{Shell: "echo answered >>readme && git commit -qam answered"},
		{Tool: "submit", Args: map[string]any{"note": "ready"}},
		{Say: "Done."},
	}, func(l *agentLab) {
		o := l.run(scriptedTask, "--timeout", "3m")
		if o.code != 7 {
			l.t.Fatalf("%+v; tools %q", o, l.server.Requests()[0].Tools)
		}
		first := l.record()
		if first.State != "blocked" || first.Question != "Which?" {
			l.t.Errorf("%+v", first)
		}
		l.require(l.agencyWithInput("", "resume", first.ID, "--answer", "a"), 0)
		if got := l.record(); got.State != "review" || got.SessionID != first.SessionID {
			l.t.Errorf("%+v; steps %s", got, l.steps())
		}
		l.agency("land", "--all-ready")
	})
}

// leaveProcesses starts processes that leave the session of the agent.
const leaveProcesses = "sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & echo started"

func TestRealAgentStopLeavesNoProcess(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{{Shell: leaveProcesses}, {Hang: true}}, func(l *agentLab) {
		const secret = "in-no-process-list"
		l.require(l.run(scriptedTask+secret, "--detach"), 0)
		select {
		case <-l.server.Hanging:
		case <-time.After(3 * time.Minute):
			l.t.Fatalf("the agent did not ask the model: %s", l.agency("logs", l.record().ID))
		}
		record := l.record()
		if record.State != "running" {
			l.t.Errorf("%+v", record)
		}
		mark := "AGENCY_INVOCATION_ID=" + record.ID
		if processesWith(l.t, "environ", mark) == nil { // some agents end the processes of their tools themselves
			l.t.Error("the agent is not found")
		}
		for _, text := range []string{secret, "sk-fake-key-of-the-test"} {
			if found := processesWith(l.t, "cmdline", text); found != nil {
				l.t.Errorf("%q is an argument of %q", text, found)
			}
		}
		l.agency("stop", record.ID)
		if left := processesWith(l.t, "environ", mark); left != nil {
			l.t.Errorf("processes are left: %q", left)
		}
		if got := l.record(); got.State != "stopped" {
			l.t.Errorf("%+v", got)
		}
	})
}

// A supervisor that is killed cannot record the session of its agent.
func TestRealAgentResumesAfterKill(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{{Shell: "echo killed >>readme"}, {Hang: true}}, func(l *agentLab) {
		l.require(l.run(scriptedTask, "--detach"), 0)
		select {
		case <-l.server.Hanging:
		case <-time.After(3 * time.Minute):
			l.t.Fatalf("the agent did not ask the model: %s", l.agency("logs", l.record().ID))
		}
		record := l.record()
		if err := syscall.Kill(record.PID, syscall.SIGKILL); err != nil {
			l.t.Fatalf("%+v: %v", record, err)
		}
		mark := "AGENCY_INVOCATION_ID=" + record.ID
		if !waitUntil(func() bool { return processesWith(l.t, "environ", mark) == nil }) {
			l.t.Fatalf("processes are left: %q", processesWith(l.t, "environ", mark))
		}
		if got := l.record(); got.State != "failed" {
			l.t.Errorf("%+v", got)
		}
		// Some agents complete the history with an answer of their own.
		commit := fakemodel.Step{Shell: "git commit -qam 'after the kill' || git status"}
		l.server.SetScript(scriptedTask, []fakemodel.Step{{Say: "The session is lost."}, commit, commit, {Say: "Done."}})
		l.require(l.agencyWithInput("", "resume", record.ID), 0)
		if got := l.record(); got.State != "finished" || got.SessionID != record.SessionID || got.Message != "Done." {
			l.t.Errorf("%+v", got)
		}
		if steps := l.steps(); strings.Count(steps, "0") != 1 {
			l.t.Errorf("steps %s", steps)
		}
	})
}

func TestRealAgentTimeoutLeavesNoProcess(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{{Shell: leaveProcesses}, {Hang: true}}, func(l *agentLab) {
		l.require(l.run(scriptedTask, "--timeout", "15s"), 124)
		record := l.record()
		if record.State != "timed_out" {
			l.t.Errorf("%+v", record)
		}
		if left := processesWith(l.t, "environ", "AGENCY_INVOCATION_ID="+record.ID); left != nil {
			l.t.Errorf("processes are left: %q", left)
		}
	})
}

// An agent exits with 0 or with a code of its own when the model refuses the request; the run has failed, and says why.
func TestRealAgentFailsWithTheModel(t *testing.T) {
	t.Parallel()
	forEachRealAgent(t, []fakemodel.Step{{Status: 400}}, func(l *agentLab) {
		o := l.run(scriptedTask, "--timeout", "3m")
		if o.code == 0 || l.record().State != "failed" || !strings.Contains(o.stderr, "scripted error") {
			l.t.Errorf("exit code %d, %+v\n%s", o.code, l.record(), o.stderr)
		}
	})
}

// The agent's own program draws on the terminal without a question about login, trust or permissions, and ends.
func TestRealAgentIsInteractiveOnTerminal(t *testing.T) {
	t.Parallel()
	drawn := map[string]string{"claude": "bypass", "codex": "YOLO", "gemini": "YOLO", "opencode": "Ask"}
	forEachRealAgent(t, nil, func(l *agentLab) {
		s := l.startOnTerminal(110, l.env, "git-agency", "run", "--runner", l.agent, "--isolation", "os", "--outputs", "hosts:"+l.server.Addr)
		replied := 0
		if !waitUntil(func() bool {
			replied = s.replyToQueries(replied)
			return strings.Contains(s.text(), drawn[l.agent])
		}) {
			l.t.Fatalf("it does not draw %q:\n%q", drawn[l.agent], s.text())
		}
		next := time.Now()
		if !waitUntil(func() bool {
			replied = s.replyToQueries(replied)
			if time.Now().After(next) {
				_, _ = s.master.WriteString("\x03")           // it may have ended
				next = time.Now().Add(300 * time.Millisecond) // some want a second one soon
			}
			select {
			case <-s.done:
				return true
			default:
				return false
			}
		}) {
			l.t.Fatalf("it does not end:\n%q", s.text())
		}
		o := s.wait()
		record := l.record()
		if o.code != 0 && o.code != 130 || record.State == "running" {
			l.t.Errorf("exit code %d, %+v\n%q", o.code, record, o.stdout)
		}
		if left := processesWith(l.t, "environ", "AGENCY_INVOCATION_ID="+record.ID); left != nil {
			l.t.Errorf("processes are left: %q", left)
		}
	})
}

// replyToQueries answers what programs ask a terminal in the output after its first bytes: the position of the cursor, and
// the attributes of the device. Codex does not start without the position. It returns the length of the output.
func (s *terminalSession) replyToQueries(first int) int {
	text := s.text()
	for range strings.Count(text[first:], "\x1b[6n") {
		s.typeKeys("\x1b[1;1R")
	}
	for range strings.Count(text[first:], "\x1b[c") {
		s.typeKeys("\x1b[?62c")
	}
	return len(text)
}
