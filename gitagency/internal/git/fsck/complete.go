package fsck

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// LookupStrict resolves names to objects, and refuses an answer that is neither an object nor that there is none.
func LookupStrict(ctx context.Context, t *git.CatFile, names []string) ([]git.Object, error) {
	objects := make([]git.Object, len(names))
	err := t.QueryEach(ctx, "info", names, func(i int, a git.CatFileAnswer) error {
		if a.Err != nil {
			return a.Err
		}
		objects[i] = a.Object
		return a.CheckKnown()
	})
	return objects, err
}

// ReceivedCommit is a commit that was not reachable from the ref before: the ids of its tree and of its first parent,
// which may be empty.
type ReceivedCommit struct{ Tree, Parent string }

// ManyReceivedCommits is the number of commits above which it pays to exclude those reachable from any ref as well.
const ManyReceivedCommits = 200

// TreeWalk reads each new tree once and collects the blobs in them, whose existence the caller checks.
type TreeWalk struct {
	Objects *git.CatFile
	Seen    map[string]bool // trees
	Blobs   map[string]bool
	Size    int // bytes of an object id
}

// treePair is a tree to walk, and a complete tree that is probably similar to it, or "".
type treePair struct{ tree, known string }

// WalkCommit walks the trees of a commit that its first parent does not have.
func (w *TreeWalk) WalkCommit(c ReceivedCommit) error {
	known := ""
	if c.Parent != "" {
		known = c.Parent + "^{tree}"
	}
	todo := []treePair{{c.Tree, known}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.tree == p.known || w.Seen[p.tree] {
			continue
		}
		w.Seen[p.tree] = true
		more, err := w.walkTree(p)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// walkTree collects the blobs of one tree that the known tree does not have, and returns its subtrees that the known
// tree does not have.
func (w *TreeWalk) walkTree(p treePair) ([]treePair, error) {
	content, err := w.contents(p.tree)
	if err != nil {
		return nil, err
	}
	var known []byte
	if p.known != "" {
		if known, err = w.contents(p.known); err != nil {
			return nil, err
		}
	}
	var todo []treePair
	old, known, _ := object.NextTreeEntry(known, w.Size)
	for len(content) > 0 {
		e, rest, ok := object.NextTreeEntry(content, w.Size)
		if content = rest; !ok {
			return nil, fmt.Errorf("tree %s is damaged", p.tree)
		}
		for len(old.Name) > 0 && object.CompareTreeOrder(old, e) < 0 {
			old, known, _ = object.NextTreeEntry(known, w.Size) // the known tree only saves work, so damage in it does not matter
		}
		same := bytes.Equal(old.Name, e.Name) && old.IsTree() == e.IsTree()
		switch {
		case e.IsGitlink() || same && bytes.Equal(old.OID, e.OID) && !old.IsGitlink():
		case e.IsTree() && same:
			todo = append(todo, treePair{hex.EncodeToString(e.OID), hex.EncodeToString(old.OID)})
		case e.IsTree():
			todo = append(todo, treePair{hex.EncodeToString(e.OID), ""})
		default:
			w.Blobs[hex.EncodeToString(e.OID)] = true
		}
	}
	return todo, nil
}

// contents returns the content of a tree object, which GIT_ALLOC_LIMIT of the quarantine keeps below the limit here.
func (w *TreeWalk) contents(name string) ([]byte, error) {
	const limit = 1 << 30
	o, data, err := w.Objects.Read(name, "tree", limit)
	if err == nil && o.Type != "tree" {
		err = &object.IncompleteError{OID: name, Want: "tree", Have: o.Type}
	}
	return data, err
}
