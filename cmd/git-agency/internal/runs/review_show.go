package runs

import (
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// printSummary prints what a person needs to decide about an invocation, on one screen.
func (w *reviewWalk) printSummary(inv gitagency.Invocation, place string) error {
	if _, err := fmt.Fprintf(w.Stdout, "\n%s\n", w.PaintResult(term.HeaderColumn, place)); err != nil {
		return err
	}
	changed := ""
	if inv.Dirty == nil || *inv.Dirty > 0 {
		changed = unknownOr(inv.Dirty)
	}
	cost := format.Cost(inv.CostUSD)
	if inv.Tokens > 0 {
		cost = strings.TrimSpace(fmt.Sprintf("%s %d tokens", cost, inv.Tokens))
	}
	if err := w.PrintFields([]program.Field{
		{Key: "invocation", Value: inv.ID},
		{Key: "name", Value: inv.Name},
		{Key: "runner", Value: inv.Runner},
		{Key: "state", Value: format.State(inv, w.Now())},
		{Key: "reason", Value: quote.Shorten(inv.StatusReason, maxLogLine)},
		{Key: "warnings", Value: quote.Shorten(strings.Join(inv.Warnings, "; "), maxLogLine)},
		{Key: "review-note", Value: quote.Shorten(inv.ReviewNote, maxLogLine)},
		{Key: "ahead", Value: unknownOr(inv.Ahead)},
		{Key: "changed", Value: changed},
		{Key: "radar", Value: inv.Radar},
		{Key: "cost", Value: cost},
	}); err != nil {
		return err
	}
	task, err := w.repo.Task(inv.ID)
	if err != nil {
		w.Warn(err.Error())
	}
	for _, text := range []struct {
		title, text string
		lines       int
	}{
		{"task", string(task), 5},
		{"last message", inv.LastMessage, 6},
		{"question", inv.Question, 5},
		{"context of the question", inv.Context, 3},
		{"options", strings.Join(numberOptions(inv.Options), "\n"), len(inv.Options)},
	} {
		if err := w.printText(text.title, text.text, text.lines); err != nil {
			return err
		}
	}
	return nil
}

func unknownOr(n *int) string {
	if n == nil {
		return "?"
	}
	return format.Number(n)
}

// printText prints the first lines of a text of a user or an agent.
func (w *reviewWalk) printText(title, text string, most int) error {
	lines := textLines(text, maxLogText)
	if len(lines) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString(title + ":\n")
	for _, line := range lines[:min(most, len(lines))] {
		if line = term.OneLine(line); term.Width(w.RawStdout) > 20 {
			line = term.Cut(line, term.Width(w.RawStdout)-5)
		}
		b.WriteString("    " + line + "\n")
	}
	if len(lines) > most {
		b.WriteString("    …\n")
	}
	_, err := w.Stdout.WriteString(b.String())
	return err
}

// view shows more about an invocation.
func (w *reviewWalk) view(key string, inv gitagency.Invocation) {
	switch key {
	case "?":
		fmt.Fprint(w.RawStdout, reviewHelp(inv))
	case "d":
		w.RunPart([]string{"diff", inv.ID}, true, func() error {
			isEmpty, err := w.actions.Diff(w.c, w.repo, inv.ID, gitagency.DiffPatch)
			if err == nil && isEmpty {
				_, err = w.Stdout.WriteString("no changes\n")
			}
			return err
		})
	case "l":
		w.RunPart([]string{"log", inv.ID}, true, func() error {
			entries, err := w.repo.Log(w.c.Context, inv.ID)
			if err != nil {
				return err
			}
			return w.printLog(entries)
		})
	case "o":
		w.RunPart([]string{"logs", inv.ID}, true, func() error {
			return w.repo.Logs(w.c.Context, gitagency.LogsRequest{
				ID: inv.ID, Stdout: w.Stdout, Stderr: w.Stdout,
				OnEvent: eventPrinter(w.Stdout), OnNote: func(note gitagency.LogNote) { printNote(w.Stdout, inv.ID, note) },
			})
		})
	case "t":
		w.RunPart([]string{"log", inv.ID}, true, func() error {
			task, err := w.repo.Task(inv.ID)
			if err == nil {
				_, err = fmt.Fprintln(w.Stdout, strings.TrimRight(term.Printable(string(task)), "\n"))
			}
			return err
		})
	}
}
