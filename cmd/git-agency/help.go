package main

import (
	_ "embed"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/manual"
)

func (t *tool) helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show the manual, or the part of it that is about a command",
		UsageText: "git agency help [<command> [<subcommand>]]",
		Description: `Needs neither man nor an installation. 'git agency <command> -h' is shorter.

Exit status: 0 shown; 129 no such command.`,
		Action: func(c *cli.Context) error {
			args, err := positionalArgs(c, 0, 2)
			if err != nil {
				return err
			}
			title := "git agency"
			commands := c.App.Commands
			for _, word := range args {
				i := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.HasName(word) })
				if i < 0 {
					return unknownCommandError(word, title, commands, c.Command.UsageText)
				}
				title += " " + commands[i].Name
				commands = commands[i].Subcommands
			}
			blocks := manual.Parse(manualSource)
			if len(args) > 0 {
				blocks = manual.Section(blocks, title)
			}
			style, err := t.outputStyle()
			if err != nil {
				return err
			}
			_, err = t.stdout.WriteString(manual.Render(blocks, textWidth(style), style.Color))
			return err
		},
	}
}

// manualSource is the source of the manual; manualPage is the man page that 'make man' renders from it.
var (
	//go:embed manual/git-agency.1.md
	manualSource string
	//go:embed manual/git-agency.1
	manualPage []byte
)

// textWidth returns the maximal width of a line of text.
func textWidth(l style) int {
	const page, least = 80, 40
	if l.Width == 0 {
		return page
	}
	return max(l.Width, least)
}

// helpFooter is the template of the last line of the short help that -h prints.
const helpFooter = `
'git agency help{{slice .HelpName 10}}' shows the manual.
`
