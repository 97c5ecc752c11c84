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

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// teller is a git that is asked about many objects, one after the other: to start one for each question takes
// longer than all the answers.
type teller struct{ talk *proc.Conversation }

// ask starts one.
func (r *Repo) ask(ctx context.Context) (*teller, error) { return r.askIn(ctx, "") }

// askIn starts one in another git directory.
func (r *Repo) askIn(ctx context.Context, gitDir string) (*teller, error) {
	talk, err := r.talk(ctx, place{gitDir: gitDir, env: []string{"GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1"}}, "cat-file", "--batch-command")
	if err != nil {
		return nil, err
	}
	return &teller{talk}, nil
}

// talk starts a git that answers one question after the other.
func (r *Repo) talk(ctx context.Context, p place, args ...string) (*proc.Conversation, error) {
	return r.converse(ctx, p, nil, args...)
}

// converse is talk with a git that may change something, and then keeps the lock that whoever asks holds.
func (r *Repo) converse(ctx context.Context, p place, inherit []*os.File, args ...string) (*proc.Conversation, error) {
	run := r.at(p, inherit)
	talk, err := proc.Talk(ctx, proc.Command{Argv: slices.Concat([]string{"git"}, r.globals(p), args), Dir: run.dir, Env: run.env, Inherit: run.inherit})
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return talk, nil
}

// roomToAsk is how many bytes of questions may wait for their answers: as many as any pipe holds, so that asking never
// has to wait for an answer that nobody reads yet. Who has many pipes gets small ones.
const roomToAsk = 4096

// info is what Lookup answers.
func (t *teller) info(names ...string) ([]Object, error) {
	objects, _, err := t.sized(names...)
	return objects, err
}

// sized is info, and how many bytes each of them has.
func (t *teller) sized(names ...string) ([]Object, []int64, error) {
	objects, sizes := make([]Object, 0, len(names)), make([]int64, 0, len(names))
	for len(objects) < len(names) {
		var questions strings.Builder
		asked := 0
		for _, n := range names[len(objects):] {
			if strings.ContainsAny(n, "\n\x00") || len(n) > 512 {
				return nil, nil, fmt.Errorf("not a name of an object: %q", n)
			}
			question := "info " + n + "\n"
			if questions.Len()+len(question) > roomToAsk {
				break
			}
			questions.WriteString(question)
			asked++
		}
		if err := t.talk.Ask(questions.String()); err != nil {
			return nil, nil, t.died(err)
		}
		for range asked {
			line, err := t.talk.Answers.ReadString('\n')
			if err != nil {
				return nil, nil, t.died(err)
			}
			o, size := parseInfo(line)
			objects, sizes = append(objects, o), append(sizes, size)
		}
	}
	return objects, sizes, nil
}

// parseInfo reads "<oid> <type> <size>"; of what is not there git says that it is "missing", and the like.
func parseInfo(line string) (o Object, size int64) {
	fields := strings.Fields(line)
	if len(fields) != 3 || !isOID(fields[0]) {
		return Object{}, 0
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return Object{}, 0
	}
	return Object{OID: fields[0], Type: fields[1]}, size
}

// contents is an object of a kind; nil when there is no such.
func (t *teller) contents(name, kind string) ([]byte, error) {
	o, data, err := t.object(name)
	if err != nil || o.Type != kind {
		return nil, err
	}
	return data, nil
}

// object is an object of any kind, and what it holds. It is Missing when it is not there.
func (t *teller) object(name string) (Object, []byte, error) {
	const most = 256 << 20
	if err := t.talk.Ask("contents " + name + "\n"); err != nil {
		return Object{}, nil, t.died(err)
	}
	line, err := t.talk.Answers.ReadString('\n')
	if err != nil {
		return Object{}, nil, t.died(err)
	}
	o, size := parseInfo(line)
	if o.Missing() {
		return o, nil, nil
	}
	if size > most {
		return Object{}, nil, fmt.Errorf("%s %s is %d bytes long", o.Type, o.OID, size)
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(t.talk.Answers, data); err != nil {
		return Object{}, nil, t.died(err)
	}
	return o, data[:size], nil
}

// answer is what git says of one of many objects.
type answer struct {
	Object
	size int64
	body io.Reader // what it holds, if that was asked for
	err  error     // why there is no answer: such an object can end who reads it
}

// each asks git the same of many objects, some ahead of their answers. judge reads the body of an answer, if there is one. Its
// first error is the end of it, and no more can be asked then.
func (t *teller) each(ctx context.Context, question string, oids []string, judge func(i int, a answer) error) error {
	asked := 0
	for i := range oids {
		if i == asked {
			var b strings.Builder
			for ; asked < len(oids) && b.Len()+len(question)+len(oids[asked])+2 <= roomToAsk; asked++ {
				b.WriteString(question + " " + oids[asked] + "\n")
			}
			if err := t.talk.Ask(b.String()); err != nil {
				return t.died(err)
			}
		}
		err := t.judged(question == "contents", func(a answer) error {
			if err := context.Cause(ctx); err != nil { // which may be why it says nothing
				return err
			}
			return judge(i, a)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// judged reads one answer for who judges it.
func (t *teller) judged(whole bool, judge func(a answer) error) error {
	line, err := t.talk.Answers.ReadString('\n')
	if err != nil {
		return judge(answer{err: t.died(err)})
	}
	o, size := parseInfo(line)
	body := io.LimitedReader{R: t.talk.Answers}
	if whole && !o.Missing() {
		body.N = size
	}
	err = judge(answer{Object: o, size: size, body: &body})
	if err != nil || !whole || o.Missing() {
		return err
	}
	if _, err := t.talk.Answers.Discard(1); err != nil || body.N > 0 { // the newline behind it
		return judge(answer{err: t.died(errors.Join(err, io.ErrUnexpectedEOF))})
	}
	return nil
}

// tree is the items of a tree object; there are none of one that is not there.
func (t *teller) tree(oid []byte) (map[string]item, error) {
	data, err := t.contents(hex.EncodeToString(oid), "tree")
	if err != nil || data == nil {
		return nil, err
	}
	return parseTree(data, len(oid))
}

// died says why there was no answer.
func (t *teller) died(err error) error {
	res, closeErr := t.talk.Close()
	switch {
	case closeErr != nil: // such as that it was told to end
		return fmt.Errorf("git cat-file: %w", closeErr)
	case res.ExitCode != 0:
		return &Error{Args: []string{"cat-file"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return fmt.Errorf("git cat-file: %w", err)
}

func (t *teller) close() { _, _ = t.talk.Close() } // all that was asked was answered
