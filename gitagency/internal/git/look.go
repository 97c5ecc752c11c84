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
type Looked struct {
	Head string // commit of HEAD
	On   string // branch that HEAD names, a full ref; Detached: none
	Tip  string // commit of the worktree's own branch; empty: the branch does not exist
	Tree string // tree of Head
	Work string // tree of the files on disk; the mirror has it if it is not HeadTree

	Uncommitted []string  // files that differ from Head, on disk or in the index
	Ignored     []string  // ignored directories that were not scanned; not those inside of another
	LeftOut     []LeftOut // files that are in neither DiskTree nor Uncommitted
	Begun       Begun
}

// OngoingOperation is a git operation in progress in a worktree.
type Begun struct {
	What     string // git command, such as "merge" or "rebase"; "conflicts": unmerged entries only; empty: none
	Outside  bool   // a git inside the sandbox's walls does not see the operation
	Unstaged bool   // the index equals HEAD: committing a merge now would take over nothing of it
}

// Inspect reports the state of a worktree in which no process should be writing. The report is one consistent state that
// the worktree was in; if it keeps changing, the error is a *StillChangingError. Inspect changes nothing in the worktree
// and the repository, and writes no objects to the mirror if nothing is uncommitted.
func (m *Merger) Look(ctx context.Context, s Subject) (l Looked, err error) {
	s.asIs = true
	const tries = 8
	for range tries {
		if l, err = m.look(ctx, s); !errors.As(err, new(*UnsettledError)) {
			break
		}
	}
	if err == nil && l.Work != l.Tree {
		err = m.adopt(ctx, l.Work, l.Tree)
	}
	return l, err
}

// inspectOnce is one attempt of Inspect.
func (m *Merger) look(ctx context.Context, s Subject) (l Looked, err error) {
	r := m.repo
	pulse := r.pulse(s)
	s.ahead = r.readAhead(s)
	// Scan the worktree while git resolves HEAD, if HEAD can also be read from its files.
	found := proc.Meanwhile(func() (Looked, error) { return m.whereabouts(ctx, s) })
	head, ok := r.HeadAtOnce(s)
	if !ok {
		if l, err = found(); err != nil {
			return l, err
		}
		head = l.Head
	}
	g, unread := r.gather(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if l, err = found(); err != nil || unread != nil {
		return l, errors.Join(err, unread)
	}
	if l.Head != head {
		if again, _ := r.HeadAtOnce(s); again != head {
			return l, &UnsettledError{Tree: s.Tree, Paths: []string{".git"}}
		}
		if err := g.close(); err != nil { // HEAD names a missing commit
			return l, err
		}
		if g, err = r.gather(ctx, s, l.Head); err != nil {
			return l, err
		}
	}
	l.On = r.on(s)
	if g.work == nil {
		return l, fmt.Errorf("%s is not a directory", s.Tree)
	}
	if err := g.settle(ctx); err != nil {
		return l, err
	}
	if !r.sameStaged(s, g.index, pulse) {
		return l, &UnsettledError{Tree: s.Tree, Paths: []string{".git"}}
	}
	l.Ignored, l.LeftOut, l.Work, l.Begun = g.passed, g.leftOut, g.work.name(), r.begun(s)
	if g.staged == nil && l.Begun.What == "" {
		l.Begun.What = conflictsOnly
	}
	l.Begun.Unstaged = g.staged != nil && g.staged.name() == l.Tree
	if l.Work == l.Tree && (g.staged == nil || g.staged.name() == l.Tree) {
		return l, nil
	}
	if err := m.asking(ctx, func(t *teller) error { return r.keepTrees(ctx, t, g, l.Tree) }); err != nil {
		return l, err
	}
	trees := []string{l.Work}
	if g.staged != nil {
		trees = append(trees, g.staged.name())
	}
	for _, tree := range trees {
		changes, err := r.treeChanges(ctx, m.place(), l.Tree, tree)
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
func (m *Merger) whereabouts(ctx context.Context, s Subject) (l Looked, err error) {
	err = m.asking(ctx, func(t *teller) error {
		if l.Head, l.Tip, err = m.repo.tipsBy(s, t.info); err != nil {
			return err
		}
		found, err := t.info(l.Head + "^{tree}")
		if err != nil {
			return err
		}
		l.Tree = found[0].OID
		return m.repo.lostHead(s, l.Head, t.info)
	})
	if err == nil && l.Tree == "" {
		err = fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	return l, err
}

// conflictsOnly is the Command of an OngoingOperation of which only unmerged index entries are left.
const conflictsOnly = "conflicts"

// detectOperation returns the operation in progress in the git directory that a git in the worktree uses.
func (r *Repo) begun(s Subject) Begun {
	return Begun{What: UnderwayIn(r.entryOf(s)), Outside: s.Layer != "" && r.entryOf(s) == r.AdminDir(s.Name)}
}

// FindOperation returns the operation in progress in a worktree, inside or outside of its walls, or "conflicts" if the
// state has no index tree because of unmerged entries.
func (r *Repo) Begun(ctx context.Context, s Subject, state State) (Begun, error) {
	b := r.begun(s)
	if b.What == "" && !b.Outside {
		b = Begun{What: UnderwayIn(r.AdminDir(s.Name)), Outside: s.Layer != ""}
	}
	if b.What == "" && state.Index == "" {
		b.What = conflictsOnly
	}
	found, err := r.Lookup(ctx, state.Head+"^{tree}")
	if err == nil {
		b.Unstaged = found[0].OID == state.Index
	}
	return b, err
}

// OperationIn returns the git command whose operation is in progress in a worktree's git directory, which is the command
// that continues or aborts it; empty: none.
func UnderwayIn(gitDir string) string {
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
