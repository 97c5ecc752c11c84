package runner

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// gemini describes the Gemini CLI. Its shell tool runs git without the user's configuration, so commits need the
// identity in variables; and it does not tell the exit codes of commands.
func gemini() Spec {
	s := Spec{
		Name: "gemini", Program: "gemini", Tried: "0.61.0",
		ChoosesSession: true,
		SessionFile: func(session string) string {
			const used = 8 // characters of the id in the name
			return ".gemini/tmp/*/chats/session-*-" + session[:min(used, len(session))] + ".json*"
		},
		Headless: func(l Launch) []string {
			// Without -p and a terminal, the prompt is standard input.
			return append([]string{"gemini", "-o", "stream-json"}, geminiOptions(l)...)
		},
		Interactive: func(l Launch) []string { return append([]string{"gemini"}, geminiOptions(l)...) },
		NewStream:   func() Stream { return &geminiStream{} },
		StateEnv:    func(dir string) []string { return []string{"GEMINI_CLI_HOME=" + dir} },
		Files:       func(l Launch) []File { return []File{{Name: ".gemini/settings.json", Merge: l.mergeGemini}} },
		PassEnv: []string{
			"GEMINI_MODEL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT_ID", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI",
			"GOOGLE_GENAI_USE_GCA", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_GENAI_API_VERSION",
			"GEMINI_API_KEY_AUTH_MECHANISM", "GEMINI_CLI_CUSTOM_HEADERS",
		},
		SetEnv:  []string{"GEMINI_SANDBOX=false", "GEMINI_CLI_TRUST_WORKSPACE=true", "NO_BROWSER=true"},
		Keys:    []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
		KeyText: regexp.MustCompile(`(?m)^\s*(?:export\s+)?(?:GEMINI_API_KEY|GOOGLE_API_KEY)[ \t]*=[ \t]*["']?[^\s"']`), // .env
		HomeEnv: "GEMINI_CLI_HOME",
		Logins:  []string{".gemini/oauth_creds.json", ".gemini/gemini-credentials.json"},
	}
	for _, name := range []string{
		"settings.json", ".env", "oauth_creds.json", "gemini-credentials.json", "google_accounts.json", "installation_id",
		"GEMINI.md", "commands", "policies", "skills",
	} {
		path := ".gemini/" + name // also below GEMINI_CLI_HOME
		s.Seeds = append(s.Seeds, Seed{From: path, Moved: path, To: path, Settings: name == "settings.json" || name == ".env"})
	}
	s.Hosts = func(env []string) []string {
		if hosts := s.configuredHosts(env, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"); hosts != nil {
			return hosts
		}
		switch {
		case proc.Getenv(env, "GOOGLE_GENAI_USE_VERTEXAI") == "true":
			return []string{"aiplatform.googleapis.com", "*.googleapis.com"} // one host for each location
		case proc.Getenv(env, "GEMINI_API_KEY") != "":
			return []string{"generativelanguage.googleapis.com"}
		}
		return []string{"cloudcode-pa.googleapis.com", "oauth2.googleapis.com", "generativelanguage.googleapis.com"}
	}
	return s
}

func geminiOptions(l Launch) []string {
	options := []string{"--approval-mode", "yolo", "--skip-trust"}
	switch {
	case l.Resume && l.Session != "":
		return append(options, "--resume", l.Session)
	case l.Session != "":
		return append(options, "--session-id", l.Session)
	}
	return options
}

// mergeGemini sets what has no option on the command line.
func (l Launch) mergeGemini(existing []byte) ([]byte, error) {
	return mergeJSON(".gemini/settings.json", existing, func(config map[string]any) {
		general := objectAt(config, "general")
		general["enableAutoUpdate"] = false
		general["enableAutoUpdateNotification"] = false
		objectAt(config, "privacy")["usageStatisticsEnabled"] = false

		// With a base URL and no choice of a login the program refuses to start.
		auth := objectAt(objectAt(config, "security"), "auth")
		if auth["selectedType"] == nil && proc.Getenv(l.Env, "GEMINI_API_KEY") != "" && proc.Getenv(l.Env, "GOOGLE_GENAI_USE_VERTEXAI") != "true" {
			auth["selectedType"] = "gemini-api-key"
		}
		servers := objectAt(config, "mcpServers")
		delete(servers, "agency")
		if len(l.MCP) > 0 {
			servers["agency"] = map[string]any{"command": l.MCP[0], "args": l.MCP[1:], "trust": true, "timeout": l.toolLimit().Milliseconds()}
		}
	})
}

// geminiStream reads -o stream-json.
type geminiStream struct {
	recorder
	text strings.Builder // message that is being written
}

func (s *geminiStream) Line(line []byte) []Event {
	var l struct {
		Type      string          `json:"type"`
		SessionID string          `json:"session_id"`
		Role      string          `json:"role"`
		Content   string          `json:"content"`
		Tool      string          `json:"tool_name"`
		ToolID    string          `json:"tool_id"`
		Arguments json.RawMessage `json:"parameters"`
		Status    string          `json:"status"`
		Severity  string          `json:"severity"`
		Message   string          `json:"message"`
		Output    string          `json:"output"`
		Error     struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Stats struct {
			Total float64 `json:"total_tokens"`
		} `json:"stats"`
	}
	if !decode(line, &l) {
		return nil
	}
	if l.Type == "message" && l.Role == "assistant" {
		if s.text.Len() < maxText {
			s.text.WriteString(clip(l.Content))
		}
		return nil
	}
	var events []Event
	if l.Type != "" { // a message ends where another event begins
		events = s.message(s.text.String())
		s.text.Reset()
	}
	switch l.Type {
	case "init":
		s.session(l.SessionID)
	case "tool_use":
		return append(events, s.call(l.ToolID, l.Tool, l.Arguments)...)
	case "tool_result":
		tool := s.toolOf(l.ToolID)
		switch {
		case l.Error.Type == "policy_violation":
			return append(events, s.denied(tool, l.Error.Message)...)
		case l.Status == "error" || l.Error.Message != "":
			return append(events, s.toolError(tool, l.Error.Message)...)
		}
	case "error":
		if l.Severity == "error" {
			return append(events, s.fail(l.Message)...)
		}
		return append(events, s.warn(l.Message)...)
	case "result":
		events = append(events, s.usage(count(l.Stats.Total), 0)...)
		if l.Status != "success" {
			return append(events, s.fail(l.Error.Message)...)
		}
		s.summary.Complete = s.summary.Err == ""
	}
	return events
}
