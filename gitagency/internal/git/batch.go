package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// batch is a git that is asked for objects and answers with their content, in order, one after another.
type batch struct {
	talk *proc.Conversation
	body io.LimitedReader // of the object that was answered last
}

// mostAsked is how many ids may wait for their answer: see roomToAsk.
const mostAsked = roomToAsk / (64 + 1)

// openBatch starts one. Objects are what is stored under their names: none is replaced by another, and none is fetched.
func (r *Repo) openBatch(ctx context.Context) (*batch, error) {
	p := place{
		env:    []string{"GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1"},
		config: []string{"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false"},
	}
	talk, err := r.talk(ctx, p, "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	return &batch{talk: talk}, nil
}

func (b *batch) ask(oid string) error { return b.talk.Ask(oid + "\n") }

// errGone is an object that git does not have.
var errGone = errors.New("missing")

// next begins to read the next answer. It is errGone when there is no such object; any other error means that git
// answers no more. What is left of the answer before has to be read first.
func (b *batch) next() (kind string, size int64, body io.Reader, err error) {
	line, err := b.talk.Answers.ReadString('\n')
	if err != nil {
		return "", 0, nil, err
	}
	o, size := parseInfo(line)
	switch {
	case strings.HasSuffix(line, " missing\n"):
		return "", 0, nil, errGone
	case o.Missing():
		return "", 0, nil, fmt.Errorf("git cat-file answered %q", line)
	}
	b.body = io.LimitedReader{R: b.talk.Answers, N: size}
	return o.Type, size, &b.body, nil
}

// finish reads past the end of an answer whose body has been read.
func (b *batch) finish() error {
	if b.body.N > 0 {
		return io.ErrUnexpectedEOF
	}
	_, err := b.talk.Answers.Discard(1)
	return err
}

// end waits until git has ended; said is what it complained of meanwhile. One that failed is an *Error.
func (b *batch) end() (said string, err error) {
	res, err := b.talk.Close()
	switch {
	case err != nil:
		return "", fmt.Errorf("git cat-file: %w", err)
	case res.ExitCode != 0:
		return "", &Error{Args: []string{"cat-file"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return strings.TrimSpace(string(res.Stderr)), nil
}
