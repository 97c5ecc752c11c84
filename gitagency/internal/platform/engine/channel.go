package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// answer is what a client wrote, and its exit code.
type answer struct {
	argv           []string // as the caller gave it
	stdout, stderr string
	exit           int
}

// Limits of answers. A site with very many jobs answers about ours only, in some hundred bytes each.
const (
	maxAnswer = 64 << 20 // bytes of standard output
	maxDetail = 600      // bytes of standard error in an error
)

// Exit codes that do not come from the client.
const (
	sshFailed     = 255 // ssh(1): an error occurred
	remoteMissing = 127 // the shell of the login node: command not found
)

// ask runs the client of an engine with an input, and returns its answer, whatever its exit code is. The error is an
// *UnreachableError if the client was not run, or wraps context.Cause if ctx ended first.
func (c Channel) ask(ctx context.Context, engine string, argv []string, stdin string) (answer, error) {
	out := &proc.LimitedBuffer{Limit: maxAnswer}
	a, err := c.copy(ctx, engine, argv, stdin, out)
	a.stdout = out.String()
	return a, err
}

// copy is ask that copies the standard output of the client to a writer. A failed write ends the client.
func (c Channel) copy(ctx context.Context, engine string, argv []string, stdin string, to io.Writer) (answer, error) {
	a := answer{argv: argv}
	line, err := c.commandLine(argv)
	if err != nil {
		return a, err
	}
	env := c.Env
	if c.SSH == "" && c.Only != nil {
		env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return !slices.Contains(c.Only, name)
		})
	}
	path, err := proc.LookPath(env, line[0])
	if err != nil {
		return a, &UnreachableError{Engine: engine, Argv: line, Missing: true, Detail: err.Error()}
	}
	res, err := proc.Run(ctx, proc.Command{
		Argv: append([]string{path}, line[1:]...), Dir: "/", Env: env, Stdin: strings.NewReader(stdin), Stdout: to,
		DieWithParent: !c.Outlive, // srun would follow a job to its end
	})
	a.stderr, a.exit = string(res.Stderr), res.ExitCode
	var notStarted *proc.NotStartedError
	switch {
	case ctx.Err() != nil && err != nil:
		return a, context.Cause(ctx)
	case errors.As(err, &notStarted):
		return a, &UnreachableError{Engine: engine, Argv: line, Detail: err.Error()}
	case err != nil:
		return a, fmt.Errorf("run %s: %w", line[0], err)
	case c.SSH != "" && a.exit == sshFailed:
		return a, &UnreachableError{Engine: engine, Argv: line, Detail: "ssh " + c.SSH + ": " + a.detail()}
	case c.SSH != "" && a.exit == remoteMissing:
		return a, &UnreachableError{Engine: engine, Argv: argv, Missing: true, Detail: a.detail()}
	}
	return a, nil
}

// commandLine returns the command line that runs a client: the client's own, or that of ssh. BatchMode keeps ssh from asking
// for passwords.
func (c Channel) commandLine(argv []string) ([]string, error) {
	switch {
	case c.SSH == "":
		return argv, nil
	case c.SSH[0] == '-' || strings.ContainsFunc(c.SSH, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return nil, fmt.Errorf("%s is not a destination of ssh", quote.Shell(c.SSH))
	}
	line := []string{"ssh", "-o", "BatchMode=yes", c.SSH, "--"}
	if c.Only != nil {
		argv = append([]string{"sh", "-c", cleanScript(c.Only), "sh"}, argv...)
	}
	for _, word := range argv {
		line = append(line, shellWord(word))
	}
	return line, nil
}

// cleanScript returns a shell script that runs its arguments as a command with no variables but some. The login shell need not be
// one that understands it.
func cleanScript(only []string) string {
	var b strings.Builder
	b.WriteString("exec env -i")
	for _, name := range only {
		fmt.Fprintf(&b, ` ${%s+%s="$%s"}`, name, name, name)
	}
	return b.String() + ` "$@"`
}

// shellWord quotes a word for every POSIX shell. quote.Shell is for people, and its $'…' is not POSIX.
func shellWord(word string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,"
	if word != "" && strings.Trim(word, safe) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// detail returns the words of a client that failed, as one line of printable text.
func (a answer) detail() string {
	if text := oneLine(a.stderr); text != "" {
		return text
	}
	return fmt.Sprintf("%s ended with exit code %d", a.argv[0], a.exit)
}

// oneLine joins the lines of a text, and drops characters that control a terminal.
func oneLine(text string) string { return quote.OneLine(text, maxDetail) }

// hasProgram reports whether a program is installed on this machine.
func hasProgram(env []string, name string) bool {
	_, err := proc.LookPath(env, name)
	return err == nil
}
