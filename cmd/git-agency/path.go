package main

import "github.com/urfave/cli/v2"

func (t *tool) pathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of a sandbox",
		UsageText: "git agency path <id>",
		Description: `<id> is an invocation id or a unique prefix of one, never a name.

Exit status: 0 printed; 1 it was landed or discarded and has no sandbox; 3 no such invocation;
4 printed, but it is broken; 129 usage.`,
		Flags: withJSONFlag(),
		Action: func(c *cli.Context) error {
			args, err := positionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			inv, err := repo.Invocation(args[0])
			if err != nil {
				return err
			}
			path, pathErr := inv.Path()
			return t.printPath(c, "sandbox_path", path, pathErr)
		},
	}
}
