package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFindSpec(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "gemini", "opencode"} {
		s, ok := FindSpec(name)
		if !ok || s.Name != name || s.Tried == "" || s.ChoosesSession != (s.SessionFile != nil) || !slices.Contains(KnownNames(), name) {
			t.Errorf("%s: %+v", name, s)
		}
		for _, login := range s.Logins {
			if !slices.ContainsFunc(s.Seeds, func(seed Seed) bool { return seed.From == login }) {
				t.Errorf("%s: the login %s is not a seed", name, login)
			}
		}
		// The walls hide the logins of other agents.
		for _, seed := range s.Seeds {
			if !slices.ContainsFunc(Logins()[name], func(dir string) bool { return seed.From == dir || strings.HasPrefix(seed.From, dir+"/") }) {
				t.Errorf("%s: the walls do not hide %s", name, seed.From)
			}
		}
	}
	if s, ok := FindSpec("aider"); ok {
		t.Errorf("%+v", s)
	}
}

// make test-agents installs the versions that the specs name.
func TestInstalledVersionsAreTheTriedOnes(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", "..", "scripts", "agents.sh"))
	if err != nil {
		t.Fatal(err)
	}
	installed := map[string]string{}
	for line := range strings.Lines(string(script)) {
		if words := strings.Fields(line); len(words) == 5 && words[0] == "agent" {
			installed[words[1]] = words[3]
		}
	}
	for _, s := range specs() {
		if installed[s.Name] != s.Tried {
			t.Errorf("scripts/agents.sh installs %s %q, but %q was tried", s.Name, installed[s.Name], s.Tried)
		}
	}
}

func TestCommandLines(t *testing.T) {
	t.Parallel()
	const (
		claudeArgs = `--dangerously-skip-permissions --settings {"sandbox":{"enabled":false},"skipDangerousModePermissionPrompt":true} --strict-mcp-config`
		codexArgs  = "--dangerously-bypass-approvals-and-sandbox -c check_for_update_on_startup=false -c analytics.enabled=false -c features.plugins=false -c features.apps=false"
	)
	first, again := Launch{Session: "id"}, Launch{Session: "id", Resume: true}
	mcp := Launch{MCP: []string{"/bin/git agency", "mcp", `a"b`}}
	for agent, want := range map[string]struct{ first, again, lost, mcp, headed, headedAgain string }{
		"claude": {
			first:       "claude -p --output-format stream-json --verbose " + claudeArgs + " --session-id id",
			again:       "claude -p --output-format stream-json --verbose " + claudeArgs + " --resume id",
			lost:        "claude -p --output-format stream-json --verbose " + claudeArgs,
			mcp:         "claude -p --output-format stream-json --verbose " + claudeArgs + ` --mcp-config {"mcpServers":{"agency":{"args":["mcp","a\"b"],"command":"/bin/git agency"}}}`,
			headed:      "claude " + claudeArgs + " --session-id id",
			headedAgain: "claude " + claudeArgs + " --resume id",
		},
		"codex": {
			first:       "codex exec --json --skip-git-repo-check " + codexArgs + " -",
			again:       "codex exec --json --skip-git-repo-check " + codexArgs + " resume id -",
			lost:        "codex exec --json --skip-git-repo-check " + codexArgs + " resume --last -",
			mcp:         "codex exec --json --skip-git-repo-check " + codexArgs + ` -c mcp_servers.agency={command="/bin/git agency",args=["mcp","a\"b"],env_vars=["AGENCY_INVOCATION_ID","AGENCY_SANDBOX","AGENCY_WORKTREE","AGENCY_ISOLATION","AGENCY_TASK_FILE","AGENCY_ANSWER_FILE","AGENCY_QUESTION_FILE","AGENCY_SESSION_ID","AGENCY_ASK_TIMEOUT"],tool_timeout_sec=3600} -`,
			headed:      "codex " + codexArgs,
			headedAgain: "codex " + codexArgs + " resume id",
		},
		"gemini": {
			first:       "gemini -o stream-json --approval-mode yolo --skip-trust --session-id id",
			again:       "gemini -o stream-json --approval-mode yolo --skip-trust --resume id",
			lost:        "gemini -o stream-json --approval-mode yolo --skip-trust",
			mcp:         "gemini -o stream-json --approval-mode yolo --skip-trust",
			headed:      "gemini --approval-mode yolo --skip-trust --session-id id",
			headedAgain: "gemini --approval-mode yolo --skip-trust --resume id",
		},
		"opencode": {
			first:       "opencode run --format json --auto",
			again:       "opencode run --format json --auto --session id",
			lost:        "opencode run --format json --auto --continue",
			mcp:         "opencode run --format json --auto",
			headed:      "opencode",
			headedAgain: "opencode --session id",
		},
	} {
		s, _ := FindSpec(agent)
		for _, c := range []struct {
			got  []string
			want string
		}{
			{s.Headless(first), want.first},
			{s.Headless(again), want.again},
			{s.Headless(Launch{Resume: true}), want.lost},
			{s.Headless(mcp), want.mcp},
			{s.Interactive(first), want.headed},
			{s.Interactive(again), want.headedAgain},
		} {
			if got := strings.Join(c.got, " "); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", agent, got, c.want)
			}
		}
	}
}

// The agent does not end a call of the tool ask before the host does.
func TestToolLimitIsLongerThanAskWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ask           time.Duration
		seconds, inMS string
	}{
		{0, "3600", "3600000"},
		{time.Second, "3600", "3600000"},
		{2 * time.Hour, "7260", "7260000"},
		{-1, "2147483", "2147483647"},
		{1 << 62, "2147483", "2147483647"},
	} {
		l := Launch{MCP: []string{"git-agency", "mcp"}, AskTimeout: c.ask}
		files := ""
		for _, agent := range []string{"gemini", "opencode"} {
			s, _ := FindSpec(agent)
			text, err := s.Files(l)[0].Merge(nil)
			if err != nil {
				t.Fatal(err)
			}
			files += strings.Join(strings.Fields(string(text)), "")
		}
		if n := strings.Count(files, `"timeout":`+c.inMS); n != 2 {
			t.Errorf("%s: %s", c.ask, files)
		}
		if argv := strings.Join(codex().Headless(l), " "); !strings.Contains(argv, "tool_timeout_sec="+c.seconds+"}") {
			t.Errorf("%s: %s", c.ask, argv)
		}
		if env := claude().AskEnv(l); len(env) != 1 || env[0] != "MCP_TOOL_TIMEOUT="+c.inMS {
			t.Errorf("%s: %s", c.ask, env)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, home, "gateway/.codex/config.toml", "model_provider = 'corp'\n[model_providers.corp]\nbase_url = \"http://10.0.0.7:8080/v1\"\nenv_key = \"CORP_KEY\"\n")
	write(t, home, "gateway/.claude/settings.json", `{"env": {"ANTHROPIC_BASE_URL": "https://llm.example.com/claude"}}`)
	write(t, home, "gateway/.gemini/.env", "GEMINI_API_KEY=x\nGOOGLE_GEMINI_BASE_URL=https://llm.example.com:8443\n")
	write(t, home, "gateway/.config/opencode/opencode.jsonc", `{"provider": {"corp": {"options": {"baseURL": "https://llm.example.com/v1", "apiKey": "{env:CORP_KEY}"}}}}`)
	write(t, home, "login/.local/share/opencode/auth.json", `{"anthropic": {"type": "oauth"}, "unknown": {}}`)
	write(t, home, "others/.claude/settings.json", `{"env": {"OPENAI_BASE_URL": "https://tool.example.com"}}`)
	write(t, home, "others/.claude.json", `{"mcpServers": {"x": {"env": {"X_BASE_URL": "https://tool.example.com"}}}}`)
	write(t, home, "others/.gemini/settings.json", `{"mcpServers": {"x": {"env": {"X_BASE_URL": "https://tool.example.com"}}}}`)
	write(t, home, "others/.codex/config.toml", "model_provider = \"openai\"\n[profiles.local]\nmodel_provider = \"local\"\n[model_providers.local]\nbase_url = \"http://127.0.0.1:11434/v1\"\n")
	gateway, login, others := "HOME="+filepath.Join(home, "gateway"), "HOME="+filepath.Join(home, "login"), "HOME="+filepath.Join(home, "others")
	for _, c := range []struct {
		agent string
		env   []string
		want  string
	}{
		{"claude", nil, "api.anthropic.com platform.claude.com"},
		{"claude", []string{"ANTHROPIC_API_KEY=x"}, "api.anthropic.com"},
		{"claude", []string{"ANTHROPIC_BASE_URL=http://127.0.0.1:8765", "ANTHROPIC_API_KEY=x"}, "127.0.0.1:8765"},
		{"claude", []string{"ANTHROPIC_BASE_URL=http://[::1]:8765/x"}, "[::1]:8765"},
		{"claude", []string{"ANTHROPIC_BASE_URL=http://gate.example"}, "gate.example:80"},
		{"claude", []string{"ANTHROPIC_BASE_URL=https://gate.example:443"}, "gate.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=https://{region}.example"}, "api.anthropic.com platform.claude.com"},
		{"claude", []string{"ANTHROPIC_BASE_URL=gate.example"}, "api.anthropic.com platform.claude.com"},
		{"claude", []string{gateway}, "llm.example.com"},
		{"claude", []string{others}, "api.anthropic.com platform.claude.com"},
		{"codex", []string{others}, "127.0.0.1:11434 chatgpt.com auth.openai.com api.openai.com"},
		{"codex", []string{others, "OPENAI_API_KEY=x"}, "127.0.0.1:11434 api.openai.com"},
		{"gemini", []string{others, "GEMINI_API_KEY=x"}, "generativelanguage.googleapis.com"},
		{"codex", nil, "chatgpt.com auth.openai.com api.openai.com"},
		{"codex", []string{"OPENAI_API_KEY=x"}, "api.openai.com"},
		{"codex", []string{gateway}, "10.0.0.7:8080"},
		{"gemini", nil, "cloudcode-pa.googleapis.com oauth2.googleapis.com generativelanguage.googleapis.com"},
		{"gemini", []string{"GEMINI_API_KEY=x"}, "generativelanguage.googleapis.com"},
		{"gemini", []string{"GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1"}, "127.0.0.1:1"},
		{"gemini", []string{gateway}, "llm.example.com:8443"},
		{"opencode", nil, "opencode.ai"},
		{"opencode", []string{"OPENAI_API_KEY=x"}, "api.openai.com auth.openai.com chatgpt.com"},
		{"opencode", []string{gateway}, "llm.example.com"},
		{"opencode", []string{login}, "api.anthropic.com platform.claude.com"},
		{"opencode", []string{`OPENCODE_CONFIG_CONTENT={"provider":{"f":{"options":{"baseURL":"http://127.0.0.1:9/v1"}}}}`}, "127.0.0.1:9"},
	} {
		s, _ := FindSpec(c.agent)
		if got := strings.Join(s.Hosts(c.env), " "); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.agent, c.env, got, c.want)
		}
	}
	for _, agent := range []string{"codex", "opencode"} {
		s, _ := FindSpec(agent)
		if !slices.Contains(s.PassNames([]string{gateway}), "CORP_KEY") {
			t.Errorf("%s does not get the key that its settings name", agent)
		}
		if got := s.Login([]string{gateway, "CORP_KEY=x"}); got != "CORP_KEY" {
			t.Errorf("%s: login %q", agent, got)
		}
	}
}

// A user whose key is in the settings of an agent is logged in.
func TestLoginInSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agent, file, text string
		found             bool
	}{
		{"claude", ".claude/settings.json", `{"env": {"ANTHROPIC_AUTH_TOKEN": "x"}}`, true},
		{"claude", ".claude/settings.json", `{"apiKeyHelper": "/usr/local/bin/key"}`, true},
		{"claude", ".claude.json", `{"primaryApiKey":"x"}`, true},
		{"claude", ".claude/settings.json", `{"env": {"ANTHROPIC_AUTH_TOKEN": "", "OTHER_API_KEY": "x"}}`, false},
		{"codex", ".codex/config.toml", "model_provider = \"local\"\n[model_providers.local]\nbase_url = \"http://127.0.0.1:11434/v1\"\n", true},
		{"codex", ".codex/config.toml", "[model_providers.corp]\nexperimental_bearer_token = 'x'\n", true},
		{"codex", ".codex/config.toml", "model_provider = \"corp\"\n[model_providers.corp]\nenv_key = \"UNSET\"\n", false},
		{"codex", ".codex/config.toml", "model = \"x\"\n", false},
		{"gemini", ".gemini/.env", "# key\nGEMINI_API_KEY=\"x\"\n", true},
		{"gemini", ".gemini/.env", "GEMINI_API_KEY=\nGOOGLE_CLOUD_PROJECT=p\n", false},
		{"opencode", ".config/opencode/opencode.json", `{"provider": {"l": {"options": {"baseURL": "http://127.0.0.1:11434/v1"}}}}`, true},
		{"opencode", ".config/opencode/opencode.json", `{"provider": {"c": {"options": {"apiKey": "{env:UNSET}"}}}}`, false},
		{"opencode", ".config/opencode/opencode.json", `{"model": "a/b"}`, false},
	} {
		home := t.TempDir()
		write(t, home, c.file, c.text)
		want := ""
		if c.found {
			want = filepath.Join(home, c.file)
		}
		s, _ := FindSpec(c.agent)
		if got := s.Login([]string{"HOME=" + home}); got != want {
			t.Errorf("%s with %s: %q, want %q", c.agent, c.text, got, want)
		}
	}
}

// What an agent must get, and what it must not, by the documents of the agents and by trying them.
func TestVariables(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]struct{ passed, set, neither string }{
		"claude": {
			"ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_MODEL CLAUDE_CODE_OAUTH_TOKEN",
			"IS_SANDBOX=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_SSE_PORT CLAUDECODE CLAUDE_CONFIG_DIR OPENAI_API_KEY",
		},
		"codex": {"OPENAI_API_KEY CODEX_API_KEY OPENAI_ORGANIZATION OPENAI_PROJECT", "", "CODEX_HOME CODEX_SANDBOX ANTHROPIC_API_KEY"},
		"gemini": {
			"GEMINI_API_KEY GOOGLE_API_KEY GOOGLE_GEMINI_BASE_URL GEMINI_MODEL GOOGLE_CLOUD_PROJECT GEMINI_CLI_CUSTOM_HEADERS",
			"GEMINI_SANDBOX=false GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_CLI_HOME GOOGLE_APPLICATION_CREDENTIALS OPENAI_API_KEY",
		},
		"opencode": {
			"OPENCODE_CONFIG_CONTENT OPENAI_API_KEY ANTHROPIC_API_KEY OPENROUTER_API_KEY",
			"OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			"OPENCODE_SERVER_PASSWORD OPENCODE_DISABLE_DEFAULT_PLUGINS AWS_SECRET_ACCESS_KEY",
		},
	} {
		s, _ := FindSpec(agent)
		names := s.PassNames(nil)
		passes := func(name string) bool {
			return slices.ContainsFunc(names, func(pattern string) bool {
				prefix, any := strings.CutSuffix(pattern, "*")
				return name == pattern || any && strings.HasPrefix(name, prefix)
			})
		}
		for name := range strings.FieldsSeq(want.passed) {
			if !passes(name) {
				t.Errorf("%s does not get %s", agent, name)
			}
		}
		for name := range strings.FieldsSeq(want.neither) {
			if passes(name) || slices.ContainsFunc(s.SetEnv, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
				t.Errorf("%s gets %s", agent, name)
			}
		}
		for kv := range strings.FieldsSeq(want.set) {
			if !slices.Contains(s.SetEnv, kv) {
				t.Errorf("%s: %s is not set", agent, kv)
			}
		}
	}
}

func TestSeedPathFollowsRelocatedState(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, home, "moved/.credentials.json", "{}")
	write(t, home, "moved/opencode/auth.json", "{}")
	write(t, home, ".gemini/oauth_creds.json", "{}")
	write(t, home, ".codex/auth.json", "")
	for _, c := range []struct{ agent, variable, want string }{
		{"claude", "", ""},
		{"claude", "CLAUDE_CONFIG_DIR=" + home + "/moved", home + "/moved/.credentials.json"},
		{"claude", "ANTHROPIC_API_KEY=x", "ANTHROPIC_API_KEY"},
		{"codex", "", ""}, // the file is empty
		{"gemini", "", home + "/.gemini/oauth_creds.json"},
		{"gemini", "GEMINI_CLI_HOME=" + home + "/moved", ""},
		{"opencode", "XDG_DATA_HOME=" + home + "/moved", home + "/moved/opencode/auth.json"},
	} {
		s, _ := FindSpec(c.agent)
		if got := s.Login([]string{"HOME=" + home, c.variable}); got != c.want {
			t.Errorf("%s with %q: %q, want %q", c.agent, c.variable, got, c.want)
		}
	}
	if got := claude().SeedPath([]string{"HOME=relative"}, Seed{From: "x"}); got != "" {
		t.Errorf("%q", got)
	}
}

func TestFilesMergeWithSettingsOfTheUser(t *testing.T) {
	t.Parallel()
	launch := Launch{Tree: `/home/me/a "tree"`, MCP: []string{"git-agency", "mcp"}, Env: []string{"ANTHROPIC_API_KEY=sk-0123456789-0123456789-end", "GEMINI_API_KEY=x"}}
	for _, c := range []struct{ agent, existing, want string }{
		{
			"claude", `{"oauthAccount":{"id":12345678901234567890},"projects":{"/home/me/other":{"history":["secret"]},"/home/me/a \"tree\"":{"kept":1}}}`,
			`{"oauthAccount":{"id":12345678901234567890},"hasCompletedOnboarding":true,
			"projects":{"/home/me/a \"tree\"":{"kept":1,"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}},
			"customApiKeyResponses":{"approved":["56789-0123456789-end"]}}`,
		},
		{
			"claude", `{"customApiKeyResponses":{"rejected":["56789-0123456789-end"]}}`,
			`{"hasCompletedOnboarding":true,"projects":{"/home/me/a \"tree\"":{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}},
			"customApiKeyResponses":{"rejected":["56789-0123456789-end"]}}`,
		},
		{
			"gemini", "{\n// mine\n\"ui\": {\"theme\": \"a//b\",}, /* no */ \"security\": {\"auth\": {\"selectedType\": \"oauth-personal\"}},}",
			`{"ui":{"theme":"a//b"},"security":{"auth":{"selectedType":"oauth-personal"}},
			"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"privacy":{"usageStatisticsEnabled":false},
			"mcpServers":{"agency":{"command":"git-agency","args":["mcp"],"trust":true,"timeout":3600000}}}`,
		},
		{
			"gemini", "",
			`{"security":{"auth":{"selectedType":"gemini-api-key"}},
			"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"privacy":{"usageStatisticsEnabled":false},
			"mcpServers":{"agency":{"command":"git-agency","args":["mcp"],"trust":true,"timeout":3600000}}}`,
		},
		{
			"opencode", `{"model":"a/b","mcp":{"mine":{"type":"remote"}}}`,
			`{"model":"a/b","autoupdate":false,"share":"disabled",
			"mcp":{"mine":{"type":"remote"},"agency":{"type":"local","command":["git-agency","mcp"],"enabled":true,"timeout":3600000}}}`,
		},
	} {
		s, _ := FindSpec(c.agent)
		merge := s.Files(launch)[0].Merge
		once, err := merge([]byte(c.existing))
		if err != nil {
			t.Fatal(err)
		}
		if canonical(t, once) != canonical(t, []byte(c.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", c.agent, once, c.want)
		}
		if twice, err := merge(once); err != nil || string(twice) != string(once) {
			t.Errorf("%s again: %v\n%s", c.agent, err, twice)
		}
		if _, err := merge([]byte(`{"half`)); err == nil {
			t.Errorf("%s: damaged settings are accepted", c.agent)
		}
	}

	merge := codex().Files(launch)[0].Merge
	once, err := merge([]byte("model = \"x\""))
	want := "model = \"x\"\n[projects.\"/home/me/a \\\"tree\\\"\"]\ntrust_level = \"trusted\"\n"
	if err != nil || string(once) != want {
		t.Errorf("codex: %q, %v", once, err)
	}
	if twice, err := merge(once); err != nil || string(twice) != want {
		t.Errorf("codex again: %q, %v", twice, err)
	}
}

func FuzzPlainJSON(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"a//b": "c/*", /* x */ "d": [1,], // y` + "\n}", `"\`, "/*", "//", "[,]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := plainJSON([]byte(text))
		if len(got) != len(text) {
			t.Errorf("%q became %q", text, got)
		}
		if json.Valid([]byte(text)) && string(got) != text {
			t.Errorf("valid %q became %q", text, got)
		}
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func canonical(t *testing.T, text []byte) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
