package readlimit

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Reading is the use of data that an agent wrote by other programs. The zero value limits nothing.
type Reading struct {
	Limits
	What  string // the data, for the error
	Walls *Walls // what the programs can reach; nil: as much as this process
}

// Command returns a command with the limits and behind the walls.
func (r Reading) Command(c proc.Command) proc.Command {
	c.Limits = r.Process()
	if r.Walls != nil {
		c.Restrict = r.Walls.restrict
	}
	return c
}

// Environment returns the part of an environment that a git behind the walls gets, with another home directory; without
// walls, all of it.
func (r Reading) Environment(env []string, home string) []string {
	if r.Walls == nil {
		return env
	}
	return r.Walls.Environment(env, home)
}

// Run is proc.Run within the limits. Beyond one of them the error is an *ExceededError.
func (r Reading) Run(ctx context.Context, c proc.Command) (proc.Result, error) {
	c = r.Command(c)
	output := proc.LimitedBuffer{Limit: int(r.Output)}
	captured := r.Output > 0 && c.Stdout == nil
	if captured {
		c.Stdout = &output
	}
	res, err := proc.Run(ctx, c)
	if output.Exceeded {
		return res, r.Exceeded(r.What, Output)
	}
	if exceeded := r.ExceededBy(res); exceeded != nil {
		return res, exceeded
	}
	if captured {
		res.Stdout = output.Bytes()
	}
	return res, err
}

// Process returns the limits of a program that reads the data. A file that it writes is at most as large as all objects
// together.
func (r Reading) Process() proc.Limits {
	return proc.Limits{CPU: r.Time, Data: r.Memory, FileSize: r.Inflated}
}

// ExceededBy returns an *ExceededError if a program with the limits of Process was ended by one of them; nil otherwise.
func (r Reading) ExceededBy(res proc.Result) error {
	limits := r.Process()
	switch {
	case res.CPUExceeded(limits):
		return r.Exceeded(r.What, Time)
	case res.FileSizeExceeded(limits):
		return r.Exceeded(r.What, Inflated)
	case res.DataExceeded(limits):
		return r.Exceeded(r.What, Memory)
	}
	return nil
}
