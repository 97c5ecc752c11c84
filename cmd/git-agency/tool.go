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

	"github.com/git-agency/git-agency/gitagency"
)

// tool is one run of the program: its command line, options and output streams.
type tool struct {
	ctx    context.Context // context of this run
	stdout *bufio.Writer
	stderr io.Writer
	opts   gitagency.Options
	args   []string
	child  []string              // words after --, for a command that keeps them apart from its arguments
	hurry  <-chan struct{}       // closed on the second interrupt
	repo   *gitagency.Repository // nil until openRepository

	results, messages io.Writer // standard output and error without a pager in front
	screen            *screen
	pages             bool   // whether the output may be paged: a long listing for people
	color             string // value of the last --color or --no-color
	badColor          error

	clock    func() time.Time // time source of the progress display
	look     func() (look, error)
	settings func() (gitagency.TerminalSettings, error)
}

func newTool(stdout, stderr io.Writer, opts gitagency.Options) *tool {
	t := &tool{ctx: context.Background(), stderr: stderr, opts: opts, results: stdout, messages: stderr, clock: time.Now}
	t.screen = &screen{t: t}
	t.stdout = bufio.NewWriter(t.screen)
	t.look, t.settings = sync.OnceValues(t.decideLook), sync.OnceValues(t.readSettings)
	return t
}

// runCommandLine runs one command line and returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	t.ctx, t.args = ctx, args
	if completing(args) {
		return 0 // pressing TAB must never run a command
	}
	if asksToComplete(args) {
		t.complete(ctx, args[2:])
		return 0
	}
	app := t.app()
	words, child, _ := permute(app, args, keepsRest)
	t.child = child
	err := app.RunContext(ctx, words)
	if flushErr := t.stdout.Flush(); flushErr != nil && err == nil {
		err = flushErr
	}
	return t.screen.end(ctx, t.report(t.typed(err)))
}

// newApp builds the urfave app and turns off urfave's defaults: usage texts on standard output, os.Exit inside of the
// library, and silently ignored arguments.
func (t *tool) app() *cli.App {
	app := &cli.App{
		Name:      "git-agency",
		HelpName:  "git agency",
		Usage:     "many coding agents on one repository, and nothing lost",
		UsageText: "git agency <command> [<options>]",
		Commands:  t.commands(),
		// urfave does not add its help flag if there is a command called help.
		Flags:                     append(t.colorFlags(), cli.HelpFlag, &cli.BoolFlag{Name: "version", Usage: "print the version and exit"}),
		Writer:                    t.stdout,
		ErrWriter:                 t.stderr,
		HideVersion:               true,
		HideHelpCommand:           true,
		CustomAppHelpTemplate:     cli.AppHelpTemplate + longHelp,
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
			return unknownCommand(c, c.App.Commands, "git agency <command> [<options>]")
		},
	}
	t.tame(app.Commands)
	t.noticePaging(app.Commands, "")
	return app
}

// configureCommands sets the help and error handling of newApp on all commands. A command group without an action
// reports an unknown command.
func (t *tool) tame(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = t.onUsageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate + longHelp
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = cli.SubcommandHelpTemplate + longHelp
		}
		if len(c.Subcommands) > 0 && c.Action == nil {
			group := c
			c.Action = func(ctx *cli.Context) error { return unknownCommand(ctx, group.Subcommands, group.UsageText) }
		}
		t.tame(c.Subcommands)
	}
}

// openRepository opens the repository of the current directory.
func (t *tool) open(c *cli.Context) (*gitagency.Repository, error) {
	for _, f := range c.Command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && c.IsSet(s.Name) && c.String(s.Name) == "" {
			return nil, asUsage(c, fmt.Errorf("--%s needs a value, and the one it has is empty", s.Name))
		}
	}
	opts := t.opts
	opts.Version = toolVersion()
	opts.Command = "git agency " + strings.Join(t.args[1:], " ")
	opts.Warn = t.warn
	if c.IsSet(lockTimeoutFlag) {
		d, err := gitagency.ParseDuration(c.String(lockTimeoutFlag))
		if err != nil {
			return nil, asUsage(c, fmt.Errorf("--%s: %w", lockTimeoutFlag, err))
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
func (t *tool) sandbox(c *cli.Context, id string) (*gitagency.Sandbox, error) {
	repo, err := t.open(c)
	if err != nil {
		return nil, err
	}
	return repo.Sandbox(id)
}

const lockTimeoutFlag = "lock-timeout"

// withRepositoryLockFlag adds --lock-timeout for the repository lock to the flags of a command that takes it.
func changing(flags ...cli.Flag) []cli.Flag { return waitingFor("the repository lock", flags...) }

// withLockTimeoutFlag adds --lock-timeout to the flags of a command that may have to wait; what names in the help text
// the lock holder it waits for.
func waitingFor(what string, flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.StringFlag{
		Name: lockTimeoutFlag, Usage: "wait at most `DURATION` for " + what + " (0: one try, -1: for ever)",
		DefaultText: "agency.lockTimeout, else 30s",
	})
}

// positionalArgs returns the positional arguments, or a usage error unless there are least to most of them; a negative
// most means no limit.
func arguments(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		return nil, asUsage(c, fmt.Errorf("no %s given", cmp.Or(missing(c.Command.UsageText, len(args)), "further argument")))
	case most >= 0 && len(args) > most:
		return nil, asUsage(c, fmt.Errorf("unexpected argument %q", args[most]))
	case slices.Contains(args, ""):
		return nil, asUsage(c, errors.New("an argument is empty"))
	}
	return args, nil
}

// optionalArg returns the only positional argument, or "" if there is none.
func optional(c *cli.Context) (string, error) {
	args, err := arguments(c, 0, 1)
	if err != nil || len(args) == 0 {
		return "", err
	}
	return args[0], nil
}
