package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Inspect reports the state of a worktree in which no process should be writing. The report is one consistent state
// that the worktree was in; if it keeps changing, the error is a *status.StillChangingError. Inspect changes nothing in
// the worktree and the repository, and writes no objects to the mirror if nothing is uncommitted.
func (m *Merger) Inspect(ctx context.Context, s git.WorktreeSpec) (l status.Report, err error) {
	s.InUse = true
	const tries = 8
	for range tries {
		if l, err = m.inspectOnce(ctx, s); !errors.As(err, new(*status.StillChangingError)) {
			break
		}
	}
	if err == nil && l.DiskTree != l.HeadTree {
		err = m.adoptNewObjects(ctx, l.DiskTree, l.HeadTree)
	}
	return l, err
}

// inspectOnce is one attempt of Inspect.
func (m *Merger) inspectOnce(ctx context.Context, s git.WorktreeSpec) (l status.Report, err error) {
	r := m.Repo
	pulse := status.StampGitState(r, s)
	s.PendingIndex = status.ReadIndexAsync(r, s)
	// Scan the worktree while git resolves HEAD, if HEAD can also be read from its files.
	found := proc.Async(func() (status.Report, error) { return m.resolveHead(ctx, s) })
	head, ok := r.HeadFromFiles(s)
	if !ok {
		if l, err = found(); err != nil {
			return l, err
		}
		head = l.Head
	}
	g, unread := status.CollectWorktree(ctx, r, s, head)
	defer func() { err = errors.Join(err, g.Close()) }()
	if l, err = found(); err != nil || unread != nil {
		return l, errors.Join(err, unread)
	}
	if l.Head != head {
		if again, _ := r.HeadFromFiles(s); again != head {
			return l, &status.StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
		}
		if err := g.Close(); err != nil { // HEAD names a missing commit
			return l, err
		}
		if g, err = status.CollectWorktree(ctx, r, s, l.Head); err != nil {
			return l, err
		}
	}
	l.Branch = status.HeadTarget(r, s)
	if g.Worktree == nil {
		return l, fmt.Errorf("%s is not a directory", s.Dir)
	}
	if err := g.CheckStable(ctx); err != nil {
		return l, err
	}
	if !status.IsGitStateUnchanged(r, s, g.Index, pulse) {
		return l, &status.StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
	}
	l.IgnoredDirs, l.LeftOut, l.DiskTree, l.InProgress = g.IgnoredDirs, g.LeftOut, g.Worktree.HexOID(), status.DetectOperation(r, s)
	if g.Staged == nil && l.InProgress.Command == "" {
		l.InProgress.Command = status.ConflictsOnly
	}
	l.InProgress.IndexUnchanged = g.Staged != nil && g.Staged.HexOID() == l.HeadTree
	if l.DiskTree == l.HeadTree && (g.Staged == nil || g.Staged.HexOID() == l.HeadTree) {
		return l, nil
	}
	if err := m.WithCatFile(ctx, func(t *git.CatFile) (err error) {
		if l.RuleFiles, err = g.RuleFiles(t, l.HeadTree); err != nil {
			return err
		}
		return status.StoreTrees(ctx, r, t, g, l.HeadTree)
	}); err != nil {
		return l, err
	}
	trees := []string{l.DiskTree}
	if g.Staged != nil {
		trees = append(trees, g.Staged.HexOID())
	}
	for _, tree := range trees {
		changes, err := r.TreeChanges(ctx, m.GitOptions(), l.HeadTree, tree)
		if err != nil {
			return l, err
		}
		for _, c := range changes {
			l.Uncommitted = append(l.Uncommitted, c.Path)
		}
	}
	slices.Sort(l.Uncommitted)
	l.Uncommitted = slices.Compact(l.Uncommitted)
	return l, nil
}

// resolveHead asks git for HEAD, its tree and the tip of the worktree's branch.
func (m *Merger) resolveHead(ctx context.Context, s git.WorktreeSpec) (l status.Report, err error) {
	err = m.WithCatFile(ctx, func(t *git.CatFile) error {
		if l.Head, l.BranchTip, err = m.Repo.HeadAndBranchWith(s, t.Lookup); err != nil {
			return err
		}
		found, err := t.Lookup(l.Head + "^{tree}")
		if err != nil {
			return err
		}
		l.HeadTree = found[0].OID
		return repair.CheckHeadWith(m.Repo, s, l.Head, t.Lookup)
	})
	if err == nil && l.HeadTree == "" {
		err = fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	return l, err
}

// CheckUncommitted refuses uncommitted files of rules that must not be committed: see fsck.CheckRuleFiles.
func (m *Merger) CheckUncommitted(ctx context.Context, l status.Report) error {
	return fsck.CheckRuleFiles(ctx, m.Repo, l.RuleFiles)
}
