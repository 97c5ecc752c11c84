package runs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/gitagency"
)

// Resume builds the command that lets an agent go on.
func (t Commands) Resume() *cli.Command {
	return &cli.Command{
		Name:  "resume",
		Usage: "let an agent go on in its sandbox",
		UsageText: `git agency resume [<id>] [--answer <answer> | -p <task> | --task-file <file> | -]
                         [--timeout <t>] [--detach] [--commit-all]
                         [--max-cost <dollars>] [--max-tokens <n>] [--max-output <size>] [--json]`,
		Description: `Runs the agent of <id> again in the same sandbox, with its original session: with the answer to its question,
with a further task, or with the reason why its work was rejected. A command gets the answer on standard
input, and in the file that $AGENCY_ANSWER_FILE names.
Without <id> and outside of a sandbox, it is the only agent that waits for an answer.

With agency.askTimeout, an agent may wait for the answer while it runs. Then --answer hands the answer over,
and returns at once.

Exit status: as of run; 1 also if it runs already, if it waits for an answer or asks no question, or if no
agent was run in it; 3 no such invocation. 0 if a running agent got the answer.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(append([]cli.Flag{
			&cli.StringFlag{Name: "answer", Usage: "the `ANSWER` to its question"},
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "a further `TASK`"},
			&cli.StringFlag{Name: "task-file", Usage: "read the further task from `FILE`; the argument - reads it from standard input"},
			&cli.StringFlag{Name: "timeout", Usage: "end the run after `DURATION` (-1: never)", DefaultText: "as before"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return at once; the run survives the terminal"},
			&cli.BoolFlag{Name: "commit-all", Usage: "commit what the agent leaves uncommitted"},
		}, budgetFlags()...)...)...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 0, 2)
			if err != nil {
				return err
			}
			task, rest, err := readTask(c, args)
			if err != nil {
				return err
			}
			req := gitagency.ResumeRunRequest{Task: task, CommitAll: c.Bool("commit-all")}
			switch {
			case len(rest) > 1:
				return program.NewUsageError(c, fmt.Errorf("unexpected argument %q", rest[1]))
			case c.IsSet("answer") && task != nil:
				return program.NewUsageError(c, errors.New("give either an answer or a task"))
			case c.IsSet("answer"):
				req.Answer = []byte(c.String("answer"))
			}
			if err := startflags.ParseLimit(c, gitagency.TimeoutLimit, &req.Timeout); err != nil {
				return err
			}
			if req.Budget, err = parseBudget(c); err != nil {
				return err
			}
			return t.resume(c, strings.Join(rest, ""), req)
		},
	}
}

func (t Commands) resume(c *cli.Context, query string, req gitagency.ResumeRunRequest) error {
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	if req.ID, err = t.chooseRun(c, repo, query, askingAgents); err != nil {
		return err
	}
	inv, err := repo.Invocation(req.ID)
	if err != nil {
		return err
	}
	if req.Answer != nil {
		req.Shown = &inv
		answered, given, err := repo.AnswerRun(req)
		if err != nil || given {
			return errors.Join(err, t.reportGiven(c, answered, given))
		}
	}
	isGivenText := req.Task != nil || req.Answer != nil || inv.State == gitagency.StateRejected
	interactive := inv.Mode == gitagency.ModeHeaded && !isGivenText
	if interactive && inv.SessionID != "" && !c.Bool("detach") && !t.hasTerminal() { // before anything is recorded
		return program.NewUsageError(c, errors.New("this agent was run on a terminal: give a task with -p, or resume it on one"))
	}
	if inv, err = repo.ResumeRun(c.Context, req); err != nil {
		return err
	}
	if c.Bool("detach") {
		return t.detach(c, repo, []gitagency.Invocation{inv})
	}
	return t.execute(c, repo, []gitagency.Invocation{inv}, interactive)
}

// reportGiven reports that a running agent got an answer.
func (t Commands) reportGiven(c *cli.Context, inv gitagency.Invocation, given bool) error {
	if !given {
		return nil
	}
	if c.IsSet("timeout") || c.Bool("commit-all") || c.IsSet("max-cost") || c.IsSet("max-tokens") || c.IsSet("max-output") {
		t.Warn("--timeout, --commit-all and --max-… do not change a run that goes on")
	}
	fmt.Fprintf(t.Stderr, "the running agent of %s got the answer\n", inv.ID)
	switch {
	case c.Bool("json"):
		return t.PrintJSON([]gitagency.Invocation{inv})
	case c.Bool("detach"):
		return t.printIDs([]gitagency.Invocation{inv})
	}
	return nil
}
