package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Names of files in the mailbox.
const (
	QuestionFile        = "question.json"
	InvalidQuestionFile = QuestionFile + ".invalid" // the last file of that name that is no question
)

// Limits of a question.
const (
	maxQuestionSize = 64 << 10
	maxOptions      = 20
	maxOptionSize   = 1 << 10
)

// Question is a question of an agent. Its texts are untrusted, and may contain characters that control a terminal.
type Question struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"`
	Context  string   `json:"context,omitempty"`
	ReplyTo  string   `json:"reply_to,omitempty"` // id under which the process that asks waits for the answer; empty if none waits
}

// UnansweredError reports that a question cannot be asked because an earlier one is not answered yet.
type UnansweredError struct{ Earlier string }

func (e *UnansweredError) Error() string {
	earlier := quote.Shorten(e.Earlier, 200)
	return fmt.Sprintf("only one question can be asked at a time, and this one is not answered yet: %q; put all that you need to know into one question", earlier)
}

// InvalidQuestionError reports a question file that is none. It was renamed to InvalidQuestionFile, unless Kept is
// false.
type InvalidQuestionError struct {
	Err  error
	Kept bool
}

func (e *InvalidQuestionError) Error() string {
	if !e.Kept {
		return QuestionFile + " is no question: " + e.Err.Error()
	}
	return fmt.Sprintf("%s is no question: %v; it is kept as %s", QuestionFile, e.Err, InvalidQuestionFile)
}

func (e *InvalidQuestionError) Unwrap() error { return e.Err }

// TakeQuestion removes the question from the mailbox at a path and returns it; asked is false if there is none. A file that
// is no question is an *InvalidQuestionError, once: it is renamed.
func TakeQuestion(path string) (q Question, asked bool, err error) {
	box, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return q, false, nil
	}
	if err != nil {
		return q, false, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	return box.takeQuestion()
}

// TakeAwaitedQuestion is TakeQuestion for a question for whose answer a process waits. Any other file stays as it is.
func TakeAwaitedQuestion(path string) (q Question, asked bool, err error) {
	box, err := Open(path)
	if err != nil {
		return q, false, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	data, opened, err := box.read(QuestionFile, maxQuestionSize)
	if err == nil {
		q, err = ParseQuestion(data)
	}
	if err != nil || q.ReplyTo == "" {
		return Question{}, false, nil // TakeQuestion reports it
	}
	return q, true, box.removeQuestion(opened)
}

// PeekQuestion returns the question in the mailbox at a path and leaves it there; asked is false if there is none, or none
// that is valid.
func PeekQuestion(path string) (q Question, asked bool) {
	box, err := Open(path)
	if err != nil {
		return q, false
	}
	defer box.Close()
	data, _, err := box.read(QuestionFile, maxQuestionSize)
	if err == nil {
		q, err = ParseQuestion(data)
	}
	return q, err == nil
}

func (b *Box) takeQuestion() (q Question, asked bool, err error) {
	data, opened, err := b.read(QuestionFile, maxQuestionSize)
	if errors.Is(err, fs.ErrNotExist) {
		return q, false, nil
	}
	if err == nil {
		q, err = ParseQuestion(data)
	}
	if err != nil {
		invalid := &InvalidQuestionError{Err: err}
		if err := errors.Join(b.dir.RemoveAll(InvalidQuestionFile), b.dir.MoveAs(QuestionFile, b.dir, InvalidQuestionFile)); err != nil {
			return Question{}, false, errors.Join(invalid, err)
		}
		invalid.Kept = true
		return Question{}, false, invalid
	}
	return q, true, b.removeQuestion(opened)
}

// removeQuestion removes the question file that was read, unless the next question has replaced it.
func (b *Box) removeQuestion(read guard.Info) error {
	if now, err := b.dir.Lstat(QuestionFile); err == nil && now.Inode != read.Inode {
		return nil
	}
	return b.remove(QuestionFile)
}

// WriteQuestion writes a question to the mailbox. If there is one already, the error is an *UnansweredError; a file that is
// no question is replaced.
func (b *Box) WriteQuestion(q Question) error {
	data, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if len(data) > maxQuestionSize {
		return errTooLarge{maxQuestionSize}
	}
	if _, err := ParseQuestion(data); err != nil {
		return err
	}
	data = append(data, '\n')
	if err := b.writeNew(QuestionFile, data); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if earlier, _, err := b.read(QuestionFile, maxQuestionSize); err == nil {
		if earlier, err := ParseQuestion(earlier); err == nil {
			return &UnansweredError{earlier.Question}
		}
	}
	return b.write(QuestionFile, data)
}

// ParseQuestion parses the content of a question file.
func ParseQuestion(data []byte) (q Question, err error) {
	if !utf8.Valid(data) {
		return q, errors.New("it is not valid UTF-8")
	}
	if err := json.Unmarshal(data, &q); err != nil {
		return Question{}, err
	}
	q.Question = strings.TrimSpace(q.Question)
	switch {
	case q.Question == "":
		return Question{}, errors.New(`"question" is missing or empty`)
	case len(q.Options) > maxOptions:
		return Question{}, fmt.Errorf("it has %d options, more than %d", len(q.Options), maxOptions)
	case q.ReplyTo != "" && !isValidID(q.ReplyTo):
		return Question{}, errors.New(`"reply_to" is no id`)
	}
	for i, option := range q.Options {
		q.Options[i] = strings.TrimSpace(option)
		switch {
		case q.Options[i] == "":
			return Question{}, fmt.Errorf("option %d is empty", i+1)
		case len(option) > maxOptionSize:
			return Question{}, fmt.Errorf("option %d has more than %d bytes", i+1, maxOptionSize)
		}
	}
	return q, nil
}
