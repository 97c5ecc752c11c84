// Package runner knows coding agents: their programs, how each is run, and what its output says. It must never run a
// program, also not to find one, and reads nothing but the environment it is given and the file system.
package runner

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Agent is a coding agent that is installed or configured.
type Agent struct {
	Name       string
	Program    string // program name, or first word of the configured command line
	Path       string // absolute path of the program; empty when not found
	Configured bool
	Err        error // reason why a configured program was not found
}

// Find lists the agents found on the PATH of env, in the order of the table, then the agents that are only configured,
// by name. configured maps names to command lines; it overrides the table, and its agents are listed even when their
// program is not found.
func Find(env []string, configured map[string]string) []Agent {
	var agents []Agent
	for _, k := range knownAgents {
		if _, ok := configured[k.name]; ok {
			agents = append(agents, configuredAgent(env, k.name, configured[k.name]))
			continue
		}
		for _, program := range k.programs {
			if path, err := proc.LookPath(env, program); err == nil {
				agents = append(agents, Agent{Name: k.name, Program: program, Path: path})
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if !slices.Contains(KnownNames(), name) {
			agents = append(agents, configuredAgent(env, name, configured[name]))
		}
	}
	return agents
}

// knownAgents are the agents found without configuration. Of several program names, the first that exists counts. The
// logins are the paths below the home where an agent keeps its login, settings and sessions.
var knownAgents = []struct {
	name     string
	programs []string
	logins   []string
}{
	{"claude", []string{"claude"}, []string{".claude", ".claude.json", ".config/claude"}},
	{"codex", []string{"codex"}, []string{".codex"}},
	{"gemini", []string{"gemini"}, []string{".gemini"}},
	{"opencode", []string{"opencode"}, []string{".local/share/opencode", ".local/state/opencode", ".config/opencode"}},
	{"aider", []string{"aider"}, []string{".aider", ".aider.conf.yml"}},
	{"goose", []string{"goose"}, []string{".config/goose", ".local/share/goose"}},
	{"amp", []string{"amp"}, []string{".config/amp", ".local/share/amp"}},
	{"cursor-agent", []string{"cursor-agent"}, []string{".cursor", ".config/cursor"}},
	{"copilot", []string{"copilot"}, []string{".copilot", ".config/github-copilot"}},
	{"crush", []string{"crush"}, []string{".config/crush", ".local/share/crush"}},
	{"qwen", []string{"qwen"}, []string{".qwen"}},
}

// KnownNames returns the names of the knownAgents, in their order.
func KnownNames() []string {
	names := make([]string, len(knownAgents))
	for i, k := range knownAgents {
		names[i] = k.name
	}
	return names
}

// Logins maps the names of the knownAgents to their logins, relative to the home.
func Logins() map[string][]string {
	logins := map[string][]string{}
	for _, k := range knownAgents {
		logins[k.name] = k.logins
	}
	return logins
}

func configuredAgent(env []string, name, command string) Agent {
	a := Agent{Name: name, Program: command, Configured: true}
	words, err := SplitWords(command)
	switch {
	case err != nil:
		a.Err = err
		return a
	case len(words) == 0:
		a.Err = errors.New("the command is empty")
		return a
	}
	a.Program = words[0]
	program, err := expandHome(env, a.Program)
	if err != nil {
		a.Err = err
		return a
	}
	a.Path, a.Err = proc.LookPath(env, program)
	return a
}

func expandHome(env []string, program string) (string, error) {
	rest, ok := strings.CutPrefix(program, "~/")
	if !ok {
		return program, nil
	}
	home := proc.Getenv(env, "HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("%s: HOME is not an absolute path", program)
	}
	return filepath.Join(home, rest), nil
}
