package main

import (
	"fmt"
	"strconv"
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
	for _, read := range []func() error{
		func() error { return parseFlag(c, "memory", &l.Memory, gitagency.ParseSize) },
		func() error { return parseFlag(c, "processes", &l.Processes, gitagency.ParseProcesses) },
		func() error { return parseFlag(c, "file-size", &l.FileSize, gitagency.ParseSize) },
		func() error { return parseFlag(c, "nice", &l.Nice, gitagency.ParseNice) },
	} {
		if err := read(); err != nil {
			return gitagency.Limits{}, err
		}
	}
	return l, nil
}

// parseFlag parses the value of a flag into a variable, which it leaves alone if the flag was not given.
func parseFlag[T any](c *cli.Context, name string, into *T, parse func(string) (T, error)) error {
	if !c.IsSet(name) {
		return nil
	}
	value, err := parse(c.String(name))
	if err != nil {
		return newUsageError(c, fmt.Errorf("--%s: %w", name, err))
	}
	*into = value
	return nil
}

// limitDetails returns the limits of a sandbox that 'show' prints for people.
func limitDetails(l gitagency.RecordedLimits) []field {
	text := func(value int64, as func(int64) string) string {
		if value == 0 {
			return ""
		}
		return as(value)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	bestEffort := ""
	if l.BestEffort {
		bestEffort = "best effort"
	}
	return []field{
		{"memory", text(l.Memory, gitagency.FormatSize), true},
		{"processes", text(int64(l.Processes), number), true},
		{"file size", text(l.FileSize, gitagency.FormatSize), true},
		{"timeout", text(l.TimeoutMS, func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }), true},
		{"nice", text(int64(l.Nice), number), true},
		{"limits", bestEffort, true},
	}
}

// limitOutput is the JSON of a limit and how it was enforced.
type limitOutput struct {
	Value  int64  `json:"value"`
	By     string `json:"by"`
	Detail string `json:"detail,omitempty"`
}

// limitOutputs returns the JSON of limits by key. A timeout is in milliseconds, rounded up.
func limitOutputs(limits []gitagency.EnforcedLimit) map[string]limitOutput {
	out := map[string]limitOutput{}
	for _, l := range limits {
		value := l.Value
		if l.Limit == gitagency.TimeoutLimit {
			value = int64((time.Duration(value) + time.Millisecond - 1) / time.Millisecond)
		}
		out[l.Limit.RecordKey()] = limitOutput{Value: value, By: string(l.By), Detail: l.Detail}
	}
	return out
}

// warnUnenforcedLimits warns of each limit that was not enforced, or not in full.
func (t *tool) warnUnenforcedLimits(limits []gitagency.EnforcedLimit) {
	for _, l := range limits {
		if l.Detail != "" {
			t.warn(fmt.Sprintf("%s %s did not hold, or not in full: %s", l.Limit, l.Limit.Format(l.Value), l.Detail))
		}
	}
}
