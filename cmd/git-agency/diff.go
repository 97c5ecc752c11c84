package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

const diffName = "diff"

func (t *tool) diffCommand() *cli.Command {
	return &cli.Command{
		Name:  diffName,
		Usage: "show what changed in a sandbox",
		UsageText: `git agency diff [<id>] [--from <state>] [--to <state>] [--stat | --name-status | --json]
                       [--exit-code] [--binary] [--include-secrets] [-- <path>...]
       git agency diff <id> <id> [<option>...] [-- <path>...]`,
		Description: `Compares two states of a sandbox, by default its base with its current content, committed or not, with
untracked and without ignored files. A <state> is

  base         the commit that the sandbox started from
  head         the commit of HEAD of the sandbox
  work         the current content of the sandbox
  integration  the tip of the integration branch now
  <snapshot>   a snapshot of this or any other invocation: its commit or <id>/<n>
  <id>/work    the current content of another sandbox; likewise <id>/head and <id>/base

With two ids it compares the current content of the first sandbox with that of the second, for instance of
two agents that were given the same task.

The output is a patch for 'git apply', with --binary also for binary files. At a terminal it is coloured,
and control characters are made visible. A <path> is relative to the top of the sandbox, and includes
everything below it.

Nothing changes, and commands may run in the sandbox meanwhile. Attributes of the sandbox and settings of
the repository are not used, nor programs that they name. An ended invocation still has its base, its
snapshots and the integration branch.

Exit status: 0 compared; 1 failed, it has no sandbox any more, or with --exit-code there are
differences; 3 no such invocation or snapshot; 4 broken; 5 refused for safety; 75 locked; 129 usage.`,
		Flags: program.WithLockTimeoutFlag("a discard of the sandbox", program.WithJSONFlag(
			&cli.StringFlag{Name: "from", Usage: "the first `STATE`", DefaultText: "base"},
			&cli.StringFlag{Name: "to", Usage: "the second `STATE`", DefaultText: "work"},
			&cli.BoolFlag{Name: "stat", Usage: "print which files changed, and by how many lines"},
			&cli.BoolFlag{Name: "name-status", Usage: "print which files changed, and how"},
			&cli.BoolFlag{Name: "exit-code", Usage: "exit with 1 when there are differences"},
			&cli.BoolFlag{Name: "binary", Usage: "include patches of binary files"},
			&cli.BoolFlag{Name: "include-secrets", Usage: "include untracked files that look like credentials"},
		)...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 0, -1)
			if err != nil {
				return err
			}
			switch {
			case len(args) > 2 || len(args) == 2 && !looksLikeID(args[1]):
				return program.NewUsageError(c, fmt.Errorf("unexpected argument %q; states come after --from and --to, paths after --", args[len(args)-1]))
			case len(args) == 2 && (c.IsSet("from") || c.IsSet("to")):
				return program.NewUsageError(c, errors.New("give either two invocations or --from and --to"))
			}
			form, err := parseDiffForm(c)
			if err != nil {
				return err
			}
			t.Options.NoGitProbe = true // users run this command again and again
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				req := t.diffRequest(c, args[0], form)
				req.From, req.To = gitagency.DiffWork, args[1]+"/"+gitagency.DiffWork
				_, err := t.printComparison(c, repo, req)
				return err
			}
			query, err := program.CurrentUnlessNamed(c, repo, strings.Join(args, ""))
			if err != nil {
				return err
			}
			_, err = t.printDiff(c, repo, query, form)
			return err
		},
	}
}

// looksLikeID reports whether a word can be the id of an invocation, the beginning of one, or @ or @-<n>; a state and most
// paths cannot.
func looksLikeID(word string) bool { return strings.Trim(word, "0123456789abcdef-@") == "" }

// printDiff prints the diff of an invocation that the flags ask for; without flags, all that changed in its sandbox.
func (t *tool) printDiff(c *cli.Context, repo *gitagency.Repository, query string, form gitagency.DiffForm) (isEmpty bool, err error) {
	return t.printComparison(c, repo, t.diffRequest(c, query, form))
}

// printComparison prints the diff of a request, in the form that the flags ask for. It sets Words of the request.
func (t *tool) printComparison(c *cli.Context, repo *gitagency.Repository, req gitagency.DiffRequest) (isEmpty bool, err error) {
	format, err := t.diffFormat(repo, req.Form)
	if err != nil {
		return false, err
	}
	req.Words = c.Bool("json") || format.Colors != gitagency.DiffColors{}
	d, err := repo.DiffSnapshots(c.Context, req)
	if err != nil {
		return false, err
	}
	t.warnLeftOut(d.LeftOut)
	if c.Bool("json") {
		err = t.PrintJSON(d)
	} else {
		err = gitagency.WriteDiff(t.Stdout, d, format)
	}
	if err == nil && c.Bool("exit-code") && !d.Empty() {
		err = &program.ChildError{Code: hints.ExitFailed} // --exit-code only: prints no message
	}
	return d.Empty(), err
}

// diffRequest returns the request of the flags.
func (t *tool) diffRequest(c *cli.Context, id string, form gitagency.DiffForm) gitagency.DiffRequest {
	return gitagency.DiffRequest{
		Invocation: id, From: c.String("from"), To: c.String("to"), Paths: t.AfterDashDash,
		Form: form, Binary: c.Bool("binary"), IncludeSecrets: c.Bool("include-secrets"),
	}
}

// parseDiffForm returns the form of the diff that the flags ask for.
func parseDiffForm(c *cli.Context) (gitagency.DiffForm, error) {
	forms := 0
	for _, name := range []string{"stat", "name-status", "json"} {
		if c.Bool(name) {
			forms++
		}
	}
	switch {
	case forms > 1:
		return 0, program.NewUsageError(c, errors.New("--stat, --name-status and --json exclude each other"))
	case c.Bool("binary") && forms > 0:
		return 0, program.NewUsageError(c, errors.New("--binary is for patches: it excludes --stat, --name-status and --json"))
	case c.Bool("stat"):
		return gitagency.DiffStat, nil
	case c.Bool("name-status"):
		return gitagency.DiffNameStatus, nil
	}
	return gitagency.DiffPatch, nil
}

// diffFormat returns how to print the diff.
func (t *tool) diffFormat(repo *gitagency.Repository, form gitagency.DiffForm) (gitagency.DiffFormat, error) {
	style, err := t.Style()
	if err != nil {
		return gitagency.DiffFormat{}, err
	}
	format := t.plainDiffFormat(style, form)
	if style.Color {
		format.Colors, err = repo.DiffColors()
	}
	return format, err
}

// plainDiffFormat returns how to print the diff, without colours. On a terminal, control characters in an agent's files are
// made visible, so that they cannot control it; a pipe, as to git apply, gets every byte.
func (t *tool) plainDiffFormat(style program.Style, form gitagency.DiffForm) gitagency.DiffFormat {
	return gitagency.DiffFormat{Form: form, Summary: true, EscapeControls: style.Color || t.ShowsOnTerminal(), Width: style.Width}
}
