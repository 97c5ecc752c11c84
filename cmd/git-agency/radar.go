package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) radarCommand() *cli.Command {
	return &cli.Command{
		Name:      "radar",
		Usage:     "show which sandboxes would conflict",
		UsageText: "git agency radar [<wt>] [--json | --porcelain [-z]]",
		Description: `Reports for every live sandbox of an integration worktree whether its content would land cleanly now, and
which pairs of sandboxes conflict with each other, with the paths. Uncommitted work counts: tracked, staged
and untracked files, without ignored ones and those that look like credentials.

Two sandboxes that would both land cleanly may conflict with each other: then the one that lands first
blocks the other. A sandbox that cannot be examined is listed with the reason.

Nothing changes, and commands may run in the sandboxes meanwhile. Attributes of the sandboxes and settings
of the repository are not used, nor programs that they name. Results are cached.

Exit status: 0, whatever is found; 1 failed; 3 no such worktree; 4 broken; 5 refused for safety, or not
in an integration worktree; 129 usage.`,
		Flags: withLockTimeoutFlag("a discard of a sandbox", withListingFlags()...),
		Action: func(c *cli.Context) error {
			worktree, err := optionalArg(c)
			if err != nil {
				return err
			}
			if err := checkOutputFlags(c); err != nil {
				return err
			}
			t.opts.NoGitProbe = true // users run this command again and again
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			found, err := repo.Radar(c.Context, worktree)
			if err != nil {
				return err
			}
			switch {
			case c.Bool("json"):
				return t.printJSON(found)
			case c.Bool("porcelain"):
				return t.printRadarBlocks(c.Bool("z"), found)
			}
			return t.printRadar(found)
		},
	}
}

// printRadar prints the radar for people: all sandboxes, then the pairs that conflict.
func (t *tool) printRadar(found gitagency.RadarResult) error {
	rows, pairs := [][]string{}, [][]string{}
	for _, s := range found.Sandboxes {
		rows = append(rows, []string{s.ID, s.Name, radarStateText(s), radarDetail(s)})
	}
	if err := t.printTable([]string{"ID", "NAME", "RADAR", "PATHS"}, rows); err != nil {
		return err
	}
	for _, p := range found.Pairs {
		if !p.Clean {
			pairs = append(pairs, []string{p.A, p.B, strings.Join(p.Paths, ", ")})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	if _, err := t.stdout.WriteString("\n"); err != nil {
		return err
	}
	return t.printTable([]string{"ID", "CONFLICTS WITH", "PATHS"}, pairs)
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
	block := func(fields []field, paths []string) error {
		for _, p := range paths {
			fields = append(fields, field{"path", p, false})
		}
		return t.printBlock(z, fields)
	}
	for _, s := range found.Sandboxes {
		if err := block([]field{{"invocation", s.ID, false}, {"radar", string(s.State), false}, {"name", s.Name, true}, {"error", s.Error, true}}, s.Paths); err != nil {
			return err
		}
	}
	for _, p := range found.Pairs {
		state := gitagency.RadarClean
		if !p.Clean {
			state = gitagency.RadarConflicts
		}
		if err := block([]field{{"pair", p.A + " " + p.B, false}, {"radar", string(state), false}}, p.Paths); err != nil {
			return err
		}
	}
	return nil
}
