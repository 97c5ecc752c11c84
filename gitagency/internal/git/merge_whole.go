package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// part is an object that came with a commit: a file, a directory, or the commit itself.
type part struct {
	commit, path string // empty for the commit
	oid, kind    string
	size         int64
	done         bool // it is what it has to be
}

// fault is what is wrong with it, for who has to mend it.
func (p part) fault(why string) error {
	if p.path == "" {
		return &UnsoundCommitError{Commit: p.commit, Why: why}
	}
	return fmt.Errorf("commit %.12s: %w", p.commit, &UnsoundError{Path: p.path, Why: why})
}

// mostRead is how many bytes of what came with commits are read to see that they are what their names say.
const mostRead = 4 << 20

// whole refuses commits of which something is not there that came with them, or is of another kind than the tree says, an
// *UnsoundError. Who has no walls can write such, and git takes them: then the branch leads to what nobody can check out.
//
// What is there is read too, and has to be what its name says, as far as all of it is small: commits and directories, then
// files in the order of the commits, until mostRead bytes have been. Of the rest only that git finds it, and takes it for a
// file. Not looked at is what one of the parents of a commit has at the same path, nor anything that was there before the
// first of them. In a partial clone files may be missing, and then also such as never were anywhere.
func (m *Merger) whole(ctx context.Context, commits []written) error {
	c := &collector{m: m, seen: map[string]bool{}}
	for _, one := range commits {
		if err := c.commit(ctx, one); err != nil {
			return err
		}
	}
	m.talking.Lock()
	defer m.talking.Unlock()
	isOurs := func(p part) bool { _, is := m.pending[string(rawID(p.oid))]; return is }
	files, read := slices.DeleteFunc(c.files, isOurs), slices.DeleteFunc(c.others, isOurs)
	if len(files)+len(read) == 0 {
		return nil
	}
	left := int64(mostRead)
	open := &opener{format: m.format}
	var err error
	for _, list := range []*[]part{&read, &files} {
		for i := range *list {
			p := &(*list)[i]
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if p.done, err = m.readSelf(open, p, &left); err != nil {
				return err
			}
		}
		*list = slices.DeleteFunc(*list, func(p part) bool { return p.done })
	}
	if len(files)+len(read) == 0 {
		return nil
	}
	partial := m.real.promised()
	t, release, err := m.reader(ctx, partial)
	if err != nil {
		return err
	}
	defer release()
	err = m.read(ctx, t, files, read, left, partial)
	if err != nil || partial { // who knows what it would answer next; or it is of no use to others
		t.close()
		if t == m.teller {
			m.teller = nil
		}
	}
	return err
}

// readSelf reads an object that has a file to itself, as nearly all have that are new: git takes several times as long. It is
// not done where git has to be asked.
func (m *Merger) readSelf(open *opener, p *part, left *int64) (done bool, err error) {
	data, err := durable.ReadFile(m.real.loosePath(p.oid), *left)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err := os.Lstat(m.repo.loosePath(p.oid))
		return err == nil, nil // what we made is what it says
	case err != nil:
		if fi, statErr := os.Lstat(m.real.loosePath(p.oid)); statErr == nil && !fi.Mode().IsRegular() { // git would wait for a pipe
			return false, p.fault("it is no file")
		}
		return false, nil
	}
	size, why := open.check(data, p, *left)
	if *left -= max(size, 0); why != "" {
		return false, p.fault(why)
	}
	return size >= 0, nil
}

// opener reads the files of objects, one after the other.
type opener struct {
	format ObjectFormat
	in     bytes.Reader
	z      io.ReadCloser
	out    bytes.Buffer
}

// check makes sure that data is the file of an object. The size is below zero where it has more than may be read.
func (o *opener) check(data []byte, p *part, left int64) (size int64, why string) {
	const broken, header = "it is damaged: nobody can read it", 64
	o.in.Reset(data)
	o.out.Reset()
	var err error
	if o.z == nil {
		o.z, err = zlib.NewReader(&o.in)
	} else {
		err = o.z.(zlib.Resetter).Reset(&o.in, nil)
	}
	if err != nil {
		o.z = nil
		return 0, broken
	}
	_, err = o.out.ReadFrom(io.LimitReader(o.z, left+header))
	head, content, ok := bytes.Cut(o.out.Bytes(), []byte{0})
	kind, digits, _ := strings.Cut(string(head), " ")
	size, parseErr := strconv.ParseInt(digits, 10, 64)
	switch {
	case !ok || parseErr != nil || size < 0:
		return 0, broken
	case kind != p.kind:
		return 0, "it is to be a " + p.kind + " and is a " + kind
	case size > left:
		return -1, ""
	case err != nil || int64(len(content)) != size:
		return 0, broken
	case hexID(o.format.sum(o.out.Bytes())) != p.oid:
		return 0, "it is damaged: it is not what its name says"
	}
	return size, ""
}

// reader is a git that reads objects. That of a partial clone would want to fetch those that are missing, unless it does
// not know that it is one.
func (m *Merger) reader(ctx context.Context, partial bool) (t *teller, release func(), err error) {
	if partial {
		t, err = m.repo.askIn(ctx, m.dir)
		return t, func() {}, err
	}
	return m.listening(ctx)
}

// promised reports whether it is a partial clone: what is missing a remote has promised to have.
func (r *Repo) promised() bool {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "objects", "pack"))
	return err == nil && slices.ContainsFunc(found, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".promisor" })
}

// read asks for files, and reads what is small enough.
func (m *Merger) read(ctx context.Context, t *teller, files, read []part, left int64, partial bool) error {
	if err := sized(ctx, t, files, partial); err != nil {
		return err
	}
	for _, p := range files {
		if p.size < 0 {
			continue
		}
		if left -= p.size; left < 0 {
			break
		}
		read = append(read, p)
	}
	return m.proven(ctx, t, read)
}

// collector finds what came with commits.
type collector struct {
	m             *Merger
	seen          map[string]bool // by kind and id
	others, files []part          // commits and directories; and files
}

func (c *collector) commit(ctx context.Context, one written) error {
	c.others = append(c.others, part{commit: one.oid, oid: one.oid, kind: "commit"})
	var known [][]byte
	for _, parent := range one.parents {
		tree, err := c.m.treeOf(ctx, parent)
		if errors.As(err, new(*IncompleteError)) { // where the history of a shallow clone ends
			continue
		}
		if err != nil {
			return err
		}
		known = append(known, rawID(tree))
	}
	return c.tree(ctx, part{commit: one.oid, path: ".", oid: one.tree, kind: "tree"}, known)
}

func (c *collector) tree(ctx context.Context, p part, known [][]byte) error {
	raw := rawID(p.oid)
	if c.seen[p.kind+p.oid] || slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, raw) }) {
		return nil
	}
	c.seen[p.kind+p.oid] = true
	dir, err := c.m.twig(ctx, raw)
	if err != nil {
		return p.fault(err.Error())
	}
	c.others = append(c.others, p)
	var like []*twig
	for _, k := range known {
		t, err := c.m.twig(ctx, k)
		if err != nil {
			return err
		}
		like = append(like, t)
	}
	at := strings.TrimPrefix(p.path+"/", "./")
	for _, it := range dir.items {
		var below [][]byte
		there := false
		for _, t := range like {
			had, has := t.find(string(it.name))
			if there = there || has && bytes.Equal(had.oid, it.oid) && (had.mode == modeTree) == (it.mode == modeTree); has && had.mode == modeTree {
				below = append(below, had.oid)
			}
		}
		next := part{commit: p.commit, path: at + string(it.name), oid: hexID(it.oid), kind: "blob"}
		switch {
		case there || it.mode == modeGitlink:
		case it.mode == modeTree:
			next.kind = "tree"
			if err := c.tree(ctx, next, below); err != nil {
				return err
			}
		case !c.seen[next.kind+next.oid]:
			c.seen[next.kind+next.oid] = true
			c.files = append(c.files, next)
		}
	}
	return nil
}

// sized asks git for the sizes of files. One that is missing, and may be, has none.
func sized(ctx context.Context, t *teller, files []part, partial bool) error {
	return t.each(ctx, "info", files, func(p *part, o Object, size int64, _ io.Reader) string {
		switch {
		case o.Missing() && partial:
			p.size = -1
		case o.Missing():
			return "it is not there, or nobody can read it"
		case o.Type != p.kind:
			return "it is to be a " + p.kind + " and is a " + o.Type
		default:
			p.size = size
		}
		return ""
	})
}

// proven reads objects, and makes sure that they are what their names say.
func (m *Merger) proven(ctx context.Context, t *teller, parts []part) error {
	return t.each(ctx, "contents", parts, func(p *part, o Object, size int64, body io.Reader) string {
		h := m.format.hash()
		fmt.Fprintf(h, "%s %d\x00", p.kind, size)
		_, err := io.Copy(h, body)
		switch {
		case err != nil || o.Missing():
			return "it is damaged: nobody can read it"
		case o.Type != p.kind || hexID(h.Sum(nil)) != p.oid:
			return "it is damaged: it is not what its name says"
		}
		return ""
	})
}

// each asks git something about many objects, some ahead of their answers. judge reads the body of an answer, if there is
// one, and says what is wrong: that is the end of it, and no more can be asked.
func (t *teller) each(ctx context.Context, question string, parts []part, judge func(p *part, o Object, size int64, body io.Reader) string) error {
	asked := 0
	for i := range parts {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if i == asked {
			var b strings.Builder
			for ; asked < len(parts) && b.Len()+len(question)+len(parts[asked].oid)+2 <= roomToAsk; asked++ {
				b.WriteString(question + " " + parts[asked].oid + "\n")
			}
			if err := t.talk.Ask(b.String()); err != nil {
				return t.died(err)
			}
		}
		if why := t.answer(question == "contents", &parts[i], judge); why != "" {
			return parts[i].fault(why)
		}
	}
	return nil
}

// answer reads one answer, and says what is wrong with it.
func (t *teller) answer(whole bool, p *part, judge func(p *part, o Object, size int64, body io.Reader) string) string {
	line, err := t.talk.Answers.ReadString('\n')
	if err != nil {
		return t.died(err).Error()
	}
	o, size := parseInfo(line)
	body := io.LimitedReader{R: t.talk.Answers}
	if whole && !o.Missing() {
		body.N = size
	}
	why := judge(p, o, size, &body)
	if why != "" || !whole || o.Missing() {
		return why
	}
	if _, err := t.talk.Answers.Discard(1); err != nil || body.N > 0 { // the newline behind it
		return t.died(errors.Join(err, io.ErrUnexpectedEOF)).Error()
	}
	return ""
}
