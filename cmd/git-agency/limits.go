package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
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
		return program.NewUsageError(c, fmt.Errorf("--%s: %w", kind, err))
	}
	*into = T(value)
	return nil
}

// limitDetails returns the limits of a sandbox that 'show' prints for people.
func limitDetails(l gitagency.Limits) []program.Field {
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
	return []program.Field{
		{Key: "memory", Value: text(gitagency.MemoryLimit, l.Memory), Optional: true},
		{Key: "processes", Value: text(gitagency.ProcessLimit, int64(l.Processes)), Optional: true},
		{Key: "file size", Value: text(gitagency.FileSizeLimit, l.FileSize), Optional: true},
		{Key: "timeout", Value: text(gitagency.TimeoutLimit, int64(l.Timeout)), Optional: true},
		{Key: "nice", Value: text(gitagency.NiceLimit, int64(l.Nice)), Optional: true},
		{Key: "limits", Value: bestEffort, Optional: true},
	}
}

// warnUnenforcedLimits warns of each limit that was not enforced, or not in full.
func (t *tool) warnUnenforcedLimits(limits []gitagency.EnforcedLimit) {
	for _, l := range limits {
		if l.Detail != "" {
			t.Warn(fmt.Sprintf("%s %s was not enforced, or only in part: %s", l.Limit, l.Limit.Format(l.Value), l.Detail))
		}
	}
}
