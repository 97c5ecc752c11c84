package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Frozen is the state of a worktree as a commit.
type Frozen struct {
	Commit  string
	LeftOut []LeftOut // what is in the worktree and not in there
	Made    []string  // the objects that were written for it, or would have been, were they not there
}

// Freeze writes the state of a worktree that goes on as a commit, and changes nothing in it. The tree is
// what is on disk: tracked, staged and untracked files, not the ignored ones. Its first parent is the
// state it follows, else the base; so the first parents are the history of the worktree as it was taken.
// Further parents hold what that does not: HEAD, the branch where that is elsewhere, what a merge or rebase
// under way needs, and what was staged where neither HEAD nor the disk has it. When all of that is as it
// was, previous is returned.
//
// Of a directory that is no worktree the first state has no parent. What was read of it is kept in Subject.Memory.
//
// It is one state that the worktree was in: when something changes meanwhile it is looked at anew. The error is
// an *UnsettledError when that does not end.
func (r *Repo) Freeze(ctx context.Context, s Subject, previous string) (f Frozen, err error) {
	s.asIs = true
	const tries = 8
	for range tries {
		var unsettled *UnsettledError
		f, err = r.freeze(ctx, s, previous)
		switch {
		case errors.As(err, &unsettled):
			s.unsure = unsettled.unsure
		case s.Memory != "" && errors.As(err, new(*IncompleteError)): // somebody took away what no state needed yet
			if err := os.Remove(s.Memory); err != nil {
				return f, err
			}
		default:
			return f, err
		}
	}
	return f, err
}

// freeze is Freeze, once.
func (r *Repo) freeze(ctx context.Context, s Subject, previous string) (f Frozen, err error) {
	pulse := r.pulse(s)
	if s.Memory == "" && s.Onto == "" {
		s.ahead = r.readAhead(s)
	}
	t, err := r.ask(ctx)
	if err != nil {
		return f, err
	}
	defer t.close()
	head, branch, err := r.tipsBy(s, t.info)
	if err != nil {
		return f, err
	}
	found, err := t.info(previous+"^{commit}", s.Base+"^{commit}", cmp.Or(head, previous)+"^{tree}")
	if err != nil {
		return f, err
	}
	first, headTree := cmp.Or(found[0].OID, found[1].OID, head), found[2].OID
	if first == "" && s.Memory == "" {
		return f, fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	g, err := r.gather(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return f, err
	}
	if g.work == nil {
		return f, fmt.Errorf("the tree of %s is gone", s.Name)
	}
	f.LeftOut = g.leftOut
	// While we look again, what is to be written is put together; nothing is, unless all is as it was.
	settled := proc.Meanwhile(func() (struct{}, error) { return struct{}{}, g.settle(ctx) })
	var objects []object
	f.Commit, objects, err = r.compose(ctx, t, s, g, composition{head: head, branch: branch, headTree: headTree, first: first, previous: found[0].OID})
	if _, moved := settled(); moved != nil {
		return f, moved
	}
	if err == nil && !r.sameStaged(s, g.index, pulse) {
		err = &UnsettledError{Tree: s.Tree, Paths: []string{".git"}}
	}
	if err == nil {
		err = r.store(ctx, g.format, objects, g.written...)
	}
	for _, o := range objects {
		f.Made = append(f.Made, o.name())
	}
	f.Made = append(f.Made, g.hashed...)
	if err == nil && g.remember != nil {
		err = g.remember()
	}
	return f, err
}

// composition is what a state is put together from, besides what was gathered.
type composition struct{ head, branch, headTree, first, previous string }

// compose puts the commit together, and all that has to be written for it. When it says what the one before said,
// it is that one.
func (r *Repo) compose(ctx context.Context, t *teller, s Subject, g gathered, c composition) (commit string, objects []object, err error) {
	staged, work := "", g.work.name()
	if g.staged != nil {
		staged = g.staged.name()
	}
	parents := parentsOf(c.first)
	was, err := t.state(c.previous)
	if err != nil {
		return "", nil, err
	}
	now := State{Tree: work, Head: c.head, On: r.on(s), Tip: c.branch, Index: staged}
	if s.Memory == "" {
		if now.Held, err = r.holdUnderway(ctx, s, now); err != nil {
			return "", nil, err
		}
	}
	if c.previous == "" || was.Head != c.head || was.Tip != c.branch || was.Held != now.Held { // else it has them
		if parents, err = r.independent(ctx, parents, []string{c.head, c.branch, now.Held}); err != nil {
			return "", nil, err
		}
	}
	if c.previous != "" && len(parents) == 1 && was.Same(now) {
		return c.previous, nil, nil
	}
	if objects, err = g.objects(t, c.headTree); err != nil {
		return "", nil, err
	}
	if staged != "" && staged != c.headTree && staged != work {
		held := newCommit(g.format, s.Author, staged, parentsOf(c.head), "staged when captured")
		parents, objects = append(parents, held.name()), append(objects, held)
	}
	made := newCommit(g.format, s.Author, work, parents, s.Message+now.trailers())
	return made.name(), append(objects, made), nil
}

// on is what HEAD of a worktree names, as State.On says it.
func (r *Repo) on(s Subject) string {
	var w Worktree
	if err := readHead(r.AdminDir(s.Name), &w); err != nil {
		return ""
	}
	switch {
	case w.Detached:
		return Detached
	case strings.HasPrefix(w.Branch, "refs/heads/"):
		return w.Branch
	}
	return ""
}

// pulse changes when something of what git knows of a worktree does: its HEAD, the branch that it is on, its own branch,
// its index.
type pulse struct{ head, on, branch, index string }

func (r *Repo) pulse(s Subject) pulse {
	stamp := func(path string) string {
		fi, err := os.Lstat(path)
		if err != nil {
			return ""
		}
		return durable.Stamp(fi)
	}
	if s.Memory != "" {
		return pulse{}
	}
	admin := r.AdminDir(s.Name)
	p := pulse{head: stamp(filepath.Join(admin, "HEAD")), branch: stamp(r.RefPath(s.Branch)), index: stamp(filepath.Join(admin, "index"))}
	if on := r.on(s); on != "" && on != Detached {
		p.on = stamp(r.RefPath(on))
	}
	return p
}

// sameStaged reports whether HEAD and branch are what they were, and what is staged is: a git that only looks
// writes the index anew.
func (r *Repo) sameStaged(s Subject, x Index, was pulse) bool {
	now := r.pulse(s)
	index := now.index
	if now.index = was.index; now != was {
		return false
	}
	if index == was.index {
		return true
	}
	y, _, err := r.plainIndex(s.Name, x.format)
	return err == nil && x.Fingerprint() == y.Fingerprint()
}

// parentsOf is the list of parents of a commit on top of another, which may be none.
func parentsOf(commit string) []string {
	if commit == "" {
		return nil
	}
	return []string{commit}
}
