package mailbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// awaitQuestion waits until a process has asked, and takes its question.
func awaitQuestion(t *testing.T, dir string) Question {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var found Question
	err := Watch(ctx, dir, func(string) {
		q, asked, err := TakeAwaitedQuestion(dir)
		if err != nil {
			t.Error(err)
		}
		if asked {
			found = q
			cancel()
		}
	})
	if err != nil || found.Question == "" {
		t.Fatalf("no question: %v", err)
	}
	return found
}

type reply struct {
	answer Answer
	err    error
}

func ask(ctx context.Context, dir, question string) <-chan reply {
	replies := make(chan reply, 1)
	go func() {
		answer, err := Ask(ctx, dir, Question{Question: question})
		replies <- reply{answer, err}
	}()
	return replies
}

func TestAskReturnsReply(t *testing.T) {
	t.Parallel()
	for _, want := range []Answer{{Answered, []byte("a\x00\xff\n")}, {Expired, []byte("too late")}, {Refused, nil}} {
		dir := newDir(t)
		replies := ask(t.Context(), dir, "which?")
		q := awaitQuestion(t, dir)
		if awaited, err := IsAwaited(dir, q.ReplyTo); !awaited || err != nil {
			t.Errorf("while it waits: %v, %v", awaited, err)
		}
		if err := WriteAnswer(dir, "0123456789abcdef", Answer{Kind: Answered, Text: []byte("of another")}); err != nil {
			t.Error(err)
		}
		if err := WriteAnswer(dir, q.ReplyTo, want); err != nil {
			t.Error(err)
		}
		write(t, filepath.Join(dir, "more"), "") // further events come with the one of the answer
		if r := <-replies; r.err != nil || r.answer.Kind != want.Kind || string(r.answer.Text) != string(want.Text) {
			t.Errorf("got %+v, want %+v", r, want)
		}
		if awaited, err := IsAwaited(dir, q.ReplyTo); awaited || err != nil {
			t.Errorf("after it: %v, %v", awaited, err)
		}
		if left, err := os.ReadDir(dir); len(left) != 2 { // the answer of the other, and more
			t.Errorf("left %v, %v", left, err)
		}
	}
}

func TestAskEndsWithContext(t *testing.T) {
	t.Parallel()
	dir, gone := newDir(t), errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	replies := ask(ctx, dir, "which?")
	q := awaitQuestion(t, dir)
	cancel(gone)
	if r := <-replies; !errors.Is(r.err, gone) {
		t.Errorf("got %+v", r)
	}
	if awaited, err := IsAwaited(dir, q.ReplyTo); awaited || err != nil {
		t.Errorf("after it: %v, %v", awaited, err)
	}
}

func TestSecondQuestionIsRefused(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	box, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if err := box.WriteQuestion(Question{Question: "first " + strings.Repeat("é", 500)}); err != nil {
		t.Fatal(err)
	}
	for _, second := range []error{box.WriteQuestion(Question{Question: "second"}), (<-ask(t.Context(), dir, "second")).err} {
		var unanswered *UnansweredError
		if !errors.As(second, &unanswered) || !strings.Contains(second.Error(), `not answered yet: "first é`) || len(second.Error()) > 500 {
			t.Errorf("got %v", second)
		}
	}
	if q, asked, err := TakeQuestion(dir); !strings.HasPrefix(q.Question, "first ") || !asked || err != nil {
		t.Errorf("got %v, %v, %v", q, asked, err)
	}
	if err := box.WriteQuestion(Question{Question: "second"}); err != nil {
		t.Errorf("after the first was taken: %v", err)
	}
}

func TestTakeAwaitedQuestionLeavesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	path := filepath.Join(dir, QuestionFile)
	if _, asked, err := TakeAwaitedQuestion(dir); asked || err != nil {
		t.Errorf("an empty mailbox: %v, %v", asked, err)
	}
	for name, hostile := range map[string]func(string) error{
		"no id":           text(`{"question":"a"}`),
		"no valid id":     text(`{"question":"a","reply_to":"x/y"}`),
		"no JSON":         text(`{`),
		"a FIFO":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a symbolic link": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a sparse file":   func(path string) error { return errors.Join(text("")(path), os.Truncate(path, 1<<40)) },
	} {
		if err := hostile(path); err != nil {
			t.Fatal(err)
		}
		if _, asked, err := TakeAwaitedQuestion(dir); asked || err != nil {
			t.Errorf("%s: %v, %v", name, asked, err)
		}
		if err := os.Remove(path); err != nil {
			t.Errorf("%s was taken away: %v", name, err)
		}
	}
}

// TestAnswerIsWrittenPastHostileFiles checks that nothing a sandbox puts in the place of an answer, or of the file of a
// process that waits, is followed, blocks or is taken for a process that waits.
func TestAnswerIsWrittenPastHostileFiles(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef"
	outside := filepath.Join(newDir(t), "file")
	write(t, outside, "mine")
	for name, c := range map[string]struct {
		make    func(path string) error
		refused bool
	}{
		"a symbolic link": {func(path string) error { return os.Symlink(outside, path) }, false},
		"a hard link":     {func(path string) error { return os.Link(outside, path) }, false},
		"a dead link":     {func(path string) error { return os.Symlink("/nowhere/at/all", path) }, false},
		"a FIFO":          {func(path string) error { return unix.Mkfifo(path, 0o600) }, false},
		"a large file":    {func(path string) error { return errors.Join(text("")(path), os.Truncate(path, 1<<40)) }, false},
		"a file":          {text(`{"kind":"answered","text":"Zm9yZ2Vk"}`), false},
		"a directory":     {func(path string) error { return os.MkdirAll(path+"/deep", 0o700) }, true},
	} {
		dir := newDir(t)
		if err := errors.Join(c.make(filepath.Join(dir, answerName(id))), c.make(filepath.Join(dir, askerName(id)))); err != nil {
			t.Fatal(err)
		}
		if awaited, _ := IsAwaited(dir, id); awaited {
			t.Errorf("%s waits for an answer", name)
		}
		err := WriteAnswer(dir, id, Answer{Kind: Answered, Text: []byte("true")})
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if data, err := os.ReadFile(outside); string(data) != "mine" {
			t.Fatalf("%s: a link was followed: %s, %v", name, data, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
		box, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if answer, replied, _ := box.takeAnswer(id); !c.refused && (!replied || string(answer.Text) != "true") {
			t.Errorf("%s: %v, %v", name, answer, replied)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := WriteAnswer(newDir(t), "../x", Answer{Kind: Answered}); err == nil {
		t.Error("an id that is a path was accepted")
	}
	if awaited, err := IsAwaited(filepath.Join(newDir(t), "missing"), id); awaited || err != nil {
		t.Errorf("a missing mailbox: %v, %v", awaited, err)
	}
}
