// Package runner knows the coding agents: what they are called and which programs they are. So far it
// only finds them. It never runs anything to find out, and looks nowhere but in the environment it is
// given.
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

// Agent is a coding agent that is here, or that somebody configured.
type Agent struct {
	Name       string
	Program    string // as it is called, or as it was configured
	Path       string // where it is; empty when it is not there
	Configured bool
	Err        error // why a configured one is not there
}

// Find lists the agents found on the PATH of env, in the order of the table, then those that only the
// configuration names, by name. The latter maps names to command lines; it beats the table, and what it
// names is listed also when it is not there.
func Find(env []string, configured map[string]string) []Agent {
	var agents []Agent
	for _, k := range known {
		if _, ok := configured[k.name]; ok {
			agents = append(agents, fromCommand(env, k.name, configured[k.name]))
			continue
		}
		for _, program := range k.programs {
			if path, err := proc.Look(env, program); err == nil {
				agents = append(agents, Agent{Name: k.name, Program: program, Path: path})
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if !slices.Contains(Known(), name) {
			agents = append(agents, fromCommand(env, name, configured[name]))
		}
	}
	return agents
}

// known is every agent that is found without being configured; where one goes by several program names,
// the first that is there counts.
var known = []struct {
	name     string
	programs []string
}{
	{"claude", []string{"claude"}},
	{"codex", []string{"codex"}},
	{"gemini", []string{"gemini"}},
	{"opencode", []string{"opencode"}},
	{"aider", []string{"aider"}},
	{"goose", []string{"goose"}},
	{"amp", []string{"amp"}},
	{"cursor-agent", []string{"cursor-agent"}},
	{"copilot", []string{"copilot"}},
	{"crush", []string{"crush"}},
	{"qwen", []string{"qwen"}},
}

// Known lists the names of the table, in its order.
func Known() []string {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.name
	}
	return names
}

func fromCommand(env []string, name, command string) Agent {
	a := Agent{Name: name, Program: command, Configured: true}
	words, err := Words(command)
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
	a.Path, a.Err = proc.Look(env, program)
	return a
}

func expandHome(env []string, program string) (string, error) {
	rest, ok := strings.CutPrefix(program, "~/")
	if !ok {
		return program, nil
	}
	home := proc.Variable(env, "HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("%s cannot be found without a HOME", program)
	}
	return filepath.Join(home, rest), nil
}
