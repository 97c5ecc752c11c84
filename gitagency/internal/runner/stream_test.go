package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// The streams in testdata were written by the real programs.
func TestStreamsOfRealAgents(t *testing.T) {
	t.Parallel()
	const (
		edit     = "echo two >>pay.txt && git commit -qam 'add two' && git log --oneline | head -1"
		more     = "echo three >>pay.txt && git commit -qam 'add three'"
		fail     = "echo oops >&2; exit 3"
		question = `{"question":"Which?"}`
		apiError = `{"error":{"code":"fake","message":"scripted error","type":"invalid_request_error"}}`
	)
	noMetadata := Event{Kind: Failure, Text: "Model metadata for `any` not found. Defaulting to fallback metadata; this can degrade performance and cause issues."}
	for name, want := range map[string]struct {
		events  []Event // without usage
		summary Summary // without the session
	}{
		"claude-commit": {
			[]Event{{ToolCall, "cat pay.txt", "Bash"}, {ToolCall, edit, "Bash"}, {Message, "Committed the change.", ""}},
			Summary{LastMessage: "Committed the change.", CostUSD: 0.000525, Tokens: 45, Complete: true},
		},
		"claude-resume": {
			[]Event{{ToolCall, more, "Bash"}, {Message, "Continued.", ""}},
			Summary{LastMessage: "Continued.", CostUSD: 0.00035, Tokens: 30, Complete: true},
		},
		"claude-mcp": {
			[]Event{{ToolCall, question, "mcp__agency__ask"}, {Message, "Asked.", ""}},
			Summary{LastMessage: "Asked.", CostUSD: 0.00035, Tokens: 30, Complete: true},
		},
		"claude-api-error": {
			[]Event{{Failure, "API Error: 400 scripted error", ""}, {Failure, "API Error: 400 scripted error", ""}},
			Summary{Err: "API Error: 400 scripted error"},
		},
		"claude-command": { // the task began with a slash
			[]Event{{Failure, "Unknown command: /nosuch", ""}, {Failure, "Unknown command: /nosuch", ""}},
			Summary{Err: "Unknown command: /nosuch"},
		},
		"claude-tool-error": {
			[]Event{{ToolCall, fail, "Bash"}, {ToolError, "Exit code 3\noops", "Bash"}, {Message, "It failed.", ""}},
			Summary{LastMessage: "It failed.", CostUSD: 0.00035, Tokens: 30, ToolErrors: 1, Complete: true},
		},
		"codex-commit": {
			[]Event{
				noMetadata,
				{ToolCall, "/bin/bash -lc 'cat pay.txt'", "shell"},
				{ToolCall, `/bin/bash -lc "` + edit + `"`, "shell"},
				{Message, "Committed the change.", ""},
			},
			Summary{LastMessage: "Committed the change.", Tokens: 45, OfSession: true, Complete: true},
		},
		"codex-resume": { // the tokens are those of the whole session
			[]Event{noMetadata, {ToolCall, `/bin/bash -lc "` + more + `"`, "shell"}, {Message, "Continued.", ""}},
			Summary{LastMessage: "Continued.", Tokens: 75, OfSession: true, Complete: true},
		},
		"codex-mcp": {
			[]Event{noMetadata, {ToolCall, question, "agency.ask"}, {Message, "Asked.", ""}},
			Summary{LastMessage: "Asked.", Tokens: 30, OfSession: true, Complete: true},
		},
		"codex-api-error": {
			[]Event{noMetadata, {Failure, apiError + "\n", ""}, {Failure, apiError + "\n", ""}},
			Summary{Err: apiError + "\n"},
		},
		"codex-tool-error": {
			[]Event{
				noMetadata,
				{ToolCall, "/bin/bash -lc '" + fail + "'", "shell"},
				{ToolError, "exit code 3\noops\n", "shell"},
				{Message, "It failed.", ""},
			},
			Summary{LastMessage: "It failed.", Tokens: 30, ToolErrors: 1, OfSession: true, Complete: true},
		},
		"gemini-commit": {
			[]Event{{ToolCall, "cat pay.txt", "run_shell_command"}, {ToolCall, edit, "run_shell_command"}, {Message, "Committed the change.", ""}},
			Summary{LastMessage: "Committed the change.", Tokens: 60, Complete: true},
		},
		"gemini-mcp": {
			[]Event{{ToolCall, question, "mcp_agency_ask"}, {Message, "Asked.", ""}},
			Summary{LastMessage: "Asked.", Tokens: 45, Complete: true},
		},
		"gemini-api-error": {
			[]Event{{Failure, `[API Error: {"error":{"code":400,"message":"scripted error","status":"INVALID_ARGUMENT"}}]`, ""}},
			Summary{Tokens: 15, Err: `[API Error: {"error":{"code":400,"message":"scripted error","status":"INVALID_ARGUMENT"}}]`},
		},
		"gemini-denied": {
			[]Event{
				{ToolCall, fail, "run_shell_command"}, {Denied, "Tool execution denied by policy.", "run_shell_command"}, {Message, "It failed.", ""},
			},
			Summary{LastMessage: "It failed.", Tokens: 45, Denied: []string{"run_shell_command"}, Complete: true},
		},
		"opencode-commit": {
			[]Event{{ToolCall, "cat pay.txt", "bash"}, {ToolCall, edit, "bash"}, {Message, "Committed the change.", ""}},
			Summary{LastMessage: "Committed the change.", Tokens: 45, Complete: true},
		},
		"opencode-resume": {
			[]Event{{ToolCall, more, "bash"}, {Message, "Continued.", ""}},
			Summary{LastMessage: "Continued.", Tokens: 30, Complete: true},
		},
		"opencode-mcp": {
			[]Event{{ToolCall, question, "agency_ask"}, {Message, "Asked.", ""}},
			Summary{LastMessage: "Asked.", Tokens: 30, Complete: true},
		},
		"opencode-api-error": {
			[]Event{{Failure, "scripted error", ""}},
			Summary{Err: "scripted error"},
		},
		"opencode-tool-error": {
			[]Event{{ToolCall, fail, "bash"}, {ToolError, "exit code 3\noops\n", "bash"}, {Message, "It failed.", ""}},
			Summary{LastMessage: "It failed.", Tokens: 30, ToolErrors: 1, Complete: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, summary := readStream(t, name)
			if !reflect.DeepEqual(events, want.events) {
				t.Errorf("events\n%q\nwant\n%q", events, want.events)
			}
			if !isSessionID(summary.Session) {
				t.Errorf("session %q", summary.Session)
			}
			summary.Session = ""
			if !reflect.DeepEqual(summary, want.summary) {
				t.Errorf("summary\n%+v\nwant\n%+v", summary, want.summary)
			}
		})
	}
}

// A denied tool does not change the exit code of an agent.
func TestStreamsTellDeniedTools(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Summary{
		"claude-denied":     {Denied: []string{"Bash"}, Complete: true},
		"codex-denied":      {Denied: []string{"shell"}, Complete: true}, // on standard error
		"gemini-denied":     {Denied: []string{"run_shell_command"}, Complete: true},
		"opencode-denied":   {Denied: []string{"bash"}, Complete: true},
		"opencode-rejected": {Denied: []string{"bash"}}, // the stream ends in a step that calls tools
	} {
		_, got := readStream(t, name)
		if !reflect.DeepEqual(got.Denied, want.Denied) || got.Complete != want.Complete || got.Err != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Codex reports every repeated request as an error and can succeed after it.
func TestCodexStreamSucceedsAfterReconnecting(t *testing.T) {
	t.Parallel()
	events, got := readStream(t, "codex-reconnect")
	if !got.Complete || got.Err != "" || events[0].Kind != Failure || !strings.Contains(events[0].Text, "Reconnecting") {
		t.Errorf("%+v %q", got, events)
	}
}

func TestStreamOfKilledAgentIsIncomplete(t *testing.T) {
	t.Parallel()
	for _, s := range specs() {
		data, err := os.ReadFile(filepath.Join("testdata", s.Name+"-commit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
		stream := s.NewStream()
		for _, line := range lines[:len(lines)-1] {
			stream.Line(line)
		}
		if got := stream.Summary(); got.Complete || got.Err != "" || got.Session == "" {
			t.Errorf("%s: %+v", s.Name, got)
		}
	}
}

func TestStreamIgnoresSessionsThatAreOptions(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "-c", "--last", "a b", "a\nb", "$(id)", "é", strings.Repeat("x", 129)} {
		if isSessionID(id) {
			t.Errorf("%q", id)
		}
	}
	stream := codex().NewStream()
	stream.Line([]byte(`{"type":"thread.started","thread_id":"--dangerous"}`))
	if got := stream.Summary().Session; got != "" {
		t.Errorf("session %q", got)
	}
}

func TestStreamKeepsOtherFieldsWhenOneHasAnotherType(t *testing.T) {
	t.Parallel()
	stream := claude().NewStream()
	stream.Line([]byte(`{"type":"result","subtype":"success","is_error":true,"total_cost_usd":"much","usage":7,"result":"no credit","permission_denials":{}}`))
	if got := stream.Summary(); got.Err != "no credit" || got.Complete {
		t.Errorf("%+v", got)
	}
}

func TestStreamBoundsTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxText)
	for agent, lines := range map[string][]string{
		"claude":   {`{"type":"assistant","message":{"content":[{"type":"text","text":"` + long + `"}]}}`},
		"codex":    {`{"type":"item.completed","item":{"type":"agent_message","text":"` + long + `"}}`},
		"gemini":   {`{"type":"message","role":"assistant","content":"` + long + `"}`, `{"type":"message","role":"assistant","content":"` + long + `"}`, `{"type":"result","status":"success"}`},
		"opencode": {`{"type":"text","part":{"text":"` + long + `"}}`},
	} {
		s, _ := FindSpec(agent)
		stream := s.NewStream()
		var events []Event
		for _, line := range lines {
			events = append(events, stream.Line([]byte(line))...)
		}
		if len(events) != 1 || events[0].Text != long[:maxText]+"…" || !utf8.ValidString(events[0].Text) || stream.Summary().LastMessage != events[0].Text {
			t.Errorf("%s: %d events, %d bytes", agent, len(events), len(stream.Summary().LastMessage))
		}
	}
}

// readStream returns the events but usage, and the summary, of a stream in testdata whose name begins with an agent. Some
// have a file with standard error besides.
func readStream(t *testing.T, name string) ([]Event, Summary) {
	t.Helper()
	agent, _, _ := strings.Cut(name, "-")
	s, ok := FindSpec(agent)
	if !ok {
		t.Fatalf("no agent %s", agent)
	}
	data, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	stream := s.NewStream()
	var events []Event
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		for _, e := range stream.Line(line) {
			if e.Kind != Usage {
				events = append(events, e)
			}
		}
	}
	errors, err := os.ReadFile(filepath.Join("testdata", name+".stderr"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range bytes.SplitSeq(errors, []byte("\n")) {
		events = append(events, stream.ErrorLine(line)...)
	}
	return events, stream.Summary()
}

func FuzzClaudeStream(f *testing.F)   { fuzzStream(f, claude()) }
func FuzzCodexStream(f *testing.F)    { fuzzStream(f, codex()) }
func FuzzGeminiStream(f *testing.F)   { fuzzStream(f, gemini()) }
func FuzzOpencodeStream(f *testing.F) { fuzzStream(f, opencode()) }

// fuzzStream checks that a stream of any lines does not panic and that all that it tells is bounded.
func fuzzStream(f *testing.F, s Spec) {
	files, err := filepath.Glob(filepath.Join("testdata", s.Name+"-*.jsonl"))
	if err != nil || len(files) == 0 {
		f.Fatal(err, files)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("x codex_core::tools::router: error=exec_command Rejected(\"y\")\n"))
	f.Add([]byte("null\n[]\n1\n\"\"\n{\"type\":null}\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		stream := s.NewStream()
		text := func(what, text string) {
			if len(text) > maxText+len("…") || !utf8.ValidString(text) {
				t.Errorf("%s has %d bytes: %.40q", what, len(text), text)
			}
		}
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			for _, e := range append(stream.Line(line), stream.ErrorLine(line)...) {
				text("text", e.Text)
				text("tool", e.Tool)
			}
		}
		got := stream.Summary()
		text("last message", got.LastMessage)
		text("error", got.Err)
		if got.Session != "" && !isSessionID(got.Session) {
			t.Errorf("session %q", got.Session)
		}
		if got.Tokens < 0 || !(got.CostUSD >= 0) || got.Complete && got.Err != "" || len(got.Denied) > maxDenied {
			t.Errorf("%+v", got)
		}
	})
}
