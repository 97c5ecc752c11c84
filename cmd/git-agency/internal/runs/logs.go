package runs

import (
	"fmt"
	"io"
	"time"

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
failures. Of other agents, and of what a detached agent drew on its terminal, it prints the text: lines that
were drawn several times as they were at last, without escape sequences and control characters. --raw prints
all of it byte for byte, and nothing else. Of each stream at least the last 16 MiB are kept; of a terminal,
the last 256 KiB. Without <id> and outside of a sandbox, it is the only agent that runs, or if none does, the
newest run.

Exit status: 0 printed; 1 no agent was run in it, or reading failed; 3 no such invocation; 4 broken; 129 usage.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the run has ended"},
			&cli.BoolFlag{Name: "raw", Usage: "print the output byte for byte"},
		},
		Action: func(c *cli.Context) error {
			repo, query, err := t.openForRun(c, loggedRuns)
			if err != nil {
				return err
			}
			req := gitagency.LogsRequest{
				ID: query, Raw: c.Bool("raw"), Follow: c.Bool("follow"), Stdout: t.RawStdout, Stderr: t.RawStderr,
				OnEvent: eventPrinter(t.RawStdout), OnNote: func(note gitagency.LogNote) { printNote(t.RawStderr, query, note) },
			}
			return repo.Logs(c.Context, req)
		},
	}
}

// printNote prints a note about the output of the agent of an invocation in a line of its own.
func printNote(w io.Writer, id string, note gitagency.LogNote) {
	text, began := "", note.Began.UTC().Format(time.RFC3339)
	switch {
	case note.Kind == gitagency.NoteDropped:
		text = "older output was dropped"
	case note.Kind == gitagency.NoteSetup:
		text = "no agent wrote anything; agency.setup wrote this"
	case note.Kind == gitagency.NoteUnrecorded:
		text = "the agent wrote on your terminal, which is not recorded; 'git agency log " + id + "' shows the history of the run"
	case note.Run == 0:
		text = "conflicts of a landing, " + began
	default:
		text = fmt.Sprintf("run %d, %s", note.Run, began)
	}
	fmt.Fprintf(w, "--- %s ---\n", text)
}

// eventPrinter returns a function that prints events of an agent for people.
func eventPrinter(w io.Writer) func(gitagency.RunEvent) {
	return func(e gitagency.RunEvent) {
		if text := describeEvent(e); text != "" {
			fmt.Fprintln(w, term.Printable(text))
		}
	}
}
