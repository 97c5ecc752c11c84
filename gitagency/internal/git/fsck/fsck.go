// Package fsck checks objects that an agent may have made, before the repository relies on them: that the names in a
// tree may be checked out, that all trees of a received history exist, that git can read files of rules, and that it
// needs no exponential time for them. It reads objects through git cat-file, never runs git fsck, and writes to temporary
// repositories alone.
package fsck

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Error is a tree object that git would not have written, or that must not be checked out, or a file of rules that must not
// be committed.
type Error struct {
	Path string // relative to the root tree
	Why  string
}

func (e *Error) Error() string {
	return fmt.Sprintf("its tree is refused: %q: %s", e.Path, e.Why)
}

// CheckTree refuses a tree with a name that leads out of it, that is or can be taken for .git, or that occurs twice,
// with an *Error. Any process can write such objects, and a ref to them that looks like a captured state. Git refuses
// most of them too, but of a name that occurs twice it checks out one entry, while a reviewer may have seen the other.
// Subtrees that a known good tree has at the same path are skipped; known may be empty.
func CheckTree(ctx context.Context, r *git.Repo, tree, known string) error {
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	found, err := t.Lookup(tree+"^{tree}", known+"^{tree}")
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return &Error{Path: ".", Why: "the tree does not exist"}
	}
	return checkTreeBelow(t, map[string]bool{}, found[0].OID, found[1].OID, "")
}

// checkTreeBelow checks a tree, which is at a path below the root tree, and its subtrees, unless it is one of those that
// were checked at another path.
func checkTreeBelow(t *git.CatFile, checked map[string]bool, tree, known, at string) error {
	if tree == known || checked[tree] {
		return nil
	}
	checked[tree] = true
	data, err := t.Contents(tree, "tree")
	if err != nil {
		return err
	}
	if data == nil {
		return &Error{Path: at, Why: "the tree does not exist"}
	}
	size := len(tree) / 2
	knownTrees := map[string]string{} // by name
	if known != "" {
		other, err := t.Contents(known, "tree")
		if err != nil {
			return err
		}
		for e, rest, ok := object.NextTreeEntry(other, size); ok; e, rest, ok = object.NextTreeEntry(rest, size) {
			if e.IsTree() {
				knownTrees[string(e.Name)] = hex.EncodeToString(e.OID)
			}
		}
	}
	seen := map[string]bool{}
	subtrees := map[string]string{}
	for len(data) > 0 {
		e, rest, ok := object.NextTreeEntry(data, size)
		name := string(e.Name)
		switch why := index.PathProblem(e.Name, 0, false); {
		case !ok:
			return &Error{Path: at, Why: "the tree cannot be parsed"}
		case why != "":
			return &Error{Path: at + "/" + name, Why: why}
		case path.Base(name) != name:
			return &Error{Path: at + "/" + name, Why: "a slash in a name"}
		case seen[name]:
			return &Error{Path: path.Join(at, name), Why: "duplicate entry"}
		}
		seen[name] = true
		if e.IsTree() {
			subtrees[name] = hex.EncodeToString(e.OID)
		}
		data = rest
	}
	for name, oid := range subtrees {
		if err := checkTreeBelow(t, checked, oid, knownTrees[name], path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}
