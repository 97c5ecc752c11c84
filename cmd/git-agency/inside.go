package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/inside"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/landing"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// insideActions returns the actions of the commands that work behind walls, for the sandbox itself. Nil is the same action as
// outside. All other commands are refused there.
func (t *tool) insideActions() map[string]cli.ActionFunc {
	return map[string]cli.ActionFunc{
		"show":            t.showInside,
		"ls":              t.lsInside,
		"path":            t.pathInside,
		diffName:          t.diffInside,
		"submit":          t.submitInside,
		"snapshot create": t.snapshotInside,
		"ask":             nil,
		"completion":      nil,
		"help":            nil,
		"mcp":             nil,
		"version":         nil,
	}
}

// openNamedInside returns the sandbox that this process runs in, for a command whose only argument is an id.
func (t *tool) openNamedInside(c *cli.Context) (*gitagency.Inside, error) {
	query, err := program.OptionalArg(c)
	if err != nil {
		return nil, err
	}
	return inside.Open(t.Program, query)
}

func (t *tool) showInside(c *cli.Context) error {
	if err := program.CheckOutputFlags(c); err != nil {
		return err
	}
	sandbox, err := t.openNamedInside(c)
	if err != nil {
		return err
	}
	if c.Bool("walls") {
		return sandbox.Refuse()
	}
	inv, refusals, err := sandbox.Invocation(c.Context)
	if err != nil {
		return err
	}
	return t.printInvocation(c, inv, refusals, program.Field{Key: "task-file", Value: sandbox.TaskFile, Optional: true})
}

// lsInside lists the sandbox itself, whatever the flags select.
func (t *tool) lsInside(c *cli.Context) error {
	if err := program.CheckListingArgs(c); err != nil {
		return err
	}
	spec, err := format.Parse(c.String("format"))
	if err != nil {
		return program.NewUsageError(c, err)
	}
	sandbox, err := inside.Open(t.Program, "")
	if err != nil {
		return err
	}
	inv, _, err := sandbox.Invocation(c.Context)
	if err != nil {
		return err
	}
	all := []gitagency.Invocation{inv}
	if c.IsSet("format") {
		return t.printFormat(spec, all)
	}
	return program.PrintList(t.Program, c, all, invocationFields, listHeader(), func(i gitagency.Invocation) []string { return t.listRow(i, i.ID, i.Worktree) })
}

func (t *tool) pathInside(c *cli.Context) error {
	sandbox, err := t.openNamedInside(c)
	if err != nil {
		return err
	}
	return t.PrintPath(c, "sandbox_path", sandbox.WorkDir, nil)
}

func (t *tool) submitInside(c *cli.Context) error {
	sandbox, err := t.openNamedInside(c)
	if err != nil {
		return err
	}
	s, err := sandbox.Submit(c.Context, c.String("message"))
	if err != nil {
		return err
	}
	landing.Commands{Program: t.Program}.ReportSubmitted(s)
	if c.Bool("json") {
		return t.PrintJSON([]gitagency.SubmitResult{s})
	}
	return nil
}

func (t *tool) snapshotInside(c *cli.Context) error {
	sandbox, err := t.openNamedInside(c)
	if err != nil {
		return err
	}
	taken, err := sandbox.TakeSnapshot(c.Context, snapshotRequest(c))
	if err != nil {
		return err
	}
	return t.printSnapshot(c, taken)
}

func (t *tool) diffInside(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 0, 1)
	if err != nil {
		return err
	}
	form, err := parseDiffForm(c)
	if err != nil {
		return err
	}
	sandbox, err := inside.Open(t.Program, strings.Join(args, ""))
	if err != nil {
		return err
	}
	style, err := t.Style()
	if err != nil {
		return err
	}
	req := t.diffRequest(c, sandbox.ID, form)
	req.Words = c.Bool("json") || style.Color
	d, err := sandbox.Diff(c.Context, req, t.plainDiffFormat(style, form), style.Color, c.Bool("json"))
	if err != nil {
		return err
	}
	t.warnLeftOut(d.LeftOut)
	if c.Bool("json") {
		d.Text = append(d.Text, '\n')
	}
	if _, err := t.Stdout.Write(d.Text); err != nil {
		return err
	}
	if c.Bool("exit-code") && !d.Empty {
		return &program.ChildError{Code: hints.ExitFailed}
	}
	return nil
}
