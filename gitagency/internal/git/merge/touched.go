package merge

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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
func TouchedPaths(ctx context.Context, m *git.Mirror, pairs [][2]string) (map[[2]string][]TouchedPath, error) {
	t, err := m.Repo.OpenCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	found := map[[2]string][]TouchedPath{}
	w := treeDiffer{catFile: t, trees: map[string]*object.Tree{}}
	for _, p := range pairs {
		roots, err := t.Lookup(p[0]+"^{tree}", p[1]+"^{tree}")
		if err != nil {
			return nil, err
		}
		var ids [2][]byte
		for i, o := range roots {
			if o.Missing() {
				return nil, &object.IncompleteError{OID: p[i], Want: "tree"}
			}
			if ids[i], err = hex.DecodeString(o.OID); err != nil {
				return nil, err
			}
		}
		w.touched, w.limit = nil, newWalkLimit(m.Repo, "comparing the trees of "+p[0]+" and "+p[1])
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
	catFile *git.CatFile
	trees   map[string]*object.Tree // trees read before, by raw id
	touched []TouchedPath           // result
	limit   *walkLimit
}

func (w *treeDiffer) readTree(oid []byte) (*object.Tree, error) {
	if oid == nil {
		return &object.Tree{}, nil
	}
	if known, is := w.trees[string(oid)]; is {
		return known, nil
	}
	items, err := w.catFile.ReadTree(oid)
	if err == nil && items == nil {
		err = &object.IncompleteError{OID: hex.EncodeToString(oid), Want: "tree"}
	}
	w.trees[string(oid)] = items
	return items, err
}

func (w *treeDiffer) diffDirs(dir string, from, to []byte) error {
	if bytes.Equal(from, to) {
		return nil
	}
	if err := w.limit.add(dir); err != nil {
		return err
	}
	before, err := w.readTree(from)
	if err != nil {
		return err
	}
	after, err := w.readTree(to)
	if err != nil {
		return err
	}
	for _, was := range before.Entries {
		is, _ := after.Find(string(was.Name))
		if err := w.diffEntry(dir+string(was.Name), was, is); err != nil {
			return err
		}
	}
	for _, is := range after.Entries {
		if _, both := before.Find(string(is.Name)); !both {
			if err := w.diffEntry(dir+string(is.Name), object.TreeEntry{}, is); err != nil {
				return err
			}
		}
	}
	return nil
}

// diffEntry compares the entries of a path. If a file replaces a directory or the other way round, both count.
func (w *treeDiffer) diffEntry(path string, was, is object.TreeEntry) error {
	if was.Mode == is.Mode && bytes.Equal(was.OID, is.OID) {
		return nil
	}
	var dirs [2][]byte
	var files [2]bool
	for i, it := range []object.TreeEntry{was, is} {
		switch {
		case it.Mode == object.ModeTree:
			dirs[i] = it.OID
		case it.OID != nil:
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
		return w.limit.add(path)
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
