package runs

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Node builds the hidden command that an engine starts on a node. It executes one run, and writes what its agent writes.
func (t Commands) Node() *cli.Command {
	return &cli.Command{
		Name:      "node",
		Hidden:    true,
		Usage:     "execute a run on this node",
		UsageText: "git agency node --hub <hub> --job <commit> [--dir <dir>] [--exclusive-dir] [--environment <file>] <id>",
		Description: `The engine of a platform starts it on a node. It fetches the job <commit> of the invocation <id> from the hub, executes the
run in a sandbox of its own, and pushes refs/agency/results/<id>. If the run has a result of another attempt,
that one counts, and this one ends with 0.

Exit status: that of the run; 125 there is no result: the hub, the repository or the job cannot be used; 129
usage.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "hub", Usage: "the `HUB`, as this machine reaches it"},
			&cli.StringFlag{Name: "job", Usage: "the `COMMIT` of the job"},
			&cli.StringFlag{Name: "dir", Usage: "keep repositories and sandboxes in `DIR`", DefaultText: "~/.cache/agency/nodes/<host>"},
			&cli.BoolFlag{Name: "exclusive-dir", Usage: "keep them in a directory below `DIR` that no other process has locked, as containers that share DIR must"},
			&cli.StringFlag{Name: "environment", Usage: "read variables for the agent from `FILE`, if it exists here"},
		},
		Action: t.node,
	}
}

func (t Commands) node(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 1, 1)
	if err != nil {
		return err
	}
	if c.String("hub") == "" || c.String("job") == "" {
		return program.NewUsageError(c, errors.New("--hub and --job are needed"))
	}
	interrupt.KeepOnBrokenPipe() // the engine's end of the output may be gone
	opts, err := t.LibraryOptions(c)
	if err != nil {
		return err
	}
	exit, err := gitagency.ExecuteJob(c.Context, gitagency.JobRequest{
		Hub: c.String("hub"), ID: args[0], Job: c.String("job"), Dir: c.String("dir"), ExclusiveDir: c.Bool("exclusive-dir"), Environment: c.String("environment"),
		Options: opts, Force: t.SecondInterrupt, Stdout: t.RawStdout, Stderr: t.RawStderr,
	})
	if err != nil {
		return &program.ChildError{Code: hints.ExitSetup, Err: err}
	}
	if exit != 0 {
		return &program.ChildError{Code: exit}
	}
	return nil
}
