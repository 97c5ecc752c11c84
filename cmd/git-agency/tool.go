package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/gitagency"
)

// tool is one run of the program: its command line, options and output streams.
type tool struct {
	ctx             context.Context // context of this run
	stdout          *bufio.Writer
	stderr          io.Writer
	opts            gitagency.Options
	args            []string
	afterDashDash   []string              // words after --, for a command that keeps them apart from its arguments
	secondInterrupt <-chan struct{}       // closed on the second interrupt
	repo            *gitagency.Repository // nil until openRepository

	rawStdout, rawStderr io.Writer // standard output and error without a pager in front
	pager                *pagerWriter
	pageable             bool // whether the output may be paged: a long listing for people
	color                argv.ColorChoice

	progressClock    func() time.Time // time source of the progress display
	outputStyle      func() (style, error)
	terminalSettings func() (gitagency.TerminalSettings, error)
}

func newTool(stdout, stderr io.Writer, opts gitagency.Options) *tool {
	t := &tool{ctx: context.Background(), stderr: stderr, opts: opts, rawStdout: stdout, rawStderr: stderr, progressClock: time.Now}
	t.pager = newPagerWriter(t)
	t.stdout = bufio.NewWriter(t.pager)
	t.outputStyle, t.terminalSettings = sync.OnceValues(t.decideStyle), sync.OnceValues(t.readTerminalSettings)
	return t
}

// runCommandLine runs one command line and returns the exit code.
func (t *tool) runCommandLine(ctx context.Context, args []string) int {
	t.ctx, t.args = ctx, args
	if argv.IsUrfaveCompletion(args) {
		return 0 // pressing TAB must never run a command
	}
	if complete.IsRequest(args) {
		complete.Answer(ctx, t.stdout, complete.Request{App: t.newApp(), Words: args[2:], Options: t.opts})
		_ = t.stdout.Flush() // the shell has gone if this fails, so nothing reads an error
		return 0
	}
	app := t.newApp()
	words, child, _ := argv.Reorder(app, args, keepsDashDashArgs)
	t.afterDashDash = child
	err := app.RunContext(ctx, words)
	if flushErr := t.stdout.Flush(); flushErr != nil && err == nil {
		err = flushErr
	}
	return t.pager.finish(ctx, t.reportError(t.withArgv(err)))
}

// newApp builds the urfave app and turns off urfave's defaults: usage texts on standard output, os.Exit inside of the
// library, and silently ignored arguments.
func (t *tool) newApp() *cli.App {
	app := &cli.App{
		Name:      "git-agency",
		HelpName:  "git agency",
		Usage:     "many coding agents on one repository, and nothing lost",
		UsageText: "git agency <command> [<options>]",
		Commands:  t.commands(),
		// urfave does not add its help flag if there is a command called help.
		Flags:                     append(t.color.Flags(), cli.HelpFlag, &cli.BoolFlag{Name: "version", Usage: "print the version and exit"}),
		Writer:                    t.stdout,
		ErrWriter:                 t.stderr,
		HideVersion:               true,
		HideHelpCommand:           true,
		CustomAppHelpTemplate:     cli.AppHelpTemplate + helpFooter,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              t.onUsageError,
		Before: func(c *cli.Context) error {
			if c.Bool("version") && c.Args().Present() {
				return &usageError{err: errors.New("--version takes no command"), usage: c.App.UsageText}
			}
			return t.checkColorFlag(c)
		},
		Action: func(c *cli.Context) error {
			if c.Bool("version") {
				return t.printVersion()
			}
			return groupUsageError(c, c.App.Commands, "git agency <command> [<options>]")
		},
	}
	t.configureCommands(app.Commands)
	t.markPageable(app.Commands, "")
	return app
}

// configureCommands sets the help and error handling of newApp on all commands. A command group without an action
// reports an unknown command.
func (t *tool) configureCommands(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = t.onUsageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate + helpFooter
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = cli.SubcommandHelpTemplate + helpFooter
		}
		if len(c.Subcommands) > 0 && c.Action == nil {
			group := c
			c.Action = func(ctx *cli.Context) error { return groupUsageError(ctx, group.Subcommands, group.UsageText) }
		}
		t.configureCommands(c.Subcommands)
	}
}

// openRepository opens the repository of the current directory.
func (t *tool) openRepository(c *cli.Context) (*gitagency.Repository, error) {
	for _, f := range c.Command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && c.IsSet(s.Name) && c.String(s.Name) == "" {
			return nil, newUsageError(c, fmt.Errorf("--%s needs a value that is not empty", s.Name))
		}
	}
	opts := t.opts
	opts.Version = toolVersion()
	opts.Command = "git agency " + strings.Join(t.args[1:], " ")
	opts.Warn = t.warn
	if c.IsSet(lockTimeoutFlag) {
		d, err := gitagency.ParseDuration(c.String(lockTimeoutFlag))
		if err != nil {
			return nil, newUsageError(c, fmt.Errorf("--%s: %w", lockTimeoutFlag, err))
		}
		opts.LockTimeout = &d
	}
	repo, err := gitagency.Open(c.Context, opts)
	if err != nil {
		return nil, err
	}
	t.repo = repo
	return repo, nil
}

// openSandbox opens the repository and returns one of its sandboxes.
func (t *tool) openSandbox(c *cli.Context, id string) (*gitagency.Sandbox, error) {
	repo, err := t.openRepository(c)
	if err != nil {
		return nil, err
	}
	return repo.Sandbox(id)
}

const lockTimeoutFlag = "lock-timeout"

// withRepositoryLockFlag adds --lock-timeout for the repository lock to the flags of a command that takes it.
func withRepositoryLockFlag(flags ...cli.Flag) []cli.Flag {
	return withLockTimeoutFlag("the repository lock", flags...)
}

// withLockTimeoutFlag adds --lock-timeout to the flags of a command that may have to wait; what names in the help text
// the lock holder it waits for.
func withLockTimeoutFlag(what string, flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.StringFlag{
		Name: lockTimeoutFlag, Usage: "wait at most `DURATION` for " + what + " (0: one try, -1: for ever)",
		DefaultText: "agency.lockTimeout, else 30s",
	})
}

// positionalArgs returns the positional arguments, or a usage error unless there are least to most of them; a negative
// most means no limit.
func positionalArgs(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		return nil, newUsageError(c, fmt.Errorf("no %s given", cmp.Or(argv.MissingArgument(c.Command.UsageText, len(args)), "further argument")))
	case most >= 0 && len(args) > most:
		return nil, newUsageError(c, fmt.Errorf("unexpected argument %q", args[most]))
	case slices.Contains(args, ""):
		return nil, newUsageError(c, errors.New("an argument is empty"))
	}
	return args, nil
}

// optionalArg returns the only positional argument, or "" if there is none.
func optionalArg(c *cli.Context) (string, error) {
	args, err := positionalArgs(c, 0, 1)
	if err != nil || len(args) == 0 {
		return "", err
	}
	return args[0], nil
}
