package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/sources"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) putCommand() *cli.Command {
	return &cli.Command{
		Name:  "put",
		Usage: "copy files into a sandbox, all or nothing",
		UsageText: `git agency put <id> <src>... <dest>
   or: git agency put <id> --json (-|<file>)`,
		Description: `Copies files and directories into the sandbox as cp -r does: into <dest> if it is a directory, ends in a
slash, or there are several <src>; else <src> becomes <dest>. <dest> is relative to the sandbox, or an
absolute path in it; '.' is its top. Permissions are kept, symbolic links are copied as links, and existing
files are replaced. The copy is all or nothing.

Refused are paths and links that leave the sandbox, .git and .agency in any spelling, names with control
or invisible characters, and special files.

Exit status: 0 copied; 1 failed, nothing changed; 3 no such invocation; 4 broken; 5 refused for
safety, nothing changed; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: program.WithLockTimeoutFlag("a discard of the sandbox", &cli.StringFlag{
			Name: "json", Usage: "read `FILE`, or standard input for -: [{\"path\", \"content\" or \"content_base64\", \"mode\"}]",
		}),
		Action: func(c *cli.Context) error {
			least, most := 3, -1
			if c.IsSet("json") {
				least, most = 1, 1
			}
			args, err := program.PositionalArgs(c, least, most)
			if err != nil {
				return err
			}
			sandbox, err := t.OpenSandbox(c, args[0])
			if err != nil {
				return err
			}
			if c.IsSet("json") {
				files, err := readJSONFiles(c)
				if err != nil {
					return err
				}
				return sources.WithItemNumber(t.uploadFiles(c.Context, sandbox, files), files)
			}
			named, dest := args[1:len(args)-1], args[len(args)-1]
			if slices.Contains(named, "-") {
				return program.NewUsageError(c, errors.New("'-' is not a file; use --json - to read JSON from standard input, or ./- for a file of that name"))
			}
			plan, err := sources.NewPlan(c.Context, sandbox, named, dest)
			if err != nil {
				return err
			}
			defer plan.Close()
			return withLinkHint(t.uploadFiles(c.Context, sandbox, plan.Files), plan)
		},
	}
}

// readJSONFiles reads and parses the file that --json names, or standard input.
func readJSONFiles(c *cli.Context) ([]gitagency.File, error) {
	files, err := sources.ReadJSON(c.Context, c.String("json"), c.App.Reader)
	switch {
	case err == nil || hints.Is[*sourceError](err):
		return files, err
	case hints.Is[*gitagency.ConfinementError](err):
		return nil, fmt.Errorf("--json: %w", err)
	}
	return nil, program.NewUsageError(c, fmt.Errorf("--json: %w", err))
}

// uploadFiles uploads files and reports how many.
func (t *tool) uploadFiles(ctx context.Context, sandbox *gitagency.Sandbox, files []gitagency.File) error {
	progress, end := term.StartProgress(t.RawStderr, t.ProgressClock, "putting files", uploadProgressText)
	err := sandbox.Upload(ctx, gitagency.UploadRequest{Files: files, Progress: progress})
	end()
	if err != nil {
		return &putError{sandbox.ID, err}
	}
	n := 0
	for _, f := range files {
		if !f.Mode.IsDir() {
			n++
		}
	}
	fmt.Fprintf(t.Stderr, "put %s into %s\n", format.Count(n, "file", "files"), sandbox.ID)
	return nil
}

// uploadProgressText formats the progress of an upload. With few files it adds the size, because each of them may be
// large.
func uploadProgressText(p gitagency.UploadProgress) string {
	const few = 100
	text := fmt.Sprintf("%d/%d", p.Files, p.Total)
	if p.Total < few && p.Bytes >= 1<<20 {
		text += fmt.Sprintf(", %d MiB", p.Bytes>>20)
	}
	return text
}

// putError marks an error in the sandbox.
type putError struct {
	id  string // of the sandbox
	err error
}

func (e *putError) Error() string { return e.err.Error() }
func (e *putError) Unwrap() error { return e.err }

// linkError reports a symlink that was refused.
type linkError struct {
	err    error
	source string // path of the link if it was named on the command line, else empty
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// withLinkHint turns an error about a symlink into a linkError.
func withLinkHint(err error, plan *sources.Plan) error {
	var confined *gitagency.ConfinementError
	if errors.As(err, &confined) {
		if source, isLink := plan.FindLink(confined.Path); isLink {
			return &linkError{err, source}
		}
	}
	return err
}

// sourceError reports a source that could not be read; the sandbox is not involved.
type sourceError = sources.Error
