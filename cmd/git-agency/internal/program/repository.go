package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// OpenRepository opens the repository of the current directory.
func (p *Program) OpenRepository(c *cli.Context) (*gitagency.Repository, error) {
	for _, f := range c.Command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && c.IsSet(s.Name) && c.String(s.Name) == "" {
			return nil, NewUsageError(c, fmt.Errorf("--%s needs a value that is not empty", s.Name))
		}
	}
	opts, err := p.LibraryOptions(c)
	if err != nil {
		return nil, err
	}
	repo, err := gitagency.Open(c.Context, opts)
	if repo, err = p.openPaths(c, opts, repo, err); err != nil {
		return nil, err
	}
	p.repo = repo
	return repo, nil
}

// LibraryOptions returns the options with which a command opens a repository.
func (p *Program) LibraryOptions(c *cli.Context) (gitagency.Options, error) {
	opts := p.Options
	opts.Version = p.config.Version
	opts.Command = "git agency " + strings.Join(p.Args[1:], " ")
	opts.Warn = p.Warn
	if c.IsSet(LockTimeoutFlag) {
		d, err := gitagency.ParseDuration(c.String(LockTimeoutFlag))
		if err != nil {
			return opts, NewUsageError(c, fmt.Errorf("--%s: %w", LockTimeoutFlag, err))
		}
		opts.LockTimeout = &d
	}
	return opts, nil
}

// OpenSandbox opens the repository and returns the sandbox of an invocation: the named one, or for an empty query the one
// that contains the current directory.
func (p *Program) OpenSandbox(c *cli.Context, query string) (*gitagency.Sandbox, error) {
	repo, err := p.OpenRepository(c)
	if err != nil {
		return nil, err
	}
	if query, err = CurrentUnlessNamed(c, repo, query); err != nil {
		return nil, err
	}
	return repo.Sandbox(query)
}

// CurrentUnlessNamed returns a query that names an invocation; for an empty one, the id of the invocation whose sandbox
// contains the current directory. There being none is a usage error.
func CurrentUnlessNamed(c *cli.Context, repo *gitagency.Repository, query string) (string, error) {
	if query != "" {
		return query, nil
	}
	inv, err := repo.CurrentInvocation()
	var state *gitagency.StateError
	if errors.As(err, &state) && state.Reason == reason.NotInSandbox {
		return "", &UsageError{
			Err: errors.New("no <id> given, and the current directory is in no sandbox"), Usage: c.Command.UsageText,
			Hint: idsHint(c),
		}
	}
	return inv.ID, err
}

// OpenForQuery opens the repository for a command that prints one record, and returns its name or id.
func (p *Program) OpenForQuery(c *cli.Context) (_ *gitagency.Repository, query string, err error) {
	if _, err := PositionalArgs(c, 1, 1); err != nil {
		return nil, "", err
	}
	return p.OpenForOptionalQuery(c)
}

// OpenForOptionalQuery is OpenForQuery for a command that needs no argument in the directory of a sandbox.
func (p *Program) OpenForOptionalQuery(c *cli.Context) (_ *gitagency.Repository, query string, err error) {
	query, err = OptionalArg(c)
	if err == nil {
		err = CheckOutputFlags(c)
	}
	if err != nil {
		return nil, "", err
	}
	repo, err := p.OpenRepository(c)
	if err != nil {
		return nil, "", err
	}
	query, err = CurrentUnlessNamed(c, repo, query)
	return repo, query, err
}

// OpenForInvocations opens the repository for a command that acts on each named invocation in turn. All of them are
// looked up first, so that a typo in the last is reported before the first is acted on.
func (p *Program) OpenForInvocations(c *cli.Context) (*gitagency.Repository, []gitagency.Invocation, error) {
	if _, err := PositionalArgs(c, 1, -1); err != nil {
		return nil, nil, err
	}
	return p.OpenForOptionalInvocations(c)
}

// OpenForOptionalInvocations is OpenForInvocations for a command that needs no argument in the directory of a sandbox.
func (p *Program) OpenForOptionalInvocations(c *cli.Context) (*gitagency.Repository, []gitagency.Invocation, error) {
	args, err := PositionalArgs(c, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	repo, err := p.OpenRepository(c)
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		current, err := CurrentUnlessNamed(c, repo, "")
		if err != nil {
			return repo, nil, err
		}
		args = []string{current}
	}
	var named []gitagency.Invocation
	for _, query := range args {
		inv, err := repo.Invocation(query)
		if err != nil {
			return nil, nil, err
		}
		named = append(named, inv)
	}
	return repo, named, nil
}

// LockTimeoutFlag is the name of the flag of commands that may wait for a lock.
const LockTimeoutFlag = "lock-timeout"

// WithRepositoryLockFlag adds --lock-timeout for the repository lock to the flags of a command that takes it.
func WithRepositoryLockFlag(flags ...cli.Flag) []cli.Flag {
	return WithLockTimeoutFlag("the repository lock", flags...)
}

// WithLockTimeoutFlag adds --lock-timeout to the flags of a command that may have to wait; what names in the help text
// the lock holder it waits for.
func WithLockTimeoutFlag(what string, flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.StringFlag{
		Name: LockTimeoutFlag, Usage: "wait at most `DURATION` for " + what + " (0: one try, -1: for ever)",
		DefaultText: "agency.lockTimeout, else 30s",
	})
}
