package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

const runName = "run"

// maxRuns bounds -n: each run is a sandbox and an agent.
const maxRuns = 100

// Run builds the command that runs agents.
func (t Commands) Run() *cli.Command {
	return &cli.Command{
		Name:  runName,
		Usage: "run an agent in a new sandbox",
		UsageText: `git agency run [<wt>] [--runner <runner>]... [-n <number>]
                      [-p <task> | --task-file <file> | -] [--timeout <t>]
                      [--detach] [--tty] [--commit-all] [--name <label>]
                      [--max-cost <dollars>] [--max-tokens <n>] [--max-output <size>]
                      [--from <commit-ish> | --from-snapshot <snapshot> | --with-changes]
                      [--profile <profile>] [--changeset <c>] [--clone-source <remote>] [--platform <p>]
                      [--isolation <i>] [--outputs <o>] [--software <s>]
                      [--memory <size>] [--processes <n>] [--file-size <size>]
                      [--nice <n>] [--best-effort-limits] [--json]
                      [-- <command> [<argument>...]]`,
		Description: `Creates a sandbox as start does, runs an agent in it, and records how it ended. The agent is one of claude,
codex, gemini and opencode, one that agency.<runner>.command names, or the command after --. With a task it
works without a terminal; without one, its own program starts on the terminal.

The task is kept in a file beside the record, which $AGENCY_TASK_FILE names in the sandbox. A command gets
it on standard input. What the agent writes is logged (see logs).

With -n or several --runner, each agent gets a sandbox of its own, all from the same commit. With --detach
the command returns at once, and the run survives the terminal; 'git agency wait' waits for it. Without a
task, a detached agent gets a terminal that 'git agency attach' connects with yours.

An agent that leaves uncommitted changes has failed: the files are listed and the sandbox is kept. With
--commit-all they are committed instead.

Exit status: that of the agent; 0 finished; 1 uncommitted changes, or the agent reports a failure; 6 the
preflight failed, nothing was created; 7 the agent asks a question; 124 timed out; 125 the sandbox could
not be set up, or agency.setup failed; 3 no such worktree; 4 broken; 5 refused for safety; 75 locked; 129
usage; 130, 143 interrupted or stopped. Of several runs: 0 all finished, 7 one asks, else 1.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(slices.Concat([]cli.Flag{
			&cli.GenericFlag{Name: "runner", Value: &argv.RepeatedFlag{}, Usage: "the agent `RUNNER`; may be repeated"},
			&cli.IntFlag{Name: "number", Aliases: []string{"n"}, Usage: "start `NUMBER` agents from the same commit", Value: 1},
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "the `TASK`"},
			&cli.StringFlag{Name: "task-file", Usage: "read the task from `FILE`; the argument - reads it from standard input"},
			&cli.StringFlag{Name: "timeout", Usage: "end the run after `DURATION` (-1: never)", DefaultText: "agency.runTimeout, else 60m; never for an interactive agent"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return at once; the run survives the terminal"},
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "run the command after -- on a terminal, as an interactive agent"},
			&cli.BoolFlag{Name: "commit-all", Usage: "commit what the agent leaves uncommitted"},
		}, budgetFlags(), startflags.Origin(), startflags.Primitives(), startflags.Limits())...)...),
		Action: t.run,
	}
}

// run creates the runs that the flags describe and executes them.
func (t Commands) run(c *cli.Context) error {
	requests, err := t.runRequests(c)
	if err != nil {
		return err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	invocations, err := repo.CreateRuns(c.Context, requests)
	if err != nil {
		return errors.Join(err, t.printIDs(invocations))
	}
	startflags.WarnIsolation(t.Program, invocations[0])
	if c.Bool("detach") {
		return t.detach(c, repo, invocations)
	}
	return t.execute(c, repo, invocations, requests[0].Interactive)
}

// runRequests returns one request for each run.
func (t Commands) runRequests(c *cli.Context) ([]gitagency.RunRequest, error) {
	req := gitagency.RunRequest{Argv: t.AfterDashDash, CommitAll: c.Bool("commit-all")}
	args, err := program.PositionalArgs(c, 0, 2)
	if err != nil {
		return nil, err
	}
	task, rest, err := readTask(c, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 1 {
		return nil, program.NewUsageError(c, fmt.Errorf("unexpected argument %q", rest[1]))
	}
	if task == nil && len(rest) == 1 && strings.ContainsAny(rest[0], " \t\n") { // no worktree has such a name
		return nil, &program.UsageError{
			Err: fmt.Errorf("no such worktree: %q", rest[0]), Usage: c.Command.UsageText, Hint: "a task is given with -p " + quote.Shell(rest[0]),
		}
	}
	start, err := startflags.Request(c, strings.Join(rest, ""))
	if err != nil {
		return nil, err
	}
	if err := startflags.ParseLimit(c, gitagency.TimeoutLimit, &req.Timeout); err != nil {
		return nil, err
	}
	if req.Budget, err = parseBudget(c); err != nil {
		return nil, err
	}
	runners, _ := c.Generic("runner").(*argv.RepeatedFlag)
	names, number := runners.Values, c.Int("number")
	switch {
	case number < 1 || number > maxRuns:
		return nil, program.NewUsageError(c, fmt.Errorf("-n %d: want a number from 1 to %d", number, maxRuns))
	case len(names) > 0 && len(t.AfterDashDash) > 0:
		return nil, program.NewUsageError(c, errors.New("give either --runner or a command after --"))
	case len(names) == 0 && len(t.AfterDashDash) == 0:
		return nil, noAgentError(c, rest)
	case len(names) == 0:
		names = []string{""}
	}
	req.Task = task
	req.Interactive = task == nil && (len(t.AfterDashDash) == 0 || c.Bool("tty"))
	if err := t.checkTerminal(c, req, number*len(names) > 1); err != nil {
		return nil, err
	}
	var requests []gitagency.RunRequest
	for _, name := range names {
		for range number {
			req.Start = start
			req.Start.Runner = name
			requests = append(requests, req)
		}
	}
	return requests, nil
}

// noAgentError reports a run without an agent. Its argument, which is a worktree, may have been meant as one.
func noAgentError(c *cli.Context, args []string) error {
	e := &program.UsageError{Err: errors.New("no agent given: name one with --runner, or a command after --"), Usage: c.Command.UsageText}
	if len(args) == 1 {
		e.Hint = "the argument names a worktree; if it is the agent, type: --runner " + quote.Shell(args[0])
	}
	return e
}

// budgetFlags returns the flags of the budget of a run.
func budgetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "max-cost", Usage: "end the run when it costs more than `DOLLARS`, as the agent tells it"},
		&cli.StringFlag{Name: "max-tokens", Usage: "end the run when it uses more than `NUMBER` tokens, as the agent tells it"},
		&cli.StringFlag{Name: "max-output", Usage: "end the run when it writes more than `SIZE`, such as 10m"},
	}
}

// parseBudget returns the budget of the flags.
func parseBudget(c *cli.Context) (budget gitagency.Budget, err error) {
	if c.IsSet("max-cost") {
		budget.CostUSD, err = strconv.ParseFloat(c.String("max-cost"), 64)
		if err != nil || !(budget.CostUSD > 0) || math.IsInf(budget.CostUSD, 0) {
			return budget, program.NewUsageError(c, fmt.Errorf("--max-cost %s: want an amount of dollars such as 2.50", c.String("max-cost")))
		}
	}
	if c.IsSet("max-tokens") {
		budget.Tokens, err = strconv.ParseInt(c.String("max-tokens"), 10, 64)
		if err != nil || budget.Tokens <= 0 {
			return budget, program.NewUsageError(c, fmt.Errorf("--max-tokens %s: want a number of tokens", c.String("max-tokens")))
		}
	}
	if c.IsSet("max-output") {
		budget.Output, err = gitagency.FileSizeLimit.Parse(c.String("max-output"))
		if err != nil {
			return budget, program.NewUsageError(c, fmt.Errorf("--max-output: %w", err))
		}
	}
	return budget, nil
}

// checkTerminal checks that a run has the terminal that it needs: a detached one brings its own.
func (t Commands) checkTerminal(c *cli.Context, req gitagency.RunRequest, several bool) error {
	here := !several && !c.Bool("json") && t.hasTerminal()
	switch {
	case c.Bool("tty") && req.Task != nil:
		return program.NewUsageError(c, errors.New("--tty is for an interactive agent, without a task"))
	case !req.Interactive || here || c.Bool("detach") && gitagency.HasTerminals:
		return nil
	case c.Bool("tty"):
		return program.NewUsageError(c, errors.New("--tty needs a terminal for a single agent, or --detach"))
	}
	return program.NewUsageError(c, errors.New("no task given: use -p, --task-file or -; without one, a single agent runs on a terminal, or detached"))
}

// hasTerminal reports whether an interactive program can run on the terminal of the user.
func (t Commands) hasTerminal() bool {
	return gitagency.HasTerminals && term.IsTerminal(os.Stdin) && term.IsTerminal(t.RawStdout) && term.InForeground(os.Stdin)
}

func (t Commands) printIDs(invocations []gitagency.Invocation) error {
	for _, inv := range invocations {
		if err := t.PrintLine(inv.ID); err != nil {
			return err
		}
	}
	return t.Stdout.Flush()
}

// execute runs agents in the foreground, and returns when all have ended.
func (t Commands) execute(c *cli.Context, repo *gitagency.Repository, invocations []gitagency.Invocation, interactive bool) error {
	interrupt.KeepOnBrokenPipe()
	ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
	defer stop()
	if len(invocations) > 1 {
		if !c.Bool("json") {
			if err := t.printIDs(invocations); err != nil {
				return err
			}
		}
		return t.executeAll(ctx, c, repo, invocations)
	}
	id := invocations[0].ID
	req := gitagency.ExecuteRunRequest{ID: id, Force: t.SecondInterrupt, Later: t.AtEnd}
	req.OnQuestion = func(question string, options []string) { t.printQuestion(id, question, options) }
	endLive := func() {}
	switch {
	case interactive:
		req.Terminal, req.Stdin, req.Stdout, req.Stderr = true, os.Stdin, t.RawStdout, t.RawStderr
		req.OnQuestion = nil // it would write into the screen of the agent
	case term.IsTerminal(t.RawStderr) && repo.HasStream(invocations[0].Runner): // events instead of output, which goes to the logs
		live := t.newLive(invocations)
		req.OnEvent, endLive = live.reporter(id), live.end
		req.OnQuestion = t.questionReporter(live, id)
	case !c.Bool("json"):
		req.Stdout, req.Stderr = t.RawStdout, t.RawStderr
	}
	res, err := repo.ExecuteRun(ctx, req)
	endLive()
	if err != nil {
		return err
	}
	if req.OnEvent != nil && res.LastMessage != "" && !c.Bool("json") {
		if _, err := fmt.Fprintln(t.Stdout, term.Printable(res.LastMessage)); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		if err := t.PrintJSON(res); err != nil {
			return err
		}
	}
	if err := t.Stdout.Flush(); err != nil { // before the messages about the end
		return err
	}
	err = t.reportEnd(ctx, res)
	if run := (*runError)(nil); errors.As(err, &run) {
		run.unlogged = interactive
	}
	return err
}

// reportEnd returns the error of a run; that of an interrupt, if that ended it.
func (t Commands) reportEnd(ctx context.Context, res gitagency.RunResult) error {
	err := t.endError(res)
	if err == nil && len(res.Warnings) == 0 {
		t.hintLanding([]string{res.ID})
	}
	if cause := context.Cause(ctx); cause != nil && res.Status == gitagency.StatusStopped {
		t.printEnd(err)
		t.PrintHint("'git agency resume " + res.ID + "' lets it go on, 'git agency discard " + res.ID + "' ends it")
		return cause
	}
	return err
}

// executeAll runs several agents at once, and returns when all have ended.
func (t Commands) executeAll(ctx context.Context, c *cli.Context, repo *gitagency.Repository, invocations []gitagency.Invocation) error {
	live := t.newLive(invocations)
	results, errs := make([]gitagency.RunResult, len(invocations)), make([]error, len(invocations))
	var all, announced sync.WaitGroup
	t.AtEnd(announced.Wait)
	for i, inv := range invocations {
		all.Go(func() {
			results[i], errs[i] = repo.ExecuteRun(ctx, gitagency.ExecuteRunRequest{
				ID: inv.ID, Force: t.SecondInterrupt, OnEvent: live.reporter(inv.ID), OnQuestion: t.questionReporter(live, inv.ID),
				Later: func(lastStep func()) { announced.Go(lastStep) },
			})
			live.ended(inv.ID, results[i], errs[i], ctx.Err() != nil)
		})
	}
	all.Wait()
	live.end()
	cause := context.Cause(ctx)
	failed := errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == cause })...)
	results = slices.DeleteFunc(results, func(res gitagency.RunResult) bool { return res.Status == "" }) // those of errs
	if c.Bool("json") {
		if err := t.PrintJSON(results); err != nil {
			return err
		}
	}
	code, landable := 0, []string{}
	for _, res := range results {
		if err := t.endError(res); err != nil {
			t.printEnd(err)
			code = worseExit(code, res.Status)
		} else if len(res.Warnings) == 0 {
			landable = append(landable, res.ID)
		}
	}
	t.hintLanding(landable)
	switch {
	case cause != nil:
		return errors.Join(failed, cause)
	case failed != nil:
		return failed
	case code != 0:
		return &program.ChildError{Code: code}
	}
	return nil
}

// hintLanding says on a terminal what can be done with the work of runs that finished.
func (t Commands) hintLanding(ids []string) {
	switch {
	case len(ids) == 0 || !term.IsTerminal(t.RawStderr):
	case len(ids) == 1:
		t.PrintHint("to see its work: git agency diff " + ids[0] + "; to land it: git agency land " + ids[0])
	default:
		t.PrintHint("to compare two: git agency diff " + ids[0] + " " + ids[1] + "; to land one: git agency land " + ids[0])
	}
}

// worseExit returns the exit code of several runs, given that of those before: one that asks counts most.
func worseExit(code int, status string) int {
	switch {
	case status == gitagency.StatusBlocked || code == hints.ExitBlocked:
		return hints.ExitBlocked
	case status != gitagency.StatusFinished:
		return hints.ExitFailed
	}
	return code
}

// printEnd prints the error of one of several runs.
func (t Commands) printEnd(err error) {
	var silent program.SilentError
	if errors.As(err, &silent) && silent.Silent() {
		return
	}
	fmt.Fprintf(t.Stderr, "%s %s\n", t.PaintPrefix("error:"), term.Printable(err.Error()))
}
