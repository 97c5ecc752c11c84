package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// LeftOut is a path in a worktree that a capture does not contain.
type LeftOut struct {
	Path string
	Why  Omission
}

// OmitReason is the reason why a capture does not contain a path.
type Omission string

// The reasons for leaving out a path.
const (
	Secret     Omission = "secret"     // an untracked file that looks like a credential
	Repository Omission = "repository" // nested repository, which no commit can hold
	Submodule  Omission = "submodule"  // checked-out submodule, of which only the staged commit id is captured
)

// worktreeContents is the state of a worktree: the index, and the files on disk.
type gathered struct {
	format  ObjectFormat
	index   Index
	staged  *node // tree of the index; nil when it cannot be written, as in the middle of a merge
	work    *node // tree of the files on disk; nil when the worktree is gone
	leftOut []LeftOut
	passed  []string     // ignored directories
	hashed  []string     // blobs that git has written
	written []string     // those of them that are not synced to disk yet
	view    *view        // scan of the files; nil when the worktree is gone
	done    func() error // removes the scratch git directory; nil when there is none

	remember func() error // writes the index cache; nil when there is none
}

func (g gathered) close() error {
	if g.view != nil {
		g.view.watch.close()
	}
	if g.done == nil {
		return nil
	}
	return g.done()
}

// collectWorktree reads the index of a worktree, scans its files, and has git hash the changed ones. The trees exist
// only in memory until storeTrees writes them. The caller has to close the result, also after an error.
func (r *Repo) gather(ctx context.Context, s Subject, head string) (g gathered, err error) {
	if r, err = r.inside(ctx, s); err != nil {
		return g, err
	}
	var done func() error
	scratch := sync.OnceValues(func() (p place, err error) {
		p, done, err = r.scratch(s, head)
		return p, err
	})
	g.done = func() error {
		if done == nil {
			return nil
		}
		return done()
	}
	if !s.asIs { // a worktree in use has most often no changes, and needs no git process
		if _, err := scratch(); err != nil {
			return g, err
		}
	}
	began := stampClock(s.Tree)
	staged, err := r.baseIndex(ctx, scratch, s, head)
	if err != nil {
		return g, err
	}
	g.format, g.index = staged.format, staged.Index
	if !s.asIs {
		if err := r.survey(ctx, s, staged.entries); err != nil {
			return g, err
		}
	}
	if s.Tree == "" && staged.count == 0 {
		return g, nil
	}
	indexTree := sync.OnceValue(func() *node { return plant(staged.entries, g.format) })
	setStaged := func() {
		if len(staged.conflicts) == 0 && s.Memory == "" {
			g.staged = indexTree()
		}
	}
	if s.Tree == "" {
		setStaged()
		return g, nil
	}
	// Conflicting paths belong to the state even if a rule ignores them.
	s.Also = slices.Concat(s.Also, slices.Compact(staged.conflicts))
	g.view = &view{r: r, s: s, format: g.format, bench: scratch, began: began, young: staged.at, entries: staged.entries}
	go indexTree() // in parallel with the scan
	changes, err := g.view.changes(ctx)
	if err != nil {
		return g, err
	}
	setStaged()
	slices.SortFunc(g.view.leftOut, func(a, b LeftOut) int { return strings.Compare(a.Path, b.Path) })
	g.work, g.leftOut, g.passed, g.hashed, g.written = indexTree().amend(g.format, changes), g.view.leftOut, g.view.passed, g.view.hashed, g.view.written
	if s.Memory != "" {
		g.remember = g.view.remember
	}
	return g, nil
}

// storeTrees writes the collected trees and syncs the new blobs. It skips objects of the tree known, which is already
// in the repository.
func (r *Repo) keepTrees(ctx context.Context, t *teller, g gathered, known string) error {
	objects, err := g.objects(t, known)
	if err != nil {
		return err
	}
	return r.store(ctx, g.format, objects, g.written...)
}

// newObjects lists the tree objects to write. It verifies that every new blob exists, because the index is not
// trusted: any process could have written it.
func (g gathered) objects(t *teller, known string) ([]object, error) {
	base, err := hex.DecodeString(known)
	if err != nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	var objects []object
	var leaves, paths []string
	seen := map[string]bool{}
	for _, n := range []*node{g.staged, g.work} {
		if n == nil {
			continue
		}
		if err := n.novel(t, base, func(path string, dir *node, it item) {
			switch {
			case dir != nil && !seen[string(dir.oid)]:
				seen[string(dir.oid)] = true
				objects = append(objects, object{"tree", dir.oid, dir.content})
			case dir == nil && it.mode != modeGitlink && !seen[string(it.oid)]:
				seen[string(it.oid)] = true
				leaves, paths = append(leaves, hex.EncodeToString(it.oid)), append(paths, path)
			}
		}); err != nil {
			return nil, err
		}
	}
	found, err := t.info(leaves...)
	if err != nil {
		return nil, err
	}
	for i, o := range found {
		if o.Type != "blob" {
			return nil, fmt.Errorf("%s: %w", paths[i], &IncompleteError{OID: leaves[i], Want: "blob", Have: o.Type})
		}
	}
	return objects, nil
}
