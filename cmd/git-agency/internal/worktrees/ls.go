package worktrees

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

func (t Commands) lsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list integration worktrees",
		UsageText: "git agency worktree ls [--all] [--json | --porcelain [-z]]",
		Description: `Lists the integration worktrees that are present, the oldest first. On a narrow terminal columns are left out.

Exit status: 0, whatever is found.`,
		Flags: program.WithListingFlags(&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also those that are archived or broken"}),
		Action: func(c *cli.Context) error {
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			worktrees, err := repo.Worktrees(c.Bool("all"))
			if err != nil {
				return err
			}
			if err := program.PrintList(t.Program, c, worktrees, Fields,
				[]string{"ID", "NAME", "BRANCH", "STATE", "CREATED", "PATH"},
				func(w gitagency.Worktree) []string {
					state := w.State
					if w.Broken {
						state = "broken: " + w.BrokenReason
					}
					return []string{w.ID, w.Name, w.IntegrationBranch(), state, term.Ago(t.Now(), w.CreatedAt), w.TreePath}
				}, "CREATED", "PATH"); err != nil || c.Bool("json") || c.Bool("porcelain") {
				return err
			}
			if err := t.Stdout.Flush(); err != nil { // the notes come after the table
				return err
			}
			if len(worktrees) == 0 {
				if hint := noWorktreesHint(repo, c.Bool("all")); hint != "" {
					t.PrintHint(hint)
				}
			}
			return t.WarnRemovedTrees(repo, func(string) bool { return true })
		},
	}
}

// noWorktreesHint says how to make an integration worktree. all says whether archived ones were looked for. It is empty in
// a moved repository, of which a warning has said what to type.
func noWorktreesHint(repo *gitagency.Repository, all bool) string {
	why, moved := reasonAgainstAdoption(repo)
	if moved {
		return ""
	}
	text := "there are no integration worktrees; "
	switch why {
	case reason.UnbornBranch:
		text += firstCommitHint
	case reason.NoWorktree:
		text += "create one with 'git agency worktree create <name>'"
	default:
		text += "make this worktree one with 'git agency worktree adopt', or create one with 'git agency worktree create <name>'"
	}
	if !all {
		text += "; 'git agency worktree ls --all' lists archived ones"
	}
	return text
}

// FirstSandboxHint says how to get to the first sandbox of a repository without integration worktrees. It is empty in a
// moved repository, of which a warning has said what to type.
func FirstSandboxHint(repo *gitagency.Repository) string {
	const none = "there are no sandboxes; "
	why, moved := reasonAgainstAdoption(repo)
	switch {
	case moved:
		return ""
	case why == reason.UnbornBranch:
		return none + firstCommitHint
	case why == reason.NoWorktree:
		return none + "make an integration worktree with 'git agency worktree create <name>', then type: git agency run <name> --runner <runner> -p '<task>'"
	}
	return none + "make this worktree an integration worktree with 'git agency worktree adopt', then type: git agency run --runner <runner> -p '<task>'"
}

const firstCommitHint = "this branch has no commits yet: make a first commit, for example with 'git commit --allow-empty -m start'"

// reasonAgainstAdoption returns reason.UnbornBranch or reason.NoWorktree where the current directory cannot be adopted for
// that reason, and another reason or none elsewhere. moved says that the repository was moved, and its records were not.
func reasonAgainstAdoption(repo *gitagency.Repository) (why reason.Reason, moved bool) {
	_, err := repo.Worktree("")
	var state *gitagency.StateError
	var refused *gitagency.RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Reason, false
	case errors.As(err, &state):
		return state.Reason, false
	}
	return "", hints.Is[*gitagency.MovedRepositoryError](err)
}
