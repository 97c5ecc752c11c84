package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// tool is one run of the program: where it prints, and what it was given.
type tool struct {
	stdout *bufio.Writer
	target io.Writer // what stdout writes to
	stderr io.Writer
	opts   gitagency.Options
	args   []string
}

func newTool(stdout, stderr io.Writer, opts gitagency.Options) *tool {
	return &tool{stdout: bufio.NewWriter(stdout), target: stdout, stderr: stderr, opts: opts}
}

// run runs one command line and returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	t.args = args
	if completing(args) {
		return 0 // pressing TAB never runs anything
	}
	if asksToComplete(args) {
		t.complete(ctx, args[2:])
		return 0
	}
	app := t.app()
	words, _, _ := permute(app, args, nil)
	err := app.RunContext(ctx, words)
	if flushErr := t.stdout.Flush(); flushErr != nil && err == nil {
		err = &outputError{flushErr}
	}
	return t.report(err)
}

// app takes urfave's habits away: usage on standard output, exits from inside, silent leftovers.
func (t *tool) app() *cli.App {
	app := &cli.App{
		Name:      "git-agency",
		HelpName:  "git agency",
		Usage:     "many coding agents on one repository, and nothing lost",
		UsageText: "git agency <command> [<options>]",
		Commands:  t.commands(),
		// A command of ours called help makes urfave forget its own flag.
		Flags:                     []cli.Flag{cli.HelpFlag, &cli.BoolFlag{Name: "version", Usage: "print the version and exit"}},
		Writer:                    t.stdout,
		ErrWriter:                 t.stderr,
		HideVersion:               true,
		HideHelpCommand:           true,
		CustomAppHelpTemplate:     cli.AppHelpTemplate + longHelp,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Before: func(c *cli.Context) error {
			if c.Bool("version") && c.Args().Present() {
				return &usageError{err: errors.New("--version takes no command"), usage: c.App.UsageText}
			}
			return nil
		},
		Action: func(c *cli.Context) error {
			if c.Bool("version") {
				return t.printVersion()
			}
			return unknownCommand(c, c.App.Commands, "git agency <command> [<options>]")
		},
	}
	tame(app.Commands)
	return app
}

func tame(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = onUsageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate + longHelp
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = cli.SubcommandHelpTemplate + longHelp
		}
		if len(c.Subcommands) > 0 && c.Action == nil {
			group := c
			c.Action = func(ctx *cli.Context) error { return unknownCommand(ctx, group.Subcommands, group.UsageText) }
		}
		tame(c.Subcommands)
	}
}

// open opens the repository the caller stands in.
func (t *tool) open(c *cli.Context) (*gitagency.Repository, error) {
	for _, f := range c.Command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && c.IsSet(s.Name) && c.String(s.Name) == "" {
			return nil, asUsage(c, fmt.Errorf("--%s needs a value", s.Name))
		}
	}
	opts := t.opts
	opts.Command = "git agency " + strings.Join(t.args[1:], " ")
	opts.Warn = func(message string) { fmt.Fprintf(t.stderr, "warning: %s\n", message) }
	if c.IsSet(lockTimeoutFlag) {
		d, err := gitagency.ParseDuration(c.String(lockTimeoutFlag))
		if err != nil {
			return nil, asUsage(c, fmt.Errorf("--%s: %w", lockTimeoutFlag, err))
		}
		opts.LockTimeout = &d
	}
	return gitagency.Open(c.Context, opts)
}

const lockTimeoutFlag = "lock-timeout"

// changing are the flags of every command that takes the repository lock.
func changing(flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.StringFlag{
		Name: lockTimeoutFlag, Usage: "wait at most `DURATION` for the repository lock (0: one try, -1: for ever)",
		DefaultText: "agency.lockTimeout, else 30s",
	})
}

// arguments returns the positional arguments if there are between least and most of them.
func arguments(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		return nil, asUsage(c, errors.New("too few arguments"))
	case most >= 0 && len(args) > most:
		return nil, asUsage(c, fmt.Errorf("unexpected argument %q", args[most]))
	case slices.Contains(args, ""):
		return nil, asUsage(c, errors.New("an argument is empty"))
	}
	return args, nil
}

// optional returns the only positional argument, or "" when there is none.
func optional(c *cli.Context) (string, error) {
	args, err := arguments(c, 0, 1)
	if err != nil || len(args) == 0 {
		return "", err
	}
	return args[0], nil
}
