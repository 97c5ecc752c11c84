package landing

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Sync builds the command that merges the integration branch into a sandbox.
func (t Commands) Sync() *cli.Command {
	return &cli.Command{
		Name:      "sync",
		Usage:     "merge the integration branch into a sandbox",
		UsageText: "git agency sync [<id>]",
		Description: `Merges the current integration branch into the branch of the sandbox, by a merge commit in your name, or by
a fast-forward if the sandbox has no commits of its own. Prints the commit that the sandbox is then at.

Conflicts stay in the sandbox as 'git merge' leaves them; each path is printed after its kinds of conflict
and a tab. Resolve them there with 'git add' and 'git commit', or undo the sync. 'git merge --abort' can
remove untracked files that the integration branch has too; the command that undoes the sync keeps them.

The work in the sandbox must be committed. Untracked files stay, and must not be in the way. The state
before is snapshotted, with ignored files that are in the way, and standard error prints the command that
undoes the sync. It is refused while commands run in the sandbox. No hook, filter or merge driver that an
agent could have configured runs. A killed sync is completed by the next command that works in the sandbox.

Exit status: 0 done, or there was nothing to do; 1 failed, or refused because of the content of the
sandbox: nothing changed, unless the message says that it is half-way; 2 conflicts wait in the sandbox; 3
no such invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143 interrupted, undone
first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag()...),
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			sandbox, err := repo.Sandbox(query)
			if err != nil {
				return err
			}
			synced, err := sandbox.Sync(c.Context)
			if err != nil && !hints.Is[*gitagency.ConflictsError](err) {
				return err
			}
			t.reportSynced(synced)
			if inv, invErr := repo.Invocation(synced.Invocation); invErr == nil {
				err = firstError(err, t.WarnRemovedTrees(repo, func(id string) bool { return id == inv.WorktreeID }))
			}
			switch {
			case c.Bool("json"):
				return firstError(t.PrintJSON(synced), err)
			case err != nil:
				return firstError(t.PrintConflicts(err), err)
			}
			return t.PrintLine(synced.Head)
		},
	}
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// reportSynced prints the result of a sync and the command that undoes it.
func (t Commands) reportSynced(s gitagency.SyncResult) {
	branch := s.Branch
	if branch == "" {
		branch = format.ShortOID(s.Commit)
	}
	switch {
	case s.Already:
		fmt.Fprintf(t.Stderr, "%s already has all of %s; nothing changed\n", s.Invocation, branch)
		return
	case s.FastForward:
		fmt.Fprintf(t.Stderr, "fast-forwarded %s to %s: ", s.Invocation, branch)
	case len(s.Conflicts) > 0:
		fmt.Fprintf(t.Stderr, "the merge of %s into %s has conflicts: ", branch, s.Invocation)
	default:
		fmt.Fprintf(t.Stderr, "merged %s into %s: ", branch, s.Invocation)
	}
	fmt.Fprintf(t.Stderr, "%s added, %d changed, %d removed\n", format.Count(s.Added, "file", "files"), s.Changed, s.Removed)
	fmt.Fprintf(t.Stderr, "%s to undo this, type 'git agency snapshot rollback %s %s'\n", t.PaintPrefix("hint:"), s.Invocation, s.PreviousName)
}
