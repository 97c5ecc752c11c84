package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Report is the state of a worktree: where HEAD is, and which files are not committed.
type Report struct {
	Head      string // commit of HEAD
	Branch    string // branch that HEAD names, a full ref; Detached: none
	BranchTip string // commit of the worktree's own branch; empty: the branch does not exist
	HeadTree  string // tree of Head
	DiskTree  string // tree of the files on disk; the mirror has it if it is not HeadTree

	Uncommitted []string  // files that differ from Head, on disk or in the index
	IgnoredDirs []string  // ignored directories that were not scanned; not those inside of another
	LeftOut     []LeftOut // files that are in neither DiskTree nor Uncommitted
	InProgress  OngoingOperation
}

// OngoingOperation is a git operation in progress in a worktree.
type OngoingOperation struct {
	Command        string // git command, such as "merge" or "rebase"; "conflicts": unmerged entries only; empty: none
	OutsideWalls   bool   // a git inside the sandbox's walls does not see the operation
	IndexUnchanged bool   // the index equals HEAD: committing a merge now would take over nothing of it
}

// Inspect reports the state of a worktree in which no process should be writing. The report is one consistent state that
// the worktree was in; if it keeps changing, the error is a *StillChangingError. Inspect changes nothing in the worktree
// and the repository, and writes no objects to the mirror if nothing is uncommitted.
func (m *Merger) Inspect(ctx context.Context, s WorktreeSpec) (l Report, err error) {
	s.inUse = true
	const tries = 8
	for range tries {
		if l, err = m.inspectOnce(ctx, s); !errors.As(err, new(*StillChangingError)) {
			break
		}
	}
	if err == nil && l.DiskTree != l.HeadTree {
		err = m.adoptNewObjects(ctx, l.DiskTree, l.HeadTree)
	}
	return l, err
}

// inspectOnce is one attempt of Inspect.
func (m *Merger) inspectOnce(ctx context.Context, s WorktreeSpec) (l Report, err error) {
	r := m.repo
	pulse := r.stampGitState(s)
	s.pendingIndex = r.readIndexAsync(s)
	// Scan the worktree while git resolves HEAD, if HEAD can also be read from its files.
	found := proc.Async(func() (Report, error) { return m.resolveHead(ctx, s) })
	head, ok := r.HeadFromFiles(s)
	if !ok {
		if l, err = found(); err != nil {
			return l, err
		}
		head = l.Head
	}
	g, unread := r.collectWorktree(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if l, err = found(); err != nil || unread != nil {
		return l, errors.Join(err, unread)
	}
	if l.Head != head {
		if again, _ := r.HeadFromFiles(s); again != head {
			return l, &StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
		}
		if err := g.close(); err != nil { // HEAD names a missing commit
			return l, err
		}
		if g, err = r.collectWorktree(ctx, s, l.Head); err != nil {
			return l, err
		}
	}
	l.Branch = r.headTarget(s)
	if g.worktree == nil {
		return l, fmt.Errorf("%s is not a directory", s.Dir)
	}
	if err := g.checkStable(ctx); err != nil {
		return l, err
	}
	if !r.isGitStateUnchanged(s, g.index, pulse) {
		return l, &StillChangingError{Dir: s.Dir, Paths: []string{".git"}}
	}
	l.IgnoredDirs, l.LeftOut, l.DiskTree, l.InProgress = g.ignoredDirs, g.leftOut, g.worktree.hexOID(), r.detectOperation(s)
	if g.staged == nil && l.InProgress.Command == "" {
		l.InProgress.Command = conflictsOnly
	}
	l.InProgress.IndexUnchanged = g.staged != nil && g.staged.hexOID() == l.HeadTree
	if l.DiskTree == l.HeadTree && (g.staged == nil || g.staged.hexOID() == l.HeadTree) {
		return l, nil
	}
	if err := m.withCatFile(ctx, func(t *catFile) error { return r.storeTrees(ctx, t, g, l.HeadTree) }); err != nil {
		return l, err
	}
	trees := []string{l.DiskTree}
	if g.staged != nil {
		trees = append(trees, g.staged.hexOID())
	}
	for _, tree := range trees {
		changes, err := r.treeChanges(ctx, m.gitOptions(), l.HeadTree, tree)
		if err != nil {
			return l, err
		}
		for _, c := range changes {
			l.Uncommitted = append(l.Uncommitted, c.path)
		}
	}
	slices.Sort(l.Uncommitted)
	l.Uncommitted = slices.Compact(l.Uncommitted)
	return l, nil
}

// resolveHead asks git for HEAD, its tree and the tip of the worktree's branch.
func (m *Merger) resolveHead(ctx context.Context, s WorktreeSpec) (l Report, err error) {
	err = m.withCatFile(ctx, func(t *catFile) error {
		if l.Head, l.BranchTip, err = m.repo.headAndBranchWith(s, t.lookup); err != nil {
			return err
		}
		found, err := t.lookup(l.Head + "^{tree}")
		if err != nil {
			return err
		}
		l.HeadTree = found[0].OID
		return m.repo.checkHeadWith(s, l.Head, t.lookup)
	})
	if err == nil && l.HeadTree == "" {
		err = fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	return l, err
}

// conflictsOnly is the Command of an OngoingOperation of which only unmerged index entries are left.
const conflictsOnly = "conflicts"

// detectOperation returns the operation in progress in the git directory that a git in the worktree uses.
func (r *Repo) detectOperation(s WorktreeSpec) OngoingOperation {
	return OngoingOperation{Command: OperationIn(r.worktreeAdminDir(s)), OutsideWalls: s.UpperDir != "" && r.worktreeAdminDir(s) == r.AdminDir(s.Name)}
}

// FindOperation returns the operation in progress in a worktree, inside or outside of its walls, or "conflicts" if the
// state has no index tree because of unmerged entries.
func (r *Repo) FindOperation(ctx context.Context, s WorktreeSpec, state State) (OngoingOperation, error) {
	b := r.detectOperation(s)
	if b.Command == "" && !b.OutsideWalls {
		b = OngoingOperation{Command: OperationIn(r.AdminDir(s.Name)), OutsideWalls: s.UpperDir != ""}
	}
	if b.Command == "" && state.IndexTree == "" {
		b.Command = conflictsOnly
	}
	found, err := r.Lookup(ctx, state.Head+"^{tree}")
	if err == nil {
		b.IndexUnchanged = found[0].OID == state.IndexTree
	}
	return b, err
}

// OperationIn returns the git command whose operation is in progress in a worktree's git directory, which is the command
// that continues or aborts it; empty: none.
func OperationIn(gitDir string) string {
	for _, sign := range []struct{ file, what string }{
		{"rebase-merge", "rebase"},
		{"rebase-apply/applying", "am"},
		{"rebase-apply", "rebase"},
		{"MERGE_HEAD", "merge"},
		{"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"},
		{"sequencer", "cherry-pick"},
		{"BISECT_START", "bisect"},
		{"BISECT_LOG", "bisect"},
	} {
		if _, err := os.Lstat(filepath.Join(gitDir, sign.file)); err == nil {
			return sign.what
		}
	}
	return ""
}
