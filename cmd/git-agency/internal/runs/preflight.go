package runs

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/gitagency"
)

const preflightName = "preflight"

// Preflight builds the command that checks whether an agent can be run.
func (t Commands) Preflight() *cli.Command {
	return &cli.Command{
		Name:  preflightName,
		Usage: "check whether an agent can be run",
		UsageText: `git agency preflight [<wt>] [--runner <runner>] [--online]
                            [--profile <profile>] [--changeset <c>] [--platform <p>]
                            [--isolation <i>] [--outputs <o>] [--software <s>]
                            [--memory <size>] [--processes <n>] [--file-size <size>]
                            [--nice <n>] [--best-effort-limits] [--json]
                            [-- <command> [<argument>...]]`,
		Description: `Checks whether a sandbox can be created and the agent, or the command after --, can work in it. Prints for
each check whether it passed, what was found, and what to do. Creates and changes nothing, and sends nothing
without --online. The agent is run with --version only.

The checks are base, with another software than host software, walls, limits, paths, runner, login, hosts,
prompts, identity, disk, with --online online, and your own: each agency.preflight.<name> is a shell command, run in the current directory outside of
walls, that must succeed. With another platform than local they are base, mode, platform, hub, identity and
your own; the node makes the rest before it runs the agent.

Exit status: 0 all checks passed; 3 no such worktree; 6 a check failed; 129 usage.`,
		Flags: program.WithJSONFlag(slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "runner", Usage: "the `RUNNER` that would be run"},
			&cli.BoolFlag{Name: "online", Usage: "connect to the hosts that the runner needs"},
		}, startflags.Primitives(), startflags.Limits())...),
		Action: t.preflight,
	}
}

func (t Commands) preflight(c *cli.Context) error {
	worktree, err := program.OptionalArg(c)
	if err != nil {
		return err
	}
	start, err := startflags.Request(c, worktree)
	if err != nil {
		return err
	}
	start.Runner = c.String("runner")
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	report, err := repo.Preflight(c.Context, gitagency.PreflightRequest{Start: start, Argv: t.AfterDashDash, Headless: true, Version: true, Online: c.Bool("online")})
	if err != nil {
		return err
	}
	failed := &preflightError{err: report.Err()}
	for i, check := range report.Checks {
		report.Checks[i].Remedy = hints.Remedy(check, t.Retry())
		if !check.OK {
			failed.names = append(failed.names, check.Name)
		}
	}
	if c.Bool("json") {
		err = t.PrintJSON(report)
	} else {
		err = t.printChecks(report.Checks)
	}
	if err == nil && !report.OK {
		err = failed
	}
	return err
}

// printChecks prints for people each check, and what to do about those that failed.
func (t Commands) printChecks(checks []gitagency.PreflightCheck) error {
	var rows [][]string
	for _, c := range checks {
		state := "ok"
		if !c.OK {
			state = "failed"
		}
		rows = append(rows, []string{c.Name, state, c.Reason})
		if c.Remedy != "" {
			rows = append(rows, []string{"", "remedy", c.Remedy})
		}
	}
	return t.PrintRows([]string{"", "check", ""}, rows)
}

// preflightError sets the exit status of preflight if checks failed, which were printed as the result.
type preflightError struct {
	names []string // of these checks
	err   error
}

func (e *preflightError) Error() string { return "preflight failed: " + strings.Join(e.names, ", ") }

func (e *preflightError) Unwrap() error { return e.err }
