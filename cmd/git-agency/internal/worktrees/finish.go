package worktrees

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t Commands) finishCommand() *cli.Command {
	return &cli.Command{
		Name:      "finish",
		Usage:     "merge an integration worktree into its parent branch and archive it",
		UsageText: "git agency worktree finish [<wt>] [--strategy merge|squash|rebase]",
		Description: `Merges the branch of a worktree that 'worktree create' made into the branch that it was created from, all or
nothing, as 'land' does, updates the worktree that has that branch checked out, and archives the worktree.
Prints the new commit of the parent branch. The tree must be clean, and all sandboxes landed or discarded.

Conflicts are printed, one path per line, and nothing changes: merge the parent branch in the worktree,
resolve them there, and finish again.

Exit status: 0 finished; 1 failed or refused; 2 conflicts; 3 no such worktree; 4 broken; 5 refused for
safety; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "strategy", Usage: "`STRATEGY`: merge, squash or rebase", DefaultText: "agency.land.strategy, else merge"},
		)...),
		Action: func(c *cli.Context) error {
			repo, query, dir, err := t.openForRemoval(c)
			if err != nil {
				return err
			}
			finished, err := repo.FinishWorktree(c.Context, gitagency.FinishRequest{Worktree: query, Strategy: c.String("strategy")})
			if err == nil {
				t.reportFinished(finished)
				t.HintRemovedDir(repo, dir, nil)
			}
			switch {
			case c.Bool("json") && finished.Worktree != "":
				return errors.Join(err, t.PrintJSON(finishOutput{FinishResult: finished, Conflicts: format.Conflicts(err), Error: format.ErrorText(err)}))
			case err != nil:
				return errors.Join(err, t.PrintConflicts(err))
			}
			return t.PrintLine(finished.Commit)
		},
	}
}

// finishOutput is the JSON of 'worktree finish', also after a failure.
type finishOutput struct {
	gitagency.FinishResult
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
}

// reportFinished says on standard error what became of the worktree.
func (t Commands) reportFinished(f gitagency.FinishResult) {
	did := fmt.Sprintf("merged %s of worktree %s into %s", format.Count(f.Commits, "commit", "commits"), f.Name, f.Branch)
	if f.Strategy == "" {
		did = fmt.Sprintf("%s has all of worktree %s", f.Branch, f.Name)
	}
	fmt.Fprintf(t.Stderr, "%s; the worktree is archived\n", did)
	t.HintOutdated(f.Outdated)
	if f.TrashRef != "" {
		fmt.Fprintf(t.Stderr, "content that was in no branch is kept as %s\n", f.TrashRef)
	}
}
