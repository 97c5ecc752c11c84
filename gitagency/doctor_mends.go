package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// rewritePlace writes down where a worktree is.
func (x *examination) rewritePlace(id, tree string) func() error {
	return func() error {
		return x.store.UpdateWorktreeMeta(x.ID, id, func(m *store.WorktreeMeta) { m.TreePath, m.RepoID = tree, x.ID })
	}
}

// relink ties a tree of ours to git again. A tree that is tied to something else stays as it is.
func (x *examination) relink(ctx context.Context, s subject) error {
	if _, elsewhere, err := x.tied(s.tree, s.id); err != nil {
		return err
	} else if elsewhere != "" {
		return &UnsafePathError{Path: s.tree, Why: "belongs to " + elsewhere}
	}
	if s.base != "" && x.refs[s.branch] == "" {
		if err := x.restoreBranch(ctx, s); err != nil {
			return err
		}
	}
	return x.repo.Relink(ctx, git.Registration{Name: s.id, Tree: s.tree, Branch: s.branch})
}

// lastKnown is the commit that HEAD of a tree was at last, else the one it started from.
func (x *examination) lastKnown(ctx context.Context, s subject) (string, error) {
	commit, err := x.repo.LastCommit(ctx, s.id)
	if err != nil {
		return "", err
	}
	commit = cmp.Or(commit, s.base)
	found, err := x.repo.Lookup(ctx, commit+"^{commit}")
	if err == nil && found[0].Missing() {
		err = &NoCommitError{Name: commit}
	}
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// restoreBranch makes a branch again where its tree was last.
func (x *examination) restoreBranch(ctx context.Context, s subject) error {
	commit, err := x.lastKnown(ctx, s)
	if err != nil {
		return err
	}
	if err := x.repo.SweepRef(ctx, s.branch); err != nil {
		return err
	}
	return x.repo.RestoreRef(ctx, s.branch, commit, "agency: doctor")
}

// forgetKept deletes a ref that keeps what is all still there. If it is not, somebody has worked on, or
// brought an old tree back; then only a person can know what the ref is worth.
func (x *examination) forgetKept(ctx context.Context, s subject, f Finding, commit string) error {
	now, err := x.capture(ctx, x.repo, git.Subject{Name: s.id, Tree: s.tree, Branch: s.branch, Base: s.base, Message: "agency: what is there now"})
	if err != nil {
		return err
	}
	covered, err := x.repo.Covers(ctx, now.Commit, commit)
	if err != nil {
		return err
	}
	if !covered {
		f.What, f.AtRisk = trashRef(s.id)+" keeps what is not in the tree any more", true
		f.Mend = "git update-ref -d " + trashRef(s.id) + " " + commit
		return &FindingError{f}
	}
	return x.repo.DeleteRef(ctx, trashRef(s.id), commit)
}

// archiveAway archives a worktree, keeping what is in it and in no branch.
func (x *examination) archiveAway(w Worktree) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := x.removeWorktree(ctx, x.repo, w, true)
		return err
	}
}

// discardAway discards an invocation, keeping what is in it.
func (x *examination) discardAway(e store.Entry[store.InvocationMeta]) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := x.end(ctx, x.repo, e)
		return err
	}
}

// salvaged is what comes of a sandbox whose record is lost.
func salvaged(id string) string {
	return "the sandbox ends; everything in it but what git ignores is kept as " + trashRef(id)
}

// salvage ends an invocation whose record is lost: everything that was in its sandbox is kept under a
// ref, and so is what is left of the record; then all of it goes. Interrupted, it is taken up again.
func (x *examination) salvage(ctx context.Context, s subject, why string) error {
	if err := checkReal(s.tree); err != nil {
		return err
	}
	if err := x.checkNotMoved(x.repo, s.id, s.tree); err != nil {
		return err
	}
	lost := git.Subject{
		Name: s.id, Tree: s.tree, Branch: s.branch, Base: s.base,
		Message: fmt.Sprintf("agency: what was in sandbox %s, whose record was lost\n\n%s\n%s", s.id, why, store.Remnant(s.home)),
	}
	if err := x.mayVacate(ctx, x.repo, lost); err != nil {
		return err
	}
	vacant, err := x.vacate(ctx, s.id)
	if err != nil {
		return err
	}
	defer vacant.close()
	if vacant.commands > 0 {
		x.warn("commands that ran in %s were ended: %d", s.id, vacant.commands)
	}
	x.settle(ctx, s.id)
	if lost.Onto, err = x.kept(ctx, x.repo, s.id); err != nil {
		return err
	}
	captured, err := x.capture(ctx, x.repo, lost)
	if err != nil {
		return err
	}
	tx := x.begin("doctor")
	if err := tx.Step(ctx, "trash", func() error { return x.keep(ctx, tx, x.repo, trashRef(s.id), captured.Commit) }); err != nil {
		return err
	}
	tx.Commit()
	spec := s.spec()
	return x.forward(ctx, "doctor", []step{
		{"tree", func() error { return x.clear(ctx, x.repo, lost, epoch, nil) }},
		{"registration", func() error { return backend(x.repo).Unregister(spec) }},
		{"branch", func() error { return x.deleteSandboxBranch(ctx, x.repo, spec) }},
		{"sandbox-dir", func() error { return x.store.RemoveSandboxTree(x.ID, s.id) }},
		{"record", func() error { return durable.RemoveTree(s.home) }},
	})
}

// rewriteRecord gives an integration worktree its record back, from what its tree and git say. Of one
// that was adopted nothing but the record was ever ours; if it cannot be found, the record goes.
func (x *examination) rewriteRecord(w Worktree) error {
	tree := x.store.WorktreeTreePath(x.ID, w.ID)
	entry := x.entries[w.ID]
	if aside := store.Aside(tree); !store.IsDir(tree) && store.IsDir(aside) { // on its way out, with work in it
		if err := os.Rename(aside, tree); err != nil {
			return err
		}
	}
	if !store.IsDir(tree) {
		adopted := x.unclaimed()
		if len(adopted) != 1 {
			return store.RemoveRecord(x.store.WorktreeDir(x.ID, w.ID))
		}
		tree, entry.Branch = adopted[0].Path, adopted[0].Branch
	}
	branch := short(entry.Branch)
	name := strings.TrimSuffix(strings.TrimPrefix(branch, branchRoot+"/"), "-"+ids.Suffix(w.ID))
	taken := slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.ID != w.ID && e.Record.State == store.Present && e.Record.Name == name
	})
	if name = nameAfter(name, tree); taken || checkWorktreeName(name) != nil {
		name = "recovered-" + ids.Suffix(w.ID)
	}
	at, _ := ids.Time(w.ID)
	return x.store.WriteWorktreeMeta(store.WorktreeMeta{
		SchemaVersion: store.SchemaVersion, WorktreeID: w.ID, Name: name, RepoID: x.ID,
		Branch: branch, TreePath: tree, CreatedAt: at, State: store.Present,
	})
}
