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

// CapturedState is the result of CaptureState.
type Frozen struct {
	Commit  string
	LeftOut []LeftOut // paths of the worktree that are not in the commit
	Made    []string  // objects that were written for it, including those that existed already
}

// CaptureState writes the state of a worktree that stays in use as a commit, and changes nothing in it. The tree is
// what is on disk: tracked, staged and untracked files, without ignored ones. The first parent is the previous state,
// or else the base; so the first parents are the history of the captured states. Further parents hold what that does
// not: HEAD, the branch if it is elsewhere, the commits that a merge or rebase in progress needs, and the index if
// neither HEAD nor the disk equals it. When nothing of this has changed, it returns previous.
//
// The first state of a directory that is no worktree has no parent. WorktreeSpec.IndexCache remembers the files read.
//
// The result is one state in which the worktree was: when files change meanwhile, it starts again. The error is a
// *StillChangingError when that does not end.
func (r *Repo) Freeze(ctx context.Context, s Subject, previous string) (f Frozen, err error) {
	s.asIs = true
	const tries = 8
	for range tries {
		var unsettled *UnsettledError
		f, err = r.freeze(ctx, s, previous)
		switch {
		case errors.As(err, &unsettled):
			s.unsure = unsettled.unsure
		case s.Memory != "" && errors.As(err, new(*IncompleteError)): // gc removed a cached blob that no state refers to yet
			if err := os.Remove(s.Memory); err != nil {
				return f, err
			}
		default:
			return f, err
		}
	}
	return f, err
}

// tryCaptureState is one attempt of CaptureState.
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
	// The second scan runs while the commit is built; nothing is written unless the worktree is unchanged.
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

// stateInputs are the commits and trees from which a state is built, besides the collected contents.
type composition struct{ head, branch, headTree, first, previous string }

// buildStateCommit builds the commit of a state, and lists all objects to write for it. It returns the previous
// commit, and no objects, when the state is the same.
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
	// Otherwise the previous state already holds them.
	if c.previous == "" || was.Head != c.head || was.Tip != c.branch || was.Held != now.Held {
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

// headTarget returns what HEAD of a worktree names, as in State.HeadRef.
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

// gitStateStamp changes when the git state of a worktree does: HEAD, the branch that HEAD names, the worktree's own
// branch, or the index.
type pulse struct{ head, on, branch, index string }

// stampGitState returns the present gitStateStamp of a worktree; empty for a directory that is none.
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

// isGitStateUnchanged reports whether HEAD, branches and index contents are unchanged. An index with another stamp is
// compared by content: git rewrites it even in commands that only read.
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

// parentList returns the parents of a commit on top of another; none if that is empty.
func parentsOf(commit string) []string {
	if commit == "" {
		return nil
	}
	return []string{commit}
}
