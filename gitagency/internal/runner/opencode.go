package runner

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// opencode describes opencode. It has no sandbox of its own.
func opencode() Spec {
	s := Spec{
		Name: "opencode", Program: "opencode", Tried: "1.18.33",
		Headless: func(l Launch) []string {
			// Without a message among the arguments, the message is standard input.
			return append([]string{"opencode", "run", "--format", "json", "--auto"}, opencodeOptions(l)...)
		},
		Interactive: func(l Launch) []string { return append([]string{"opencode"}, opencodeOptions(l)...) },
		NewStream:   func() Stream { return &opencodeStream{} },
		StateEnv: func(dir string) []string {
			return []string{
				"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "XDG_DATA_HOME=" + filepath.Join(dir, "data"),
				"XDG_STATE_HOME=" + filepath.Join(dir, "state"),
			}
		},
		Files: func(l Launch) []File {
			return []File{{Name: "config/opencode/opencode.json", Merge: l.mergeOpencode}}
		},
		PassEnv: []string{"OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR", "OPENCODE_PERMISSION"},
		KeyEnv:  regexp.MustCompile(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}`),
		KeyText: regexp.MustCompile(`"(?:apiKey|baseURL)"\s*:\s*"[^"]`),
		SetEnv: []string{
			// Not OPENCODE_DISABLE_DEFAULT_PLUGINS: without them it does not find the provider of a login by OAuth.
			"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_SHARE=1",
		},
		Logins: []string{".local/share/opencode/auth.json"},
		Seeds: []Seed{
			{From: ".local/share/opencode/auth.json", Moved: "opencode/auth.json", Env: "XDG_DATA_HOME", To: "data/opencode/auth.json"},
		},
	}
	for _, p := range opencodeProviders {
		if !slices.Contains(s.Keys, p.key) {
			s.Keys = append(s.Keys, p.key)
		}
	}
	for _, name := range []string{
		"config.json", "opencode.json", "opencode.jsonc", "AGENTS.md", "agent", "agents", "command", "commands", "skill", "skills",
	} {
		s.Seeds = append(s.Seeds, Seed{
			From: ".config/opencode/" + name, Moved: "opencode/" + name, Env: "XDG_CONFIG_HOME", To: "config/opencode/" + name,
			Settings: filepath.Ext(name) == ".json" || filepath.Ext(name) == ".jsonc",
		})
	}
	s.Hosts = func(env []string) []string {
		hosts := s.configuredHosts(env)
		for _, text := range firstGroups(baseURL(), []byte(proc.Getenv(env, "OPENCODE_CONFIG_CONTENT"))) {
			hosts = append(hosts, urlHost(text))
		}
		logins := s.opencodeLogins(env)
		for _, p := range opencodeProviders {
			if proc.Getenv(env, p.key) != "" || slices.Contains(logins, p.name) {
				hosts = append(hosts, p.hosts...)
			}
		}
		if len(hosts) == 0 {
			hosts = []string{"opencode.ai"} // models without a login
		}
		slices.Sort(hosts)
		return slices.DeleteFunc(slices.Compact(hosts), func(h string) bool { return h == "" })
	}
	return s
}

func opencodeOptions(l Launch) []string {
	switch {
	case l.Resume && l.Session != "":
		return []string{"--session", l.Session}
	case l.Resume: // of the state directory; a new session if there is none
		return []string{"--continue"}
	}
	return nil
}

// opencodeProviders are the providers of models whose host follows from a variable or a login. Others are given in
// --outputs.
var opencodeProviders = []struct {
	name, key string
	hosts     []string
}{
	{"anthropic", "ANTHROPIC_API_KEY", []string{"api.anthropic.com", "platform.claude.com"}},
	{"openai", "OPENAI_API_KEY", []string{"api.openai.com", "auth.openai.com", "chatgpt.com"}},
	{"google", "GEMINI_API_KEY", []string{"generativelanguage.googleapis.com"}},
	{"google", "GOOGLE_GENERATIVE_AI_API_KEY", []string{"generativelanguage.googleapis.com"}},
	{"opencode", "OPENCODE_API_KEY", []string{"opencode.ai"}},
	{"openrouter", "OPENROUTER_API_KEY", []string{"openrouter.ai"}},
	{"github-copilot", "GITHUB_COPILOT_TOKEN", []string{"api.github.com", "api.githubcopilot.com"}},
	{"groq", "GROQ_API_KEY", []string{"api.groq.com"}},
	{"mistral", "MISTRAL_API_KEY", []string{"api.mistral.ai"}},
	{"deepseek", "DEEPSEEK_API_KEY", []string{"api.deepseek.com"}},
	{"xai", "XAI_API_KEY", []string{"api.x.ai"}},
}

// opencodeLogins returns the names of the providers that the user is logged in to.
func (s Spec) opencodeLogins(env []string) []string {
	var names []string
	for _, seed := range s.Seeds {
		if path := s.SeedPath(env, seed); path != "" && slices.Contains(s.Logins, seed.From) {
			var logins map[string]json.RawMessage
			if decode(readSettings(path), &logins) {
				for name := range logins {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// mergeOpencode sets what has no option on the command line. A file opencode.jsonc of the user counts besides.
func (l Launch) mergeOpencode(existing []byte) ([]byte, error) {
	return mergeJSON("opencode.json", existing, func(config map[string]any) {
		config["autoupdate"] = false
		config["share"] = "disabled"
		servers := objectAt(config, "mcp")
		delete(servers, "agency")
		if len(l.MCP) > 0 {
			servers["agency"] = map[string]any{"type": "local", "command": l.MCP, "enabled": true, "timeout": l.toolLimit().Milliseconds()}
		}
	})
}

// opencodeStream reads run --format json.
type opencodeStream struct{ recorder }

func (s *opencodeStream) Line(line []byte) []Event {
	var l struct {
		Type      string `json:"type"`
		SessionID string `json:"sessionID"`
		Part      struct {
			Text   string       `json:"text"`
			Tool   string       `json:"tool"`
			CallID string       `json:"callID"`
			State  opencodeTool `json:"state"`
			Reason string       `json:"reason"`
			Cost   float64      `json:"cost"`
			Tokens struct {
				Total     float64 `json:"total"`
				Input     float64 `json:"input"`
				Output    float64 `json:"output"`
				Reasoning float64 `json:"reasoning"`
				Cache     struct {
					Read  float64 `json:"read"`
					Write float64 `json:"write"`
				} `json:"cache"`
			} `json:"tokens"`
		} `json:"part"`
		Error struct {
			Name string `json:"name"`
			Data struct {
				Message string `json:"message"`
			} `json:"data"`
		} `json:"error"`
	}
	if !decode(line, &l) {
		return nil
	}
	s.session(l.SessionID)
	switch l.Type {
	case "text":
		return s.message(l.Part.Text)
	case "tool_use": // written when the tool has ended
		return s.tool(l.Part.CallID, l.Part.Tool, l.Part.State)
	case "error":
		reason := l.Error.Data.Message
		if reason == "" {
			reason = l.Error.Name
		}
		return s.fail(reason)
	case "step_finish":
		t := l.Part.Tokens
		tokens := count(t.Total)
		if tokens == 0 {
			tokens = count(t.Input, t.Output, t.Reasoning, t.Cache.Read, t.Cache.Write)
		}
		events := s.usage(count(float64(s.summary.Tokens), float64(tokens)), dollars(s.summary.CostUSD+dollars(l.Part.Cost)))
		switch l.Part.Reason {
		case "stop":
			s.summary.Complete = s.summary.Err == ""
		case "tool-calls":
			s.summary.Complete = false // another step follows
		default:
			events = append(events, s.fail("the model ended its answer: "+l.Part.Reason)...)
		}
		return events
	}
	return nil
}

type opencodeTool struct {
	Status   string          `json:"status"`
	Input    json.RawMessage `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Metadata struct {
		Exit float64 `json:"exit"`
	} `json:"metadata"`
}

// isOpencodeDenial reports whether an error of a tool says that the user's settings forbid it. It has no code of its own.
func isOpencodeDenial(text string) bool {
	return strings.Contains(text, "prevents you from using this specific tool call") || strings.Contains(text, "rejected permission")
}

func (s *opencodeStream) tool(id, tool string, state opencodeTool) []Event {
	events := s.call(id, tool, state.Input)
	s.toolOf(id)
	switch {
	case state.Status == "error" && isOpencodeDenial(state.Error):
		return append(events, s.denied(tool, state.Error)...)
	case state.Status == "error":
		return append(events, s.toolError(tool, state.Error)...)
	case state.Metadata.Exit != 0:
		return append(events, s.toolError(tool, "exit code "+strconv.FormatInt(count(state.Metadata.Exit), 10)+"\n"+state.Output)...)
	}
	return events
}
