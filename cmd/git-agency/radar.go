package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) radarCommand() *cli.Command {
	return &cli.Command{
		Name:      "radar",
		Usage:     "show which sandboxes would conflict",
		UsageText: "git agency radar [<wt>] [--no-abbrev | --json | --porcelain [-z]]",
		Description: `Reports for every live sandbox of an integration worktree whether its content would land cleanly now, and
which pairs of sandboxes conflict with each other, with the paths. Uncommitted work counts: tracked, staged
and untracked files, without ignored ones and those that look like credentials.

Two sandboxes that would both land cleanly may conflict with each other: then the one that lands first
blocks the other. A sandbox that cannot be examined is listed with the reason.

Nothing changes, and commands may run in the sandboxes meanwhile. Attributes of the sandboxes and settings
of the repository are not used, nor programs that they name. Results are cached.

Exit status: 0, whatever is found; 1 failed; 3 no such worktree; 4 broken; 5 refused for safety, or not
in an integration worktree; 129 usage.`,
		Flags: program.WithLockTimeoutFlag("a discard of a sandbox", program.WithAbbrevFlag(program.WithListingFlags()...)...),
		Action: func(c *cli.Context) error {
			worktree, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			if err := program.CheckOutputFlags(c); err != nil {
				return err
			}
			t.Options.NoGitProbe = true // users run this command again and again
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			found, err := repo.Radar(c.Context, worktree)
			if err != nil {
				return err
			}
			switch {
			case c.Bool("json"):
				return t.PrintJSON(found)
			case c.Bool("porcelain"):
				return t.printRadarBlocks(c.Bool("z"), found)
			}
			tableID, err := t.TableIDs(c, repo)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(found.Sandboxes, func(s gitagency.RadarSandbox) bool { return s.BranchMissing }) {
				defer t.PrintHint("a branch that sandboxes land on does not exist any more; 'git agency doctor' says what to type")
			}
			if err := t.printRadar(found, tableID); err != nil {
				return err
			}
			if err := t.Stdout.Flush(); err != nil { // the warning comes after the table
				return err
			}
			of, err := repo.Worktree(worktree)
			if err != nil {
				return err
			}
			return t.WarnRemovedTrees(repo, func(id string) bool { return id == of.ID })
		},
	}
}

// printRadar prints the radar for people: all sandboxes, then the pairs that conflict. tableID formats their ids.
func (t *tool) printRadar(found gitagency.RadarResult, tableID func(id string) string) error {
	rows, pairs, names := [][]string{}, [][]string{}, map[string]string{}
	for _, s := range found.Sandboxes {
		names[s.ID] = cmp.Or(s.Name, s.Task)
		rows = append(rows, []string{tableID(s.ID), names[s.ID], radarStateText(s), radarDetail(s)})
	}
	if err := t.PrintTable([]string{"ID", "NAME", "RADAR", "PATHS"}, rows, "NAME"); err != nil {
		return err
	}
	for _, p := range found.Pairs {
		if !p.Clean {
			pairs = append(pairs, []string{tableID(p.A), names[p.A], tableID(p.B), names[p.B], strings.Join(p.Paths, ", ")})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	if _, err := t.Stdout.WriteString("\n"); err != nil {
		return err
	}
	return t.PrintTable([]string{"ID", "NAME", "CONFLICTS WITH", "NAME", "PATHS"}, pairs, "NAME")
}

func radarStateText(s gitagency.RadarSandbox) string {
	if s.State == gitagency.RadarNothing {
		return "nothing to land"
	}
	return string(s.State)
}

// radarDetail returns the error, or the paths in conflict.
func radarDetail(s gitagency.RadarSandbox) string {
	if s.Error != "" {
		return s.Error
	}
	return strings.Join(s.Paths, ", ")
}

// printRadarBlocks prints the radar for scripts: a block for every sandbox, then one for every pair.
func (t *tool) printRadarBlocks(z bool, found gitagency.RadarResult) error {
	block := func(fields []program.Field, paths []string) error {
		for _, p := range paths {
			fields = append(fields, program.Field{Key: "path", Value: p})
		}
		return t.PrintBlock(z, fields)
	}
	for _, s := range found.Sandboxes {
		fields := []program.Field{
			{Key: "invocation", Value: s.ID},
			{Key: "radar", Value: string(s.State)},
			{Key: "name", Value: s.Name, Optional: true},
			{Key: "error", Value: s.Error, Optional: true},
		}
		if err := block(fields, s.Paths); err != nil {
			return err
		}
	}
	for _, p := range found.Pairs {
		state := gitagency.RadarClean
		if !p.Clean {
			state = gitagency.RadarConflicts
		}
		if err := block([]program.Field{{Key: "pair", Value: p.A + " " + p.B}, {Key: "radar", Value: string(state)}}, p.Paths); err != nil {
			return err
		}
	}
	return nil
}
