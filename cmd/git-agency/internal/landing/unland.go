package landing

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Unland builds the command that reverts a landing.
func (t Commands) Unland() *cli.Command {
	return &cli.Command{
		Name:      "unland",
		Usage:     "revert a landing",
		UsageText: "git agency unland <id> [--push [--remote <remote>]] [-n | --dry-run]",
		Description: `Reverts a landing by a new commit on the integration branch, with the guarantees of 'land'. Later changes to
the same lines are a conflict. The commits of the sandbox stay in refs/agency/trash/<id> until they are
pruned.

--push pushes the integration branch afterwards, as 'land --push' does. If the push fails, the revert
stands, and the same command retries the push.

Exit status: 0 reverted, or it had been before; 1 failed or refused, nothing changed, or reverted,
but not pushed; 2 conflicts: nothing changed, and standard output lists kinds and paths; 3 no such
invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143 interrupted, undone first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.BoolFlag{Name: "push", Usage: "push the integration branch afterwards"},
			&cli.StringFlag{Name: "remote", Usage: "with --push, the `REMOTE` to push to", DefaultText: "local if there is one, else origin"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		)...),
		Action: func(c *cli.Context) error {
			if c.IsSet("remote") && !c.Bool("push") {
				return program.NewUsageError(c, errors.New("--remote needs --push"))
			}
			repo, query, err := t.OpenForQuery(c)
			if err != nil {
				return err
			}
			if c.Bool("push") {
				inv, err := repo.Invocation(query)
				if err != nil {
					return err
				}
				query = inv.ID
			}
			plans, err := t.planPush(c, repo, gitagency.PushRequest{Invocations: []string{query}})
			if err != nil {
				return err
			}
			unlanded, err := repo.Unland(c.Context, gitagency.UnlandRequest{ID: query, DryRun: c.Bool("dry-run")})
			if unlanded.Commit != "" {
				t.reportUnlanded(unlanded)
			}
			if err == nil && !c.Bool("json") {
				err = t.PrintLine(unlanded.Commit)
			}
			u := unlandOutput{UnlandResult: unlanded, Conflicts: format.Conflicts(err), Error: format.ErrorText(err)}
			u.Invocation = cmp.Or(u.Invocation, query)
			return t.pushUnlanded(c, repo, plans, u, err)
		},
	}
}

// pushUnlanded pushes the branch after an unland, if --push was given and failed is nil, and prints the result.
func (t Commands) pushUnlanded(c *cli.Context, repo *gitagency.Repository, plans []gitagency.PushPlan, u unlandOutput, failed error) error {
	results := []landOutput{{LandResult: gitagency.LandResult{Invocation: u.Invocation, Commit: u.Commit, Branch: u.Branch}, Error: u.Error}}
	if failed == nil {
		failed = t.pushLanded(c, repo, plans, results)
	} else {
		t.warnUnpushed(c, plans, results)
	}
	u.pushOutput, u.Error = results[0].pushOutput, results[0].Error
	if c.Bool("json") {
		return errors.Join(failed, t.PrintJSON(u))
	}
	return errors.Join(failed, t.PrintConflicts(failed))
}

// unlandOutput is the JSON of 'unland', also after a failure.
type unlandOutput struct {
	gitagency.UnlandResult
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
	pushOutput
}

// reportUnlanded prints the result of an unland.
func (t Commands) reportUnlanded(u gitagency.UnlandResult) {
	switch {
	case u.Already:
		fmt.Fprintf(t.Stderr, "the landing of %s was reverted before\n", u.Invocation)
	case u.DryRun:
		fmt.Fprintf(t.Stderr, "would revert the landing of %s on %s\n", u.Invocation, u.Branch)
	default:
		fmt.Fprintf(t.Stderr, "reverted the landing of %s on %s\n", u.Invocation, u.Branch)
	}
}
