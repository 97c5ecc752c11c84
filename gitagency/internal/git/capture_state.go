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
type CapturedState struct {
	Commit  string
	LeftOut []LeftOut // paths of the worktree that are not in the commit
	Objects []string  // objects that were written for it, including those that existed already
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
func (r *Repo) CaptureState(ctx context.Context, s WorktreeSpec, previous string) (f CapturedState, err error) {
	s.inUse = true
	const tries = 8
	for range tries {
		var unsettled *StillChangingError
		f, err = r.tryCaptureState(ctx, s, previous)
		switch {
		case errors.As(err, &unsettled):
			s.changingDirs = unsettled.changingDirs
		case s.IndexCache != "" && errors.As(err, new(*IncompleteError)): // gc removed a cached blob that no state refers to yet
			if err := os.Remove(s.IndexCache); err != nil {
				return f, err
			}
		default:
			return f, err
		}
	}
	return f, err
}

// tryCaptureState is one attempt of CaptureState.
func (r *Repo) tryCaptureState(ctx context.Context, s WorktreeSpec, previous string) (f CapturedState, err error) {
	pulse := r.stampGitState(s)
	if s.IndexCache == "" && s.Onto == "" {
		s.pendingIndex = r.readIndexAsync(s)
	}
	t, err := r.openCatFile(ctx)
	if err != nil {
		return f, err
	}
	defer t.close()
	head, branch, err := r.headAndBranchWith(s, t.lookup)
	if err != nil {
		return f, err
	}
	found, err := t.lookup(previous+"^{commit}", s.Base+"^{commit}", cmp.Or(head, previous)+"^{tree}")
	if err != nil {
		return f, err
	}
	first, headTree := cmp.Or(found[0].OID, found[1].OID, head), found[2].OID
	if first == "" && s.IndexCache == "" {
		return f, fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	g, err := r.collectWorktree(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return f, err
	}
	if g.worktree == nil {
		return f, fmt.Errorf("the tree of %s is gone", s.Name)
	}
	f.LeftOut = g.leftOut
	// The second scan runs while the commit is built; nothing is written unless the worktree is unchanged.
	settled := proc.Async(func() (struct{}, error) { return struct{}{}, g.checkStable(ctx) })
	var objects []rawObject
	f.Commit, objects, err = r.buildStateCommit(ctx, t, s, g, stateInputs{head: head, branchTip: branch, headTree: headTree, firstParent: first, previous: found[0].OID})
	if _, moved := settled(); moved != nil {
		return f, moved
	}
	if err == nil && !r.isGitStateUnchanged(s, g.index, pulse) {
		err = &StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
	}
	if err == nil {
		err = r.writeObjects(ctx, g.format, objects, g.unsyncedBlobs...)
	}
	for _, o := range objects {
		f.Objects = append(f.Objects, o.hexOID())
	}
	f.Objects = append(f.Objects, g.writtenBlobs...)
	if err == nil && g.saveCache != nil {
		err = g.saveCache()
	}
	return f, err
}

// stateInputs are the commits and trees from which a state is built, besides the collected contents.
type stateInputs struct{ head, branchTip, headTree, firstParent, previous string }

// buildStateCommit builds the commit of a state, and lists all objects to write for it. It returns the previous
// commit, and no objects, when the state is the same.
func (r *Repo) buildStateCommit(ctx context.Context, t *catFile, s WorktreeSpec, g worktreeContents, c stateInputs) (commit string, objects []rawObject, err error) {
	staged, work := "", g.worktree.hexOID()
	if g.staged != nil {
		staged = g.staged.hexOID()
	}
	parents := parentList(c.firstParent)
	was, err := t.readState(c.previous)
	if err != nil {
		return "", nil, err
	}
	now := State{Tree: work, Head: c.head, HeadRef: r.headTarget(s), BranchTip: c.branchTip, IndexTree: staged}
	if s.IndexCache == "" {
		if now.OperationCommit, err = r.captureOperation(ctx, s, now); err != nil {
			return "", nil, err
		}
	}
	// Otherwise the previous state already holds them.
	if c.previous == "" || was.Head != c.head || was.BranchTip != c.branchTip || was.OperationCommit != now.OperationCommit {
		if parents, err = r.addIndependent(ctx, parents, []string{c.head, c.branchTip, now.OperationCommit}); err != nil {
			return "", nil, err
		}
	}
	if c.previous != "" && len(parents) == 1 && was.Same(now) {
		return c.previous, nil, nil
	}
	if objects, err = g.newObjects(t, c.headTree); err != nil {
		return "", nil, err
	}
	if staged != "" && staged != c.headTree && staged != work {
		held := encodeCommit(g.format, s.Author, staged, parentList(c.head), "staged when captured")
		parents, objects = append(parents, held.hexOID()), append(objects, held)
	}
	made := encodeCommit(g.format, s.Author, work, parents, s.Message+now.trailers())
	return made.hexOID(), append(objects, made), nil
}

// headTarget returns what HEAD of a worktree names, as in State.HeadRef.
func (r *Repo) headTarget(s WorktreeSpec) string {
	var w Worktree
	if err := readHead(r.AdminDir(s.Name), &w); err != nil {
		return ""
	}
	switch {
	case w.Detached:
		return DetachedHead
	case strings.HasPrefix(w.Branch, "refs/heads/"):
		return w.Branch
	}
	return ""
}

// gitStateStamp changes when the git state of a worktree does: HEAD, the branch that HEAD names, the worktree's own
// branch, or the index.
type gitStateStamp struct{ head, headBranch, branch, index string }

// stampGitState returns the present gitStateStamp of a worktree; empty for a directory that is none.
func (r *Repo) stampGitState(s WorktreeSpec) gitStateStamp {
	stamp := func(path string) string {
		fi, err := os.Lstat(path)
		if err != nil {
			return ""
		}
		return durable.StatFingerprint(fi)
	}
	if s.IndexCache != "" {
		return gitStateStamp{}
	}
	admin := r.AdminDir(s.Name)
	p := gitStateStamp{head: stamp(filepath.Join(admin, "HEAD")), branch: stamp(r.RefPath(s.Branch)), index: stamp(filepath.Join(admin, "index"))}
	if on := r.headTarget(s); on != "" && on != DetachedHead {
		p.headBranch = stamp(r.RefPath(on))
	}
	return p
}

// isGitStateUnchanged reports whether HEAD, branches and index contents are unchanged. An index with another stamp is
// compared by content: git rewrites it even in commands that only read.
func (r *Repo) isGitStateUnchanged(s WorktreeSpec, x Index, was gitStateStamp) bool {
	now := r.stampGitState(s)
	index := now.index
	if now.index = was.index; now != was {
		return false
	}
	if index == was.index {
		return true
	}
	y, _, err := r.readPlainIndex(s.Name, x.format)
	return err == nil && x.Fingerprint() == y.Fingerprint()
}

// parentList returns the parents of a commit on top of another; none if that is empty.
func parentList(commit string) []string {
	if commit == "" {
		return nil
	}
	return []string{commit}
}
