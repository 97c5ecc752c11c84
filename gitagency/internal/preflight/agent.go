package preflight

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// agent is the program that would run: exactly one of spec, command and argv, or none of them.
type agent struct {
	name    string
	spec    *runner.Spec // agent of the table
	command string       // shell line of agency.<runner>.command
	argv    []string
}

// findAgent finds the agent of a request. A configured command takes the place of an agent of the table.
func findAgent(r *core.Repository, req Request, findSpec func(name string) (runner.Spec, bool)) agent {
	a := agent{name: req.Start.Runner, argv: req.Argv}
	if len(a.argv) > 0 || a.name == "" {
		return a
	}
	if command, configured := r.Settings.RunnerCommands()[a.name]; configured {
		a.command = command
	} else if spec, known := findSpec(a.name); known {
		a.spec = &spec
	}
	return a
}

// checkRunner checks that the program exists, can be executed and is visible behind the walls.
func checkRunner(ctx context.Context, s *subject) result {
	program, res := s.findProgram()
	if res.failed || program == "" {
		return res
	}
	if !filepath.IsAbs(program) {
		return s.checkInSandbox(ctx, program)
	}
	if _, _, err := s.softwareRoot(); err != nil {
		return passed("not looked up, since the software is not there yet")
	}
	if s.prims.HasOtherRoot() { // its programs are not run here
		return passed("%s in %s", program, s.prims.Software)
	}
	if hidden := s.hiddenPath(program); hidden != "" {
		remedy := "git config --global --add " + settings.ReadKey + " " + quote.Shell(hidden)
		if name, isIn := s.pathInWorktree(hidden); isIn { // no setting can show it
			remedy = "name it by its path in the sandbox: " + quote.Shell("./"+name)
		}
		return result{failed: true, reason: fmt.Sprintf("the walls hide %s", hidden), remedy: remedy}
	}
	if s.agent.spec == nil || !s.req.Version {
		return passed("%s", program)
	}
	version, err := readVersion(ctx, s.repo.Opts.Env, *s.agent.spec, program)
	if err != nil {
		return result{failed: true, reason: fmt.Sprintf("%s --version: %v", program, err), remedy: "install it again, and try: " + quote.Shell(program) + " --version"}
	}
	return passed("%s, version %s; tried with %s", program, version, s.agent.spec.Tried)
}

// findProgram returns the path of the program: a relative one names a file of the sandbox. It is empty, with the result, if
// there is none to look for, or it was not found.
func (s *subject) findProgram() (string, result) {
	a, env := s.agent, s.repo.Opts.Env
	word, install := "", ""
	switch {
	case len(a.argv) > 0:
		word = a.argv[0]
	case a.command != "":
		var res result
		if word, res = a.firstWord(); word == "" {
			return "", res
		}
		install = "git config --global " + quote.Shell("agency."+a.name+".command") + " '<command>'"
	case a.spec != nil:
		word = a.spec.Program
		install = "install " + word + ", or name its program: git config --global " + quote.Shell("agency."+a.name+".command") + " '<command>'"
	case a.name == "":
		return "", passed("none is named")
	default:
		return "", result{
			failed: true, reason: fmt.Sprintf("it is not known how to run %s", a.name),
			remedy: "git config --global " + quote.Shell("agency."+a.name+".command") + " '<command>'",
		}
	}
	if a.command != "" {
		word = settings.ExpandHome(word, proc.Getenv(env, "HOME"))
	}
	if strings.Contains(word, "/") && !filepath.IsAbs(word) {
		return word, result{}
	}
	program, err := s.lookPath(word)
	if err != nil && (a.command == "" || !runner.IsShellWord(word)) {
		if s.prims.HasOtherRoot() {
			install = "install " + word + " into " + s.prims.Software + ", or name a program that is there"
			if s.prims.NamesImage() {
				install = "make an image that has " + word + ", or name a program that " + s.prims.Software + " has"
			}
		}
		if install == "" {
			install = "name a program that exists, or extend PATH"
		}
		return "", result{failed: true, reason: err.Error(), remedy: install}
	}
	if err != nil {
		return "", passed("a line for the shell: %s", a.command)
	}
	return program, result{}
}

// lookPath finds a program where the command will run.
func (s *subject) lookPath(word string) (string, error) {
	if !s.prims.HasOtherRoot() {
		return proc.LookPath(s.repo.Opts.Env, word)
	}
	dir, env, err := s.softwareRoot()
	if err != nil {
		return path.Join("/", word), nil // checkSoftware reports it, or the image has yet to be unpacked
	}
	return rootfs.LookPath(dir, rootfs.PathOf(env), word)
}

// firstWord returns the first word of the shell line that may name a program: assignments of variables before it are
// skipped. It is empty with the result if the line has none, or one that only a shell can expand.
func (a agent) firstWord() (string, result) {
	words, err := runner.SplitWords(a.command)
	if err != nil {
		return "", result{failed: true, reason: fmt.Sprintf("agency.%s.command: %v", a.name, err), remedy: "correct it: git config --global --edit"}
	}
	for _, w := range words {
		if name, _, assigns := strings.Cut(w, "="); assigns && !strings.ContainsAny(name, "/.-") {
			continue
		}
		if strings.ContainsAny(w, "$`(){}<>|&;") {
			break
		}
		return w, result{}
	}
	if len(words) == 0 {
		return "", result{failed: true, reason: "agency." + a.name + ".command is empty", remedy: "git config --global " + quote.Shell("agency."+a.name+".command") + " '<command>'"}
	}
	return "", passed("a line for the shell: %s", a.command)
}

// hiddenPath returns the path that the walls hide of a program and the file that its symbolic links lead to; empty if the
// program is visible.
func (s *subject) hiddenPath(program string) string {
	plan, err := s.plan()
	if err != nil || !sandbox.NeedsWalls(s.prims) || plan.Plan.NetworkOnly {
		return ""
	}
	link := filepath.Join(guard.ResolveOrEmpty(filepath.Dir(program)), filepath.Base(program))
	for _, path := range []string{link, guard.ResolveOrEmpty(program)} {
		if path != "" && !plan.Plan.IsVisible(path) {
			return path
		}
	}
	return ""
}

// versionTimeout bounds <program> --version.
const versionTimeout = 10 * time.Second

// readVersion returns the first line that a program prints with --version. It runs in the root directory, without standard
// input, and with the variables that keep the agent from updating itself.
func readVersion(ctx context.Context, env []string, spec runner.Spec, program string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, fmt.Errorf("it did not end within %s", versionTimeout))
	defer cancel()
	var out tailBuffer
	res, err := proc.Run(ctx, proc.Command{
		Argv: []string{program, "--version"}, Dir: "/", Env: settings.DedupeEnv(slices.Concat(env, spec.SetEnv)),
		Stdout: &out, DieWithParent: true, Grace: time.Second,
	})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("exit code %d: %s", res.ExitCode, lastLine(res.Stderr))
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out.tail)), "\n")
	if version == "" {
		return "", errors.New("it prints nothing")
	}
	return version, nil
}

// checkLogin checks that a variable with a key is set, or that a file with a login exists.
func checkLogin(_ context.Context, s *subject) result {
	spec := s.agent.spec
	if spec == nil {
		return passed("it is not known whether the command needs one")
	}
	if found := spec.Login(s.repo.Opts.Env); found != "" {
		return passed("it has %s", found)
	}
	if len(spec.Keys)+len(spec.Logins) == 0 {
		return passed("%s needs none", spec.Name)
	}
	remedy := "run '" + spec.Program + "' once and log in"
	if len(spec.Keys) > 0 {
		remedy += ", or set a key: " + strings.Join(spec.Keys, ", ")
	}
	return result{failed: true, reason: spec.Name + " is not logged in, and none of its keys is set", remedy: remedy}
}

// checkPrompts checks that the agent will not wait for permissions that no person can give.
func checkPrompts(_ context.Context, s *subject) result {
	switch {
	case !s.req.Headless:
		return passed("a person is at the terminal")
	case s.agent.spec != nil:
		return passed("%s is run with its permission prompts switched off", s.agent.spec.Name)
	}
	return passed("the command has no terminal, and the task is its standard input")
}
