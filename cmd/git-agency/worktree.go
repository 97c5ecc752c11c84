package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

func (t *tool) worktreeCommand() *cli.Command {
	return &cli.Command{
		Name:      "worktree",
		Usage:     "create, list and archive integration worktrees",
		UsageText: "git agency worktree (create|adopt|finish|ls|show|path|rm) [<options>]",
		Subcommands: []*cli.Command{
			t.worktreeCreateCommand(),
			t.worktreeAdoptCommand(),
			t.worktreeFinishCommand(),
			t.worktreeLsCommand(),
			t.worktreeShowCommand(),
			t.worktreePathCommand(),
			t.worktreeRmCommand(),
		},
	}
}

func (t *tool) worktreeCreateCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "create an integration worktree and print its path",
		UsageText: "git agency worktree create <name> [--from <commit-ish>]",
		Description: `Creates a branch agency/<name>-<last four digits of the id>, a tree for it in the data directory, a
marker and a record: all or nothing. A name has 2 to 40 characters of a-z, 0-9 and -, and does not begin
with -.

Exit status: 0 created; 1 failed, nothing changed; 4 the repository was moved; 5 refused for safety; 75
locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.StringFlag{Name: "from", Usage: "start from `COMMIT`", DefaultText: "HEAD"})...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.CreateWorktree(c.Context, gitagency.CreateWorktreeRequest{Name: args[0], From: c.String("from")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.PrintJSON(w)
			}
			return t.PrintLine(w.TreePath)
		},
	}
}

func (t *tool) worktreeAdoptCommand() *cli.Command {
	return &cli.Command{
		Name:      "adopt",
		Usage:     "make an existing worktree an integration worktree and print its id",
		UsageText: "git agency worktree adopt [<path>] [--name <name>]",
		Description: `Adds a marker and a record to an existing worktree of this repository, such as the main one, and changes
nothing else in it. The default <path> is the worktree that contains the current directory.

Exit status: 0 adopted; 1 failed, nothing changed; 4 the repository was moved; 5 refused for safety; 75
locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.StringFlag{Name: "name", Usage: "call it `NAME`", DefaultText: "after its branch"})...),
		Action: func(c *cli.Context) error {
			path, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.AdoptWorktree(c.Context, gitagency.AdoptWorktreeRequest{Path: path, Name: c.String("name")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.PrintJSON(w)
			}
			return t.PrintLine(w.ID)
		},
	}
}

func (t *tool) worktreeLsCommand() *cli.Command {
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
			if err := program.PrintList(t.Program, c, worktrees, worktreeFields,
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

// firstWorktreeHint says how to get to the first sandbox of a repository without integration worktrees. It is empty in a
// moved repository, of which a warning has said what to type.
func firstWorktreeHint(repo *gitagency.Repository) string {
	const none = "there are no sandboxes; "
	why, moved := reasonAgainstAdoption(repo)
	switch {
	case moved:
		return ""
	case why == reason.UnbornBranch:
		return none + firstCommitHint
	case why == reason.NoWorktree:
		return none + "make an integration worktree with 'git agency worktree create <name>', then type 'git agency start <name>'"
	}
	return none + "make this worktree an integration worktree with 'git agency worktree adopt', then type 'git agency start'"
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

func (t *tool) worktreeShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one integration worktree",
		UsageText: "git agency worktree show [<wt>] [--json | --porcelain [-z]]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 shown; 3 no such worktree; 4 shown, but it is broken; 5 not in an
integration worktree; 129 usage.`,
		Flags: program.WithListingFlags(),
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			if err := program.CheckOutputFlags(c); err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.Worktree(query)
			if err != nil {
				return err
			}
			return program.PrintOne(t.Program, c, w, worktreeFields, worktreeFields)
		},
	}
}

func (t *tool) worktreePathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of an integration worktree",
		UsageText: "git agency worktree path [<wt>]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 printed; 1 it is archived and has no tree; 3 no such worktree; 4 printed, but it is
broken; 5 not in an integration worktree; 129 usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.Worktree(query)
			if err != nil {
				return err
			}
			path, pathErr := w.Path()
			return t.PrintPath(c, "tree_path", path, pathErr)
		},
	}
}

func (t *tool) worktreeRmCommand() *cli.Command {
	return &cli.Command{
		Name:      "rm",
		Usage:     "archive an integration worktree",
		UsageText: "git agency worktree rm [<wt>] [--force]",
		Description: `Removes the tree, and keeps the branch and the record. An adopted tree stays and only loses its marker. A
tree with uncommitted or untracked files, or with live sandboxes, needs --force; content that is in no
branch is then kept as refs/agency/trash/<id>.

Exit status: 0 archived; 1 failed or refused, nothing changed; 3 no such worktree; 4 broken;
5 not in an integration worktree; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "also when it is dirty or has live sandboxes"})...),
		Action: func(c *cli.Context) error {
			repo, query, dir, err := t.openForRemoval(c)
			if err != nil {
				return err
			}
			removed, err := repo.RemoveWorktree(c.Context, gitagency.RemoveWorktreeRequest{Worktree: query, Force: c.Bool("force")})
			if err != nil {
				return err
			}
			defer t.HintRemovedDir(repo, dir, nil)
			if c.Bool("json") {
				return t.PrintJSON(removed)
			}
			if removed.Undone {
				fmt.Fprintf(t.Stderr, "undid the interrupted creation of %s\n", removed.ID)
				return nil
			}
			fmt.Fprintf(t.Stderr, "archived %s (%s); its branch stays\n", removed.Name, removed.ID)
			if removed.TrashRef != "" {
				fmt.Fprintf(t.Stderr, "content that was in no branch is kept as %s\n", removed.TrashRef)
			}
			return nil
		},
	}
}

// openForRemoval opens the repository for a command that removes the tree of a worktree, which may be the current directory,
// and returns the <wt> of the command line.
func (t *tool) openForRemoval(c *cli.Context) (repo *gitagency.Repository, query, dir string, err error) {
	if query, err = program.OptionalArg(c); err != nil {
		return nil, "", "", err
	}
	if repo, err = t.OpenRepository(c); err != nil {
		return nil, "", "", err
	}
	dir, err = t.CurrentDir()
	return repo, query, dir, err
}

// worktreeFields returns the fields of a worktree, for --porcelain and for 'worktree show'.
func worktreeFields(w gitagency.Worktree) []program.Field {
	return []program.Field{
		{Key: "worktree", Value: w.ID},
		{Key: "name", Value: w.Name, Optional: true},
		{Key: "path", Value: w.TreePath, Optional: true},
		{Key: "branch", Value: w.Branch, Optional: true},
		{Key: "checked-out", Value: w.CheckedOut, Optional: true},
		{Key: "parent", Value: w.ParentBranch, Optional: true},
		{Key: "created", Value: w.CreatedAt.Format(time.RFC3339), Optional: true},
		{Key: "state", Value: w.State, Optional: true},
		{Key: "broken", Value: w.BrokenReason, Optional: true},
	}
}
