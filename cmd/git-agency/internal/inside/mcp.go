package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/mcp"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// MCP serves tools to an agent.
func (t Commands) MCP() *cli.Command {
	return &cli.Command{
		Name:      "mcp",
		Hidden:    true, // agents start it
		Usage:     "serve the tools ask, submit and task to an agent in a sandbox",
		UsageText: "git agency mcp",
		Description: `Is a server of the Model Context Protocol on standard input and output, for an agent that runs in a sandbox:

  task    returns the task, and the answer to the last question
  ask     leaves a question for the person outside, as 'git agency ask' does
  submit  submits the work for review, as 'git agency submit' does

Exit status: 0 the input ended; 1 failed, or it does not run in a sandbox; 129 usage.`,
		Action: func(c *cli.Context) error {
			if _, err := program.PositionalArgs(c, 0, 0); err != nil {
				return err
			}
			sandbox, err := Open(t.Program, "")
			if err != nil {
				return err
			}
			return mcp.Server{
				Name: "agency", Version: t.Version(),
				Instructions: "You work in a sandbox. Get your task with the tool task. Ask the person who gave it to you with the tool ask, and submit finished, committed work with the tool submit.",
				Tools:        t.tools(c, sandbox),
			}.Serve(c.Context, os.Stdin, t.RawStdout)
		},
	}
}

// tools returns the tools of the server.
func (t Commands) tools(c *cli.Context, sandbox *gitagency.Inside) []mcp.Tool {
	return []mcp.Tool{
		{
			Name:        "task",
			Description: "Returns the task that you were given, and the answer to your last question if there is one.",
			InputSchema: json.RawMessage(`{"type":"object"}`),
			Call:        func(context.Context, json.RawMessage) (string, error) { return readTask(sandbox) },
		},
		{
			Name:        "ask",
			Description: askDescription(sandbox),
			Waits:       sandbox.AskTimeout != 0,
			InputSchema: json.RawMessage(`{"type":"object","required":["question"],"properties":{"question":{"type":"string"},` +
				`"options":{"type":"array","items":{"type":"string"},"description":"answers to choose from"},"context":{"type":"string","description":"what the person has to know"}}}`),
			Call: func(ctx context.Context, arguments json.RawMessage) (string, error) {
				var q gitagency.Question
				if err := json.Unmarshal(arguments, &q); err != nil {
					return "", err
				}
				res, err := sandbox.Ask(ctx, q)
				if res.Answered {
					return string(res.Answer), err
				}
				return endTurn(res), err
			},
		},
		{
			Name:        "submit",
			Description: "Submits your work for review. All of it must be committed.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"note":{"type":"string","description":"for the reviewer"}}}`),
			Call: func(ctx context.Context, arguments json.RawMessage) (string, error) {
				var asked struct{ Note string }
				if err := json.Unmarshal(arguments, &asked); err != nil {
					return "", err
				}
				s, err := t.submitSelf(ctx, c, sandbox, asked.Note)
				return fmt.Sprintf("submitted %s at %s", s.ID, s.Commit), err
			},
		},
	}
}

// askDescription describes the tool ask to a model.
func askDescription(sandbox *gitagency.Inside) string {
	if sandbox.AskTimeout != 0 {
		return "Asks the person who gave you the task a question, and returns the answer. That may take long. If no answer comes in time, end your turn. One question can be asked at a time."
	}
	return "Asks the person who gave you the task a question. The answer does not come at once: end your turn after asking. One question can be asked at a time."
}

// readTask returns the task and the answer to the last question.
func readTask(sandbox *gitagency.Inside) (string, error) {
	if sandbox.TaskFile == "" && sandbox.AnswerFile == "" {
		return "", errors.New("no task was given")
	}
	text := ""
	for _, part := range []struct{ title, path string }{{"", sandbox.TaskFile}, {"\n\nAnswer to your last question:\n", sandbox.AnswerFile}} {
		if part.path == "" {
			continue
		}
		data, err := os.ReadFile(part.path)
		if err != nil {
			return "", err
		}
		text += part.title + string(data)
	}
	return text, nil
}

// submitSelf submits the sandbox that this process runs in; without walls as outside.
func (t Commands) submitSelf(ctx context.Context, c *cli.Context, sandbox *gitagency.Inside, note string) (gitagency.SubmitResult, error) {
	if gitagency.CheckOutsideWalls(t.Options.Env) != nil {
		return sandbox.Submit(ctx, note)
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return gitagency.SubmitResult{}, err
	}
	return repo.Submit(ctx, gitagency.SubmitRequest{Invocation: sandbox.ID, Note: note})
}
