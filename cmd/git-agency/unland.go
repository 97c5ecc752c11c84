package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) unlandCommand() *cli.Command {
	return &cli.Command{
		Name:      "unland",
		Usage:     "take a landing back",
		UsageText: "git agency unland <id> [-n | --dry-run]",
		Description: `Puts a commit on top of the integration branch that undoes what the landing changed, and nothing that
came later; with everything that 'land' promises. What came later and touches the same lines is a
conflict. The commits of the sandbox stay in refs/agency/trash/<id> until they are pruned.

Exit status: 0 taken back, or it had been before; 1 failed, or refused because of what is in the way,
or there is no landing of that id; 2 it conflicts: nothing changed, and standard output lists kinds and
paths; 3 no such invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143
interrupted, undone first.`,
		Flags: changing(jsonFlag(
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		)...),
		Action: func(c *cli.Context) error {
			repo, query, err := t.openFor(c)
			if err != nil {
				return err
			}
			unlanded, err := repo.Unland(c.Context, gitagency.UnlandRequest{ID: query, DryRun: c.Bool("dry-run")})
			if unlanded.Commit != "" {
				t.tellUnlanded(unlanded)
			}
			switch {
			case c.Bool("json"):
				if unlanded.Invocation == "" {
					unlanded.Invocation = query
				}
				return errors.Join(err, t.printJSON(unlanding{unlanded, conflictsOf(err), messageOf(err)}))
			case err != nil:
				return errors.Join(err, t.printConflicts(err))
			}
			return t.printLine(unlanded.Commit)
		},
	}
}

// unlanding is what came of it, also when that is nothing.
type unlanding struct {
	gitagency.Unlanded
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
}

// tellUnlanded says what came of taking a landing back.
func (t *tool) tellUnlanded(u gitagency.Unlanded) {
	switch {
	case u.Already:
		fmt.Fprintf(t.stderr, "the landing of %s had been taken back before\n", u.Invocation)
	case u.DryRun:
		fmt.Fprintf(t.stderr, "would take the landing of %s back from %s\n", u.Invocation, u.Branch)
	default:
		fmt.Fprintf(t.stderr, "took the landing of %s back from %s\n", u.Invocation, u.Branch)
	}
}
