// Package snapshot turns the state of a worktree (files, index, HEAD, an operation in progress) into a commit, and such
// a commit back into files. Capture is for a worktree that is not in use. CaptureState is for one in use, and its
// result is one consistent state, or it fails. A restore overwrites and removes nothing that was not captured.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// CapturedState is the result of CaptureState.
type CapturedState struct {
	Commit  string
	LeftOut []status.LeftOut // paths of the worktree that are not in the commit
	Objects []string         // objects that were written for it, including those that existed already
}

// CaptureState writes the state of a worktree that stays in use as a commit, and changes nothing in it. The tree is
// what is on disk: tracked, staged and untracked files, without ignored ones. The first parent is the previous state,
// or else the base; so the first parents are the history of the captured states. Further parents hold what that does
// not: HEAD, the branch if it is elsewhere, the commits that a merge or rebase in progress needs, and the index if
// neither HEAD nor the disk equals it. When nothing of this has changed, it returns previous.
//
// The first state of a directory that is no worktree has no parent. git.WorktreeSpec.IndexCache remembers the files
// read.
//
// The result is one state in which the worktree was: when files change meanwhile, it starts again. The error is a
// *status.StillChangingError when that does not end.
func CaptureState(ctx context.Context, r *git.Repo, s git.WorktreeSpec, previous string) (f CapturedState, err error) {
	s.InUse = true
	const tries = 8
	for range tries {
		var unsettled *status.StillChangingError
		f, err = tryCaptureState(ctx, r, s, previous)
		switch {
		case errors.As(err, &unsettled):
			s.ChangingDirs = unsettled.ChangingDirs
		case s.IndexCache != "" && errors.As(err, new(*object.IncompleteError)): // gc removed a cached blob that no state refers to yet
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
func tryCaptureState(ctx context.Context, r *git.Repo, s git.WorktreeSpec, previous string) (f CapturedState, err error) {
	pulse := status.StampGitState(r, s)
	if s.IndexCache == "" && s.Onto == "" {
		s.PendingIndex = status.ReadIndexAsync(r, s)
	}
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return f, err
	}
	defer t.Close()
	head, branch, err := r.HeadAndBranchWith(s, t.Lookup)
	if err != nil {
		return f, err
	}
	found, err := t.Lookup(previous+"^{commit}", s.Base+"^{commit}", cmp.Or(head, previous)+"^{tree}")
	if err != nil {
		return f, err
	}
	first, headTree := cmp.Or(found[0].OID, found[1].OID, head), found[2].OID
	if first == "" && s.IndexCache == "" {
		return f, fmt.Errorf("neither HEAD nor %s points to a commit", s.Branch)
	}
	g, err := status.CollectWorktree(ctx, r, s, head)
	defer func() { err = errors.Join(err, g.Close()) }()
	if err != nil {
		return f, err
	}
	if g.Worktree == nil {
		return f, fmt.Errorf("the tree of %s does not exist", s.Name)
	}
	f.LeftOut = g.LeftOut
	// The second scan runs while the commit is built; nothing is written unless the worktree is unchanged.
	settled := proc.Async(func() (struct{}, error) { return struct{}{}, g.CheckStable(ctx) })
	var objects []object.Raw
	f.Commit, objects, err = buildStateCommit(ctx, r, t, s, g, stateInputs{head: head, branchTip: branch, headTree: headTree, firstParent: first, previous: found[0].OID})
	if _, moved := settled(); moved != nil {
		return f, moved
	}
	if err == nil && !status.IsGitStateUnchanged(r, s, g.Index, pulse) {
		err = &status.StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
	}
	if err == nil && len(objects) > 0 {
		err = checkRuleFiles(ctx, r, t, g, headTree)
	}
	if err == nil {
		err = r.WriteObjects(ctx, g.Format, objects, g.UnsyncedBlobs...)
	}
	for _, o := range objects {
		f.Objects = append(f.Objects, o.HexOID())
	}
	f.Objects = append(f.Objects, g.WrittenBlobs...)
	if err == nil && g.SaveCache != nil {
		err = g.SaveCache()
	}
	return f, err
}

// stateInputs are the commits and trees from which a state is built, besides the collected contents.
type stateInputs struct{ head, branchTip, headTree, firstParent, previous string }

// buildStateCommit builds the commit of a state, and lists all objects to write for it. It returns the previous
// commit, and no objects, when the state is the same.
func buildStateCommit(ctx context.Context, r *git.Repo, t *git.CatFile, s git.WorktreeSpec, g status.WorktreeContents, c stateInputs) (commit string, objects []object.Raw, err error) {
	staged, work := "", g.Worktree.HexOID()
	if g.Staged != nil {
		staged = g.Staged.HexOID()
	}
	parents := parentList(c.firstParent)
	was, err := readState(t, c.previous)
	if err != nil {
		return "", nil, err
	}
	now := State{Tree: work, Head: c.head, HeadRef: status.HeadTarget(r, s), BranchTip: c.branchTip, IndexTree: staged}
	if s.IndexCache == "" {
		if now.OperationCommit, err = captureOperation(ctx, r, s, now, g.Index); err != nil {
			return "", nil, err
		}
	}
	// Otherwise the previous state already holds them.
	if c.previous == "" || was.Head != c.head || was.BranchTip != c.branchTip || was.OperationCommit != now.OperationCommit {
		if parents, err = r.AddIndependent(ctx, parents, []string{c.head, c.branchTip, now.OperationCommit}); err != nil {
			return "", nil, err
		}
	}
	if c.previous != "" && len(parents) == 1 && was.SameContents(now) {
		return c.previous, nil, nil
	}
	if objects, err = g.NewObjects(t, c.headTree); err != nil {
		return "", nil, err
	}
	if staged != "" && staged != c.headTree && staged != work {
		held := object.EncodeCommit(g.Format, s.Author, staged, parentList(c.head), StagedSubject)
		parents, objects = append(parents, held.HexOID()), append(objects, held)
	}
	made := object.EncodeCommit(g.Format, s.Author, work, parents, s.Message+now.Trailers())
	return made.HexOID(), append(objects, made), nil
}

// parentList returns the parents of a commit on top of another; none if that is empty.
func parentList(commit string) []string {
	if commit == "" {
		return nil
	}
	return []string{commit}
}

// checkRuleFiles refuses collected files of rules that must not be committed, before their trees are written.
func checkRuleFiles(ctx context.Context, r *git.Repo, t *git.CatFile, g status.WorktreeContents, known string) error {
	files, err := g.RuleFiles(t, known)
	if err != nil {
		return err
	}
	return fsck.CheckRuleFiles(ctx, r, files)
}
