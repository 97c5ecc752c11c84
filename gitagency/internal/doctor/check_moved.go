package doctor

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkMovedRepository finds records of this repository under its former path.
func (x *checkRun) checkMovedRepository(context.Context) error {
	repos, err := x.Store.Repos()
	if err != nil {
		return err
	}
	for _, r := range repos {
		if r.RepoID == x.ID {
			x.formerIDs = r.FormerIDs
			x.checkRepoRecord(r)
			continue
		}
		for _, move := range r.Relocations { // an interrupted fix took them to the repository that was at this path before
			for _, id := range move.IDs {
				x.movedIDs[id] = x.movedIDs[id] || move.From == x.ID && store.IsDir(r.CommonDir)
			}
		}
	}
	former, err := x.FormerRecords()
	if err != nil {
		return err
	}
	for _, old := range former {
		for _, id := range old.IDs {
			x.movedIDs[id] = true
		}
		if old.Mounted {
			continue
		}
		x.hasMoved = true
		problem := (&fault.MovedRepositoryError{From: old.CommonDir, RepoID: old.RepoID}).Error()
		if x.Store.HasRepo(x.ID) && len(old.Moved) == 0 {
			problem += "; it has other records here, so if it is a copy, and the original was moved, run 'git agency doctor' in the original first"
		}
		x.addFinding(Finding{
			Code: "moved-repository", ID: old.RepoID, Path: x.Store.RepoDir(old.RepoID), AtRisk: true, Problem: problem,
		}, func(ctx context.Context) error { return x.relocateRecords(ctx, old) })
	}
	return nil
}

// checkRepoRecord finds a repo.json that does not name its repository.
func (x *checkRun) checkRepoRecord(r store.RepoRecord) {
	if r.CommonDir == "" && !x.changing {
		x.addFinding(Finding{Code: "damaged-repo", ID: x.ID, Path: x.Store.RepoDir(x.ID), Problem: "repo.json does not name the repository that the records belong to"},
			func(context.Context) error { return x.Store.WriteRepoRecord(x.ID, x.CommonDir, x.Now()) })
	}
}

// relocateRecords moves the records and trees of a moved repository to its new path, and fixes the links of each. It moves
// nothing while commands run in a sandbox: they would neither find git's files, nor the directory for their history.
func (x *checkRun) relocateRecords(ctx context.Context, old core.FormerRecords) error {
	for _, id := range old.IDs {
		label := x.Store.InvocationDir(old.RepoID, id)
		if len(proc.FindSupervisors(label)) > 0 {
			return &fault.RunningError{ID: id, Programs: proc.TaskCommands(label)}
		}
	}
	relocate := func() error { return x.Store.RelocateRepo(old.RepoID, x.ID, x.CommonDir, x.Now()) }
	if old.Replaced {
		relocate = func() error {
			move := store.Relocation{From: old.RepoID, Replaced: true, IDs: slices.Concat(old.IDs, old.Moved), Copied: old.Shared}
			return x.Store.RelocateRecords(x.ID, x.CommonDir, x.Now(), move)
		}
	}
	if err := relocate(); err != nil {
		return err
	}
	moved := slices.Concat(old.IDs, old.Moved, old.Shared)
	again := &checkRun{Repository: x.Repository, repo: x.repo, cleanupRunning: x.cleanupRunning}
	if err := again.runAll(ctx); err != nil {
		return err
	}
	for _, f := range again.findings {
		if f.fix != nil && slices.Contains(moved, f.ID) && (f.Code == "moved-data" || f.Code == "moved-tree" || f.Code == "unlinked-tree") {
			if err := f.fix(ctx); err != nil {
				return err
			}
		}
	}
	return x.Store.EndRelocation(old.RepoID, x.ID)
}

// mainTree returns the path of the main worktree; empty if the git directory is not in one.
func (x *checkRun) mainTree() string {
	tree, inTree := strings.CutSuffix(x.CommonDir, "/.git")
	if !inTree {
		return ""
	}
	return tree
}

// movedPath returns the path that a tree has since it was moved together with the repository; empty if there is none. The
// id of a repository is made of the path of its git directory, so former ids tell former paths: those of a directory around
// the tree and the git directory, or beside the tree, if a directory around both was moved.
func (x *checkRun) movedPath(tree string) string {
	if len(x.formerIDs) == 0 {
		return ""
	}
	for from := tree; from != filepath.Dir(from); from = filepath.Dir(from) {
		for to := x.CommonDir; to != filepath.Dir(to); to = filepath.Dir(to) {
			if !slices.Contains(x.formerIDs, store.RepoID(from+strings.TrimPrefix(x.CommonDir, to))) {
				continue
			}
			if moved := to + strings.TrimPrefix(tree, from); store.IsDir(moved) {
				return moved
			}
		}
	}
	return ""
}

// formerEntry returns the name of git's worktree entry of a linked worktree that has to be linked again since the repository
// or the worktree was moved; empty if the tree is none. Its .git file names the entry at a former path of the repository or,
// after an interrupted fix or a move without git, the entry that still names the former path of the tree.
func (x *checkRun) formerEntry(tree string) string {
	at, err := git.DotGitTarget(tree)
	if err != nil || at == "" {
		return ""
	}
	name, admin := filepath.Base(at), filepath.Dir(at)
	e, registered := x.entries[name]
	former := !store.IsDir(at) && filepath.Base(admin) == "worktrees" && slices.Contains(x.formerIDs, store.RepoID(filepath.Dir(admin)))
	half := core.SameDirectory(at, x.repo.AdminDir(name)) && e.Path != "" && e.Path != tree
	if !registered || !former && !half || store.IsDir(e.Path) && !core.SameDirectory(e.Path, tree) { // the entry has another tree now
		return ""
	}
	return name
}

// relinkFormerEntry connects a moved linked worktree, or one of a moved repository, with its entry, as 'git worktree repair' does. It
// does nothing for other trees.
func (x *checkRun) relinkFormerEntry(ctx context.Context, tree string) error {
	name := x.formerEntry(tree)
	if name == "" {
		return nil
	}
	return repair.RelinkWorktree(ctx, x.repo, worktree.Registration{Name: name, Tree: tree, Branch: x.entries[name].Branch})
}

// readoptedAs returns the record of the worktree that the tree of an adopted worktree was adopted as again, after the
// repository was moved and before its records were; nil if there is none.
func (x *checkRun) readoptedAs(w core.Worktree) *store.Entry[store.WorktreeMeta] {
	if !w.Adopted || w.State != store.Present || w.Entry.Defect != store.MissingTree && !hasOtherRepoID(w) {
		return nil
	}
	tree := cmp.Or(x.movedPath(w.TreePath), w.TreePath)
	for _, e := range x.worktrees {
		if e.ID != w.ID && e.Defect == store.NoDefect && e.Record.State == store.Present && core.SameDirectory(e.TreePath, tree) {
			return &e
		}
	}
	return nil
}

// reportReadopted reports a tree with two records. Its sandboxes get the newer one, which the user made last and whose
// name and path are right, and the older one is archived: its marker is that of the newer one.
func (x *checkRun) reportReadopted(w core.Worktree, now *store.Entry[store.WorktreeMeta]) {
	x.addFinding(Finding{
		Code: "moved-tree", ID: w.ID, Path: w.TreePath, AtRisk: true,
		Problem: "the tree is now at " + now.TreePath + ", and was adopted again as " + now.Record.Name + " (" + now.ID + ")",
		Outcome: "its sandboxes belong to worktree " + now.ID + ", and this record is archived",
	}, func(context.Context) error {
		for _, e := range x.invocations {
			if e.Record.IntegrationWorktreeID != w.ID {
				continue
			}
			if err := x.Store.UpdateInvocationMeta(x.ID, e.ID, func(m *store.InvocationMeta) {
				m.IntegrationWorktreeID = now.ID
				if m.IntegrationBranch == "" && w.Branch != "" { // it meant the branch of the older record
					m.IntegrationBranch = core.HeadsPrefix + w.Branch
				}
			}); err != nil {
				return err
			}
		}
		return x.Store.UpdateWorktreeMeta(x.ID, w.ID, func(m *store.WorktreeMeta) { m.State, m.RepoID = store.Archived, x.ID })
	})
}
