package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/runs"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

const execName = "exec"

// keepsDashDashArgs reports whether a command keeps the words after -- apart from its arguments: they are the command
// line of another program, or paths that must not be taken for an argument.
func keepsDashDashArgs(c *cli.Command) bool {
	return c.Name == execName || c.Name == diffName || runs.KeepsDashDash(c)
}

func (t *tool) execCommand() *cli.Command {
	return &cli.Command{
		Name:  execName,
		Usage: "run a command in a sandbox",
		UsageText: `git agency exec [<id>] [--cwd <dir>] [--timeout <t>] [--grace <t>] [--env <name>[=<value>]]...
                       [--stdin] [--memory <size>] [--processes <n>] [--file-size <size>]
                       [--nice <n>] [--best-effort-limits] [--json] -- <command> [<argument>...]`,
		Description: `Runs the command in the sandbox, without a shell, and returns when it and every process it started have
ended. With a terminal on standard input and output the command is interactive, on a terminal of its own;
otherwise its standard input is empty without --stdin.
Limits may be tighter than those of the sandbox, not wider.

Exit status: that of the command, 128+n when signal n killed it; 124 it timed out; 125 it could not be
set up and never ran; 126 it cannot be executed; 127 it was not found; before anything ran: 1 failed,
or the sandbox has ended; 3 no such invocation; 4 broken; 5 not a sandbox, or a directory outside of
it; 75 locked; 129 usage; 130, 143 interrupted.`,
		Flags: program.WithLockTimeoutFlag("a discard of the sandbox", append([]cli.Flag{
			&cli.StringFlag{Name: "cwd", Usage: "start in `DIR`, relative to the sandbox, or absolute and inside it (default: its top; without <id> the current directory)"},
			&cli.StringFlag{Name: "timeout", Usage: "end the command after `DURATION` (-1: never)", DefaultText: "agency.operationTimeout, else 10m; never for an interactive command"},
			&cli.StringFlag{Name: "grace", Usage: "leave `DURATION` between SIGTERM and SIGKILL (0: none)", DefaultText: "5s"},
			&cli.GenericFlag{Name: "env", Value: &argv.RepeatedFlag{}, Usage: "set the variable `NAME=VALUE`, or pass NAME on; may be repeated"},
			&cli.BoolFlag{Name: "stdin", Usage: "pass standard input on, also if it is no terminal"},
		}, append(startflags.Limits(), program.WithJSONFlag()...)...)...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 0, -1)
			if err != nil {
				return err
			}
			opts, err := t.execOptions(c, args[min(1, len(args)):])
			if err != nil {
				return err
			}
			t.Options.NoGitProbe = true // agents run this command all day and wait for it
			sandbox, cwd, err := t.openSandboxAndCwd(c, strings.Join(args, ""))
			if err != nil {
				return err
			}
			opts.Cwd = cwd
			ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
			defer stop()
			defer context.AfterFunc(ctx, func() { t.reportWaiting(opts) })()
			res, err := sandbox.Exec(ctx, opts)
			return t.finishExec(c, sandbox, opts, res, err)
		},
	}
}

// openSandboxAndCwd opens the sandbox of a command, and returns the directory to run it in: that of --cwd; else the current
// one if no id was given, since then it is in the sandbox.
func (t *tool) openSandboxAndCwd(c *cli.Context, id string) (*gitagency.Sandbox, string, error) {
	sandbox, err := t.OpenSandbox(c, id)
	if err != nil || id != "" || c.IsSet("cwd") {
		return sandbox, c.String("cwd"), err
	}
	cwd, err := t.CurrentDir()
	return sandbox, cwd, err
}

// reportWaiting tells a user who has interrupted us at a terminal why we have not exited yet.
func (t *tool) reportWaiting(opts gitagency.ExecOptions) {
	if opts.Grace >= 0 && term.IsTerminal(os.Stderr) {
		fmt.Fprintf(t.Stderr, "waiting at most %s for it to end; interrupt again to kill it\n", cmp.Or(opts.Grace, gitagency.DefaultGrace))
	}
}

// execOptions returns the options of the flags and the command after --.
func (t *tool) execOptions(c *cli.Context, further []string) (gitagency.ExecOptions, error) {
	none := gitagency.ExecOptions{}
	switch {
	case len(further) > 0:
		return none, program.NewUsageError(c, fmt.Errorf("unexpected argument %q; the command comes after --", further[0]))
	case len(t.AfterDashDash) == 0:
		return none, program.NewUsageError(c, errors.New("no command given; it comes after --"))
	}
	opts := gitagency.ExecOptions{Argv: t.AfterDashDash, Force: t.SecondInterrupt}
	err := startflags.ParseLimit(c, gitagency.TimeoutLimit, &opts.Timeout)
	if err != nil {
		return none, err
	}
	if c.IsSet("grace") {
		opts.Grace, err = time.ParseDuration(c.String("grace"))
		if err != nil || opts.Grace < 0 {
			return none, program.NewUsageError(c, fmt.Errorf("--grace: invalid duration %q: want one such as 5s, or 0", c.String("grace")))
		}
		if opts.Grace == 0 {
			opts.Grace = -1
		}
	}
	if opts.Env, err = parseEnv(c); err != nil {
		return none, err
	}
	if opts.Limits, err = startflags.ParseLimits(c); err != nil {
		return none, err
	}
	t.connectStreams(c, &opts)
	return opts, nil
}

// connectStreams chooses the streams of the command. It is interactive with a terminal on standard input and output, if
// that is not busy with another process group; otherwise its input is empty without --stdin.
func (t *tool) connectStreams(c *cli.Context, opts *gitagency.ExecOptions) {
	if !c.Bool("json") {
		opts.Stdout, opts.Stderr = t.RawStdout, t.RawStderr
	}
	atTerminal := term.IsTerminal(os.Stdin)
	switch {
	case c.Bool("stdin"):
		opts.Stdin, opts.Terminal = os.Stdin, atTerminal
	case gitagency.HasTerminals && atTerminal && term.IsTerminal(t.RawStdout) && !c.Bool("json") && term.InForeground(os.Stdin):
		opts.Stdin, opts.Terminal = os.Stdin, true
	case len(opts.Argv) == 1 && slices.Contains(interactivePrograms, filepath.Base(opts.Argv[0])) && (atTerminal || hasContent(os.Stdin)):
		t.PrintHint("standard input of " + opts.Argv[0] + " is empty; add --stdin to pass yours on")
	}
}

// hasContent reports whether a stream can be a pipe, a file or a socket with something to read, unlike /dev/null.
func hasContent(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeDevice == 0
}

// interactivePrograms are programs that, without an argument, only read commands from a terminal.
var interactivePrograms = []string{"sh", "bash", "zsh", "fish", "dash", "python", "python3", "node", "irb"}

// parseEnv returns the variables of --env. A name alone passes our own value of that variable on.
func parseEnv(c *cli.Context) ([]string, error) {
	var env []string
	repeated, _ := c.Generic("env").(*argv.RepeatedFlag)
	for _, word := range repeated.Values {
		name, _, hasValue := strings.Cut(word, "=")
		value, isSet := os.LookupEnv(name)
		switch {
		case name == "":
			return nil, program.NewUsageError(c, fmt.Errorf("--env %q names no variable", word))
		case hasValue:
			env = append(env, word)
		case !isSet:
			return nil, program.NewUsageError(c, fmt.Errorf("--env %s: there is no such variable here; give it a value with --env %s=…", name, name))
		default:
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// execOutput is the JSON of an exec. Output that is not UTF-8 is also there byte for byte, in base64.
type execOutput struct {
	ExitCode     int    `json:"exit_code"`
	Stdout       string `json:"stdout"`
	StdoutBase64 string `json:"stdout_base64,omitempty"`
	Stderr       string `json:"stderr"`
	StderrBase64 string `json:"stderr_base64,omitempty"`
	Truncated    bool   `json:"truncated"`
	DurationMS   int64  `json:"duration_ms"`
	TimedOut     bool   `json:"timed_out"`
	Signal       string `json:"signal"`
	LeftRunning  int    `json:"left_running"`
	ContainedBy  string `json:"contained_by"`

	Walls   []string `json:"walls"`
	Refused []string `json:"refused"`

	Limits map[string]format.Limit `json:"limits"`

	Error string `json:"error"`
}

// finishExec prints the result of an exec and returns it as an error with the exit code.
func (t *tool) finishExec(c *cli.Context, sandbox *gitagency.Sandbox, opts gitagency.ExecOptions, res gitagency.ExecResult, err error) error {
	if res.ContainedBy == "" {
		return err // no process was started
	}
	var interrupted program.InterruptedError
	switch {
	case errors.As(err, &interrupted):
		res.ExitCode = exitCode(err)
	case err != nil && res.ExitCode == 0: // the command succeeded, but the exec failed
		res.ExitCode = hints.ExitFailed
	}
	if c.Bool("json") {
		out := execOutput{
			ExitCode: res.ExitCode, Stdout: res.Stdout, StdoutBase64: format.Base64UnlessText(res.Stdout),
			Stderr: res.Stderr, StderrBase64: format.Base64UnlessText(res.Stderr), Truncated: res.Truncated,
			DurationMS: res.Duration.Milliseconds(), TimedOut: res.TimedOut, Signal: res.Signal,
			LeftRunning: res.LeftRunning, ContainedBy: res.ContainedBy, Walls: res.Walls, Refused: append([]string{}, res.Refused...), Limits: format.Limits(res.Limits),
		}
		if err != nil {
			out.Error = err.Error()
		}
		if err := format.WriteLargeJSON(t.Stdout, out); err != nil {
			return err
		}
	}
	if !c.Bool("json") {
		startflags.WarnUnenforced(t.Program, res.Limits)
	}
	if res.LeftRunning > 0 {
		t.Warn(fmt.Sprintf("ended %s that the command left running", format.Count(res.LeftRunning, "process", "processes")))
	}
	if err == nil && !c.Bool("json") {
		t.printWallHints(sandbox.ID, res)
	}
	switch {
	case res.TimedOut && err == nil:
		err = fmt.Errorf("%s timed out, and was ended after %s", opts.Argv[0], res.Duration.Round(10*time.Millisecond))
	case err == nil && res.ExitCode == 0:
		return nil
	}
	return &program.ChildError{Code: res.ExitCode, Err: err, ShellLine: suspectedShellLine(sandbox, opts, res), Hidden: t.allowHiddenProgram(c, sandbox.ID, opts.Argv[0], res)}
}

// allowHiddenProgram returns the command that lets a sandbox read a program that exists, and was not found because the walls
// hide it; else "".
func (t *tool) allowHiddenProgram(c *cli.Context, id, program string, res gitagency.ExecResult) string {
	if res.ExitCode != hints.ExitCommandNotFound || !filepath.IsAbs(program) {
		return ""
	}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return ""
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return ""
	}
	walls, err := repo.Walls(c.Context, id)
	if err != nil {
		return ""
	}
	var cover gitagency.WallPath // the lowest path that contains the program
	for _, p := range walls.Paths {
		if strings.HasPrefix(real, strings.TrimSuffix(p.Path, "/")+"/") && len(p.Path) > len(cover.Path) || real == p.Path {
			cover = p
		}
	}
	if cover.Access != "hidden" && cover.Access != "private" {
		return ""
	}
	return "git agency allow " + id + " --read " + quote.Shell(program)
}

// suspectedShellLine returns the command if it looks like a line for a shell that was given as the name of a program,
// else "". An existing file of that name is a program that was not found for another reason, such as a missing
// interpreter.
func suspectedShellLine(sandbox *gitagency.Sandbox, opts gitagency.ExecOptions, res gitagency.ExecResult) string {
	line := opts.Argv[0]
	if res.ExitCode != hints.ExitCommandNotFound || len(opts.Argv) > 1 || !strings.ContainsAny(line, " \t\n|&;<>()$`\"'*?") {
		return ""
	}
	path := line
	for _, dir := range []string{opts.Cwd, sandbox.WorkDir()} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	if _, err := os.Lstat(path); err == nil && strings.Contains(line, "/") {
		return ""
	}
	return line
}

func (t *tool) printWallHints(id string, res gitagency.ExecResult) {
	for _, hint := range hints.Walls(fmt.Sprintf("; 'git agency denials %s' lists them", id), res) {
		t.PrintHint(hint)
	}
}
