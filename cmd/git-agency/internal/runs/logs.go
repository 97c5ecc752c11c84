package runs

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// Logs builds the command that prints what an agent wrote.
func (t Commands) Logs() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "print what an agent wrote",
		UsageText: "git agency logs [<id>] [-f] [--raw]",
		Description: `Prints the output of the agent of <id>, of all of its runs: standard output, and on standard error its
standard error. Of claude, codex, gemini and opencode it prints what their streams tell: messages, tools and
failures; --raw prints these byte for byte. On a terminal, control characters are escaped without --raw.
Of each stream at least the last 16 MiB are kept; of the terminal of a detached agent, the last 256 KiB.

Exit status: 0 printed; 1 no agent was run in it, or reading failed; 3 no such invocation; 4 broken; 129 usage.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the run has ended"},
			&cli.BoolFlag{Name: "raw", Usage: "print the output byte for byte"},
		},
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			req := gitagency.LogsRequest{
				ID: query, Raw: c.Bool("raw"), Follow: c.Bool("follow"), Stdout: t.RawStdout, Stderr: t.RawStderr,
				OnEvent: t.printEvent,
			}
			if !req.Raw {
				req.Stdout, req.Stderr = printableWriter(req.Stdout), printableWriter(req.Stderr)
			}
			return repo.Logs(c.Context, req)
		},
	}
}

// printEvent prints an event of an agent for people.
func (t Commands) printEvent(e gitagency.RunEvent) {
	if text := describeEvent(e); text != "" {
		fmt.Fprintln(t.RawStdout, term.Printable(text))
	}
}

// printableWriter returns a writer that escapes control characters, if w is a terminal.
func printableWriter(w io.Writer) io.Writer {
	if !term.IsTerminal(w) {
		return w
	}
	return escapingWriter{w}
}

type escapingWriter struct{ w io.Writer }

// Write escapes a part of the output. Lines that were written to a terminal end with "\r\n".
func (e escapingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.w, term.Printable(strings.ReplaceAll(string(p), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
