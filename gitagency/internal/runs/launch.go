package runs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
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
		opts.Argv = []string{"sh", "-c", line}
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
		Env: a.repo.Opts.Env,
	}
	if m.Primitives.Isolation == settings.IsolationOS { // only behind walls does git-agency know its sandbox
		if program, err := proc.LookPath(a.repo.Opts.Env, "git-agency"); err == nil {
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

// hasSession reports whether a file that matches a pattern is in a state directory. The record cannot tell: a run that was
// killed, or was interactive, has a session of which no stream told.
func hasSession(state *os.Root, pattern string) bool {
	found, err := fs.Glob(state.FS(), pattern)
	return err == nil && len(found) > 0
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

// openState opens the directory where the agent keeps its state in this sandbox, and creates it first with the user's login
// and settings. Commands of the sandbox can write the directory around it, so nothing is reached by its path: a symbolic
// link there must not lead out.
func (a *attempt) openState(spec runner.Spec) (*os.Root, error) {
	if err := os.MkdirAll(a.sandbox.AgentStateDir(), 0o700); err != nil {
		return nil, err
	}
	all, err := os.OpenRoot(a.sandbox.AgentStateDir())
	if err != nil {
		return nil, err
	}
	defer all.Close()
	state, err := all.OpenRoot(spec.Name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := seedState(all, spec, a.repo.Opts.Env); err != nil {
			return nil, err
		}
		state, err = all.OpenRoot(spec.Name)
	}
	return state, err
}

// writeStateFiles writes the files that the agent needs for this run.
func writeStateFiles(state *os.Root, spec runner.Spec, launch runner.Launch) error {
	if spec.Files == nil {
		return nil
	}
	for _, f := range spec.Files(launch) {
		existing, err := readBeneath(state, f.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		content, err := f.Merge(existing)
		if err == nil {
			err = writeBeneath(state, f.Name, content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxSeed bounds each file that a state directory begins with or that is merged in it.
const maxSeed = 8 << 20

// seedState creates the state directory of an agent, all of it or nothing.
func seedState(all *os.Root, spec runner.Spec, env []string) error {
	temp := durable.TempPrefix + spec.Name
	if err := errors.Join(all.RemoveAll(temp), all.Mkdir(temp, 0o700)); err != nil {
		return err
	}
	for _, seed := range spec.Seeds {
		path := spec.SeedPath(env, seed)
		if path == "" {
			continue
		}
		if err := copySeed(path, all, filepath.Join(temp, seed.To)); err != nil {
			return errors.Join(err, all.RemoveAll(temp))
		}
	}
	if err := all.Rename(temp, spec.Name); err != nil {
		return errors.Join(err, all.RemoveAll(temp))
	}
	return nil
}

// copySeed copies a file, or the files of a directory. It leaves out files that do not exist, are not regular or are too
// large.
func copySeed(from string, root *os.Root, to string) error {
	fi, err := os.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 && isDirectory(filepath.Join(from, e.Name())) {
				continue // it may lead back
			}
			if err := copySeed(filepath.Join(from, e.Name()), root, filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return nil
	case !fi.Mode().IsRegular() || fi.Size() > maxSeed:
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeBeneath(root, to, text)
}

func isDirectory(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// readBeneath reads a file in a directory that an agent can write.
func readBeneath(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")})
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSeed+1))
	if err == nil && len(text) > maxSeed {
		err = &fault.InvalidError{What: "file", Value: name, Want: "a smaller file"}
	}
	return text, err
}

// writeBeneath replaces a file in a directory that an agent can write.
func writeBeneath(root *os.Root, name string, content []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	temp := name + ".new"
	if err := root.RemoveAll(temp); err != nil {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	return err
}
