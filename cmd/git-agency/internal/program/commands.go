package program

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// CommandGroup is the commands for one kind of task.
type CommandGroup struct {
	Task     string // what they are for, in a few words
	Commands []*cli.Command
}

// commandsOf returns the commands of all groups.
func commandsOf(groups []CommandGroup) []*cli.Command {
	var commands []*cli.Command
	for _, g := range groups {
		commands = append(commands, g.Commands...)
	}
	return commands
}

// commandList renders the groups for help, a line per command, indented by prefix.
func commandList(groups []CommandGroup, prefix string) string {
	width := 0
	for _, c := range commandsOf(groups) {
		width = max(width, len(joinNames(c)))
	}
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s%s\n", prefix, g.Task)
		for _, c := range g.Commands {
			if !c.Hidden {
				fmt.Fprintf(&b, "%s   %-*s  %s\n", prefix, width, joinNames(c), c.Usage)
			}
		}
	}
	return b.String()
}

func joinNames(c *cli.Command) string { return strings.Join(c.Names(), ", ") }

// appHelpTemplate returns the template of the help of the program. Urfave's own would sort the groups by name.
func appHelpTemplate(groups []CommandGroup) string {
	const list = `{{template "visibleCommandCategoryTemplate" .}}`
	return strings.Replace(cli.AppHelpTemplate, list, "\n"+strings.TrimSuffix(commandList(groups, "   "), "\n"), 1) + helpFooter
}

// printCommands prints the commands by task, as git without a command does.
func (p *Program) printCommands(usage string, groups []CommandGroup) error {
	_, err := fmt.Fprintf(p.Stdout, "usage: %s\n\n%s\n%s\n", usage, commandList(groups, ""),
		"'git agency <command> -h' shows the options of a command, 'git agency help' the manual.")
	return err
}
