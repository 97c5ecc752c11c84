package runs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/gitagency"
)

// change does what an answer asks for, unless the invocation is not any more as it was shown. done says that it is settled.
func (w *reviewWalk) change(key string, inv gitagency.Invocation) (done, changed bool, err error) {
	text, err := w.readText(key, inv)
	if err != nil {
		return false, false, err
	}
	if text == "" && (key == "j" || key == "a" || key == "x" || key == "r" && !mayGoOn(inv)) {
		fmt.Fprintln(w.RawStdout, "nothing was changed")
		return false, false, nil
	}
	switch now, err := w.repo.InvocationActivity(w.c.Context, inv.ID); {
	case err != nil || now.State != inv.State || now.Runs != inv.Runs || now.Question != inv.Question || !now.AskedAt.Equal(inv.AskedAt):
		w.tellMoved(inv.ID)
		return true, false, nil
	case asksWhileRunning(inv): // it may have changed files since
	case now.SubmittedCommit != inv.SubmittedCommit || format.Number(now.Ahead) != format.Number(inv.Ahead) || format.Number(now.Dirty) != format.Number(inv.Dirty):
		fmt.Fprintf(w.RawStdout, "the work of %s has changed meanwhile; nothing was done\n", inv.ID)
		return false, true, nil
	}
	code, only := 0, []gitagency.Invocation{inv}
	switch key {
	case "L":
		code = w.RunPart([]string{"land", inv.ID}, false, func() error { return w.actions.Land(w.c, w.repo, w.dir, only) })
	case "x":
		code = w.RunPart([]string{"discard", inv.ID}, false, func() error { return w.actions.Discard(w.c, w.repo, w.dir, only) })
	case "j":
		return w.reject(inv, text)
	case "a":
		code = w.resume(gitagency.ResumeRunRequest{ID: inv.ID, Answer: []byte(text), Shown: &inv})
	case "r":
		req := gitagency.ResumeRunRequest{ID: inv.ID}
		if text != "" {
			req.Task = []byte(text)
		}
		code = w.resume(req)
	}
	return code == 0, false, context.Cause(w.c.Context)
}

// readText reads the text that an answer needs.
func (w *reviewWalk) readText(key string, inv gitagency.Invocation) (string, error) {
	switch {
	case key == "j":
		return w.ask("reason (empty: do not reject): ")
	case key == "a" && len(inv.Options) > 0:
		answer, err := w.ask("answer, or number of an option (empty: none): ")
		return chooseOption(answer, inv.Options), err
	case key == "a":
		return w.ask("answer (empty: none): ")
	case key == "r" && mayGoOn(inv):
		return w.ask("further task (empty: go on without one): ")
	case key == "r":
		return w.ask("further task (empty: do not resume): ")
	case key == "x":
		answer, err := w.ask("discard " + inv.ID + "? 'git agency restore' brings it back [y/N] ")
		if !isYes(answer) {
			answer = ""
		}
		return answer, err
	}
	return "", nil
}

// mayGoOn reports whether the agent of an invocation can go on without a further task.
func mayGoOn(inv gitagency.Invocation) bool {
	states := []string{gitagency.StatusFailed, gitagency.StatusStopped, gitagency.StatusTimedOut, gitagency.StateRejected}
	return inv.Question == "" && inv.Mode != gitagency.ModeHeaded && slices.Contains(states, inv.State)
}

func isYes(answer string) bool { return slices.Contains([]string{"y", "yes"}, strings.ToLower(answer)) }

// reject rejects the work of an invocation, and offers to hand the reason to its agent.
func (w *reviewWalk) reject(inv gitagency.Invocation, why string) (done, changed bool, err error) {
	code := w.RunPart([]string{"reject", inv.ID}, false, func() error {
		_, err := w.repo.Reject(w.c.Context, gitagency.RejectRequest{Invocation: inv.ID, Reason: why})
		if err == nil {
			fmt.Fprintf(w.Stderr, "rejected %s; its sandbox is as it was\n", inv.ID)
		}
		return err
	})
	if code != 0 || inv.SessionID == "" || inv.Mode == gitagency.ModeHeaded {
		return code == 0, false, context.Cause(w.c.Context)
	}
	answer, err := w.ask("resume its agent with this reason? [y/N] ")
	if err == nil && isYes(answer) {
		w.resume(gitagency.ResumeRunRequest{ID: inv.ID})
	}
	return true, false, err
}

// resume lets an agent go on, detached.
func (w *reviewWalk) resume(req gitagency.ResumeRunRequest) (code int) {
	return w.RunPart([]string{"resume", req.ID}, false, func() error {
		given := false
		if req.Answer != nil {
			var err error
			if _, given, err = w.repo.AnswerRun(req); err != nil {
				return err
			}
		}
		if given {
			fmt.Fprintf(w.Stderr, "the running agent of %s got the answer\n", req.ID)
			return nil
		}
		inv, err := w.repo.ResumeRun(w.c.Context, req)
		if err == nil {
			err = w.startDetached(w.c.Context, w.repo, inv)
		}
		if err == nil {
			fmt.Fprintf(w.Stderr, "the agent of %s goes on\n", inv.ID)
		}
		return err
	})
}
