package fsck

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
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

// ReceivedCommit is a commit that was not reachable from the ref before: its id, the names of its tree and of that of its
// first parent, which is empty without a parent.
type ReceivedCommit struct{ OID, Tree, ParentTree string }

// ManyReceivedCommits is the number of commits above which it pays to exclude those reachable from any ref as well.
const ManyReceivedCommits = 200

// TreeWalk reads each new tree once and collects the blobs in them, whose existence the caller checks. It refuses a new
// .gitattributes or .gitignore with slow patterns that the first parent has not at the same path, with an *Error. The
// caller walks a parent before its children: a tree that was walked is not walked again with another parent. It stops with a
// *readlimit.ExceededError where the trees and files of patterns have more bytes than Reading.Inflated, or where it would
// need more memory than Reading.Memory.
type TreeWalk struct {
	Objects *git.CatFile
	Seen    map[string]bool // trees
	Blobs   map[string]bool
	Size    int // bytes of an object id
	Reading readlimit.Reading

	// IsOwn reports whether a file of patterns, of a commit and with an object id, is the repository's own and therefore
	// not refused. It is called for a file that would be; nil: none is.
	IsOwn func(commit, oid string) (bool, error)

	commit  string          // id of the commit that is walked
	read    int64           // bytes of trees and files of patterns
	recent  treeCache       // trees that were read last: that of a commit is also the one its child is compared with
	checked map[string]bool // files of patterns, by name and id
}

// treePair is a tree to walk, and a complete tree that is probably similar to it, or "".
type treePair struct {
	tree, known string
	name        string // of the tree in its parent
	parent      *treePair
}

// WalkCommit walks the trees of a commit that its first parent does not have.
func (w *TreeWalk) WalkCommit(c ReceivedCommit) error {
	w.commit = c.OID
	todo := []treePair{{tree: c.Tree, known: c.ParentTree}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.tree == p.known || w.Seen[p.tree] {
			continue
		}
		w.Seen[p.tree] = true
		more, err := w.walkTree(&p)
		if errors.As(err, new(*Error)) {
			return fmt.Errorf("commit %.12s, which has to be rewritten: %w", c.OID, err)
		}
		if err != nil {
			return err
		}
		todo = append(todo, more...)
		const perName = 128 // bytes, for a name in a map or a list
		if w.exceeds(int64(len(w.Seen)+len(w.Blobs)+len(w.checked)+len(todo))*perName, w.Reading.Memory) {
			return w.Reading.Exceeded(w.Reading.What, readlimit.Memory)
		}
	}
	return nil
}

// exceeds reports whether a size is beyond a limit, if there is one.
func (w *TreeWalk) exceeds(size, limit int64) bool { return limit > 0 && size > limit }

// walkTree collects the blobs of one tree that the known tree does not have, and returns its subtrees that the known
// tree does not have.
func (w *TreeWalk) walkTree(p *treePair) ([]treePair, error) {
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
			todo = append(todo, treePair{hex.EncodeToString(e.OID), hex.EncodeToString(old.OID), string(e.Name), p})
		case e.IsTree():
			todo = append(todo, treePair{hex.EncodeToString(e.OID), "", string(e.Name), p})
		default:
			oid := hex.EncodeToString(e.OID)
			w.Blobs[oid] = true
			if file := index.PatternFile(e.Name); file != "" {
				before := ""
				if same && !old.IsGitlink() {
					before = hex.EncodeToString(old.OID)
				}
				if err := w.checkPatterns(p, e, file, oid, before); err != nil {
					return nil, err
				}
			}
		}
	}
	return todo, nil
}

// checkPatterns refuses a file of patterns in a tree as CheckRuleFiles does, unless it is the repository's own. It checks
// symbolic links too: git reads their content from an index. It refuses no pattern of the file that was at the same path
// before, with the id before, if there was one.
func (w *TreeWalk) checkPatterns(p *treePair, e object.TreeEntry, file, oid, before string) error {
	if w.checked[file+oid] {
		return nil
	}
	if w.checked == nil {
		w.checked = map[string]bool{}
	}
	w.checked[file+oid] = true
	content, err := w.readObject(oid, "blob")
	if err != nil {
		return err
	}
	at := path.Join(p.path(), string(e.Name))
	refused := checkPatterns(file, at, content)
	if refused != nil && before != "" {
		old, err := w.readObject(before, "blob")
		if err != nil {
			return err
		}
		refused = checkNewPatterns(file, at, content, old)
	}
	if refused == nil || w.IsOwn == nil {
		return refused
	}
	if own, err := w.IsOwn(w.commit, oid); own || err != nil {
		return err
	}
	return refused
}

// path returns the path of the tree below the root tree, or the last part of one that is very long.
func (p *treePair) path() string {
	const most = 4096 // bytes
	at := p.name
	for p = p.parent; p != nil; p = p.parent {
		if at = path.Join(p.name, at); len(at) > most {
			return "..." + at[len(at)-most:]
		}
	}
	return at
}

// contents returns the content of a tree object, which GIT_ALLOC_LIMIT of the quarantine keeps below the limit here.
func (w *TreeWalk) contents(name string) ([]byte, error) {
	if data, ok := w.recent.get(name); ok {
		return data, nil
	}
	data, err := w.readObject(name, "tree")
	if err == nil {
		w.recent.put(name, data)
	}
	return data, err
}

// readObject returns the content of an object of a type, within the limits.
func (w *TreeWalk) readObject(name, kind string) ([]byte, error) {
	limit := int64(1 << 30)
	if w.Reading.Memory > 0 {
		limit = min(limit, w.Reading.Memory/8) // two of them, and those in the cache, are in memory at once
	}
	o, data, err := w.Objects.Read(name, kind, limit)
	var large *object.TooLargeError
	switch {
	case errors.As(err, &large) && w.Reading.Memory > 0:
		return nil, w.Reading.Exceeded(w.Reading.What, readlimit.Memory)
	case err != nil:
		return nil, err
	case o.Type != kind:
		return nil, &object.IncompleteError{OID: name, Want: kind, Have: o.Type}
	}
	if w.read += int64(len(data)); w.exceeds(w.read, w.Reading.Inflated) {
		return nil, w.Reading.Exceeded(w.Reading.What, readlimit.Inflated)
	}
	return data, nil
}

// treeCache keeps the contents of the trees that were used last. When they are more than a bound it forgets those that
// were not used since it did so last.
type treeCache struct {
	young, old map[string][]byte
	size       int // bytes in young
}

// get returns the content of a tree, if the cache has it.
func (c *treeCache) get(name string) ([]byte, bool) {
	data, ok := c.young[name]
	if ok {
		return data, true
	}
	if data, ok = c.old[name]; ok {
		c.put(name, data)
	}
	return data, ok
}

func (c *treeCache) put(name string, data []byte) {
	const bound = 16 << 20 // bytes
	if c.size += len(data); c.young == nil || c.size > bound {
		c.young, c.old, c.size = map[string][]byte{}, c.young, len(data)
	}
	c.young[name] = data
}
