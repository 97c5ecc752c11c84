// Package program runs the command line of git-agency: it parses the command line with urfave/cli, opens the repository,
// prints results and errors, and decides by the terminal and git's configuration how they are shown. It serves all
// commands and knows none of them: package main hands them over in a Config. A command uses the methods of Program for
// its streams, and the functions of this package for flags and arguments that commands share.
package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/gitagency"
)

// Program is one run of git-agency: its command line, options and output streams.
type Program struct {
	Stdout          *bufio.Writer // results, through a pager if there is one
	Stderr          io.Writer     // messages
	Options         gitagency.Options
	Args            []string
	AfterDashDash   []string        // words after --, for a command that keeps them apart from its arguments
	SecondInterrupt <-chan struct{} // closed on the second interrupt
	Color           argv.ColorChoice

	RawStdout, RawStderr io.Writer        // standard output and error without a pager in front
	ProgressClock        func() time.Time // time source of the progress display

	config           Config
	ctx              context.Context       // context of this run
	repo             *gitagency.Repository // nil until OpenRepository
	pager            *pagerWriter
	pageable         bool     // whether the output may be paged: a long listing for people
	unpaged          bool     // whether the output is never paged
	last             []func() // steps of AtEnd
	outputStyle      func() (Style, error)
	terminalSettings func() (gitagency.TerminalSettings, error)
}

// Config describes the commands, of which this package knows none.
type Config struct {
	Version       string
	Commands      func() []CommandGroup            // builds all commands, in the order in which help lists them
	Inside        func() map[string]cli.ActionFunc // actions of the commands that work behind walls; nil is the same as outside
	Paged         []string                         // commands with long output for people, such as "worktree ls"
	Sections      func() []string                  // sections of the manual, which "help" shows
	KeepsDashDash func(*cli.Command) bool          // whether a command keeps the words after -- apart from its arguments
	ExitCode      func(error) int                  // exit code for the error of a command
	Hints         func(err error) []string         // hints on the error of a command: what to type next
}

// New returns a program that writes to stdout and stderr.
func New(stdout, stderr io.Writer, opts gitagency.Options, config Config) *Program {
	p := &Program{
		Stderr: stderr, Options: opts, RawStdout: stdout, RawStderr: stderr, ProgressClock: time.Now,
		config: config, ctx: context.Background(),
	}
	p.pager = newPagerWriter(p)
	p.Stdout = bufio.NewWriter(p.pager)
	p.outputStyle, p.terminalSettings = sync.OnceValues(p.decideStyle), sync.OnceValues(p.readTerminalSettings)
	return p
}

// RunCommandLine runs one command line and returns the exit code.
func (p *Program) RunCommandLine(ctx context.Context, args []string) int {
	p.ctx, p.Args = ctx, args
	if argv.IsUrfaveCompletion(args) {
		return 0 // pressing TAB must never run a command
	}
	if complete.IsRequest(args) {
		complete.Answer(ctx, p.Stdout, complete.Request{App: p.NewApp(), Words: args[2:], Sections: p.config.Sections, Options: p.Options})
		_ = p.Stdout.Flush() // the shell has gone if this fails, so nothing reads an error
		return 0
	}
	app := p.NewApp()
	words, child, _ := argv.Reorder(app, args, p.config.KeepsDashDash)
	p.AfterDashDash = child
	err := app.RunContext(ctx, words)
	if flushErr := p.Stdout.Flush(); flushErr != nil && err == nil {
		err = flushErr
	}
	code := p.pager.finish(ctx, p.reportError(p.WithArgv(err)))
	for _, step := range p.last {
		step()
	}
	return code
}

// AtEnd adds a step that runs after the result and the error of the command are printed. It cannot change the exit code: a
// failure is a warning.
func (p *Program) AtEnd(step func()) { p.last = append(p.last, step) }

// NewApp builds the urfave app and turns off urfave's defaults: usage texts on standard output, os.Exit inside of the
// library, and silently ignored arguments.
func (p *Program) NewApp() *cli.App {
	groups := p.config.Commands()
	app := &cli.App{
		Name:      "git-agency",
		HelpName:  "git agency",
		Usage:     "many coding agents on one repository, and nothing lost",
		UsageText: "git agency <command> [<options>]",
		Commands:  commandsOf(groups),
		// urfave does not add its help flag if there is a command called help.
		Flags:                     append(p.Color.Flags(), cli.HelpFlag, &cli.BoolFlag{Name: "version", Usage: "print the version and exit"}),
		Writer:                    p.Stdout,
		ErrWriter:                 p.Stderr,
		HideVersion:               true,
		HideHelpCommand:           true,
		CustomAppHelpTemplate:     appHelpTemplate(groups),
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              p.onUsageError,
		Before: func(c *cli.Context) error {
			if c.Bool("version") && c.Args().Present() {
				return &UsageError{Err: errors.New("--version takes no command"), Usage: c.App.UsageText}
			}
			return p.checkColorFlag(c)
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("version"):
				return p.PrintVersion()
			case c.NArg() == 0:
				return p.printCommands(c.App.UsageText, groups)
			}
			return GroupUsageError(c, c.App.Commands, "git agency <command> [<options>]")
		},
	}
	hideFalseDefaults(app.Flags)
	p.configureCommands(app.Commands)
	if err := gitagency.CheckOutsideWalls(p.Options.Env); err != nil {
		replaceActions(app.Commands, "", p.config.Inside(), err)
	}
	p.markPageable(app.Commands, "")
	return app
}

// configureCommands sets the help and error handling of NewApp on all commands. A command group without an action
// reports an unknown command.
func (p *Program) configureCommands(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = p.onUsageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate + helpFooter
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = cli.SubcommandHelpTemplate + helpFooter
		}
		if len(c.Subcommands) > 0 && c.Action == nil {
			group := c
			c.Action = func(ctx *cli.Context) error { return GroupUsageError(ctx, group.Subcommands, group.UsageText) }
		}
		hideFalseDefaults(c.Flags)
		p.configureCommands(c.Subcommands)
	}
}

// replaceActions gives the commands their actions behind walls: those without one fail there with refused.
func replaceActions(commands []*cli.Command, prefix string, inside map[string]cli.ActionFunc, refused error) {
	for _, c := range commands {
		replaceActions(c.Subcommands, prefix+c.Name+" ", inside, refused)
		action, works := inside[prefix+c.Name]
		switch {
		case len(c.Subcommands) > 0:
		case !works:
			c.Action = func(*cli.Context) error { return refused }
		case action != nil:
			c.Action = action
		}
	}
}

// hideFalseDefaults keeps "(default: false)" out of the help of flags without a value.
func hideFalseDefaults(flags []cli.Flag) {
	for _, f := range flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true
		}
	}
}

// Version returns the version of the program.
func (p *Program) Version() string { return p.config.Version }

// PrintVersion prints the version of the program for people.
func (p *Program) PrintVersion() error {
	_, err := fmt.Fprintf(p.Stdout, "git-agency version %s\n", p.config.Version)
	return err
}

// helpFooter is the template of the last line of the short help that -h prints.
const helpFooter = `
'git agency help{{slice .HelpName 10}}' shows the manual.
`
