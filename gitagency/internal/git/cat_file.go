package git

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// CatFile is a running `git cat-file --batch-command`, the only way in which this package reads objects through git.
// Starting a git for each question takes longer than all the answers. It serves one goroutine at a time.
type CatFile struct {
	process *proc.Coprocess
	body    io.LimitedReader // rest of the content of the object whose header was read last; R is nil without content
	reading readlimit.Reading

	ended  bool   // git was waited for
	stderr string // result of End
	endErr error  // result of End
}

// OpenCatFile starts git cat-file in the common directory.
func (r *Repo) OpenCatFile(ctx context.Context) (*CatFile, error) {
	return r.OpenCatFileAt(ctx, RunOptions{})
}

// OpenCatFileAt starts git cat-file with the git directory, settings and environment of p. It takes no locks, fetches
// nothing, and ignores refs/replace: an object is the one that is stored under its id.
func (r *Repo) OpenCatFileAt(ctx context.Context, p RunOptions) (*CatFile, error) {
	p.Env = append(slices.Clone(p.Env), "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1")
	talk, err := r.StartInteractive(ctx, p, "cat-file", "--batch-command")
	if err != nil {
		return nil, err
	}
	return &CatFile{process: talk, reading: p.Reading}, nil
}

// ObjectsOnlyArgs are the settings with which git reads every object itself, and believes neither a commit-graph nor a
// multi-pack-index.
var ObjectsOnlyArgs = []string{"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false"}

// StartInteractive starts a git that answers one question after the other and changes nothing.
func (r *Repo) StartInteractive(ctx context.Context, p RunOptions, args ...string) (*proc.Coprocess, error) {
	return r.StartInteractiveInheriting(ctx, p, nil, args...)
}

// StartInteractiveInheriting starts a git that answers one question after the other. One that may change the repository
// inherits the caller's lock files, so that the lock lasts as long as that git.
func (r *Repo) StartInteractiveInheriting(ctx context.Context, p RunOptions, inherit []*os.File, args ...string) (*proc.Coprocess, error) {
	run := r.RunnerFor(p, inherit)
	talk, err := proc.StartCoprocess(ctx, p.Reading.Command(proc.Command{Argv: slices.Concat([]string{"git"}, r.GlobalArgs(p), args), Dir: run.Dir, Env: run.Env, Inherit: run.Inherit}))
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return talk, nil
}

// Limits of the questions that one goroutine may send before it reads their answers. Both fit into the smallest pipe,
// one page, which a user with many pipes gets: writing a question never waits for git, which may wait for its answers
// to be read.
const (
	maxUnanswered = 4096                                    // bytes
	MaxQuestions  = maxUnanswered / (len("contents ") + 65) // questions for the content of an object by its id
)

// Send asks git for the "info" or "contents" of the object of a name. Next reads the answer.
func (t *CatFile) Send(command, name string) error {
	return t.process.WriteString(command + " " + name + "\n")
}

// CatFileAnswer is git's answer about one object, which is Missing unless git printed "<oid> <type> <size>".
type CatFileAnswer struct {
	Object
	Size int64
	Body io.Reader // content, if that was the question
	Line string    // first line of the answer
	Err  error     // reason why there is no answer: a damaged object can end the git that reads it
}

// Next reads the first line of the next answer. Where the question was for the content, Body has to be read to its end,
// and Finish to be called, before the next answer. An error means that git answers no more.
func (t *CatFile) Next(contents bool) (CatFileAnswer, error) {
	line, err := t.process.Stdout.ReadString('\n')
	if err != nil {
		return CatFileAnswer{}, err
	}
	a := CatFileAnswer{Line: line}
	a.Object, a.Size = parseObjectHeader(line)
	t.body = io.LimitedReader{}
	if contents && !a.Missing() {
		t.body = io.LimitedReader{R: t.process.Stdout, N: a.Size}
	}
	a.Body = &t.body
	return a, nil
}

// Finish reads the newline behind content that has been read.
func (t *CatFile) Finish() error {
	if t.body.R == nil {
		return nil
	}
	if t.body.N > 0 {
		return io.ErrUnexpectedEOF
	}
	_, err := t.process.Stdout.Discard(1)
	return err
}

// CheckKnown refuses an answer that is neither an object nor that there is none.
func (a CatFileAnswer) CheckKnown() error {
	if a.Missing() && !strings.HasSuffix(a.Line, " missing\n") {
		return fmt.Errorf("git cat-file answered %q", a.Line)
	}
	return nil
}

// parseObjectHeader parses "<oid> <type> <size>". Any other line, such as "<name> missing", gives a Missing object.
func parseObjectHeader(line string) (o Object, size int64) {
	oid, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	kind, digits, ok := strings.Cut(rest, " ")
	if !ok || kind == "" || !object.IsOID(oid) {
		return Object{}, 0
	}
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || size < 0 {
		return Object{}, 0
	}
	return Object{OID: oid, Type: kind}, size
}

// pipeline asks the same of many objects and calls answered for each, in order, to read its answer. It sends questions
// ahead of the answers, so that git always has work: all at once where a pipe holds them, or else from another
// goroutine, as git reads no further question while it waits for its answers to be read. An error ends git.
func (t *CatFile) pipeline(command string, names []string, answered func(i int) error) error {
	const chunk = 16 << 10 // bytes of questions per write
	ask := func() (struct{}, error) {
		var questions strings.Builder
		for i, name := range names {
			questions.WriteString(command)
			questions.WriteByte(' ')
			questions.WriteString(name)
			questions.WriteByte('\n')
			if questions.Len() < chunk && i < len(names)-1 {
				continue
			}
			if err := t.process.WriteString(questions.String()); err != nil {
				return struct{}{}, err
			}
			questions.Reset()
		}
		return struct{}{}, nil
	}
	length := 0
	for _, name := range names {
		length += len(command) + len(name) + 2
	}
	asked := func() (struct{}, error) { return struct{}{}, nil }
	if length > maxUnanswered {
		asked = proc.Async(ask)
	} else if _, err := ask(); err != nil {
		return t.ExitError(err)
	}
	for i := range names {
		if err := answered(i); err != nil {
			_, _ = t.End() // so that the goroutine, which writes to git, ends too
			_, _ = asked()
			return err
		}
	}
	if _, err := asked(); err != nil {
		return t.ExitError(err)
	}
	return nil
}

// Lookup resolves names to objects, as Repo.Lookup does.
func (t *CatFile) Lookup(names ...string) ([]Object, error) {
	objects, _, err := t.LookupSizes(names...)
	return objects, err
}

// LookupSizes resolves names to objects, and returns the size of each in bytes.
func (t *CatFile) LookupSizes(names ...string) ([]Object, []int64, error) {
	for _, n := range names {
		if strings.ContainsAny(n, "\n\x00") {
			return nil, nil, fmt.Errorf("not an object name: %q", n)
		}
	}
	objects, sizes := make([]Object, len(names)), make([]int64, len(names))
	err := t.pipeline("info", names, func(i int) error {
		a, err := t.Next(false)
		if err != nil {
			return t.ExitError(err)
		}
		objects[i], sizes[i] = a.Object, a.Size
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return objects, sizes, nil
}

// QueryEach asks "info" or "contents" of many objects and calls visit with each answer, in order. visit reads the body
// of an answer that has one. The first error of visit ends it, and nothing more can be asked then.
func (t *CatFile) QueryEach(ctx context.Context, question string, oids []string, visit func(i int, a CatFileAnswer) error) error {
	return t.pipeline(question, oids, func(i int) error {
		visitUnlessEnded := func(a CatFileAnswer) error {
			if err := context.Cause(ctx); err != nil { // which may be why git does not answer
				return err
			}
			return visit(i, a)
		}
		a, err := t.Next(question == "contents")
		if err != nil {
			return visitUnlessEnded(CatFileAnswer{Err: t.ExitError(err)})
		}
		if err := visitUnlessEnded(a); err != nil {
			return err
		}
		if err := t.Finish(); err != nil {
			return visitUnlessEnded(CatFileAnswer{Err: t.ExitError(err)})
		}
		return nil
	})
}

// maxObject is the size of the largest object that is read into memory.
const maxObject = 256 << 20

// ReadObject returns an object of any type, and its content. The object is Missing when git does not have it.
func (t *CatFile) ReadObject(name string) (Object, []byte, error) { return t.Read(name, "", maxObject) }

// Contents returns the content of an object of a type; nil when there is none, or one of another type.
func (t *CatFile) Contents(name, kind string) ([]byte, error) {
	_, data, err := t.Read(name, kind, maxObject)
	return data, err
}

// Read returns an object, and its content when it has the type that is wanted, or any type is. Content of another type
// is skipped and never in memory: the sender of a pack decides how large it is.
func (t *CatFile) Read(name, want string, limit int64) (Object, []byte, error) {
	if err := t.Send("contents", name); err != nil {
		return Object{}, nil, t.ExitError(err)
	}
	a, err := t.Next(true)
	if err != nil {
		return Object{}, nil, t.ExitError(err)
	}
	if a.Missing() {
		return Object{}, nil, a.CheckKnown()
	}
	if want != "" && a.Type != want {
		_, err := io.Copy(io.Discard, a.Body)
		if err = errors.Join(err, t.Finish()); err != nil {
			return Object{}, nil, t.ExitError(err)
		}
		return a.Object, nil, nil
	}
	if a.Size > limit {
		return Object{}, nil, &object.TooLargeError{Kind: a.Type, OID: a.OID, Size: a.Size}
	}
	data := make([]byte, a.Size+1) // and a newline
	if _, err := io.ReadFull(t.process.Stdout, data); err != nil {
		return Object{}, nil, t.ExitError(err)
	}
	return a.Object, data[:a.Size], nil
}

// ReadTree parses a tree object; nil when git does not have it.
func (t *CatFile) ReadTree(oid []byte) (*object.Tree, error) {
	data, err := t.Contents(hex.EncodeToString(oid), "tree")
	if err != nil || data == nil {
		return nil, err
	}
	return object.ParseTree(data, len(oid))
}

// ExitError closes a git that did not answer and returns the reason: how it ended, or else err.
func (t *CatFile) ExitError(err error) error {
	if _, endErr := t.End(); endErr != nil {
		return endErr
	}
	return fmt.Errorf("git cat-file: %w", err)
}

// End waits until git has exited, and returns its standard error. An exit code other than 0 is an *Error; the error
// wraps context.Cause where the context ended it. Called again, it returns the same.
func (t *CatFile) End() (stderr string, err error) {
	if t.ended {
		return t.stderr, t.endErr
	}
	t.ended = true
	res, err := t.process.Close()
	switch exceeded := t.reading.ExceededBy(res); {
	case exceeded != nil:
		t.endErr = exceeded
	case err != nil:
		t.endErr = fmt.Errorf("git cat-file: %w", err)
	case res.ExitCode != 0:
		t.endErr = &Error{Args: []string{"cat-file"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	default:
		t.stderr = strings.TrimSpace(string(res.Stderr))
	}
	return t.stderr, t.endErr
}

// Close ends git, after an error or when all questions were answered.
func (t *CatFile) Close() { _, _ = t.End() }
