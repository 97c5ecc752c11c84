package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// newDir returns the path of an empty mailbox.
func newDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTakeQuestionReadsAndRemovesIt(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if q, asked, err := TakeQuestion(dir); asked || err != nil {
		t.Fatalf("an empty mailbox: %v, %v", q, err)
	}
	if _, asked, err := TakeQuestion(filepath.Join(dir, "missing")); asked || err != nil {
		t.Fatalf("a missing mailbox: %v, %v", asked, err)
	}
	write(t, filepath.Join(dir, QuestionFile), `{"question": " which? ", "options": ["a", "b"], "context": "c", "more": [1]}`)
	q, asked, err := TakeQuestion(dir)
	if got := fmt.Sprintf("%+v", q); err != nil || !asked || got != "{Question:which? Options:[a b] Context:c ReplyTo:}" {
		t.Errorf("got %s, %v, %v", got, asked, err)
	}
	if _, asked, err := TakeQuestion(dir); asked || err != nil {
		t.Errorf("a second time: %v, %v", asked, err)
	}
}

// TestTakeQuestionKeepsInvalidFileOnce checks that whatever is in the place of a question is reported once, renamed and
// never followed.
func TestTakeQuestionKeepsInvalidFileOnce(t *testing.T) {
	t.Parallel()
	many, _ := json.Marshal(Question{Question: "q", Options: strings.Split(strings.Repeat("a ", maxOptions)+"b", " ")})
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"no JSON":           {text(`{"question`), "unexpected end"},
		"no object":         {text(`["question"]`), "cannot unmarshal"},
		"two objects":       {text(`{"question":"a"}{"question":"b"}`), "after top-level value"},
		"no question":       {text(`{"options":["a"]}`), "missing or empty"},
		"an empty question": {text(`{"question":" \n"}`), "missing or empty"},
		"a wrong type":      {text(`{"question":"a","options":"b"}`), "cannot unmarshal"},
		"not UTF-8":         {text("{\"question\":\"\xff\"}"), "not valid UTF-8"},
		"no valid id":       {text(`{"question":"a","reply_to":"../../x"}`), `"reply_to" is no id`},
		"an empty option":   {text(`{"question":"a","options":[""]}`), "option 1 is empty"},
		"many options":      {text(string(many)), "more than 20"},
		"a long option":     {text(`{"question":"a","options":["` + strings.Repeat("x", maxOptionSize+1) + `"]}`), "more than 1024 bytes"},
		"a large file":      {text(`{"question":"` + strings.Repeat("x", maxQuestionSize) + `"}`), "more than 65536 bytes"},
		"a sparse file":     {func(path string) error { return errors.Join(text("")(path), os.Truncate(path, 1<<40)) }, "more than 65536 bytes"},
		"a FIFO":            {func(path string) error { return unix.Mkfifo(path, 0o600) }, "is a named pipe"},
		"a directory":       {func(path string) error { return os.MkdirAll(path+"/deep/er", 0o700) }, "is a directory"},
		"a symbolic link":   {func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic links"},
		"a socket":          {func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, "no such device"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			for range 2 { // the second takes the place of the first
				if err := c.make(filepath.Join(dir, QuestionFile)); err != nil {
					t.Fatal(err)
				}
				var invalid *InvalidQuestionError
				if _, asked, err := TakeQuestion(dir); asked || !errors.As(err, &invalid) || !invalid.Kept || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, %v", asked, err)
				}
				if _, asked, err := TakeQuestion(dir); asked || err != nil {
					t.Errorf("again: %v, %v", asked, err)
				}
				if _, err := os.Lstat(filepath.Join(dir, InvalidQuestionFile)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("a mailbox that is a symbolic link", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t)
		write(t, filepath.Join(dir, QuestionFile), `{"question":"a"}`)
		if err := os.Symlink(dir, dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if _, asked, err := TakeQuestion(dir + "/link"); asked || err == nil {
			t.Errorf("got %v, %v", asked, err)
		}
	})
}

func text(content string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
}

func TestWriteQuestionRefusesWhatTakeQuestionWould(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	box, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if err := os.Symlink("/nowhere/at/all", filepath.Join(dir, QuestionFile)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []Question{{}, {Question: "a", Options: []string{" "}}, {Question: strings.Repeat("x", maxQuestionSize)}} {
		if err := box.WriteQuestion(q); err == nil {
			t.Errorf("%.20v was written", q)
		}
	}
	if err := box.WriteQuestion(Question{Question: "a"}); err != nil {
		t.Fatal(err)
	}
	if q, asked, err := TakeQuestion(dir); q.Question != "a" || !asked || err != nil {
		t.Errorf("got %v, %v, %v", q, asked, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// serve serves a mailbox until the test ends, by repeating the request.
func serve(t *testing.T, dir string) {
	t.Helper()
	s, err := NewServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(ctx, func(_ context.Context, r Request) Reply {
			result, _ := json.Marshal(r)
			return Reply{Result: result}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSendReturnsReply(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	serve(t, dir)
	serve(t, dir) // a second command in the sandbox; each request is handled once
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			reply, err := Send(t.Context(), dir, "repeat", i)
			if want := fmt.Sprintf(`{"verb":"repeat","args":%d}`, i); err != nil || string(reply.Result) != want {
				t.Errorf("got %s, %v", reply.Result, err)
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestSendFailsWithoutServer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if _, err := Send(t.Context(), dir, "repeat", 1); !errors.Is(err, ErrNotServed) {
		t.Errorf("got %v", err)
	}
	s, err := NewServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.bell.Close(), s.box.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Send(t.Context(), dir, "repeat", 1); !errors.Is(err, ErrNotServed) {
		t.Errorf("after it has ended: %v", err)
	}
	// One that ends before it replies.
	if s, err = NewServer(dir); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = s.bell.Read(make([]byte, 64))
		_ = errors.Join(s.bell.Close(), s.box.Close())
	}()
	if _, err := Send(t.Context(), dir, "repeat", 1); !errors.Is(err, ErrNotServed) {
		t.Errorf("after it was killed: %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestServeSurvivesHostileMailbox checks that nothing a sandbox does in its mailbox keeps later requests from being served,
// or is followed.
func TestServeSurvivesHostileMailbox(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for name, hostile := range map[string]func(path string) error{
		"a file":          text("evil"),
		"a directory":     func(path string) error { return os.MkdirAll(path+"/deep", 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		if err := hostile(filepath.Join(dir, bellFile)); err != nil {
			t.Fatal(err)
		}
		s, err := NewServer(dir)
		if err != nil {
			t.Fatalf("%s in the place of the FIFO: %v", name, err)
		}
		if err := errors.Join(s.bell.Close(), s.box.Close(), os.Remove(filepath.Join(dir, bellFile))); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, dir)
	bell, err := os.OpenFile(filepath.Join(dir, bellFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	const id = "0123456789abcdef"
	send := func(make func(string) error) {
		t.Helper()
		if err := make(filepath.Join(dir, requestName(id))); err != nil {
			t.Fatal(err)
		}
		if _, err := bell.WriteString("garbage\n../../../x\n\n" + strings.Repeat("y", 5000) + "\n" + id + "\n"); err != nil {
			t.Fatal(err)
		}
		if reply, err := Send(t.Context(), dir, "repeat", 1); err != nil || reply.Failure != nil { // after it
			t.Fatalf("got %v, %v", reply, err)
		}
	}
	for name, c := range map[string]struct {
		make func(string) error
		want string
	}{
		"no JSON":         {text("evil"), "invalid character"},
		"no verb":         {text(`{"verb":"../x"}`), "no valid verb"},
		"a large request": {text(strings.Repeat("x", maxRequestSize+1)), "more than 262144 bytes"},
		"a FIFO":          {func(path string) error { return unix.Mkfifo(path, 0o600) }, "is a named pipe"},
		"a symbolic link": {func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic links"},
		"a directory":     {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
	} {
		send(c.make)
		data, err := os.ReadFile(filepath.Join(dir, replyName(id)))
		if err != nil || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %s, %v", name, data, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, requestName(id))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it is still there", name)
		}
	}
	outside := filepath.Join(newDir(t), "file")
	write(t, outside, "mine")
	if err := errors.Join(os.Remove(filepath.Join(dir, replyName(id))), os.Symlink(outside, filepath.Join(dir, replyName(id)))); err != nil {
		t.Fatal(err)
	}
	send(text(`{"verb":"repeat"}`))
	if data, err := os.ReadFile(outside); string(data) != "mine" {
		t.Errorf("a link was followed: %s, %v", data, err)
	}
}

func TestWatchNamesNewFiles(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	names, done := make(chan string, 10), make(chan error, 1)
	go func() { done <- Watch(ctx, dir, func(name string) { names <- name }) }()
	if first := <-names; first != "" {
		t.Errorf("first %q", first)
	}
	write(t, filepath.Join(dir, "new"), "")
	if name := <-names; name != "new" && name != "" {
		t.Errorf("got %q", name)
	}
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, QuestionFile)); err != nil {
		t.Fatal(err)
	}
	if name := <-names; name != QuestionFile && name != "" {
		t.Errorf("got %q", name)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"question":"a","options":["b"],"context":"c"}`, `{"verb":"show","args":{"a":[1]}}`, `{`, "\xff", `{"question":"\u001b[2J"}`, `{"question":"a","reply_to":"0123456789abcdef"}`, `{"kind":"answered","text":"YQ=="}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := ParseQuestion(data); err == nil {
			again, err := json.Marshal(q)
			if second, parseErr := ParseQuestion(again); err != nil || parseErr != nil || fmt.Sprint(second) != fmt.Sprint(q) {
				t.Errorf("%q became %q, %v, %v", data, again, err, parseErr)
			}
			if !utf8.ValidString(q.Question+q.Context+strings.Join(q.Options, "")) || q.Question == "" || len(q.Options) > maxOptions {
				t.Errorf("%q became %v", data, q)
			}
		}
		if q, err := ParseQuestion(data); err == nil && q.ReplyTo != "" && !isValidID(q.ReplyTo) {
			t.Errorf("%q is asked by %q", data, q.ReplyTo)
		}
		if a, err := ParseAnswer(data); err == nil && a.Kind == Later {
			t.Errorf("%q became %v", data, a)
		}
		if r, err := ParseRequest(data); err == nil && (!isValidVerb(r.Verb) || r.Args != nil && !json.Valid(r.Args)) {
			t.Errorf("%q became %v", data, r)
		}
	})
}

// BenchmarkServer measures what serving requests adds to a command that sends none.
func BenchmarkServer(b *testing.B) {
	dir := newDir(b)
	for b.Loop() {
		s, err := NewServer(dir)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, nil) }()
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
