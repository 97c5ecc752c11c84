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

// Looked is where a worktree is, and what there is in it that no commit holds.
type Looked struct {
	Head string // the commit that HEAD is at
	On   string // the branch that HEAD names, a full ref; Detached when it names none
	Tip  string // where the worktree's own branch is; empty when it is not there
	Tree string // of Head
	Work string // the tree of what is on disk, which the mirror has where it is another

	Uncommitted []string  // files that are not as Head has them, on disk or staged
	Ignored     []string  // directories in which git was told not to look; of one in another only that
	LeftOut     []LeftOut // what neither Work nor Uncommitted has
	Begun       Begun
}

// Begun is what git is in the middle of in a worktree.
type Begun struct {
	What     string // as its commands are called: "merge", "rebase"; "conflicts" where nothing says of what; empty when nothing
	Outside  bool   // a git behind the walls of the worktree knows nothing of it
	Unstaged bool   // nothing of it is in the index: a merge that is committed now takes nothing over
}

// Look looks at a worktree that nobody should be at work in: it is one state that the worktree was in, or an
// *UnsettledError. Nothing is changed. A worktree with nothing uncommitted takes nothing but looking.
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

// look is Look, once.
func (m *Merger) look(ctx context.Context, s Subject) (l Looked, err error) {
	r := m.repo
	pulse := r.pulse(s)
	s.ahead = r.readAhead(s)
	// What is on disk is looked at while git says where HEAD is, if the files that say so too are easily read.
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
		if err := g.close(); err != nil { // HEAD names what is not there
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

// whereabouts finds out where HEAD is.
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

// conflictsOnly is what is begun where there are conflicts and nothing else.
const conflictsOnly = "conflicts"

// begun says what a git that works in a worktree is in the middle of.
func (r *Repo) begun(s Subject) Begun {
	return Begun{What: UnderwayIn(r.entryOf(s)), Outside: s.Layer != "" && r.entryOf(s) == r.AdminDir(s.Name)}
}

// Begun says what git is in the middle of in a worktree, on either side of its walls, if that is not what the state says.
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

// UnderwayIn says what git is in the middle of in a worktree, by its git directory: the command that would end it.
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
