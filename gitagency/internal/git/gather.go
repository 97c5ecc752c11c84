package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// LeftOut is something in a tree that a capture does not hold.
type LeftOut struct {
	Path string
	Why  Omission
}

// Omission is why something is not held.
type Omission string

// The reasons there are.
const (
	Secret     Omission = "secret"     // an untracked file that looks like a credential
	Repository Omission = "repository" // of its own, which no commit can hold
	Submodule  Omission = "submodule"  // only which commit of it is staged is held
)

// gathered is what is in a worktree: what is staged, and what is on disk.
type gathered struct {
	format  ObjectFormat
	index   Index
	staged  *node // nil when it cannot be written, as in the middle of a merge
	work    *node // nil when the tree is gone
	leftOut []LeftOut
	passed  []string     // directories that are ignored
	hashed  []string     // objects that git has written
	written []string     // those of them that are not sure to last yet
	view    *view        // of the tree; nil when that is gone
	done    func() error // takes away what looking needs; nil when there is nothing

	remember func() error // writes down what was read; nil when there is nothing to remember it in
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

// gather looks at a worktree and has git read what has changed in it. What only memory holds is written by keepTrees.
// What is gathered has to be closed, also where there is an error.
func (r *Repo) gather(ctx context.Context, s Subject, head string) (g gathered, err error) {
	if r, err = r.inside(ctx, s); err != nil {
		return g, err
	}
	var done func() error
	bench := sync.OnceValues(func() (p place, err error) {
		p, done, err = r.scratch(s, head)
		return p, err
	})
	g.done = func() error {
		if done == nil {
			return nil
		}
		return done()
	}
	if !s.asIs { // else most often nothing has to be read, and no git is needed for that
		if _, err := bench(); err != nil {
			return g, err
		}
	}
	began := stampClock(s.Tree)
	staged, err := r.baseIndex(ctx, bench, s, head)
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
	planted := sync.OnceValue(func() *node { return plant(staged.entries, g.format) })
	stage := func() {
		if len(staged.conflicts) == 0 && s.Memory == "" {
			g.staged = planted()
		}
	}
	if s.Tree == "" {
		stage()
		return g, nil
	}
	s.Also = slices.Concat(s.Also, slices.Compact(staged.conflicts)) // which may be called like what is ignored
	g.view = &view{r: r, s: s, format: g.format, bench: bench, began: began, young: staged.at, entries: staged.entries}
	go planted() // while we look
	changes, err := g.view.changes(ctx)
	if err != nil {
		return g, err
	}
	stage()
	slices.SortFunc(g.view.leftOut, func(a, b LeftOut) int { return strings.Compare(a.Path, b.Path) })
	g.work, g.leftOut, g.passed, g.hashed, g.written = planted().amend(g.format, changes), g.view.leftOut, g.view.passed, g.view.hashed, g.view.written
	if s.Memory != "" {
		g.remember = g.view.remember
	}
	return g, nil
}

// keepTrees writes what was gathered, as far as a tree that is in the repository does not have it already.
func (r *Repo) keepTrees(ctx context.Context, t *teller, g gathered, known string) error {
	objects, err := g.objects(t, known)
	if err != nil {
		return err
	}
	return r.store(ctx, g.format, objects, g.written...)
}

// objects lists what has to be written. What was said to be staged has to be there: anybody could have written
// the index.
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
