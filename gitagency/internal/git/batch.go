package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// batch is a git that is asked for objects and answers with their content, in order, one after another.
type batch struct {
	questions *os.File
	answers   *bufio.Reader
	body      io.LimitedReader                // of the object that was answered last
	end       func() (said string, err error) // waits until it has ended; said is what it complained of meanwhile
}

// mostAsked is how many questions may wait for their answer: as many as a pipe holds in any case, so that asking
// never has to wait for an answer that nobody reads.
const mostAsked = 4096 / (64 + 1)

// openBatch starts one. Objects are what is stored under their names: none is replaced by another, and none is fetched.
func (r *Repo) openBatch(ctx context.Context) (*batch, error) {
	p := place{
		env:    []string{"GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"},
		config: []string{"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false"},
	}
	questions, ask, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	read, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, questions.Close(), ask.Close())
	}
	run, args := r.at(p, nil), []string{"cat-file", "--batch"}
	result := proc.Meanwhile(func() (proc.Result, error) {
		res, err := proc.Run(ctx, proc.Command{
			Argv: slices.Concat([]string{"git"}, r.globals(p), args), Dir: run.dir, Env: run.env, Stdin: questions, Stdout: answers,
		})
		return res, errors.Join(err, questions.Close(), answers.Close()) // now whoever reads answers hears that there are no more
	})
	return &batch{
		questions: ask,
		answers:   bufio.NewReaderSize(read, 1<<16),
		end: func() (string, error) {
			closeErr := errors.Join(ask.Close(), read.Close())
			res, err := result()
			switch {
			case err != nil:
				return "", fmt.Errorf("git %s: %w", args[0], err)
			case res.ExitCode != 0:
				return "", &Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
			}
			return strings.TrimSpace(string(res.Stderr)), closeErr
		},
	}, nil
}

func (b *batch) ask(oid string) error {
	_, err := b.questions.WriteString(oid + "\n")
	return err
}

// errGone is an object that git does not have.
var errGone = errors.New("missing")

// next begins to read the next answer. It is errGone when there is no such object; any other error means that git
// answers no more. What is left of the answer before has to be read first.
func (b *batch) next() (oid, kind string, size int64, body io.Reader, err error) {
	line, err := b.answers.ReadString('\n')
	if err != nil {
		return "", "", 0, nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	words := strings.Fields(line)
	if len(words) == 2 && words[1] == "missing" {
		return words[0], "", 0, nil, errGone
	}
	if len(words) != 3 || !isOID(words[0]) {
		return "", "", 0, nil, fmt.Errorf("git cat-file answered %q", line)
	}
	if size, err = strconv.ParseInt(words[2], 10, 64); err != nil || size < 0 {
		return "", "", 0, nil, fmt.Errorf("git cat-file answered %q", line)
	}
	b.body = io.LimitedReader{R: b.answers, N: size}
	return words[0], words[1], size, &b.body, nil
}

// finish reads past the end of an answer whose body has been read.
func (b *batch) finish() error {
	if b.body.N > 0 {
		return io.ErrUnexpectedEOF
	}
	_, err := b.answers.Discard(1)
	return err
}
