package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/setup"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) setupCommand() *cli.Command {
	return &cli.Command{
		Name:      "setup",
		Usage:     "install the manual and the completions beside the program",
		UsageText: "git agency setup [--prefix <dir>] [--undo] [-n | --dry-run] [--json]",
		Description: `Installs the manual and the completions for bash, zsh and fish into 'share' beside the 'bin' directory of
the program; in a home directory, those for bash and fish go where these shells look for user files. All
files are installed, or none. Other files are neither overwritten nor removed. Prints what is left to do.

Exit status: 0 done, or nothing to do; 1 failed: nothing was installed, or not all could be undone; 129
usage.`,
		Flags: withJSONFlag(
			&cli.StringFlag{Name: "prefix", Usage: "install below `DIR` and nowhere else", DefaultText: "beside the program"},
			&cli.BoolFlag{Name: "undo", Usage: "remove the installed files"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		),
		Action: func(c *cli.Context) error {
			if _, err := positionalArgs(c, 0, 0); err != nil {
				return err
			}
			if c.IsSet("prefix") && c.String("prefix") == "" {
				return newUsageError(c, errors.New("--prefix needs a value"))
			}
			req, err := t.installRequest(c.String("prefix"))
			if err != nil {
				return err
			}
			req.Undo, req.DryRun = c.Bool("undo"), c.Bool("dry-run")
			installed, err := setup.Install(c.Context, req)
			if err != nil {
				err = &installError{err}
			}
			if err != nil && len(installed.Files) == 0 {
				return err
			}
			hints := []setup.StartupHint{}
			if !req.Undo {
				hints = setup.StartupHints(installed, os.Getenv)
			}
			if c.Bool("json") {
				return errors.Join(err, t.printJSON(struct {
					setup.Result
					Hints []setup.StartupHint `json:"hints"`
				}{installed, hints}))
			}
			t.printInstalled(installed)
			if flushErr := t.stdout.Flush(); flushErr != nil { // print hints after the results
				return errors.Join(err, &outputError{flushErr})
			}
			for _, h := range hints {
				t.printHint(h.What + "; put this line into " + h.File + ":")
				t.printHint("  " + h.Line)
			}
			return err
		},
	}
}

// installRequest returns the request to install the manual and the completions below prefix, or below the prefix of
// this program if that is empty.
func (t *tool) installRequest(prefix string) (req setup.Request, err error) {
	req = setup.Request{Files: map[string][]byte{"manual": manualPage}, Env: t.opts.Env, Fault: t.opts.Fault}
	for _, shell := range complete.Shells {
		if script, ok := complete.Script(shell); ok {
			req.Files[shell] = script
		}
	}
	if prefix != "" {
		req.Staged = true
		req.Prefix, err = filepath.Abs(prefix)
	} else {
		req.Prefix, err = setup.ProgramPrefix(t.args[0], os.Getenv("PATH"))
	}
	return req, err
}

// installationStatus reports whether the manual and each completion are installed, for doctor.
func (t *tool) installationStatus(ctx context.Context) []gitagency.Capability {
	req, err := t.installRequest("")
	var planned setup.Result
	if err == nil {
		req.DryRun = true
		planned, err = setup.Install(ctx, req)
	}
	if err != nil && len(planned.Files) == 0 {
		return []gitagency.Capability{{Name: "manual", State: gitagency.CapabilityUnknown, Detail: err.Error()}}
	}
	var parts []gitagency.Capability
	for _, f := range planned.Files {
		part := gitagency.Capability{Name: f.Kind, State: gitagency.CapabilityMissing, Detail: "install it with 'git agency setup'"}
		if f.Kind != "manual" {
			part.Name = "completion " + f.Kind
		}
		switch f.Action {
		case setup.FileUnchanged:
			part.State, part.Detail = gitagency.CapabilityOK, f.Path
		case setup.FileReplaced:
			part.Detail = f.Path + " is of another version; 'git agency setup' updates it"
		case setup.FileLeft:
			part.State, part.Detail = gitagency.CapabilityUnknown, f.Path+": "+f.Why
		case setup.FileWritten, setup.FileRemoved, setup.FileAbsent:
		}
		parts = append(parts, part)
	}
	return parts
}

// installError marks an error of the installation, whose hints have nothing to do with a repository.
type installError struct{ err error }

func (e *installError) Error() string { return e.err.Error() }
func (e *installError) Unwrap() error { return e.err }

// printInstalled prints what was done to each file and directory.
func (t *tool) printInstalled(installed setup.Result) {
	done, left := installed.Describe()
	for _, line := range left {
		fmt.Fprintln(t.stderr, term.Printable(line))
	}
	for _, line := range done {
		fmt.Fprintln(t.stdout, term.Printable(line))
	}
}
