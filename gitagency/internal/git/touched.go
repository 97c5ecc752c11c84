package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"
)

// Touch is a path at which one tree has something else than another, and that is no directory in either.
type Touch struct {
	Path string
	How  TouchKind
}

// TouchKind is how a path was touched.
type TouchKind byte

// The ways there are.
const (
	Added    TouchKind = 'A'
	Deleted  TouchKind = 'D'
	Modified TouchKind = 'M'
)

// Touched says of pairs of commits or trees what the second has changed, for one git however many there are. What was
// renamed is deleted and added.
func (m *Mirror) Touched(ctx context.Context, pairs [][2]string) (map[[2]string][]Touch, error) {
	t, err := m.repo.ask(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	found := map[[2]string][]Touch{}
	w := touching{t: t, trees: map[string]map[string]item{}}
	for _, p := range pairs {
		roots, err := t.info(p[0]+"^{tree}", p[1]+"^{tree}")
		if err != nil {
			return nil, err
		}
		var ids [2][]byte
		for i, o := range roots {
			if o.Missing() {
				return nil, &IncompleteError{OID: p[i], Want: "tree"}
			}
			if ids[i], err = hex.DecodeString(o.OID); err != nil {
				return nil, err
			}
		}
		w.touches = nil
		if err := w.below("", ids[0], ids[1]); err != nil {
			return nil, err
		}
		slices.SortFunc(w.touches, func(a, b Touch) int { return strings.Compare(a.Path, b.Path) })
		found[p] = w.touches
	}
	return found, nil
}

// touching walks through two trees at once, and into nothing that both have.
type touching struct {
	t       *teller
	trees   map[string]map[string]item
	touches []Touch
}

func (w *touching) tree(oid []byte) (map[string]item, error) {
	if oid == nil {
		return nil, nil
	}
	if known, is := w.trees[string(oid)]; is {
		return known, nil
	}
	items, err := w.t.tree(oid)
	if err == nil && items == nil {
		err = &IncompleteError{OID: hex.EncodeToString(oid), Want: "tree"}
	}
	w.trees[string(oid)] = items
	return items, err
}

func (w *touching) below(dir string, from, to []byte) error {
	if bytes.Equal(from, to) {
		return nil
	}
	before, err := w.tree(from)
	if err != nil {
		return err
	}
	after, err := w.tree(to)
	if err != nil {
		return err
	}
	for name, was := range before {
		if err := w.item(dir+name, was, after[name]); err != nil {
			return err
		}
	}
	for name, is := range after {
		if _, both := before[name]; !both {
			if err := w.item(dir+name, item{}, is); err != nil {
				return err
			}
		}
	}
	return nil
}

// item compares what is at a path. A directory and a file that take each other's place are two things.
func (w *touching) item(path string, was, is item) error {
	if was.mode == is.mode && bytes.Equal(was.oid, is.oid) {
		return nil
	}
	var dirs [2][]byte
	var files [2]bool
	for i, it := range []item{was, is} {
		switch {
		case it.mode == modeTree:
			dirs[i] = it.oid
		case it.oid != nil:
			files[i] = true
		}
	}
	switch files {
	case [2]bool{true, true}:
		w.touches = append(w.touches, Touch{path, Modified})
	case [2]bool{true, false}:
		w.touches = append(w.touches, Touch{path, Deleted})
	case [2]bool{false, true}:
		w.touches = append(w.touches, Touch{path, Added})
	}
	if dirs[0] == nil && dirs[1] == nil {
		return nil
	}
	return w.below(path+"/", dirs[0], dirs[1])
}

// Apart reports whether two sides that have touched this cannot be in each other's way when they are merged: no path is
// in both, nor a directory of one a file of the other; and where one side may have renamed something, and with it the
// directory that it was in, the other has added nothing that would have to follow.
func Apart(a, b []Touch) bool {
	if moves(a) && adds(b) || moves(b) && adds(a) {
		return false
	}
	// What is below a path, and that path itself, stand in each other's way. Both lists are sorted.
	for _, p := range [][2][]Touch{{a, b}, {b, a}} {
		for _, t := range p[0] {
			at, there := slices.BinarySearchFunc(p[1], t.Path, func(t Touch, path string) int { return strings.Compare(t.Path, path) })
			if there {
				return false
			}
			below, _ := slices.BinarySearchFunc(p[1][at:], t.Path+"/", func(t Touch, path string) int { return strings.Compare(t.Path, path) })
			if at += below; at < len(p[1]) && strings.HasPrefix(p[1][at].Path, t.Path+"/") {
				return false
			}
		}
	}
	return true
}

func adds(touches []Touch) bool {
	return slices.ContainsFunc(touches, func(t Touch) bool { return t.How == Added })
}

// moves: only what is deleted can have been renamed.
func moves(touches []Touch) bool {
	return adds(touches) && slices.ContainsFunc(touches, func(t Touch) bool { return t.How == Deleted })
}
