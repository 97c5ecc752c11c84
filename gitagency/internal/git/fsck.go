package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
)

// FsckError is a tree object that git would not have written, or that must not be checked out.
type FsckError struct {
	Path string // relative to the root tree
	Why  string
}

func (e *FsckError) Error() string {
	return fmt.Sprintf("its tree is not sound: %q: %s", e.Path, e.Why)
}

// fsckTree refuses a tree with a name that leads out of it, that is or can be taken for .git, or that occurs twice, with a
// *FsckError. Any process can write such objects, and a ref to them that looks like a captured state. Git refuses most of
// them too, but of a name that occurs twice it checks out one entry, while a reviewer may have seen the other. Subtrees
// that a known good tree has at the same path are skipped; known may be empty.
func (r *Repo) fsckTree(ctx context.Context, tree, known string) error {
	t, err := r.openCatFile(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	found, err := t.lookup(tree+"^{tree}", known+"^{tree}")
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return &FsckError{Path: ".", Why: "it is not there"}
	}
	return t.fsckTree(found[0].OID, found[1].OID, "")
}

// fsckTree checks a tree, which is at a path below the root tree, and its subtrees.
func (t *catFile) fsckTree(tree, known, at string) error {
	if tree == known {
		return nil
	}
	data, err := t.contents(tree, "tree")
	if err != nil {
		return err
	}
	if data == nil {
		return &FsckError{Path: at, Why: "there is no such tree"}
	}
	size := len(tree) / 2
	knownTrees := map[string]string{} // by name
	if known != "" {
		other, err := t.contents(known, "tree")
		if err != nil {
			return err
		}
		for e, rest, ok := nextTreeEntry(other, size); ok; e, rest, ok = nextTreeEntry(rest, size) {
			if e.isTree() {
				knownTrees[string(e.name)] = hex.EncodeToString(e.oid)
			}
		}
	}
	seen := map[string]bool{}
	subtrees := map[string]string{}
	for len(data) > 0 {
		e, rest, ok := nextTreeEntry(data, size)
		name := string(e.name)
		switch why := pathProblem(e.name, 0, false); {
		case !ok:
			return &FsckError{Path: at, Why: "nobody can read it"}
		case why != "":
			return &FsckError{Path: at + "/" + name, Why: why}
		case path.Base(name) != name:
			return &FsckError{Path: at + "/" + name, Why: "a slash in a name"}
		case seen[name]:
			return &FsckError{Path: path.Join(at, name), Why: "twice there"}
		}
		seen[name] = true
		if e.isTree() {
			subtrees[name] = hex.EncodeToString(e.oid)
		}
		data = rest
	}
	for name, oid := range subtrees {
		if err := t.fsckTree(oid, knownTrees[name], path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}
