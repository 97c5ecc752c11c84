package runs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// reviewWalk is a review on a terminal. It changes nothing but what the user answers, and reads answers only where it waits
// for one, so that a pager has the terminal to itself.
type reviewWalk struct {
	Commands
	c       *cli.Context
	repo    *gitagency.Repository
	dir     string // the caller's directory
	actions ReviewActions
	input   *promptReader
}

// errQuit ends a review.
var errQuit = errors.New("the review was quit")

// walk shows the invocations one after the other, as they are when their turn comes, until the user quits.
func (w *reviewWalk) walk(waiting []gitagency.Invocation) error {
	for i, inv := range waiting {
		for again := true; again; {
			now, err := listWaiting(w.c, w.repo, []string{inv.ID})
			if err != nil {
				return err
			}
			if len(now) == 0 || now[0].Running && !asksWhileRunning(now[0]) || reviewRank(now[0]) == 0 && reviewRank(inv) > 0 {
				w.tellMoved(inv.ID)
				break
			}
			again, err = w.reviewOne(now[0], fmt.Sprintf("%d of %d", i+1, len(waiting)))
			if errors.Is(err, errQuit) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// tellMoved says why an invocation is skipped.
func (w *reviewWalk) tellMoved(id string) {
	inv, err := w.repo.InvocationActivity(w.c.Context, id)
	state := format.State(inv, w.Now())
	if err != nil {
		state = "gone"
	}
	fmt.Fprintf(w.RawStdout, "%s is %s now; skipped\n", id, term.OneLine(state))
}

// reviewOne shows one invocation and does what the user answers, until it is settled or skipped. again says that its work
// has changed meanwhile, so that it has to be shown again.
func (w *reviewWalk) reviewOne(inv gitagency.Invocation, place string) (again bool, err error) {
	w.RunPart([]string{"show", inv.ID}, false, func() error { return w.printSummary(inv, place) })
	keys := reviewKeys(inv)
	for {
		key, err := w.ask(fmt.Sprintf("review %s (%s) [%s]? ", gitagency.ShortID(inv.ID), place, strings.Join(keys, ",")))
		if err != nil {
			return false, err
		}
		switch {
		case key == "s" || key == "":
			return false, nil
		case key == "q":
			return false, errQuit
		case !slices.Contains(keys, key):
			fmt.Fprintf(w.RawStdout, "%s\n", strings.TrimSuffix(keyProblem(key, inv), "\n"))
			continue
		}
		if !slices.Contains(changingKeys, key) {
			w.view(key, inv)
			if err := context.Cause(w.c.Context); err != nil {
				return false, err
			}
			continue
		}
		done, changed, err := w.change(key, inv)
		if err != nil || done || changed {
			return changed, err
		}
	}
}

// changingKeys are the answers that change something.
var changingKeys = []string{"L", "j", "a", "r", "x"}

// reviewKeys returns the answers that are possible for an invocation.
func reviewKeys(inv gitagency.Invocation) []string {
	var keys []string
	for _, answer := range reviewTexts {
		keys = append(keys, answer.key)
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		if asksWhileRunning(inv) && key != "a" && slices.Contains(changingKeys, key) {
			return true
		}
		switch key {
		case "t", "o", "r":
			return inv.SessionID == ""
		case "j":
			return inv.State != gitagency.StateReview
		case "a":
			return inv.Question == ""
		}
		return false
	})
}

// keyProblem says why an answer is not possible.
func keyProblem(key string, inv gitagency.Invocation) string {
	if asksWhileRunning(inv) && slices.Contains(changingKeys, key) {
		return "its agent runs, and waits for the answer"
	}
	switch key {
	case "j":
		return "it is not in review, so that there is nothing to reject"
	case "a":
		return "it asks no question"
	case "t", "o", "r":
		return "no agent was run in it"
	}
	return reviewHelp(inv)
}

// reviewTexts say what each answer does, in the order of the list.
var reviewTexts = []struct{ key, text string }{
	{"d", "show the diff; on a terminal, changed words are marked"},
	{"t", "show the task"},
	{"l", "show the history"},
	{"o", "show the output of the agent"},
	{"L", "land"},
	{"j", "reject, with a reason"},
	{"a", "answer the question, or choose an option by its number, and resume the agent"},
	{"r", "resume the agent with a further task"},
	{"x", "discard; 'git agency restore' brings it back"},
	{"s", "skip, also Enter"},
	{"q", "quit, also Ctrl-D"},
	{"?", "show this list"},
}

// reviewHelp lists the answers that are possible for an invocation.
func reviewHelp(inv gitagency.Invocation) string {
	var b strings.Builder
	keys := reviewKeys(inv)
	for _, answer := range reviewTexts {
		if slices.Contains(keys, answer.key) {
			fmt.Fprintf(&b, "%s  %s\n", answer.key, answer.text)
		}
	}
	return b.String()
}

// ask prints a prompt and returns the line that the user types, without spaces around it. At the end of the input it
// returns errQuit, and after an interrupt its cause.
func (w *reviewWalk) ask(prompt string) (string, error) {
	if _, err := io.WriteString(w.RawStdout, prompt); err != nil {
		return "", err
	}
	line, err := w.input.readLine(w.c.Context)
	if err != nil {
		fmt.Fprintln(w.RawStdout)
	}
	if errors.Is(err, io.EOF) {
		err = errQuit
	}
	return strings.TrimSpace(line), err
}

// promptReader reads lines from a terminal.
type promptReader struct{ lines *bufio.Reader }

func newPromptReader(terminal *os.File) *promptReader {
	return &promptReader{bufio.NewReader(terminal)}
}

// readLine reads one line, until ctx ends. After that it cannot be used any more, since a read may still wait.
func (r *promptReader) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := r.lines.ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case res := <-read:
		return res.line, res.err
	}
}
