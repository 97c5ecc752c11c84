package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t *tool) versionCommand() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print the version",
		UsageText: "git agency version [--json]",
		Flags:     program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			if _, err := program.PositionalArgs(c, 0, 0); err != nil {
				return err
			}
			if c.Bool("json") {
				return t.PrintJSON(map[string]string{"version": toolVersion()})
			}
			return t.PrintVersion()
		},
	}
}
