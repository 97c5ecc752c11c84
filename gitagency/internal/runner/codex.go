package runner

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// codex describes the Codex CLI. Its state directory must not be below the directory of temporary files: it warns, and
// does without its helper programs.
func codex() Spec {
	s := Spec{
		Name: "codex", Program: "codex", Tried: "0.166.0",
		Headless: func(l Launch) []string {
			argv := append([]string{"codex", "exec", "--json", "--skip-git-repo-check"}, codexOptions(l)...)
			return append(argv, "-") // the prompt is standard input
		},
		Interactive: func(l Launch) []string { return append([]string{"codex"}, codexOptions(l)...) },
		NewStream:   func() Stream { return &codexStream{} },
		StateEnv:    func(dir string) []string { return []string{"CODEX_HOME=" + dir} },
		Files:       func(l Launch) []File { return []File{{Name: "config.toml", Merge: l.mergeCodex}} },
		PassEnv:     []string{"OPENAI_ORGANIZATION", "OPENAI_PROJECT"},
		KeyEnv:      regexp.MustCompile(`env_key\s*=\s*["']([A-Za-z_][A-Za-z0-9_]*)["']`),
		KeyText:     regexp.MustCompile(`(?m)^\s*(?:experimental_bearer_token|model_provider)\s*=\s*["'][^"']`),
		Keys:        []string{"OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"},
		HomeEnv:     "CODEX_HOME",
		Logins:      []string{".codex/auth.json"},
		Seeds: []Seed{
			{From: ".codex/config.toml", Moved: "config.toml", To: "config.toml", Settings: true},
			{From: ".codex/auth.json", Moved: "auth.json", To: "auth.json"},
			{From: ".codex/AGENTS.md", Moved: "AGENTS.md", To: "AGENTS.md"},
			{From: ".codex/prompts", Moved: "prompts", To: "prompts"},
			{From: ".codex/rules", Moved: "rules", To: "rules"},
			{From: ".codex/skills", Moved: "skills", To: "skills"},
		},
	}
	// Codex does not read OPENAI_BASE_URL: a base URL is in config.toml.
	s.Hosts = func(env []string) []string {
		hosts := s.configuredHosts(env)
		switch {
		case hosts != nil && s.choosesProvider(env):
			return hosts
		case proc.Getenv(env, "OPENAI_API_KEY") != "" || proc.Getenv(env, "CODEX_API_KEY") != "":
			return append(hosts, "api.openai.com")
		}
		return append(hosts, "chatgpt.com", "auth.openai.com", "api.openai.com")
	}
	return s
}

// choosesProvider reports whether the user's settings choose another provider of models than OpenAI. Settings may describe
// providers that only profiles choose.
func (s Spec) choosesProvider(env []string) bool {
	topLevel := regexp.MustCompile(`(?s)\A(.*?)(?:\n\s*\[|\z)`)
	choice := regexp.MustCompile(`(?m)^\s*model_provider\s*=\s*["']([^"']+)["']`)
	for _, text := range s.settings(env, topLevel) {
		for _, provider := range firstGroups(choice, []byte(text)) {
			if provider != "openai" {
				return true
			}
		}
	}
	return false
}

func codexOptions(l Launch) []string {
	options := []string{
		"--dangerously-bypass-approvals-and-sandbox", // its sandbox cannot be built inside of walls
		"-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false",
		"-c", "features.plugins=false", "-c", "features.apps=false", // else it connects to github.com and chatgpt.com
	}
	if len(l.MCP) > 0 {
		var args []string
		for _, a := range l.MCP[1:] {
			args = append(args, tomlString(a))
		}
		options = append(options, "-c", fmt.Sprintf("mcp_servers.agency={command=%s,args=[%s],env_vars=[%s],tool_timeout_sec=%d}",
			tomlString(l.MCP[0]), strings.Join(args, ","), strings.Join(mcpVariables, ","), l.toolLimit()/time.Second))
	}
	switch {
	case l.Resume && l.Session != "":
		return append(options, "resume", l.Session)
	case l.Resume: // of the state directory; a new session if there is none
		return append(options, "resume", "--last")
	}
	return options
}

// mergeCodex gives trust to the worktree. TOML has no duplicate tables, and an option of the command line splits the path
// at its dots, so the table is appended as text, once.
func (l Launch) mergeCodex(existing []byte) ([]byte, error) {
	table := "[projects." + tomlString(l.Tree) + "]\n"
	text := string(existing)
	if strings.Contains(text, table) {
		return existing, nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text + table + "trust_level = \"trusted\"\n"), nil
}

// tomlString returns a basic string of TOML.
func tomlString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// codexStream reads codex exec --json.
type codexStream struct{ recorder }

type codexItem struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Command string          `json:"command"`
	Output  string          `json:"aggregated_output"`
	Exit    *float64        `json:"exit_code"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Server  string          `json:"server"`
	Tool    string          `json:"tool"`
	Query   string          `json:"query"`
	Args    json.RawMessage `json:"arguments"`
	Changes json.RawMessage `json:"changes"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (s *codexStream) Line(line []byte) []Event {
	var l struct {
		Type    string    `json:"type"`
		Thread  string    `json:"thread_id"`
		Message string    `json:"message"`
		Item    codexItem `json:"item"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
		Usage struct { // of the whole session; the cached tokens are part of the input
			Input  float64 `json:"input_tokens"`
			Output float64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if !decode(line, &l) {
		return nil
	}
	switch l.Type {
	case "thread.started":
		s.session(l.Thread)
	case "item.started":
		return s.started(l.Item)
	case "item.completed":
		return s.completed(l.Item)
	case "error": // also for a request that is repeated; a failed turn ends in turn.failed
		return s.warn(l.Message)
	case "turn.failed":
		return s.fail(l.Error.Message)
	case "turn.completed":
		s.summary.Complete, s.summary.OfSession = s.summary.Err == "", true
		return s.usage(count(l.Usage.Input, l.Usage.Output), 0)
	}
	return nil
}

// ErrorLine finds commands that a rule of the user forbids. No item tells them, only the log on standard error.
func (s *codexStream) ErrorLine(line []byte) []Event {
	_, text, routed := strings.Cut(string(line), " codex_core::tools::router: error=")
	if tool, _, _ := strings.Cut(text, " "); routed && strings.Contains(text, "Rejected(") {
		if tool == "exec_command" {
			tool = "shell"
		}
		return s.denied(tool, text)
	}
	return nil
}

// tool returns the name and the arguments of the tool of an item; no name for an item that is no tool call.
func (i codexItem) tool() (name string, arguments json.RawMessage) {
	switch i.Type {
	case "command_execution":
		return "shell", mustJSON(map[string]string{"command": i.Command})
	case "mcp_tool_call":
		return i.Server + "." + i.Tool, i.Args
	case "file_change":
		return "patch", i.Changes
	case "web_search":
		return "web_search", mustJSON(map[string]string{"command": i.Query})
	}
	return "", nil
}

func (s *codexStream) started(i codexItem) []Event {
	name, arguments := i.tool()
	if name == "" {
		return nil
	}
	return s.call(i.ID, name, arguments)
}

func (s *codexStream) completed(i codexItem) []Event {
	switch i.Type {
	case "agent_message":
		return s.message(i.Text)
	case "error":
		return s.warn(i.Message)
	}
	name, arguments := i.tool()
	if name == "" {
		return nil
	}
	var events []Event
	if s.toolOf(i.ID) == "" { // items of some types do not start
		events = s.call(i.ID, name, arguments)
		s.toolOf(i.ID)
	}
	switch {
	case i.Status == "declined":
		return append(events, s.denied(name, i.Command)...)
	case i.Status == "failed" || i.Exit != nil && *i.Exit != 0:
		reason := i.Error.Message
		if i.Exit != nil {
			reason = "exit code " + strconv.FormatInt(count(*i.Exit), 10) + "\n" + i.Output
		}
		return append(events, s.toolError(name, reason)...)
	}
	return events
}

// mcpVariables are the variables that the MCP server of git-agency needs, as TOML: codex passes no others but those that
// every program needs.
var mcpVariables = []string{
	`"AGENCY_INVOCATION_ID"`, `"AGENCY_SANDBOX"`, `"AGENCY_WORKTREE"`, `"AGENCY_ISOLATION"`,
	`"AGENCY_TASK_FILE"`, `"AGENCY_ANSWER_FILE"`, `"AGENCY_QUESTION_FILE"`, `"AGENCY_SESSION_ID"`, `"AGENCY_ASK_TIMEOUT"`,
}
