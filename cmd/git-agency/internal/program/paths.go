package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// onPaths lists the commands that work on sandboxes over plain directories too, which belong to no repository.
var onPaths = []string{
	"allow", "denials", "diff", "discard", "doctor", "events", "exec", "land", "log", "ls", "path", "ports", "prune", "restore", "shell", "show", "snapshot checkout", "snapshot ls", "stop",
}

// openPaths opens the sandboxes over plain directories instead of a repository: outside of every repository, and for the id of one of
// them, which no repository has. repo and opened are the result of opening the repository.
func (p *Program) openPaths(c *cli.Context, opts gitagency.Options, repo *gitagency.Repository, opened error) (*gitagency.Repository, error) {
	id, _, _ := strings.Cut(c.Args().First(), "/")
	outside := hasType[*gitagency.NoRepositoryError](opened)
	switch {
	case opened != nil && !outside, opened == nil && (!mayBeID(id) || strings.HasPrefix(id, "@")): // @ is one of this repository
		return repo, opened
	case opened == nil:
		if _, err := repo.Invocation(id); !hasType[*gitagency.NotFoundError](err) {
			return repo, nil
		}
	}
	paths, err := gitagency.OpenPaths(c.Context, opts)
	if err != nil {
		return repo, opened // that of the repository says more
	}
	_, err = paths.Invocation(id)
	named := mayBeID(id) && err == nil
	name := commandName(c)
	switch {
	case slices.Contains(onPaths, name) && (named || outside):
		return paths, nil
	case named:
		return nil, NewUsageError(c, fmt.Errorf("%s is a sandbox over plain directories, on which 'git agency %s' does not work", id, name))
	}
	return repo, opened
}

// commandName returns the name of a command with that of the command that it is part of, such as "snapshot checkout".
func commandName(c *cli.Context) string {
	var words []string
	for _, at := range c.Lineage() {
		if at.Command != nil && at.Command.Name != "" && at.App != nil && at.Command.Name != at.App.Name {
			words = append([]string{at.Command.Name}, words...)
		}
	}
	return strings.Join(words, " ")
}

// mayBeID reports whether an argument can be the id of an invocation: worktrees have names.
func mayBeID(arg string) bool { return arg != "" && strings.Trim(arg, "0123456789abcdef-@") == "" }

func hasType[T error](err error) bool { return errors.As(err, new(T)) }
