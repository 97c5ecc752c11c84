package runs

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// sessionVariable is the variable of a run, besides those that every command in a sandbox has.
const sessionVariable = "AGENCY_SESSION_ID"

// continuePrompt is the prompt of an agent that is resumed without an answer or a task.
const continuePrompt = "Continue with the task. Its text is in the file that $AGENCY_TASK_FILE names.\n"

// execOptions returns the program of the run, its input and its environment. The task is never an argument: those are
// visible in process lists.
func (a *attempt) execOptions() (sandbox.ExecOptions, error) {
	m := a.record
	prompt, err := a.prompt()
	if err != nil {
		return sandbox.ExecOptions{}, err
	}
	opts := sandbox.ExecOptions{
		Force: a.req.Force, Terminal: a.req.Terminal,
		Env: append(a.identity(), sessionVariable+"="+m.SessionID),
	}
	switch {
	case a.askTimeout < 0:
		opts.Env = append(opts.Env, sandbox.AskTimeoutVariable+"=-1")
	case a.askTimeout > 0:
		opts.Env = append(opts.Env, sandbox.AskTimeoutVariable+"="+a.askTimeout.String())
	}
	if a.req.Terminal {
		opts.Stdin = a.req.Stdin
		if name := proc.Getenv(a.repo.Opts.Env, "TERM"); a.req.Detached && (name == "" || name == "dumb") {
			opts.Env = append(opts.Env, "TERM=xterm-256color") // of the terminals that can attach, nothing is known
		}
	} else if prompt != nil {
		opts.Stdin = bytes.NewReader(prompt)
	}
	switch spec, known := findSpec(a.repo, m.Runner); {
	case len(m.Command) > 0:
		opts.Argv = m.Command
	case known:
		err = a.launchAgent(spec, prompt, &opts)
	default:
		line, configured := a.repo.Settings.RunnerCommands()[m.Runner]
		if !configured {
			return opts, creation.UnknownRunnerError(m.Runner, runnable(a.repo))
		}
		opts.Argv = []string{"sh", "-c", runner.ExecLine(line)}
	}
	return opts, err
}

// prompt returns the task or the answer that the agent is given in this run; nil for none.
func (a *attempt) prompt() ([]byte, error) {
	path := a.repo.Store.TaskPath(a.repo.ID, a.sandbox.ID)
	switch {
	case a.req.Side != nil:
		return a.req.Side.Prompt, nil
	case a.record.ResumeWith == store.ResumeWithTask:
	case a.record.ResumeWith == store.ResumeWithAnswer:
		path = a.repo.Store.AnswerPath(a.repo.ID, a.sandbox.ID)
	default:
		return nil, nil
	}
	text, err := durable.ReadFile(path, MaxTask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// launchAgent completes the options with what is known about an agent.
func (a *attempt) launchAgent(spec runner.Spec, prompt []byte, opts *sandbox.ExecOptions) error {
	m := a.record
	launch := runner.Launch{
		StateDir: filepath.Join(a.sandbox.AgentStateDir(), spec.Name), Tree: a.sandbox.Tree, Session: m.RunnerSession, Resume: m.Runs > 0,
		Env: a.repo.Opts.Env, AskTimeout: a.askTimeout,
	}
	if m.Primitives.Isolation == settings.IsolationOS { // only behind walls does git-agency know its sandbox
		if m.Primitives.HasOtherRoot() {
			launch.MCP = []string{walls.ProgramInSoftware, "mcp"}
		} else if program, err := proc.LookPath(a.repo.Opts.Env, "git-agency"); err == nil {
			launch.MCP = []string{program, "mcp"}
		}
	}
	state, err := a.openState(spec)
	if err != nil {
		return err
	}
	defer state.Close()
	if spec.ChoosesSession {
		launch.Session = m.SessionID
		launch.Resume = hasSession(state, spec.SessionFile(m.SessionID))
	}
	if err := writeStateFiles(state, spec, launch); err != nil {
		return err
	}
	if spec.StateEnv != nil {
		opts.Env = append(opts.Env, spec.StateEnv(launch.StateDir)...)
	}
	if spec.AskEnv != nil && a.askTimeout != 0 {
		opts.Env = append(opts.Env, spec.AskEnv(launch)...)
	}
	opts.Env = slices.Concat(passedVariables(a.repo.Opts.Env, spec.PassNames(a.repo.Opts.Env)), spec.SetEnv, opts.Env)
	if a.req.Terminal {
		opts.Argv = spec.Interactive(launch)
		return nil
	}
	if prompt == nil {
		opts.Stdin = strings.NewReader(continuePrompt)
	}
	opts.Argv = spec.Headless(launch)
	if spec.NewStream != nil {
		a.stream = &streamReader{stream: spec.NewStream(), report: a.reportEvent}
	}
	return nil
}

// passedVariables returns the variables of an environment with these names; NAME_* is a prefix.
func passedVariables(env, names []string) []string {
	var passed []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(names, func(pattern string) bool {
			prefix, any := strings.CutSuffix(pattern, "*")
			return name == pattern || any && strings.HasPrefix(name, prefix)
		}) {
			passed = append(passed, kv)
		}
	}
	return passed
}

// identity returns the variables that give the agent's commits an author, unless they are set already. Behind walls some
// agents do not read the configuration of git.
func (a *attempt) identity() []string {
	var env []string
	for _, who := range []struct{ key, variable string }{
		{"user.name", "NAME"},
		{"user.email", "EMAIL"},
	} {
		value := a.repo.Git.Config.Value(who.key)
		for _, role := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
			if value != "" && proc.Getenv(a.repo.Opts.Env, role+who.variable) == "" {
				env = append(env, role+who.variable+"="+value)
			}
		}
	}
	return env
}
