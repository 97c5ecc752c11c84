package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// limitFlags returns the flags that start and exec share. --timeout is not among them, because it means more to exec.
func limitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "memory", Usage: "limit the memory of all processes together to `SIZE`, such as 512m or 2g"},
		&cli.StringFlag{Name: "processes", Usage: "limit processes and threads to `NUMBER` at a time"},
		&cli.StringFlag{Name: "file-size", Usage: "limit each written file to `SIZE`"},
		&cli.StringFlag{Name: "nice", Usage: "run at least at this `NICENESS`, 1 to 19"},
		&cli.BoolFlag{Name: "best-effort-limits", Usage: "where a limit cannot be enforced, warn instead of refusing"},
	}
}

// parseLimits parses the values of limitFlags.
func parseLimits(c *cli.Context) (gitagency.Limits, error) {
	l := gitagency.Limits{BestEffort: c.Bool("best-effort-limits")}
	for _, err := range []error{
		parseLimit(c, gitagency.MemoryLimit, &l.Memory),
		parseLimit(c, gitagency.ProcessLimit, &l.Processes),
		parseLimit(c, gitagency.FileSizeLimit, &l.FileSize),
		parseLimit(c, gitagency.NiceLimit, &l.Nice),
	} {
		if err != nil {
			return gitagency.Limits{}, err
		}
	}
	return l, nil
}

// parseLimit parses the flag of a limit into a variable, which it leaves alone if the flag was not given.
func parseLimit[T int | int64 | time.Duration](c *cli.Context, kind gitagency.LimitKind, into *T) error {
	if !c.IsSet(kind.String()) {
		return nil
	}
	value, err := kind.Parse(c.String(kind.String()))
	if err != nil {
		return newUsageError(c, fmt.Errorf("--%s: %w", kind, err))
	}
	*into = T(value)
	return nil
}

// limitDetails returns the limits of a sandbox that 'show' prints for people.
func limitDetails(l gitagency.Limits) []field {
	text := func(kind gitagency.LimitKind, value int64) string {
		if value == 0 {
			return ""
		}
		return kind.Format(value)
	}
	bestEffort := ""
	if l.BestEffort {
		bestEffort = "best effort"
	}
	return []field{
		{"memory", text(gitagency.MemoryLimit, l.Memory), true},
		{"processes", text(gitagency.ProcessLimit, int64(l.Processes)), true},
		{"file size", text(gitagency.FileSizeLimit, l.FileSize), true},
		{"timeout", text(gitagency.TimeoutLimit, int64(l.Timeout)), true},
		{"nice", text(gitagency.NiceLimit, int64(l.Nice)), true},
		{"limits", bestEffort, true},
	}
}

// warnUnenforcedLimits warns of each limit that was not enforced, or not in full.
func (t *tool) warnUnenforcedLimits(limits []gitagency.EnforcedLimit) {
	for _, l := range limits {
		if l.Detail != "" {
			t.warn(fmt.Sprintf("%s %s was not enforced, or only in part: %s", l.Limit, l.Limit.Format(l.Value), l.Detail))
		}
	}
}
