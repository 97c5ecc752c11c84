package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) startCommand() *cli.Command {
	defaults := gitagency.DefaultPrimitives()
	return &cli.Command{
		Name:  "start",
		Usage: "create a sandbox and print its invocation id",
		UsageText: `git agency start [<wt>] [--name <label>] [--runner <runner>] [--mode headed|headless]
                        [--profile <profile>] [--changeset <c>] [--platform <p>]
                        [--isolation <i>] [--outputs <o>] [--software <s>]`,
		Description: `Makes a tree of its own and a branch agency/sandbox-<id> of its own, both from the branch of the
integration worktree <wt>, which is not touched. Nothing is run. If anything fails, nothing was made.
<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the current
directory.

Exit status: 0 created; 1 failed, nothing changed; 3 no such worktree; 4 broken; 5 refused for
safety; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: changing(jsonFlag(
			&cli.StringFlag{Name: "name", Usage: "a `LABEL` for people; need not be unique"},
			&cli.StringFlag{Name: "runner", Usage: "record which `RUNNER` the sandbox is for"},
			&cli.StringFlag{Name: "mode", Usage: "record the `MODE`: headed or headless", DefaultText: "headless"},
			&cli.StringFlag{Name: "profile", Usage: "take what is not given from git config agency.`PROFILE`.*"},
			&cli.StringFlag{Name: "changeset", Usage: "how writes are kept apart: `KIND`", DefaultText: defaults.Changeset},
			&cli.StringFlag{Name: "platform", Usage: "where it runs: `PLATFORM`", DefaultText: defaults.Platform},
			&cli.StringFlag{Name: "isolation", Usage: "what walls it in: `KIND`", DefaultText: defaults.Isolation},
			&cli.StringFlag{Name: "outputs", Usage: "what it may reach: `POLICY`", DefaultText: defaults.Outputs},
			&cli.StringFlag{Name: "software", Usage: "what it finds installed: `ROOT`", DefaultText: defaults.Software},
		)...),
		Action: func(c *cli.Context) error {
			query, err := optional(c)
			if err != nil {
				return err
			}
			repo, err := t.open(c)
			if err != nil {
				return err
			}
			inv, err := repo.Start(c.Context, gitagency.StartRequest{
				Worktree: query,
				Name:     c.String("name"),
				Runner:   c.String("runner"),
				Mode:     c.String("mode"),
				Profile:  c.String("profile"),
				Primitives: gitagency.Primitives{
					Changeset: c.String("changeset"),
					Platform:  c.String("platform"),
					Isolation: c.String("isolation"),
					Outputs:   c.String("outputs"),
					Software:  c.String("software"),
				},
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.printJSON(inv)
			}
			return t.printLine(inv.ID)
		},
	}
}
