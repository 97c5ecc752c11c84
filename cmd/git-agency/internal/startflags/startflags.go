// Package startflags has the flags that describe a sandbox and its limits, which several commands share, and turns them
// into requests of the library. It must never start anything itself.
package startflags

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Origin returns the flags that say what a sandbox begins with.
func Origin() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "a `LABEL` for people; need not be unique"},
		&cli.StringFlag{Name: "from", Usage: "start from `COMMIT`", DefaultText: "the integration branch"},
		&cli.BoolFlag{Name: "with-changes", Usage: "take the uncommitted work in the integration worktree along"},
		&cli.StringFlag{Name: "clone-source", Usage: "remote `NAME` that a clone has as its origin; . is this repository", DefaultText: "local, else origin, else ."},
		&cli.StringFlag{Name: "from-snapshot", Usage: "begin in the state of `SNAPSHOT`"},
	}
}

// Primitives returns the flags of the five primitives and of the profile that has them.
func Primitives() []cli.Flag {
	defaults := gitagency.DefaultPrimitives()
	return []cli.Flag{
		&cli.StringFlag{Name: "profile", Usage: "take choices that are not given from git config agency.`PROFILE`.*"},
		&cli.StringFlag{Name: "changeset", Usage: "how writes are kept apart: `KIND`, one of worktree, clone, overlay and auto", DefaultText: "agency.changeset, else " + defaults.Changeset},
		&cli.StringFlag{Name: "platform", Usage: "where commands run: `PLATFORM`", DefaultText: defaults.Platform},
		&cli.StringFlag{Name: "isolation", Usage: "walls around commands: `KIND`", DefaultText: defaults.Isolation},
		&cli.StringFlag{Name: "outputs", Usage: "network access: `POLICY`", DefaultText: defaults.Outputs},
		&cli.StringFlag{Name: "software", Usage: "installed software: `ROOT`: host, an image or a directory", DefaultText: defaults.Software},
	}
}

// Request returns the request of the flags of Origin, Primitives and Limits, for an integration worktree. A flag that a
// command does not have is empty.
func Request(c *cli.Context, worktree string) (gitagency.StartRequest, error) {
	limits, err := ParseLimits(c)
	return gitagency.StartRequest{
		Worktree:     worktree,
		FromSnapshot: c.String("from-snapshot"),
		From:         c.String("from"),
		CloneSource:  c.String("clone-source"),
		WithChanges:  c.Bool("with-changes"),
		Name:         c.String("name"),
		Profile:      c.String("profile"),
		Limits:       limits,
		Primitives: gitagency.Primitives{
			Changeset: c.String("changeset"),
			Platform:  c.String("platform"),
			Isolation: c.String("isolation"),
			Outputs:   c.String("outputs"),
			Software:  c.String("software"),
		},
	}, err
}

// WarnIsolation warns of a sandbox that has no walls, or only one around its network.
func WarnIsolation(p *program.Program, inv gitagency.Invocation) {
	switch prims := inv.Primitives; {
	case prims.Isolation != "none":
	case prims.Outputs == "open":
		p.Warn("commands in this sandbox are not isolated from the rest of the machine")
	default:
		p.Warn("only the network of commands in this sandbox is isolated from the rest of the machine")
	}
}
