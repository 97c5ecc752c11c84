package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) startCommand() *cli.Command {
	defaults := gitagency.DefaultPrimitives()
	return &cli.Command{
		Name:  "start",
		Usage: "create a sandbox and print its invocation id",
		UsageText: `git agency start [<wt>] [--name <label>] [--runner <runner>] [--mode headed|headless]
                        [--from <commit-ish> | --from-snapshot <snapshot> | --with-changes]
                        [--profile <profile>] [--changeset <c>] [--platform <p>]
                        [--isolation <i>] [--outputs <o>] [--software <s>]
                        [--memory <size>] [--processes <n>] [--file-size <size>]
                        [--timeout <t>] [--nice <n>] [--best-effort-limits]`,
		Description: `Creates a sandbox, all or nothing: a tree and a branch agency/sandbox-<id> at the tip of the branch of the
integration worktree <wt>. Runs nothing. Limits are recorded with it; isolation or a limit that this
machine cannot provide is refused. <wt> is a name, an id or a unique prefix of one; the default is the
worktree that contains the current directory.

With --from the sandbox begins at another commit, such as a branch, a tag or the ref of a pull request; its
work lands on the integration branch all the same. With --with-changes it begins with the changed, staged
and untracked files of the integration worktree, which stay there; files that git ignores, or that look
like credentials, are left out.

With --from-snapshot the sandbox begins in the state of a snapshot, with the base commit of that:
committed, staged, changed and untracked files are restored as such. The default <wt> is then the worktree
of the snapshot's invocation. <snapshot> is its commit, in full or as a unique prefix, or <id>/<n>.

Exit status: 0 created; 1 failed, nothing changed; 3 no such worktree or snapshot; 4 broken; 5 refused for
safety; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(append([]cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "a `LABEL` for people; need not be unique"},
			&cli.StringFlag{Name: "runner", Usage: "record which `RUNNER` the sandbox is for"},
			&cli.StringFlag{Name: "mode", Usage: "record the `MODE`: headed or headless", DefaultText: "headless"},
			&cli.StringFlag{Name: "from", Usage: "start from `COMMIT`", DefaultText: "the integration branch"},
			&cli.BoolFlag{Name: "with-changes", Usage: "take the uncommitted work in the integration worktree along"},
			&cli.StringFlag{Name: "from-snapshot", Usage: "begin in the state of `SNAPSHOT`"},
			&cli.StringFlag{Name: "profile", Usage: "take choices that are not given from git config agency.`PROFILE`.*"},
			&cli.StringFlag{Name: "changeset", Usage: "how writes are kept apart: `KIND`", DefaultText: defaults.Changeset},
			&cli.StringFlag{Name: "platform", Usage: "where commands run: `PLATFORM`", DefaultText: defaults.Platform},
			&cli.StringFlag{Name: "isolation", Usage: "walls around commands: `KIND`", DefaultText: defaults.Isolation},
			&cli.StringFlag{Name: "outputs", Usage: "network access: `POLICY`", DefaultText: defaults.Outputs},
			&cli.StringFlag{Name: "software", Usage: "installed software: `ROOT`", DefaultText: defaults.Software},
			&cli.StringFlag{Name: "timeout", Usage: "end each command after `DURATION`"},
		}, limitFlags()...)...)...),
		Action: t.start,
	}
}

// start creates the sandbox that the flags describe.
func (t *tool) start(c *cli.Context) error {
	query, err := program.OptionalArg(c)
	if err != nil {
		return err
	}
	limits, err := parseLimits(c)
	if err != nil {
		return err
	}
	if err := parseLimit(c, gitagency.TimeoutLimit, &limits.Timeout); err != nil {
		return err
	}
	limits.Timeout = max(limits.Timeout, 0)
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	inv, err := repo.Start(c.Context, gitagency.StartRequest{
		Worktree:     query,
		FromSnapshot: c.String("from-snapshot"),
		From:         c.String("from"),
		WithChanges:  c.Bool("with-changes"),
		Name:         c.String("name"),
		Runner:       c.String("runner"),
		Mode:         c.String("mode"),
		Profile:      c.String("profile"),
		Limits:       limits,
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
	return t.reportStarted(c, inv)
}

// reportStarted prints the id of a new invocation, and a warning if it has no walls.
func (t *tool) reportStarted(c *cli.Context, inv gitagency.Invocation) error {
	switch p := inv.Primitives; {
	case p.Isolation != "none":
	case p.Outputs == "open":
		t.Warn("commands in this sandbox are not isolated from the rest of the machine")
	default:
		t.Warn("only the network of commands in this sandbox is isolated from the rest of the machine")
	}
	if c.Bool("json") {
		return t.PrintJSON(inv)
	}
	return t.PrintLine(inv.ID)
}
