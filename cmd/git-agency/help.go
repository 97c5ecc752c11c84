package main

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/manual"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t *tool) helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show the manual, or the part of it that is about a command",
		UsageText: "git agency help [<command> [<subcommand>] | <section>]",
		Description: `<section> is a heading of the manual, such as SECURITY, in upper or lower case. Needs neither man nor an
installation. 'git agency <command> -h' is shorter.

Exit status: 0 shown; 129 no such command or section.`,
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 0, 2)
			if err != nil {
				return err
			}
			blocks := manual.Parse(manualSource)
			if len(args) > 0 {
				title, err := manualTitle(c, manual.Sections(blocks), args)
				if err != nil {
					return err
				}
				blocks = manual.Section(blocks, title)
			}
			style, err := t.Style()
			if err != nil {
				return err
			}
			_, err = t.Stdout.WriteString(manual.Render(blocks, textWidth(style), style.Color))
			return err
		},
	}
}

// manualSections returns the sections of the manual.
func manualSections() []string { return manual.Sections(manual.Parse(manualSource)) }

// manualTitle returns the heading in the manual of the command or the section that words name. Sections are found in upper
// and lower case.
func manualTitle(c *cli.Context, sections, words []string) (string, error) {
	title, commands := "git agency", c.App.Commands
	for _, word := range words {
		i := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.HasName(word) })
		if i < 0 {
			section := strings.ToUpper(strings.Join(words, " "))
			if slices.Contains(sections, section) {
				return section, nil
			}
			return "", unknownTopicError(c, title, commands, sections, word)
		}
		title += " " + commands[i].Name
		commands = commands[i].Subcommands
	}
	return title, nil
}

// unknownTopicError reports a word that is neither a command of a group nor, if it is the first word, a section.
func unknownTopicError(c *cli.Context, group string, commands []*cli.Command, sections []string, word string) error {
	err := program.UnknownCommandError(word, group, commands, c.Command.UsageText)
	var usage *program.UsageError
	if group != c.App.HelpName || !errors.As(err, &usage) {
		return err
	}
	if near := argv.NearestWord(strings.ToUpper(word), sections); near != "" && argv.NearestCommand(word, commands) == "" {
		usage.Err = fmt.Errorf("%w; did you mean %q?", usage.Err, near)
	}
	usage.Hint = "'git agency -h' lists the commands; the sections of the manual are " + strings.Join(sections, ", ")
	return usage
}

// manualSource is the source of the manual; manualPage is the man page that 'make man' renders from it.
var (
	//go:embed manual/git-agency.1.md
	manualSource string
	//go:embed manual/git-agency.1
	manualPage []byte
)

// textWidth returns the maximal width of a line of text.
func textWidth(l program.Style) int {
	const page, least = 80, 40
	if l.Width == 0 {
		return page
	}
	return max(l.Width, least)
}
