package runs

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// notifyTimeout bounds each program that notifies the user.
const notifyTimeout = 30 * time.Second

// notify tells the user that a run has ended or waits: by agency.notifyCommand, and on the desktop where notify-send is
// installed. A run that the user stopped is no news. A failure is only a warning.
func (a *attempt) notify(ctx context.Context, res Result) {
	if res.Status == store.StatusStopped {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	line, ignored, err := a.repo.Settings.ShellCommand(settings.NotifyCommandKey)
	a.repo.Settings.WarnIgnored(settings.NotifyCommandKey, ignored)
	if err != nil {
		a.repo.Warn("%v", err)
	}
	if line != "" {
		if err := a.runNotifyCommand(ctx, line, res); err != nil {
			a.repo.Warn("%s: %v", settings.NotifyCommandKey, err)
		}
	}
	if desktop, err := a.repo.Settings.Bool(settings.NotifyKey, true); err != nil {
		a.repo.Warn("%v", err)
	} else if argv := a.desktopNotification(res); desktop && argv != nil {
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
}

// runNotifyCommand runs a shell line of the user. Texts of the agent are only on its standard input.
func (a *attempt) runNotifyCommand(ctx context.Context, line string, res Result) error {
	m := a.record
	input, err := json.Marshal(notification{res.ID, m.InvocationName, m.Runner, res.Status, res.Reason, res.Question, m.Task, res.LastMessage})
	if err != nil {
		return err
	}
	env := slices.Concat(a.repo.Opts.Env, []string{core.InvocationVariable + "=" + res.ID, "AGENCY_STATUS=" + res.Status})
	result, err := proc.Run(ctx, proc.Command{
		Argv: []string{"sh", "-c", line}, Dir: a.repo.CommonDir, Env: settings.DedupeEnv(env), Stdin: strings.NewReader(string(input) + "\n"),
	})
	if err == nil && result.ExitCode != 0 {
		a.repo.Warn("%s exited with %d", settings.NotifyCommandKey, result.ExitCode)
	}
	return err
}

// desktopNotification returns the command line of a notification on the desktop; nil where there is none.
func (a *attempt) desktopNotification(res Result) []string {
	env := a.repo.Opts.Env
	if proc.Getenv(env, "DISPLAY") == "" && proc.Getenv(env, "WAYLAND_DISPLAY") == "" {
		return nil
	}
	program, err := proc.LookPath(env, "notify-send")
	if err != nil {
		return nil
	}
	label, what := a.record.InvocationName, map[string]string{
		store.StatusFinished: "finished", store.StatusFailed: "failed", store.StatusBlocked: "asks", store.StatusTimedOut: "timed out",
	}[res.Status]
	if label == "" {
		label = res.ID
	}
	text := res.Reason
	if res.Question != "" {
		text = res.Question
	}
	return []string{program, "--app-name=git-agency", "--", plainText("git agency: "+label+" "+what, 100), plainText(text, 300)}
}

// plainText returns a text of an agent without characters that a notification would interpret or that cannot be shown.
func plainText(text string, most int) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, Shorten(text, most))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
