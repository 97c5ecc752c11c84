package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

func (t *tool) versionCommand() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print the version",
		UsageText: "git agency version [--json]",
		Flags:     withJSONFlag(),
		Action: func(c *cli.Context) error {
			if _, err := positionalArgs(c, 0, 0); err != nil {
				return err
			}
			if c.Bool("json") {
				return t.printJSON(map[string]string{"version": toolVersion()})
			}
			return t.printVersion()
		},
	}
}

func (t *tool) printVersion() error {
	_, err := fmt.Fprintf(t.stdout, "git-agency version %s\n", toolVersion())
	return err
}
