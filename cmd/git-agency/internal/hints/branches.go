package hints

import (
	"slices"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// missingBranchHints returns the commands by which work gets to a branch after its own branch was renamed or deleted.
func missingBranchHints(e *gitagency.StateError, _ Retry) []string {
	branch, elsewhere := quote.Shell(e.Branch), "<branch>"
	if e.Other != "" {
		elsewhere = quote.Shell(e.Other)
	}
	switch {
	case e.Name != "":
		return []string{"'git agency doctor --fix " + e.Name + "' repairs the worktree"}
	case e.ID == "" && e.Operation == "merge" && len(e.Others) > 0:
		return []string{
			"do it by hand: git switch " + elsewhere + " && git merge " + quote.Shell(e.Others[0]),
			"and then archive the worktree: git -C " + quote.Shell(e.Path) + " agency worktree rm",
		}
	case e.ID == "" && len(e.Others) > 0:
		return []string{"do it by hand: git switch " + elsewhere + " && git " + e.Operation + " " + e.Others[0]}
	case e.ID == "":
		return nil
	}
	first := "create the branch again, at the last commit of it that the sandbox has: git branch " + branch + " " + e.Commit
	if e.Other != "" {
		first = "to let it land on " + elsewhere + ": git agency doctor --fix " + e.ID
	}
	return []string{
		first,
		"or merge its work yourself: git switch " + elsewhere + " && git merge agency/sandbox-" + e.ID,
		"and then 'git agency discard " + e.ID + "' ends it",
	}
}

// noCommitHints is for a commit that was given on the command line.
func noCommitHints(e *gitagency.StateError, retry Retry) []string {
	if !slices.Contains(retry.Args, e.Name) && !slices.Contains(retry.Args, "--from="+e.Name) {
		return nil
	}
	return []string{"name a branch, a tag or a commit; 'git branch --all' and 'git tag' list them, 'git fetch' gets those of the remote"}
}

// notIntegrationHints says how to name or make an integration worktree. One that is to be finished or archived exists
// already, and a directory without a worktree cannot be adopted.
func notIntegrationHints(e *gitagency.StateError, retry Retry) []string {
	choose := "name a worktree (see 'git agency worktree ls')"
	switch {
	case retry.runs("worktree"):
		return []string{choose}
	case retry.runs("restore"): // it has no argument for a worktree
		choose = "run the command in an integration worktree (see 'git agency worktree ls')"
	}
	const create = "make a new one with 'git agency worktree create <name>'"
	if e.Reason == reason.NoWorktree {
		return []string{choose + ", or " + create}
	}
	return []string{choose + ", or make this one an integration worktree with 'git agency worktree adopt'", "or " + create}
}
