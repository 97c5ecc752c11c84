package git

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// complete checks that all that in needs is there, and that its ref is where it has to be. That every object
// of the pack is sound, and that what it points at is there, git has seen to. It has not looked at what
// that in turn points at; and there is no telling what lies about in a repository that nothing refers to.
//
// What Old leads to is whole: it was checked when it came in, or is the repository's own. So a commit is
// whole if its first parent is, and all that is in its tree and not in the parent's is there. Git's own
// check reads every tree of the old commit first, which takes longer than everything else in a large
// repository; and git's comparison of two trees reads one directory as often as it is there, which a pack
// of some hundred bytes can make more than anybody can wait for.
func (r *Repo) complete(ctx context.Context, q place, dir string, in Incoming) (err error) {
	target := proc.Meanwhile(func() (string, error) { return r.symref(ctx, in.Ref) })
	commits, err := r.arriving(ctx, q, in)
	if to, terr := target(); terr != nil || to != "" {
		if terr == nil {
			terr = &SymrefError{Ref: in.Ref, Target: to}
		}
		return terr
	}
	if err != nil {
		return err
	}
	o, err := r.openObjects(ctx, q, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	at, err := o.kinds([]string{in.Ref, in.New})
	if err != nil {
		return err
	}
	switch {
	case at[0].OID != in.Old && !in.Stay:
		return &MovedError{Ref: in.Ref, Want: in.Old, Have: at[0].OID}
	case at[1].Type != "commit":
		return &IncompleteError{OID: in.New, Want: "commit", Have: at[1].Type}
	}
	w := treeWalk{objects: o, seen: map[string]bool{}, blobs: map[string]bool{}, size: FormatOf(in.New).size()}
	for _, oid := range in.Also {
		w.blobs[oid] = true
	}
	for _, c := range commits {
		if err := w.commit(c); err != nil {
			return err
		}
	}
	blobs := make([]string, 0, len(w.blobs))
	for oid := range w.blobs {
		blobs = append(blobs, oid)
	}
	found, err := o.kinds(blobs)
	if err != nil {
		return err
	}
	for i, f := range found {
		if f.Type != "blob" {
			return &IncompleteError{OID: blobs[i], Want: "blob", Have: f.Type}
		}
	}
	return nil
}

// symref is the ref that another stands for; empty when it stands for none.
func (r *Repo) symref(ctx context.Context, ref string) (string, error) {
	if r.loose(ref) != "" {
		return "", nil
	}
	out, err := r.read(ctx, place{}, "symbolic-ref", "--quiet", ref)
	if exitedWith(err, 1) {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// arrival is a commit that the ref did not lead to before.
type arrival struct{ tree, parent string }

// manyArrivals is from where on it pays to ask every ref of the repository what it leads to.
const manyArrivals = 200

// arriving lists them. Each of them can be read, and so can everything between them and what is here.
func (r *Repo) arriving(ctx context.Context, q place, in Incoming) ([]arrival, error) {
	list := func(not ...string) ([]arrival, error) {
		out, err := r.read(ctx, q, slices.Concat([]string{"rev-list", "--no-commit-header", "--format=%T %P", in.New, "--not"}, not)...)
		if err != nil {
			return nil, err
		}
		var found []arrival
		for line := range strings.Lines(string(out)) {
			words := append(strings.Fields(line), "", "")
			if !isOID(words[0]) {
				return nil, fmt.Errorf("git rev-list answered %q", line)
			}
			found = append(found, arrival{words[0], words[1]})
		}
		return found, nil
	}
	if in.Old == "" {
		return list("--all")
	}
	found, err := list(in.Old)
	if err == nil && len(found) > manyArrivals {
		return list(in.Old, "--all")
	}
	return found, err
}

// treeWalk collects the blobs of trees that are new, and reads each such tree once.
type treeWalk struct {
	objects *objectReader
	seen    map[string]bool
	blobs   map[string]bool
	size    int
}

// pair is a tree to look at, and one that is known to be whole and probably much like it, or none.
type pair struct{ tree, known string }

func (w *treeWalk) commit(c arrival) error {
	known := ""
	if c.parent != "" {
		known = c.parent + "^{tree}"
	}
	todo := []pair{{c.tree, known}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.tree == p.known || w.seen[p.tree] {
			continue
		}
		w.seen[p.tree] = true
		more, err := w.tree(p)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// tree looks at one tree and returns those in it that are not in the known one.
func (w *treeWalk) tree(p pair) ([]pair, error) {
	content, err := w.objects.tree(p.tree)
	if err != nil {
		return nil, err
	}
	var known []byte
	if p.known != "" {
		if known, err = w.objects.tree(p.known); err != nil {
			return nil, err
		}
	}
	var todo []pair
	old, known, _ := nextInTree(known, w.size)
	for len(content) > 0 {
		var e treeEntry
		var ok bool
		if e, content, ok = nextInTree(content, w.size); !ok {
			return nil, fmt.Errorf("tree %s is damaged", p.tree)
		}
		for old.name != "" && old.before(e) {
			old, known, _ = nextInTree(known, w.size) // damaged or not, it only serves to spare work
		}
		same := old.name == e.name && old.isTree == e.isTree
		switch {
		case e.gitlink || same && old.oid == e.oid && !old.gitlink:
		case e.isTree && same:
			todo = append(todo, pair{hex.EncodeToString([]byte(e.oid)), hex.EncodeToString([]byte(old.oid))})
		case e.isTree:
			todo = append(todo, pair{hex.EncodeToString([]byte(e.oid)), ""})
		default:
			w.blobs[hex.EncodeToString([]byte(e.oid))] = true
		}
	}
	return todo, nil
}

type treeEntry struct {
	name, oid       string
	mode            uint32
	isTree, gitlink bool
}

// before is git's order: a directory sorts as if its name ended in a slash.
func (e treeEntry) before(f treeEntry) bool {
	a, b := e.name, f.name
	if e.isTree {
		a += "/"
	}
	if f.isTree {
		b += "/"
	}
	return a < b
}

// nextInTree reads the first entry of what is left of a tree: "<mode> <name>" NUL object.
func nextInTree(data []byte, size int) (e treeEntry, rest []byte, ok bool) {
	mode, after, ok := bytes.Cut(data, []byte{' '})
	end := bytes.IndexByte(after, 0)
	if !ok || end < 1 || len(after) < end+1+size {
		return treeEntry{}, nil, false
	}
	m, err := strconv.ParseUint(string(mode), 8, 32)
	if err != nil {
		return treeEntry{}, nil, false
	}
	const kind = 0o170000
	return treeEntry{
		name: string(after[:end]), oid: string(after[end+1 : end+1+size]),
		mode: uint32(m), isTree: m&kind == modeTree, gitlink: m&kind == modeGitlink,
	}, after[end+1+size:], true
}

// objectReader is one git that answers many questions, one after the other.
type objectReader struct {
	git    *proc.Fed
	out    *os.File
	answer *bufio.Reader
	said   string // where its complaints are
	stop   func() bool
}

// openObjects starts it. dir is where it may leave a file.
func (r *Repo) openObjects(ctx context.Context, p place, dir string) (*objectReader, error) {
	p.env = append(slices.Clone(p.env), "GIT_OPTIONAL_LOCKS=0")
	run := r.at(p, nil)
	said := filepath.Join(dir, "said")
	stderr, err := os.Create(said)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	git, err := proc.Feed(proc.Command{
		Argv: slices.Concat([]string{"git"}, r.globals(p), []string{"cat-file", "--batch-command"}),
		Dir:  run.dir, Env: run.env,
	}, in, stderr)
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	o := &objectReader{git: git, out: out, answer: bufio.NewReaderSize(out, 1<<16), said: said}
	// Without anybody to read its answers, or anything more to ask, git ends.
	o.stop = context.AfterFunc(ctx, func() { _ = git.End(); _ = out.Close() })
	return o, nil
}

func (o *objectReader) close() error {
	ended := !o.stop()
	err := errors.Join(o.git.End(), o.out.Close())
	if _, waitErr := o.git.Wait(); ended {
		return waitErr // all the rest is how it was ended
	} else {
		return errors.Join(err, waitErr)
	}
}

// kinds asks what names stand for.
func (o *objectReader) kinds(names []string) ([]Object, error) {
	asked := proc.Meanwhile(func() (struct{}, error) {
		ask := bufio.NewWriterSize(o.git, 1<<14)
		for _, name := range names {
			fmt.Fprintf(ask, "info %s\n", name)
		}
		return struct{}{}, ask.Flush()
	})
	objects := make([]Object, len(names))
	for i, name := range names {
		object, _, err := o.head(name)
		if err != nil {
			_ = o.git.End() // it may not be read from any more, and then never would be asked
			_, _ = asked()
			return nil, err
		}
		objects[i] = object
	}
	_, err := asked()
	return objects, err
}

// head reads the line that begins an answer: "<oid> <type> <size>" or "<name> missing".
func (o *objectReader) head(name string) (Object, int64, error) {
	line, err := o.answer.ReadString('\n')
	if err != nil {
		complaint, _ := os.ReadFile(o.said)
		return Object{}, 0, fmt.Errorf("git cat-file: %w", errors.Join(err, errors.New(lastWords(string(complaint)))))
	}
	words := strings.Fields(line)
	if len(words) == 2 && words[0] == name {
		return Object{}, 0, nil
	}
	if len(words) != 3 || !isOID(words[0]) {
		return Object{}, 0, fmt.Errorf("git cat-file answered %q", line)
	}
	size, err := strconv.ParseInt(words[2], 10, 64)
	return Object{OID: words[0], Type: words[1]}, size, err
}

// tree reads a tree.
func (o *objectReader) tree(name string) ([]byte, error) {
	if _, err := fmt.Fprintf(o.git, "contents %s\n", name); err != nil {
		return nil, err
	}
	object, size, err := o.head(name)
	if err != nil {
		return nil, err
	}
	if object.Type != "tree" {
		return nil, &IncompleteError{OID: name, Want: "tree", Have: object.Type}
	}
	content := make([]byte, size+1) // and a newline
	if _, err := io.ReadFull(o.answer, content); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	return content[:size], nil
}
