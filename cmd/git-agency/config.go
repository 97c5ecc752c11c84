package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

func (t *tool) configCommand() *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "list the settings, their values and origins",
		UsageText: "git agency config [--json | --porcelain [-z]]",
		Description: `Lists every setting: its effective value, the file or environment variable that sets it, and its
meaning. Ignored values are listed too, with the reason, and cause a warning. Change a setting with
'git config --global <key> <value>'.

Exit status: 0, whatever is found; 129 usage.`,
		Flags: program.WithListingFlags(),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return configUsageError(c)
			}
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			settings, err := gitagency.Settings(c.Context, t.Options)
			if err != nil {
				return err
			}
			for _, s := range settings {
				if err := s.Err(); err != nil {
					t.Warn(err.Error())
				}
			}
			t.IgnoreSettingsErrors()
			header := []string{"KEY", "VALUE", "FROM", "MEANING"}
			problems := slices.ContainsFunc(settings, func(s gitagency.Setting) bool { return s.Problem != "" })
			if problems {
				header = slices.Insert(header, 3, "PROBLEM")
			}
			return program.PrintList(t.Program, c, settings, settingFields, header,
				func(s gitagency.Setting) []string {
					row := []string{s.Key, s.Value, settingOrigin(s), s.Meaning}
					if problems {
						row = slices.Insert(row, 3, s.Problem)
					}
					return row
				})
		},
	}
}

// configUsageError points a caller that passed arguments to 'git config'.
func configUsageError(c *cli.Context) error {
	return &program.UsageError{
		Err: fmt.Errorf("unexpected argument %q", c.Args().First()), Usage: c.Command.UsageText,
		Hint: "this only lists settings; to read or change one, type: " + quote.ShellLine(append([]string{"git", "config"}, c.Args().Slice()...)),
	}
}

// settingFields returns the fields of a setting for --porcelain.
func settingFields(s gitagency.Setting) []program.Field {
	return []program.Field{
		{Key: "key", Value: s.Key},
		{Key: "value", Value: s.Value, Optional: true},
		{Key: "scope", Value: s.Scope},
		{Key: "origin", Value: s.Origin, Optional: true},
		{Key: "meaning", Value: s.Meaning, Optional: true},
		{Key: "problem", Value: s.Problem, Optional: true},
	}
}

func settingOrigin(s gitagency.Setting) string {
	if s.Origin == "" {
		return s.Scope
	}
	return s.Origin
}
