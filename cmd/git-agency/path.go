package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t *tool) pathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of a sandbox",
		UsageText: "git agency path [<id>]",
		Description: `Without <id>, prints that of the sandbox that contains the current directory.

Exit status: 0 printed; 1 it was landed or discarded and has no sandbox; 3 no such invocation;
4 printed, but it is broken, or the repository was moved; 129 usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			inv, err := repo.Invocation(query)
			if err != nil {
				return err
			}
			path, pathErr := inv.Path()
			return t.PrintPath(c, "sandbox_path", path, pathErr)
		},
	}
}
