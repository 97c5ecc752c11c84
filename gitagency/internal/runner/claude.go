package runner

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// claude describes Claude Code.
func claude() Spec {
	s := Spec{
		Name: "claude", Program: "claude", Tried: "2.1.197",
		ChoosesSession: true,
		SessionFile:    func(session string) string { return "projects/*/" + session + ".jsonl" },
		Headless: func(l Launch) []string {
			// With -p and no prompt among the arguments, the prompt is standard input.
			return append([]string{"claude", "-p", "--output-format", "stream-json", "--verbose"}, claudeOptions(l)...)
		},
		Interactive: func(l Launch) []string { return append([]string{"claude"}, claudeOptions(l)...) },
		NewStream:   func() Stream { return &claudeStream{} },
		StateEnv:    func(dir string) []string { return []string{"CLAUDE_CONFIG_DIR=" + dir} },
		Files:       func(l Launch) []File { return []File{{Name: ".claude.json", Merge: l.mergeClaude}} },
		PassEnv: []string{
			"ANTHROPIC_*", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "MAX_THINKING_TOKENS",
			"CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_SUBAGENT_MODEL", "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_EXTRA_BODY",
			"CLAUDE_CODE_API_KEY_HELPER_TTL_MS", // no CLAUDE_CODE_*: some lead to the Claude Code that git-agency was started from
		},
		SetEnv: []string{
			"IS_SANDBOX=1", // else --dangerously-skip-permissions is refused for root
			"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		},
		AskEnv: func(l Launch) []string {
			return []string{"MCP_TOOL_TIMEOUT=" + strconv.FormatInt(l.toolLimit().Milliseconds(), 10)}
		},
		Keys:    []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"},
		KeyText: regexp.MustCompile(`"(?:ANTHROPIC_API_KEY|ANTHROPIC_AUTH_TOKEN|CLAUDE_CODE_OAUTH_TOKEN|apiKeyHelper|primaryApiKey)"\s*:\s*"[^"]`),
		HomeEnv: "CLAUDE_CONFIG_DIR",
		Logins:  []string{".claude/.credentials.json"},
		Seeds: []Seed{
			{From: ".claude.json", Moved: ".claude.json", To: ".claude.json", Settings: true},
			{From: ".claude/settings.json", Moved: "settings.json", To: "settings.json", Settings: true},
		},
	}
	// Not ~/.claude as a whole: its projects hold the transcripts of all other sessions.
	for _, name := range []string{".credentials.json", "CLAUDE.md", "agents", "commands", "output-styles", "rules", "skills"} {
		s.Seeds = append(s.Seeds, Seed{From: ".claude/" + name, Moved: name, To: name})
	}
	s.Hosts = func(env []string) []string {
		if hosts := s.configuredHosts(env, "ANTHROPIC_BASE_URL"); hosts != nil {
			return hosts
		}
		if proc.Getenv(env, "ANTHROPIC_API_KEY") != "" {
			return []string{"api.anthropic.com"}
		}
		return []string{"api.anthropic.com", "platform.claude.com"} // the second renews logins
	}
	return s
}

func claudeOptions(l Launch) []string {
	options := []string{
		"--dangerously-skip-permissions",
		"--settings", `{"sandbox":{"enabled":false},"skipDangerousModePermissionPrompt":true}`,
		"--strict-mcp-config", // no servers of the user or the repository: some ask for trust, most need the network
	}
	if len(l.MCP) > 0 {
		options = append(options, "--mcp-config", string(mustJSON(map[string]any{"mcpServers": map[string]any{
			"agency": map[string]any{"command": l.MCP[0], "args": l.MCP[1:]},
		}})))
	}
	switch {
	case l.Resume && l.Session != "":
		return append(options, "--resume", l.Session)
	case l.Session != "":
		return append(options, "--session-id", l.Session)
	}
	return options
}

// mergeClaude answers the questions that Claude Code asks at its first start: onboarding, trust in the directory, and use
// of an API key. It removes the other projects of the user, with their histories.
func (l Launch) mergeClaude(existing []byte) ([]byte, error) {
	return mergeJSON(".claude.json", existing, func(config map[string]any) {
		config["hasCompletedOnboarding"] = true
		project, ok := objectAt(config, "projects")[l.Tree].(map[string]any)
		if !ok {
			project = map[string]any{}
		}
		project["hasTrustDialogAccepted"] = true
		project["hasCompletedProjectOnboarding"] = true
		config["projects"] = map[string]any{l.Tree: project}

		// Claude Code records the last characters of a key. A key that the user rejected stays rejected.
		if key := proc.Getenv(l.Env, "ANTHROPIC_API_KEY"); key != "" {
			const suffix = 20
			responses := objectAt(config, "customApiKeyResponses")
			end := key[max(0, len(key)-suffix):]
			if rejected, _ := responses["rejected"].([]any); !slices.Contains(rejected, any(end)) {
				responses["approved"] = []string{end}
			}
		}
	})
}

// claudeStream reads --output-format stream-json.
type claudeStream struct {
	recorder
	answer string // id of the answer of the model that is being written
	before int64  // tokens of the answers before it
}

type claudeUsage struct {
	Input         float64 `json:"input_tokens"`
	CacheCreation float64 `json:"cache_creation_input_tokens"`
	CacheRead     float64 `json:"cache_read_input_tokens"`
	Output        float64 `json:"output_tokens"`
}

func (u claudeUsage) tokens() int64 { return count(u.Input, u.CacheCreation, u.CacheRead, u.Output) }

type claudeContent struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	ForCall string          `json:"tool_use_id"`
	IsError bool            `json:"is_error"`
	Content json.RawMessage `json:"content"`
}

type claudeLine struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	ParentID  string `json:"parent_tool_use_id"` // set for sub-agents

	// assistant and user
	Message struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
		Usage   claudeUsage     `json:"usage"`
	} `json:"message"`

	// result
	IsError bool        `json:"is_error"`
	Turns   *float64    `json:"num_turns"`
	Result  string      `json:"result"`
	Errors  []string    `json:"errors"`
	Cost    float64     `json:"total_cost_usd"`
	Usage   claudeUsage `json:"usage"`
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`

	Error string `json:"error"` // system/api_retry
}

func (s *claudeStream) Line(line []byte) []Event {
	var l claudeLine
	if !decode(line, &l) {
		return nil
	}
	switch l.Type {
	case "system":
		if l.Subtype == "init" {
			s.session(l.SessionID)
		}
		if l.Subtype == "api_retry" {
			return s.warn(strings.TrimSpace("the request to the model is repeated " + l.Error))
		}
	case "assistant":
		return s.assistant(l)
	case "user":
		return s.results(l)
	case "result":
		return s.result(l)
	}
	return nil
}

func (s *claudeStream) assistant(l claudeLine) []Event {
	var contents []claudeContent
	if !decode(l.Message.Content, &contents) {
		return nil
	}
	var events []Event
	for _, c := range contents {
		switch {
		case c.Type == "tool_use":
			events = append(events, s.call(c.ID, c.Name, c.Input)...)
		case c.Type == "text" && l.Message.Model == "<synthetic>": // written by Claude Code: why the model did not answer
			events = append(events, s.warn(c.Text)...)
		case c.Type == "text" && l.ParentID == "":
			events = append(events, s.message(c.Text)...)
		case c.Type == "text":
			events = append(events, Event{Kind: Message, Text: clip(c.Text)})
		}
	}
	if l.Message.ID != s.answer {
		s.answer, s.before = clip(l.Message.ID), s.summary.Tokens
	}
	tokens := count(float64(s.before), float64(l.Message.Usage.tokens()))
	return append(events, s.usage(tokens, s.summary.CostUSD)...)
}

func (s *claudeStream) results(l claudeLine) []Event {
	var contents []claudeContent
	if !decode(l.Message.Content, &contents) {
		return nil
	}
	var events []Event
	for _, c := range contents {
		if c.Type != "tool_result" {
			continue
		}
		if tool := s.toolOf(c.ForCall); c.IsError {
			events = append(events, s.toolError(tool, contentText(c.Content))...)
		}
	}
	return events
}

func (s *claudeStream) result(l claudeLine) []Event {
	s.session(l.SessionID)
	events := s.usage(l.Usage.tokens(), dollars(l.Cost))
	for _, d := range l.Denials {
		events = append(events, s.denied(d.Tool, "")...)
	}
	// The subtype of a failed request to the model is "success" too. A task that begins with a slash is a command of
	// Claude Code, and an unknown one is no error.
	unasked := l.Turns != nil && *l.Turns == 0
	if l.IsError || l.Subtype != "success" || unasked {
		reason := cmp.Or(l.Result, strings.Join(l.Errors, "; "))
		switch {
		case reason == "" && unasked:
			reason = "the model was not asked: the task is a command of Claude Code"
		case reason == "":
			reason = l.Subtype
		}
		return append(events, s.fail(reason)...)
	}
	if strings.TrimSpace(l.Result) != "" {
		s.summary.LastMessage = clip(l.Result)
	}
	s.summary.Complete = s.summary.Err == ""
	return events
}

// contentText returns the text of a content, which is a string or a list of blocks.
func contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	if !decode(content, &blocks) {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}
