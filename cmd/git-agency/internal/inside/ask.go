package inside

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Ask leaves a question for the person outside.
func (t Commands) Ask() *cli.Command {
	return &cli.Command{
		Name:      "ask",
		Usage:     "ask a question from inside of a sandbox",
		UsageText: "git agency ask <question> [--option <text>]... [--context <text>]",
		Description: `Is for agents: leaves a question for the person outside, in place of an older one, and returns at once. The
run of the agent then ends as blocked, and goes on with the answer. Equal to writing the file that
AGENCY_QUESTION_FILE names: {"question": "...", "options": ["..."], "context": "..."}.

Exit status: 0 asked; 1 failed, or it does not run in a sandbox; 129 usage.`,
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
			if err := sandbox.Ask(gitagency.Question{Question: args[0], Options: options.Values, Context: c.String("context")}); err != nil {
				return err
			}
			fmt.Fprintln(t.Stderr, questionPassedOn)
			return nil
		},
	}
}

// questionPassedOn tells an agent what to do after a question.
const questionPassedOn = "the question was passed on; end your turn now, the answer comes when you are resumed"
