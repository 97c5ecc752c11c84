package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// Restoration takes a worktree from one captured state to another: its files, its index, its branch and HEAD, and the
// operation in progress. No other process may work in it meanwhile.
//
// The files change by git's two-way merge, from a scratch index that equals what is on disk, to the target state: so
// only contents that the first state holds are ever overwritten or removed. Anything else has to be moved out of the
// way before: see ObstructingPaths. Every step can be repeated, from whatever state a killed process has left.
type Restoration struct {
	From, To         State
	Interrupted      State  // state from which a killed restoration started, when this one finishes it
	RemoveBranchLock bool   // a killed restoration may have left a lock on the branch; set by the caller
	DetachedFrom     string // branch that HEAD named, when that has moved since; HEAD is detached then
	IndexFromHead    bool   // the index of the target state is unknown; it is taken from HEAD

	repo            *git.Repo
	spec            git.WorktreeSpec
	scratch         git.RunOptions // scratch git directory with an index of what is on disk
	operation       Operation
	changes         []git.TreeChange
	trees           [2]string // from and to, without skip-worktree entries that are not on disk
	skippedAbsent   []string  // skip-worktree entries that are not on disk
	skippedPresent  []string  // skip-worktree entries that are on disk all the same
	assumeUnchanged []string  // assume-unchanged entries
	readOnlyDirs    []string  // directories of the worktree without write permission, which we own and can chmod
	draft           *git.IndexDraft
}

// PrepareRestore prepares to take a worktree from its present state, which was captured a moment ago, to another. It
// changes nothing yet, and refuses when not every step could be done. To finish a killed restoration, began is the
// state from which that one started; otherwise it is empty.
func PrepareRestore(ctx context.Context, r *git.Repo, s git.WorktreeSpec, from, to, began State) (_ *Restoration, err error) {
	if r, err = r.WithConfigOf(ctx, s); err != nil {
		return nil, err
	}
	x := &Restoration{repo: r, spec: s, From: from, To: to, Interrupted: began}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	if err := fsck.CheckTree(ctx, r, to.Tree, from.Tree); err != nil {
		return nil, err
	}
	if to.IndexTree != "" {
		if err := fsck.CheckTree(ctx, r, to.IndexTree, to.Tree); err != nil {
			return nil, err
		}
	}
	if x.operation, err = ReadOperation(ctx, r, to); err != nil {
		return nil, err
	}
	if x.changes, err = r.TreeChanges(ctx, git.RunOptions{}, from.Tree, to.Tree); err != nil {
		return nil, err
	}
	if err := x.buildIndex(ctx); err != nil {
		return nil, err
	}
	if err := x.checkFilters(ctx); err != nil {
		return nil, err
	}
	if err := x.checkBlobs(ctx); err != nil {
		return nil, err
	}
	if err := x.findReadOnlyDirs(); err != nil {
		return nil, err
	}
	if err := x.mergeToTarget(ctx, "--dry-run"); err != nil {
		return nil, err
	}
	return x, nil
}

// IndexStamp returns a stamp of the index file of a worktree. As long as it is the same, the index is unchanged.
func IndexStamp(r *git.Repo, name string) string {
	fi, err := os.Lstat(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return ""
	}
	return durable.StatFingerprint(fi)
}

// LockIndex keeps git from writing the index until Close. The error is a *git.LockedError when a git process holds the
// lock, and a *ChangedMeanwhileError when something was staged or committed since the index had that stamp. The stamp
// has to be from before the first state was captured, because that state would not hold such changes.
func (x *Restoration) LockIndex(ctx context.Context, stamp string) (err error) {
	r := x.repo
	if x.draft, err = r.NewIndexDraft(x.spec.Name); err != nil {
		return err
	}
	if err := x.draft.Lock(); err != nil {
		return err
	}
	tip, err := r.Tip(ctx, x.spec.Branch)
	if err != nil {
		return err
	}
	head, err := git.ReadSmallFile(r.AdminDir(x.spec.Name), "HEAD")
	if err != nil {
		return err
	}
	at := strings.TrimSpace(string(head))
	if on, is := strings.CutPrefix(at, "ref: "); is {
		if at, err = r.Tip(ctx, on); err != nil {
			return err
		}
	}
	if tip != "" && tip != x.From.BranchTip || at != "" && at != x.From.Head || status.HeadTarget(r, x.spec) != x.From.HeadRef {
		return &ChangedMeanwhileError{Path: "HEAD"}
	}
	if x.From.HeadRef != x.spec.Branch { // otherwise no other worktree can have it checked out
		if free, err := x.onlyCheckedOutHere(ctx, x.spec.Branch); err != nil || !free {
			return errors.Join(err, &ObstructionError{Path: strings.TrimPrefix(x.spec.Branch, "refs/heads/"), Reason: "the branch is checked out elsewhere"})
		}
	}
	if IndexStamp(r, x.spec.Name) == stamp {
		return nil
	}
	now, err := currentIndexTree(ctx, r, x.spec, x.scratch)
	if err == nil && now != x.From.IndexTree { // by content, because git writes the index even in commands that only read
		err = &ChangedMeanwhileError{Path: "the index"}
	}
	return err
}

// currentIndexTree returns the tree of the index; empty when it cannot be written.
func currentIndexTree(ctx context.Context, r *git.Repo, s git.WorktreeSpec, p git.RunOptions) (string, error) {
	dir := filepath.Join(p.GitDir, "now")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	_, err := r.FillScratchGitDir(s, "", dir) // p already has this environment
	if err := errors.Join(err, r.CopyIndexFiles(s.Name, dir)); err != nil {
		return "", err
	}
	p.GitDir = dir
	tree, err := r.WriteTree(ctx, p)
	if git.ExitedWith(err, 128) {
		return "", nil
	}
	return tree, err
}

// Close removes the scratch git directory and releases the lock on the index.
func (x *Restoration) Close() error {
	if x == nil {
		return nil
	}
	err := x.draft.Drop()
	if x.scratch.GitDir != "" {
		err = errors.Join(err, durable.RemoveTree(x.scratch.GitDir))
	}
	return err
}

// ChangeCounts returns how many files are added, changed and removed.
func (x *Restoration) ChangeCounts() (added, changed, removed int) {
	for _, c := range x.changes {
		switch c.Status {
		case 'A':
			added++
		case 'D':
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}
