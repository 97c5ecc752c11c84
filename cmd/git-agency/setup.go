package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/setup"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) setupCommand() *cli.Command {
	return &cli.Command{
		Name:      "setup",
		Usage:     "install the manual and the completions beside the program",
		UsageText: "git agency setup [--prefix <dir> | --hide-refs] [--undo] [-n | --dry-run] [--json]",
		Description: `Installs the manual and the completions for bash, zsh and fish into 'share' beside the 'bin' directory of
the program; in a home directory, those for bash and fish go where these shells look for user files. All
files are installed, or none. Other files are neither overwritten nor removed. Prints what is left to do.

With --hide-refs it installs nothing, and makes git log of this repository show commits without the names
of snapshots and trash: it adds refs/agency/* to log.excludeDecoration in .git/config.

Exit status: 0 done, or nothing to do; 1 failed: nothing was installed, or not all could be undone; 75
locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "prefix", Usage: "install below `DIR` and nowhere else", DefaultText: "beside the program"},
			&cli.BoolFlag{Name: "hide-refs", Usage: "keep snapshots and trash out of the decorations of git log"},
			&cli.BoolFlag{Name: "undo", Usage: "remove the installed files; with --hide-refs, that setting"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "say what would happen and change nothing"},
		)...),
		Action: func(c *cli.Context) error {
			if _, err := program.PositionalArgs(c, 0, 0); err != nil {
				return err
			}
			if c.IsSet("prefix") && c.String("prefix") == "" {
				return program.NewUsageError(c, errors.New("--prefix needs a value"))
			}
			if c.Bool("hide-refs") {
				return t.hideRefs(c)
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
				return errors.Join(err, t.PrintJSON(struct {
					setup.Result
					Hints []setup.StartupHint `json:"hints"`
				}{installed, hints}))
			}
			t.printInstalled(installed)
			if flushErr := t.Stdout.Flush(); flushErr != nil { // print hints after the results
				return errors.Join(err, &program.OutputError{Err: flushErr})
			}
			for _, h := range hints {
				t.PrintHint(h.What + "; put this line into " + h.File + ":")
				t.PrintHint("  " + h.Line)
			}
			return err
		},
	}
}

// hideRefs changes the setting of --hide-refs and prints it.
func (t *tool) hideRefs(c *cli.Context) error {
	if c.IsSet("prefix") {
		return program.NewUsageError(c, errors.New("--hide-refs installs nothing, and excludes --prefix"))
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	hidden, err := repo.HideRefs(c.Context, gitagency.HideRefsRequest{Undo: c.Bool("undo"), DryRun: c.Bool("dry-run")})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return t.PrintJSON(hidden)
	}
	would, did := "", "added"
	if hidden.Undo {
		did = "removed"
	}
	switch {
	case !hidden.Changed && hidden.Undo:
		did = "nothing to remove:"
	case !hidden.Changed:
		did = "already there:"
	case hidden.DryRun:
		would = "would have "
	}
	fmt.Fprintf(t.Stderr, "%s%s %s = %s\n", would, did, hidden.Key, hidden.Value)
	if !hidden.Undo {
		t.PrintHint("to leave out their commits too: git log --exclude='" + hidden.Value + "' --all")
	}
	return nil
}

// installRequest returns the request to install the manual and the completions below prefix, or below the prefix of
// this program if that is empty.
func (t *tool) installRequest(prefix string) (req setup.Request, err error) {
	req = setup.Request{Files: map[string][]byte{"manual": manualPage}, Env: t.Options.Env, Fault: t.Options.Fault}
	for _, shell := range complete.Shells {
		if script, ok := complete.Script(shell); ok {
			req.Files[shell] = script
		}
	}
	if prefix != "" {
		req.Staged = true
		req.Prefix, err = filepath.Abs(prefix)
	} else {
		req.Prefix, err = setup.ProgramPrefix(t.Args[0], os.Getenv("PATH"))
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
		fmt.Fprintln(t.Stderr, term.Printable(line))
	}
	for _, line := range done {
		fmt.Fprintln(t.Stdout, term.Printable(line))
	}
}
