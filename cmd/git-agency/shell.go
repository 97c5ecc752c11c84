package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) shellCommand() *cli.Command {
	return &cli.Command{
		Name:      "shell",
		Usage:     "open a shell in a sandbox",
		UsageText: "git agency shell [<id>] [--cwd <dir>] [--env <name>[=<value>]]...",
		Description: `Runs your shell ($SHELL, or /bin/sh where it does not exist behind walls) in the sandbox, as exec does. It
reads no startup files, and its prompt names the sandbox. Needs a terminal.

Exit status: that of the shell, 128+n when signal n killed it; 124 it timed out; 125 it could not be set up and
never ran; before anything ran: 1 failed, or the sandbox has ended; 3 no such invocation; 4 broken; 5 not
a sandbox, or a directory outside of it; 75 locked; 129 usage, or no terminal; 130, 143 interrupted.`,
		Flags: program.WithLockTimeoutFlag("a discard of the sandbox",
			&cli.StringFlag{Name: "cwd", Usage: "start in `DIR`, relative to the sandbox, or absolute and inside it (default: its top; without <id> the current directory)"},
			&cli.GenericFlag{Name: "env", Value: &argv.RepeatedFlag{}, Usage: "set the variable `NAME=VALUE`, or pass NAME on; may be repeated"},
		),
		Action: func(c *cli.Context) error {
			id, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			if !gitagency.HasTerminals || !term.IsTerminal(os.Stdin) || !term.IsTerminal(t.RawStdout) {
				return program.NewUsageError(c, errors.New("a shell needs a terminal; without one, type: git agency exec <id> -- sh -c '<commands>'"))
			}
			env, err := parseEnv(c)
			if err != nil {
				return err
			}
			t.Options.NoGitProbe = true
			sandbox, cwd, err := t.openSandboxAndCwd(c, id)
			if err != nil {
				return err
			}
			opts := gitagency.ExecOptions{
				Argv: []string{"/bin/sh", "-c", startShell, "sh", os.Getenv("SHELL"), gitagency.ShortID(sandbox.ID)},
				Cwd:  cwd, Env: env, Force: t.SecondInterrupt,
				Stdin: os.Stdin, Stdout: t.RawStdout, Stderr: t.RawStderr, Terminal: true,
			}
			ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
			defer stop()
			defer context.AfterFunc(ctx, func() { t.reportWaiting(opts) })()
			res, err := sandbox.Exec(ctx, opts)
			return t.finishExec(c, sandbox, opts, res, err)
		},
	}
}

// startShell is a script that becomes the shell $1, or /bin/sh if that does not exist in the sandbox, with a prompt that
// has the id $2. Startup files are not read: they would replace the prompt, and may be an agent's.
const startShell = `shell=$1 id=$2
test -x "$shell" || shell=/bin/sh
unset ENV BASH_ENV ZDOTDIR PROMPT_COMMAND
export PS1
case ${shell##*/} in
bash) PS1="agency:$id \\W \\$ "; exec "$shell" --noprofile --norc -i;;
zsh) PS1="agency:$id %1~ %# "; exec "$shell" -f -i;;
fish) exec "$shell" --no-config -i -C "function fish_prompt; echo -n 'agency:$id '(prompt_pwd)' > '; end";;
csh | tcsh) exec "$shell" -f;;
*) PS1="agency:$id \${PWD##*/} \$ "; exec "$shell" -i;;
esac`
