package startflags

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Limits returns the flags of limits. --timeout is not among them, because its meaning differs between commands.
func Limits() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "memory", Usage: "limit the memory of all processes together to `SIZE`, such as 512m or 2g"},
		&cli.StringFlag{Name: "processes", Usage: "limit processes and threads to `NUMBER` at a time"},
		&cli.StringFlag{Name: "file-size", Usage: "limit each written file to `SIZE`"},
		&cli.StringFlag{Name: "nice", Usage: "run at least at this `NICENESS`, 1 to 19"},
		&cli.BoolFlag{Name: "best-effort-limits", Usage: "where a limit cannot be enforced, warn instead of refusing"},
	}
}

// ParseLimits parses the values of the flags of Limits.
func ParseLimits(c *cli.Context) (gitagency.Limits, error) {
	l := gitagency.Limits{BestEffort: c.Bool("best-effort-limits")}
	for _, err := range []error{
		ParseLimit(c, gitagency.MemoryLimit, &l.Memory),
		ParseLimit(c, gitagency.ProcessLimit, &l.Processes),
		ParseLimit(c, gitagency.FileSizeLimit, &l.FileSize),
		ParseLimit(c, gitagency.NiceLimit, &l.Nice),
	} {
		if err != nil {
			return gitagency.Limits{}, err
		}
	}
	return l, nil
}

// ParseLimit parses the flag of a limit into a variable, which it leaves alone if the flag was not given.
func ParseLimit[T int | int64 | time.Duration](c *cli.Context, kind gitagency.LimitKind, into *T) error {
	if !c.IsSet(kind.String()) {
		return nil
	}
	value, err := kind.Parse(c.String(kind.String()))
	if err != nil {
		return program.NewUsageError(c, fmt.Errorf("--%s: %w", kind, err))
	}
	*into = T(value)
	return nil
}

// WarnUnenforced warns of each limit that was not enforced, or not in full.
func WarnUnenforced(p *program.Program, limits []gitagency.EnforcedLimit) {
	for _, l := range limits {
		if l.Detail != "" {
			p.Warn(fmt.Sprintf("%s %s was not enforced, or only in part: %s", l.Limit, l.Limit.Format(l.Value), l.Detail))
		}
	}
}
