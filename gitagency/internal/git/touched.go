package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"
)

// TouchedPath is a path at which two trees differ and at least one has a file, symlink or submodule.
type TouchedPath struct {
	Path string
	Kind TouchKind
}

// TouchKind is the kind of a change.
type TouchKind byte

// Kinds of changes.
const (
	Added    TouchKind = 'A'
	Deleted  TouchKind = 'D'
	Modified TouchKind = 'M'
)

// TouchedPaths returns the paths that the second of each pair of commits or trees changes, with one git process. A rename
// is a deletion and an addition.
func (m *Mirror) TouchedPaths(ctx context.Context, pairs [][2]string) (map[[2]string][]TouchedPath, error) {
	t, err := m.repo.openCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	found := map[[2]string][]TouchedPath{}
	w := treeDiffer{catFile: t, trees: map[string]*Tree{}}
	for _, p := range pairs {
		roots, err := t.lookup(p[0]+"^{tree}", p[1]+"^{tree}")
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
		w.touched = nil
		if err := w.diffDirs("", ids[0], ids[1]); err != nil {
			return nil, err
		}
		slices.SortFunc(w.touched, func(a, b TouchedPath) int { return strings.Compare(a.Path, b.Path) })
		found[p] = w.touched
	}
	return found, nil
}

// treeDiffer walks two trees in parallel and skips subtrees that are equal.
type treeDiffer struct {
	catFile *catFile
	trees   map[string]*Tree // trees read before, by raw id
	touched []TouchedPath    // result
}

func (w *treeDiffer) readTree(oid []byte) (*Tree, error) {
	if oid == nil {
		return &Tree{}, nil
	}
	if known, is := w.trees[string(oid)]; is {
		return known, nil
	}
	items, err := w.catFile.readTree(oid)
	if err == nil && items == nil {
		err = &IncompleteError{OID: hex.EncodeToString(oid), Want: "tree"}
	}
	w.trees[string(oid)] = items
	return items, err
}

func (w *treeDiffer) diffDirs(dir string, from, to []byte) error {
	if bytes.Equal(from, to) {
		return nil
	}
	before, err := w.readTree(from)
	if err != nil {
		return err
	}
	after, err := w.readTree(to)
	if err != nil {
		return err
	}
	for _, was := range before.entries {
		is, _ := after.find(string(was.name))
		if err := w.diffEntry(dir+string(was.name), was, is); err != nil {
			return err
		}
	}
	for _, is := range after.entries {
		if _, both := before.find(string(is.name)); !both {
			if err := w.diffEntry(dir+string(is.name), treeEntry{}, is); err != nil {
				return err
			}
		}
	}
	return nil
}

// diffEntry compares the entries of a path. If a file replaces a directory or the other way round, both count.
func (w *treeDiffer) diffEntry(path string, was, is treeEntry) error {
	if was.mode == is.mode && bytes.Equal(was.oid, is.oid) {
		return nil
	}
	var dirs [2][]byte
	var files [2]bool
	for i, it := range []treeEntry{was, is} {
		switch {
		case it.mode == modeTree:
			dirs[i] = it.oid
		case it.oid != nil:
			files[i] = true
		}
	}
	switch files {
	case [2]bool{true, true}:
		w.touched = append(w.touched, TouchedPath{path, Modified})
	case [2]bool{true, false}:
		w.touched = append(w.touched, TouchedPath{path, Deleted})
	case [2]bool{false, true}:
		w.touched = append(w.touched, TouchedPath{path, Added})
	}
	if dirs[0] == nil && dirs[1] == nil {
		return nil
	}
	return w.diffDirs(path+"/", dirs[0], dirs[1])
}

// CannotConflict reports whether two sides with these changes merge without conflict: they share no path, and no file of
// one is a directory of the other; and if one side may have renamed a file, and with it its directory, the other has added
// no file, which would have to move along.
func CannotConflict(a, b []TouchedPath) bool {
	if mayRename(a) && hasAdded(b) || mayRename(b) && hasAdded(a) {
		return false
	}
	// Look for each path, and for paths below it, in the other list. Both are sorted.
	for _, p := range [][2][]TouchedPath{{a, b}, {b, a}} {
		for _, t := range p[0] {
			at, there := slices.BinarySearchFunc(p[1], t.Path, func(t TouchedPath, path string) int { return strings.Compare(t.Path, path) })
			if there {
				return false
			}
			below, _ := slices.BinarySearchFunc(p[1][at:], t.Path+"/", func(t TouchedPath, path string) int { return strings.Compare(t.Path, path) })
			if at += below; at < len(p[1]) && strings.HasPrefix(p[1][at].Path, t.Path+"/") {
				return false
			}
		}
	}
	return true
}

func hasAdded(touches []TouchedPath) bool {
	return slices.ContainsFunc(touches, func(t TouchedPath) bool { return t.Kind == Added })
}

// mayRename reports whether renames are possible: a rename needs a deletion and an addition.
func mayRename(touches []TouchedPath) bool {
	return hasAdded(touches) && slices.ContainsFunc(touches, func(t TouchedPath) bool { return t.Kind == Deleted })
}
