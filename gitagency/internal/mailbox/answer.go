package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Answer is the reply to a question for whose answer a process waits.
type Answer struct {
	Kind AnswerKind `json:"kind"`
	Text []byte     `json:"text,omitempty"` // the answer, or why it was refused
}

// AnswerKind says what a process that asked learns.
type AnswerKind string

// The kinds of answers.
const (
	Later    AnswerKind = ""         // the question was passed on, and its answer is not waited for
	Answered AnswerKind = "answered" // Text is the answer
	Expired  AnswerKind = "expired"  // no answer came in time; the question stays
	Refused  AnswerKind = "refused"  // the question was not passed on; Text says why
)

func answerName(id string) string { return "answer-" + id + ".json" }

// askerName returns the name of the file on which a process that waits for an answer holds an exclusive flock(2).
func askerName(id string) string { return "asking-" + id }

// Ask asks a question from inside of the sandbox, and waits for the reply until ctx ends. Where the mailbox cannot be watched,
// the kind of the answer is Later.
func Ask(ctx context.Context, path string, q Question) (answer Answer, err error) {
	box, err := Open(path)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	q.ReplyTo = newID()
	stop, err := box.beginWaiting(q.ReplyTo)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var asked, replied bool
	var failed error
	err = Watch(waiting, path, func(name string) {
		if !asked { // now that the reply cannot be missed
			asked = true
			failed = box.WriteQuestion(q)
		}
		if failed == nil && !replied && (name == "" || name == answerName(q.ReplyTo)) { // it may be called again after cancel
			answer, replied, failed = box.takeAnswer(q.ReplyTo)
		}
		if failed != nil || replied {
			cancel()
		}
	})
	switch {
	case !asked: // such as too many watches of the user
		q.ReplyTo = ""
		return Answer{}, box.WriteQuestion(q)
	case failed != nil:
		return Answer{}, failed
	case replied:
		return answer, nil
	case err != nil:
		return Answer{}, err
	}
	return Answer{}, context.Cause(ctx)
}

// beginWaiting makes the file of a process that waits for an answer, and locks it until stop is called or the process ends.
func (b *Box) beginWaiting(id string) (stop func() error, err error) {
	f, err := b.dir.CreateFile(askerName(id), 0o600)
	if err != nil {
		return nil, err
	}
	stop = func() error { return errors.Join(b.remove(askerName(id)), f.Close()) }
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", askerName(id), err), stop())
	}
	return stop, nil
}

// takeAnswer removes the answer from the mailbox and returns it; replied is false if there is none yet.
func (b *Box) takeAnswer(id string) (answer Answer, replied bool, err error) {
	data, _, err := b.read(answerName(id), maxReplySize)
	if errors.Is(err, fs.ErrNotExist) {
		return answer, false, nil
	}
	if err == nil {
		answer, err = ParseAnswer(data)
	}
	return answer, err == nil, errors.Join(err, b.remove(answerName(id)))
}

// ParseAnswer parses the content of an answer file.
func ParseAnswer(data []byte) (answer Answer, err error) {
	if err := json.Unmarshal(data, &answer); err != nil {
		return Answer{}, err
	}
	switch answer.Kind {
	case Answered, Expired, Refused:
		return answer, nil
	}
	return Answer{}, fmt.Errorf("the answer has no valid kind: %q", answer.Kind)
}

// WriteAnswer writes the reply to a question into the mailbox at a path. Something else of its name, which the sandbox has
// put there, is replaced and never followed; a directory is refused.
func WriteAnswer(path, id string, answer Answer) (err error) {
	if !isValidID(id) {
		return fmt.Errorf("invalid id %q", id)
	}
	data, err := json.Marshal(answer)
	if err == nil && len(data) > maxReplySize {
		err = errTooLarge{maxReplySize}
	}
	if err != nil {
		return err
	}
	box, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	return box.write(answerName(id), data)
}

// IsAwaited reports whether a process waits for the answer to the question with an id.
func IsAwaited(path, id string) (awaited bool, err error) {
	if !isValidID(id) {
		return false, nil
	}
	box, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) { // removed by the sandbox: a process that waited there has failed
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	f, err := box.dir.OpenFile(askerName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
