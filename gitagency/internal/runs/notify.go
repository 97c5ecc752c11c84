package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// announceTimeout bounds each notification, for which a user may wait.
const announceTimeout = 5 * time.Second

// announce tells the user how the run ended, unless the user stopped it. It is the last step: the record is final. A
// detached process also looks for conflicts with other sandboxes, which takes longer the more of them there are.
func (a *attempt) announce(ctx context.Context, res Result) {
	ctx = context.WithoutCancel(ctx)
	if res.Status != store.StatusStopped {
		a.notices.Go(func() {
			a.notify(ctx, notification{Status: res.Status, Reason: res.Reason, Question: res.Question, Message: res.LastMessage})
		})
	}
	if a.req.Detached {
		ctx, cancel := context.WithTimeout(ctx, finishTimeout)
		defer cancel()
		a.findConflicts(ctx)
	}
	a.notices.Wait()
}

// notify notifies the user: by agency.notifyCommand, and on the desktop where notify-send is installed. A failure is only
// a warning.
func (a *attempt) notify(ctx context.Context, n notification) {
	ctx, cancel := context.WithTimeoutCause(ctx, announceTimeout, fmt.Errorf("it was ended after %s", announceTimeout))
	defer cancel()
	n.ID, n.Name, n.Runner, n.Task = a.sandbox.ID, a.record.InvocationName, a.record.Runner, a.record.Task
	line, ignored, err := a.repo.Settings.ShellCommand(settings.NotifyCommandKey)
	a.repo.Settings.WarnIgnored(settings.NotifyCommandKey, ignored)
	if err != nil {
		a.repo.Warn("%v", err)
	}
	if line != "" {
		if err := a.runNotifyCommand(ctx, line, n); err != nil {
			a.repo.Warn("%s: %v", settings.NotifyCommandKey, err)
		}
	}
	if desktop, err := a.repo.Settings.Bool(settings.NotifyKey, true); err != nil {
		a.repo.Warn("%v", err)
	} else if argv := a.desktopNotification(n); desktop && argv != nil {
		if _, err := proc.Run(ctx, proc.Command{Argv: argv, Dir: a.repo.CommonDir, Env: a.repo.Opts.Env}); err != nil {
			a.repo.Warn("notify-send: %v", err)
		}
	}
}

// notification is the JSON object on the standard input of agency.notifyCommand. Texts of the agent are untrusted.
type notification struct {
	ID       string `json:"invocation_id"`
	Name     string `json:"invocation_name"`
	Runner   string `json:"runner"`
	Status   string `json:"status"`
	Reason   string `json:"status_reason"`
	Question string `json:"question"`
	Task     string `json:"task"`
	Message  string `json:"last_message"`

	ConflictWith  string   `json:"conflict_with,omitempty"` // id of another invocation
	ConflictPaths []string `json:"conflict_paths,omitempty"`
}

// runNotifyCommand runs a shell line of the user. Texts of the agent are only on its standard input.
func (a *attempt) runNotifyCommand(ctx context.Context, line string, n notification) error {
	input, err := json.Marshal(n)
	if err != nil {
		return err
	}
	env := slices.Concat(a.repo.Opts.Env, []string{core.InvocationVariable + "=" + n.ID, "AGENCY_STATUS=" + n.Status})
	result, err := proc.Run(ctx, proc.Command{
		Argv: []string{"sh", "-c", line}, Dir: a.repo.CommonDir, Env: settings.DedupeEnv(env), Stdin: strings.NewReader(string(input) + "\n"),
	})
	if err == nil && result.ExitCode != 0 {
		a.repo.Warn("%s exited with %d", settings.NotifyCommandKey, result.ExitCode)
	}
	return err
}

// desktopNotification returns the command line of a notification on the desktop; nil where there is none.
func (a *attempt) desktopNotification(n notification) []string {
	env := a.repo.Opts.Env
	if proc.Getenv(env, "DISPLAY") == "" && proc.Getenv(env, "WAYLAND_DISPLAY") == "" {
		return nil
	}
	program, err := proc.LookPath(env, "notify-send")
	if err != nil {
		return nil
	}
	what := map[string]string{
		store.StatusFinished: "finished", store.StatusFailed: "failed", store.StatusBlocked: "asks", store.StatusTimedOut: "timed out",
		conflictBegan: "conflicts",
	}[n.Status]
	return []string{program, "--app-name=git-agency", "--", plainText("git agency: "+cmp.Or(n.Name, n.ID)+" "+what, 100), plainText(cmp.Or(n.Question, n.Reason), 300)}
}

// plainText returns a text of an agent without characters that a notification would interpret or that cannot be shown.
func plainText(text string, most int) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, quote.Shorten(text, most))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
