package main

import (
	"errors"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) startCommand() *cli.Command {
	return &cli.Command{
		Name:  "start",
		Usage: "create a sandbox and print its invocation id",
		UsageText: `git agency start [<wt>] [--name <label>] [--runner <runner>] [--mode headed|headless]
                        [--from <commit-ish> | --from-snapshot <snapshot> | --with-changes]
                        [--profile <profile>] [--changeset <c>] [--clone-source <remote>] [--platform <p>]
                        [--isolation <i>] [--outputs <o>] [--software <s>]
                        [--memory <size>] [--processes <n>] [--file-size <size>]
                        [--timeout <t>] [--nice <n>] [--best-effort-limits]
   or: git agency start --path <dir> [--path <dir>]... [--name <label>] [...]`,
		Description: `Creates a sandbox, all or nothing: a tree and a branch agency/sandbox-<id> at the tip of the branch of the
integration worktree <wt>. Runs nothing. Limits are recorded with it; isolation or a limit that this
machine cannot provide is refused. <wt> is a name, an id or a unique prefix of one; the default is the
worktree that contains the current directory.

With --from the sandbox begins at another commit, such as a branch, a tag or the ref of a pull request; its
work lands on the integration branch all the same. With --with-changes it begins with the changed, staged
and untracked files of the integration worktree, which stay there; files that git ignores, or that look
like credentials, are left out. Ignored files that agency.copy names, such as node_modules, are copied into
every new sandbox.

With --from-snapshot the sandbox begins in the state of a snapshot, with the base commit of that:
committed, staged, changed and untracked files are restored as such. The default <wt> is then the worktree
of the snapshot's invocation. <snapshot> is its commit, in full or as a unique prefix, or <id>/<n>.

With --path the sandbox is over plain directories, in git or not, and needs no repository. Commands in it
see each directory at its own path, as an overlay, or as a copy where none can be mounted; 'git agency land'
applies the changes to all of them or to none. It needs walls. See PLAIN DIRECTORIES in the manual.

Exit status: 0 created; 1 failed, nothing changed; 3 no such worktree or snapshot; 4 broken; 5 refused for
safety; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(slices.Concat(startflags.Origin(), []cli.Flag{
			&cli.StringFlag{Name: "runner", Usage: "record which `RUNNER` the sandbox is for"},
			&cli.StringFlag{Name: "mode", Usage: "record the `MODE`: headed or headless", DefaultText: "headless"},
			&cli.GenericFlag{Name: "path", Value: &argv.RepeatedFlag{}, Usage: "make a sandbox over the plain directory `DIR`, without git; may be repeated"},
		}, startflags.Primitives(), []cli.Flag{
			&cli.StringFlag{Name: "timeout", Usage: "end each command after `DURATION`"},
		}, startflags.Limits())...)...),
		Action: t.start,
	}
}

// start creates the sandbox that the flags describe.
func (t *tool) start(c *cli.Context) error {
	worktree, err := program.OptionalArg(c)
	if err != nil {
		return err
	}
	req, err := startflags.Request(c, worktree)
	if err != nil {
		return err
	}
	if err := startflags.ParseLimit(c, gitagency.TimeoutLimit, &req.Limits.Timeout); err != nil {
		return err
	}
	req.Limits.Timeout = max(req.Limits.Timeout, 0)
	req.Runner, req.Mode = c.String("runner"), c.String("mode")
	if paths, _ := c.Generic("path").(*argv.RepeatedFlag); paths != nil && len(paths.Values) > 0 {
		return t.startPaths(c, req, paths.Values)
	}
	t.Options.NoGitProbe = true // git was probed when the integration worktree was made
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	progress, end := startflags.CopyProgress(t.Program)
	req.Progress = progress
	inv, err := repo.Start(c.Context, req)
	end()
	if err != nil {
		return err
	}
	return t.reportStarted(c, inv)
}

// startPaths creates a sandbox over plain directories.
func (t *tool) startPaths(c *cli.Context, req gitagency.StartRequest, paths []string) error {
	switch {
	case req.Worktree != "":
		return program.NewUsageError(c, errors.New("--path and <wt> exclude each other: a sandbox over plain directories has no integration worktree"))
	case req.From != "" || req.FromSnapshot != "" || req.WithChanges:
		return program.NewUsageError(c, errors.New("--from, --from-snapshot and --with-changes exclude --path: the sandbox begins with the directories as they are"))
	}
	opts, err := t.LibraryOptions(c)
	if err != nil {
		return err
	}
	inv, err := gitagency.StartPaths(c.Context, gitagency.StartPathsRequest{
		Paths: paths, Name: req.Name, Runner: req.Runner, Mode: req.Mode, Primitives: req.Primitives, Profile: req.Profile, Limits: req.Limits,
	}, opts)
	if err != nil {
		return err
	}
	return t.reportStarted(c, inv)
}

// reportStarted prints the id of a new invocation, and a warning if it has no walls.
func (t *tool) reportStarted(c *cli.Context, inv gitagency.Invocation) error {
	startflags.WarnIsolation(t.Program, inv)
	if c.Bool("json") {
		return t.PrintJSON(inv)
	}
	return t.PrintLine(inv.ID)
}
