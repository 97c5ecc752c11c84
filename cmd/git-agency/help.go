package main

import (
	"os"
	"slices"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

func (t *tool) helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show the manual, or the part of it that is about a command",
		UsageText: "git agency help [<command> [<subcommand>]]",
		Description: `Needs neither man nor an installation. 'git agency <command> -h' is shorter.

Exit status: 0 shown; 129 no such command.`,
		Action: func(c *cli.Context) error {
			args, err := arguments(c, 0, 2)
			if err != nil {
				return err
			}
			title := "git agency"
			commands := c.App.Commands
			for _, word := range args {
				i := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.HasName(word) })
				if i < 0 {
					return noSuchCommand(word, title, commands, c.Command.UsageText)
				}
				title += " " + commands[i].Name
				commands = commands[i].Subcommands
			}
			blocks := parseManual(manualSource)
			if len(args) > 0 {
				blocks = manualSection(blocks, title)
			}
			width, styled := t.screen()
			_, err = t.stdout.WriteString(renderManual(blocks, width, styled))
			return err
		},
	}
}

// screen is how wide a line of text may be, and whether a terminal shows it that knows about styles.
func (t *tool) screen() (width int, styled bool) {
	const page, least = 80, 40
	if f, ok := t.target.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			width, styled = int(size.Col), os.Getenv("TERM") != "dumb"
		}
	}
	if width == 0 {
		width = page
	}
	return max(width, least), styled
}

// longHelp ends the short help that -h prints.
const longHelp = `
'git agency help{{slice .HelpName 10}}' shows the manual.
`
