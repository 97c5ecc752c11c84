package runs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
)

// question is the JSON of a question.
type question struct {
	ID       string    `json:"invocation_id"`
	Name     string    `json:"invocation_name"`
	Question string    `json:"question"`
	Options  []string  `json:"options"`
	Context  string    `json:"context"`
	AskedAt  time.Time `json:"asked_at"`

	task string
}

// Questions builds the command that lists the questions of agents.
func (t Commands) Questions() *cli.Command {
	return &cli.Command{
		Name:      "questions",
		Usage:     "list the questions of agents that wait for an answer",
		UsageText: "git agency questions [--no-abbrev | --json | --porcelain [-z]]",
		Description: `Lists the agents that wait for an answer, with their questions, the longest waiting first. 'git agency
resume <id> --answer <answer>' answers one, also one that runs, with a text: the numbers of options are for
'git agency review'.

Exit status: 0 whatever is found; 129 usage.`,
		Flags: program.WithAbbrevFlag(program.WithListingFlags()...),
		Action: func(c *cli.Context) error {
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			waiting, err := repo.Questions()
			if err != nil {
				return err
			}
			tableID, err := t.TableIDs(c, repo)
			if err != nil {
				return err
			}
			questions := []question{}
			for _, inv := range waiting {
				questions = append(questions, question{inv.ID, inv.Name, inv.Question, append([]string{}, inv.Options...), inv.Context, inv.AskedAt, inv.Task})
			}
			return program.PrintList(t.Program, c, questions, questionFields, []string{"ID", "NAME", "WAITS", "QUESTION"}, func(q question) []string {
				return []string{tableID(q.ID), cmp.Or(q.Name, q.task), format.ShortDuration(t.Now().Sub(q.AskedAt)), withOptions(q)}
			}, "NAME")
		},
	}
}

// withOptions returns a question with the options that it offers.
func withOptions(q question) string {
	if len(q.Options) == 0 {
		return q.Question
	}
	return q.Question + " [" + strings.Join(numberOptions(q.Options), ", ") + "]"
}

// numberOptions returns the options of a question, each on one line after its number.
func numberOptions(options []string) []string {
	numbered := make([]string, len(options))
	for i, option := range options {
		numbered[i] = fmt.Sprintf("%d. %s", i+1, term.OneLine(option))
	}
	return numbered
}

// chooseOption returns the option with the number that a text is. Any other text, and one that is itself an option, is the
// answer as it is.
func chooseOption(text string, options []string) string {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(options) || slices.Contains(options, text) {
		return text
	}
	return options[n-1]
}

func questionFields(q question) []program.Field {
	fields := []program.Field{
		{Key: "invocation", Value: q.ID},
		{Key: "name", Value: q.Name, Optional: true},
		{Key: "question", Value: q.Question},
	}
	for _, option := range q.Options {
		fields = append(fields, program.Field{Key: "option", Value: option})
	}
	return append(fields,
		program.Field{Key: "context", Value: q.Context, Optional: true},
		program.Field{Key: "asked", Value: q.AskedAt.Format(time.RFC3339)})
}
