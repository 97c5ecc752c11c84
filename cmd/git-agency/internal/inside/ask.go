package inside

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Ask leaves a question for the person outside.
func (t Commands) Ask() *cli.Command {
	return &cli.Command{
		Name:      "ask",
		Usage:     "ask a question from inside of a sandbox",
		UsageText: "git agency ask <question> [--option <text>]... [--context <text>]",
		Description: `Is for agents: leaves a question for the person outside. The run of the agent ends as blocked, and goes on
with the answer when it is resumed.

If agency.askTimeout is set, it waits that long for the answer, and prints it; to wait again after it was
killed, ask the same again. One question can be asked at a time.

Exit status: 0 answered, or asked if it does not wait; 7 no answer came in time: end the turn; 1 failed, an
earlier question is not answered yet, or it does not run in a sandbox; 129 usage; 130, 143 interrupted.`,
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "option", Value: &argv.RepeatedFlag{}, Usage: "an answer to choose, `TEXT`; may be repeated"},
			&cli.StringFlag{Name: "context", Usage: "what the person has to know, `TEXT`"},
		},
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			sandbox, err := Open(t.Program, "")
			if err != nil {
				return err
			}
			options, _ := c.Generic("option").(*argv.RepeatedFlag)
			ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
			defer stop()
			res, err := sandbox.Ask(ctx, gitagency.Question{Question: args[0], Options: options.Values, Context: c.String("context")})
			if err != nil {
				return err
			}
			if res.Answered {
				_, err := t.Stdout.Write(append(bytes.TrimSuffix(res.Answer, []byte("\n")), '\n'))
				return err
			}
			fmt.Fprintln(t.Stderr, endTurn(res))
			if res.Expired {
				return &program.ChildError{Code: hints.ExitBlocked}
			}
			return nil
		},
	}
}

// endTurn tells an agent what to do after a question without an answer.
func endTurn(res gitagency.AskResult) string {
	if res.Expired {
		return "no answer came in time; end your turn now, the answer comes when you are resumed"
	}
	return "the question was passed on; end your turn now, the answer comes when you are resumed"
}
