package git

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// checkComplete checks that every object reachable from in.New and in.Also exists, in the quarantine or in the repository,
// and that the ref is at in.Old. Git has checked every object of the pack (index-pack --strict), and that the objects to
// which it points exist. It has not checked to which objects those point in turn: a repository may hold unreachable
// objects whose own references are missing.
//
// Everything reachable from in.Old exists: it was checked when it was received, or is the repository's own. So a commit is
// complete if its first parent is, and all that its tree adds to the parent's tree exists. Git's own connectivity check
// reads every tree of the old commit first, which takes longer than everything else in a large repository; and git
// diff-tree reads a directory as often as it occurs, so that a pack of some hundred bytes can keep it busy for ever.
func (r *Repo) checkComplete(ctx context.Context, q runOptions, in ReceiveRequest) error {
	target := proc.Async(func() (string, error) { return r.symrefTarget(ctx, in.Ref) })
	commits, err := r.receivedCommits(ctx, q, in)
	if to, terr := target(); terr != nil || to != "" {
		if terr == nil {
			terr = &SymrefError{Ref: in.Ref, Target: to}
		}
		return terr
	}
	if err != nil {
		return err
	}
	t, err := r.openCatFileAt(ctx, q)
	if err != nil {
		return err
	}
	defer t.close()
	tips, err := lookupKnown(ctx, t, []string{in.Ref, in.New})
	if err != nil {
		return err
	}
	switch {
	case tips[0].OID != in.Old && !in.LeaveRef:
		return &RefMovedError{Ref: in.Ref, Want: in.Old, Have: tips[0].OID}
	case tips[1].Type != "commit":
		return &IncompleteError{OID: in.New, Want: "commit", Have: tips[1].Type}
	}
	w := treeWalk{objects: t, seen: map[string]bool{}, blobs: map[string]bool{}, size: FormatOf(in.New).idSize()}
	for _, oid := range in.Blobs {
		w.blobs[oid] = true
	}
	for _, c := range commits {
		if err := w.walkCommit(c); err != nil {
			return err
		}
	}
	blobs := make([]string, 0, len(w.blobs))
	for oid := range w.blobs {
		blobs = append(blobs, oid)
	}
	found, err := lookupKnown(ctx, t, blobs)
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

// lookupKnown resolves names to objects, and refuses an answer that is neither an object nor that there is none.
func lookupKnown(ctx context.Context, t *catFile, names []string) ([]Object, error) {
	objects := make([]Object, len(names))
	err := t.queryEach(ctx, "info", names, func(i int, a catFileAnswer) error {
		if a.err != nil {
			return a.err
		}
		objects[i] = a.Object
		return a.checkKnown()
	})
	return objects, err
}

// symrefTarget returns the ref that a symbolic ref points to; empty when the ref is not symbolic.
func (r *Repo) symrefTarget(ctx context.Context, ref string) (string, error) {
	if r.readLooseRef(ref) != "" {
		return "", nil
	}
	out, err := r.runRead(ctx, runOptions{}, "symbolic-ref", "--quiet", ref)
	if exitedWith(err, 1) {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// receivedCommit is a commit that was not reachable from the ref before: the ids of its tree and of its first parent,
// which may be empty.
type receivedCommit struct{ tree, parent string }

// manyReceivedCommits is the number of commits above which it pays to exclude those reachable from any ref as well.
const manyReceivedCommits = 200

// receivedCommits lists the commits that are reachable from in.New and not from the ref. Git rev-list has read each of
// them, down to commits that the repository had before.
func (r *Repo) receivedCommits(ctx context.Context, q runOptions, in ReceiveRequest) ([]receivedCommit, error) {
	list := func(not ...string) ([]receivedCommit, error) {
		out, err := r.runRead(ctx, q, slices.Concat([]string{"rev-list", "--no-commit-header", "--format=%T %P", in.New, "--not"}, not)...)
		if err != nil {
			return nil, err
		}
		var found []receivedCommit
		for line := range strings.Lines(string(out)) {
			words := append(strings.Fields(line), "", "")
			if !isOID(words[0]) {
				return nil, fmt.Errorf("git rev-list answered %q", line)
			}
			found = append(found, receivedCommit{words[0], words[1]})
		}
		return found, nil
	}
	if in.Old == "" {
		return list("--all")
	}
	found, err := list(in.Old)
	if err == nil && len(found) > manyReceivedCommits {
		return list(in.Old, "--all")
	}
	return found, err
}

// treeWalk collects the blobs of new trees, and reads each new tree once.
type treeWalk struct {
	objects *catFile
	seen    map[string]bool // trees
	blobs   map[string]bool
	size    int // bytes of an object id
}

// treePair is a tree to walk, and a complete tree that is probably similar to it, or "".
type treePair struct{ tree, known string }

// walkCommit walks the trees of a commit that its first parent does not have.
func (w *treeWalk) walkCommit(c receivedCommit) error {
	known := ""
	if c.parent != "" {
		known = c.parent + "^{tree}"
	}
	todo := []treePair{{c.tree, known}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.tree == p.known || w.seen[p.tree] {
			continue
		}
		w.seen[p.tree] = true
		more, err := w.walkTree(p)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// walkTree collects the blobs of one tree that the known tree does not have, and returns its subtrees that the known tree
// does not have.
func (w *treeWalk) walkTree(p treePair) ([]treePair, error) {
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
	old, known, _ := nextTreeEntry(known, w.size)
	for len(content) > 0 {
		e, rest, ok := nextTreeEntry(content, w.size)
		if content = rest; !ok {
			return nil, fmt.Errorf("tree %s is damaged", p.tree)
		}
		for len(old.name) > 0 && compareTreeOrder(old, e) < 0 {
			old, known, _ = nextTreeEntry(known, w.size) // the known tree only saves work, so damage in it does not matter
		}
		same := bytes.Equal(old.name, e.name) && old.isTree() == e.isTree()
		switch {
		case e.isGitlink() || same && bytes.Equal(old.oid, e.oid) && !old.isGitlink():
		case e.isTree() && same:
			todo = append(todo, treePair{hex.EncodeToString(e.oid), hex.EncodeToString(old.oid)})
		case e.isTree():
			todo = append(todo, treePair{hex.EncodeToString(e.oid), ""})
		default:
			w.blobs[hex.EncodeToString(e.oid)] = true
		}
	}
	return todo, nil
}

// contents returns the content of a tree object, which GIT_ALLOC_LIMIT of the quarantine keeps below the limit here.
func (w *treeWalk) contents(name string) ([]byte, error) {
	const limit = 1 << 30
	o, data, err := w.objects.read(name, "tree", limit)
	if err == nil && o.Type != "tree" {
		err = &IncompleteError{OID: name, Want: "tree", Have: o.Type}
	}
	return data, err
}
