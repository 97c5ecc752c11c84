package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkSandboxes checks the record and the tree of every invocation.
func (x *checkRun) checkSandboxes(ctx context.Context) error {
	for _, e := range x.invocations {
		if x.movedIDs[e.ID] {
			continue
		}
		s := treeInfo{
			id: e.ID, recordDir: x.Store.InvocationDir(x.ID, e.ID), tree: x.Store.SandboxTreePath(x.ID, e.ID),
			branch: core.SandboxRef(e.ID), base: e.Record.BaseCommit, marker: guard.Sandbox, managed: true,
		}
		switch {
		case e.Defect != store.NoDefect && e.Intent != nil:
			x.reportInterruptedCreation(s, func(ctx context.Context) error {
				return creation.UndoInterrupted(ctx, x.Repository, x.repo, e.ID, *e.Intent)
			})
		case x.treeMovedWithData(e.Record.SandboxPath, s):
			x.reportMovedData(s, func() error {
				return x.Store.UpdateInvocationMeta(x.ID, e.ID, func(m *store.InvocationMeta) { m.SandboxPath = s.tree })
			})
		case e.Defect == store.MissingTree && store.IsDir(store.OverlayOf(s.tree)):
			x.reportMissingMountPoint(s)
		case e.Defect == store.MissingTree:
			x.reportMissingTree(s, "git agency discard "+e.ID, "the invocation is discarded; its commits are kept as "+core.TrashRef(e.ID), x.fixByDiscarding(e))
		case e.Defect != store.NoDefect:
			x.reportBrokenRecord(s, e.Defect, e.Detail, salvageOutcome(e.ID), func(ctx context.Context) error { return x.salvageSandbox(ctx, s, e.Detail) })
		case e.Record.HasEnded():
			x.checkEndedSandbox(s, e)
		default:
			x.checkPrematureTrash(s, "half-discarded")
			x.checkUploads(ctx, s)
			x.findInterruptedRollback(s)
			x.checkLayer(s)
			if !x.checkClone(s, e) {
				x.checkTree(ctx, s, "the invocation is discarded; its files are kept as "+core.TrashRef(e.ID), x.fixByDiscarding(e))
			}
			x.findAbandonedVerification(s, e)
			x.checkTarget(ctx, e)
		}
	}
	return nil
}

// checkIntegrationWorktrees checks the record and the tree of every integration worktree.
func (x *checkRun) checkIntegrationWorktrees(ctx context.Context) error {
	for _, e := range x.worktrees {
		if x.movedIDs[e.ID] {
			continue
		}
		w := x.WorktreeFromEntry(e)
		s := treeInfo{
			id: e.ID, recordDir: x.Store.WorktreeDir(x.ID, e.ID), tree: e.TreePath, branch: core.HeadsPrefix + e.Record.Branch,
			marker: guard.Integration, managed: !w.Adopted,
		}
		made := s
		made.tree = x.Store.WorktreeTreePath(x.ID, e.ID)
		switch {
		case e.Defect != store.NoDefect && e.Intent != nil:
			x.reportInterruptedCreation(s, func(ctx context.Context) error { return x.RemoveBrokenWorktree(ctx, x.repo, w) })
		case e.Defect == store.Incomplete:
			x.reportBrokenRecord(s, e.Defect, e.Detail, "", func(ctx context.Context) error { return x.RemoveBrokenWorktree(ctx, x.repo, w) })
		case x.treeMovedWithData(e.Record.TreePath, made) || hasOtherRepoID(w) && store.IsDir(made.tree):
			x.reportMovedData(made, x.setTreePath(e.ID, made.tree))
		case x.readoptedAs(w) != nil:
			x.reportReadopted(w, x.readoptedAs(w))
		case hasOtherRepoID(w) || e.Defect == store.MissingTree && x.findMovedAdopted(w) != "":
			to := cmp.Or(x.findMovedAdopted(w), s.tree)
			x.addFinding(Finding{Code: "moved-tree", ID: e.ID, Path: e.TreePath, Problem: "the tree is now at " + to}, func(ctx context.Context) error {
				if err := x.relinkFormerEntry(ctx, to); err != nil {
					return err
				}
				return x.setTreePath(e.ID, to)()
			})
		case e.Defect == store.MissingTree:
			x.reportMissingTree(s, "git agency worktree rm "+e.ID, "the worktree is archived; its branch is kept", x.fixByArchiving(w))
		case e.Defect != store.NoDefect:
			x.reportBrokenRecord(s, e.Defect, e.Detail, "the record is written again", func(ctx context.Context) error { return x.rebuildWorktreeRecord(w) })
		case w.State == store.Archived:
			x.checkArchivedWorktree(ctx, s, w)
		default:
			x.checkPrematureTrash(s, "half-archived")
			x.checkTree(ctx, s, "the worktree is archived; its files are kept as "+core.TrashRef(e.ID), x.fixByArchiving(w))
		}
	}
	return nil
}

// hasOtherRepoID reports whether the record of a worktree names another repository id: the repository was moved.
func hasOtherRepoID(w core.Worktree) bool {
	m := w.Entry.Record
	return m.WorktreeID == w.ID && m.RepoID != "" && m.RepoID != w.RepoID
}

// treeInfo describes a sandbox or an integration worktree to the checks.
type treeInfo struct {
	id, recordDir, tree string
	branch              string // full ref
	base                string
	marker              guard.Marker
	managed             bool // we created the tree, and git's worktree entry is named by the id
}

func (s treeInfo) changesetSpec() changeset.Spec {
	return changeset.Spec{ID: s.id, Tree: s.tree, Branch: s.branch, Base: s.base, Scratch: s.recordDir}
}

// reportInterruptedCreation reports a creation that was killed.
func (x *checkRun) reportInterruptedCreation(s treeInfo, undo func(context.Context) error) {
	x.addFinding(Finding{Code: "interrupted-creation", ID: s.id, Path: s.recordDir, Problem: "its creation was interrupted; no command has run in it"}, undo)
}

// reportBrokenRecord reports a record that is missing or invalid.
func (x *checkRun) reportBrokenRecord(s treeInfo, reason store.Defect, detail, outcome string, fix func(context.Context) error) {
	code := string(reason)
	if reason == store.Incomplete {
		code = "empty-record"
	}
	f := Finding{Code: code, ID: s.id, Path: s.recordDir, Problem: detail, Outcome: outcome, AtRisk: store.IsDir(s.tree) || store.IsDir(store.WithdrawnPath(s.tree)) || x.refs[s.branch] != ""}
	if meta, closed := store.IsUnreadable(s.recordDir); closed { // the record may be fine but unreadable for us
		f.FixCommand, f.Outcome, fix = "chmod u+rwx "+quote.Shell(s.recordDir), "", nil
		if fi, err := os.Lstat(meta); err == nil && fi.Mode().Perm()&0o400 == 0 {
			f.FixCommand = "chmod u+rw " + quote.Shell(meta)
		} else if err == nil { // only its owner can change the mode
			f.FixCommand = fmt.Sprintf("sudo chown %d %s", os.Geteuid(), quote.Shell(meta))
		}
	}
	x.addFinding(f, fix)
}

// reportMissingTree reports a record whose tree is gone, or was moved with "git worktree move".
func (x *checkRun) reportMissingTree(s treeInfo, command, outcome string, fix func(context.Context) error) {
	to := x.entries[s.id].Path
	elsewhere := s.managed && !core.SameDirectory(to, s.tree) && store.IsDir(to)
	if here, _, err := x.LinkedEntry(to, s.id); elsewhere && here && err == nil {
		x.addFinding(Finding{
			Code: "moved-tree", ID: s.id, Path: s.tree, Problem: "the tree was moved to " + to, AtRisk: true,
			FixCommand: "mkdir -p " + quote.Shell(filepath.Dir(s.tree)) + " && git worktree move " + quote.Shell(to) + " " + quote.Shell(s.tree),
		}, nil)
		return
	}
	if top := x.repo.TopLevel; s.managed && top != "" {
		if here, _, err := x.LinkedEntry(top, s.id); here && err == nil { // the caller is in it
			x.addFinding(Finding{
				Code: "moved-tree", ID: s.id, Path: s.tree, Problem: "the tree was moved to " + top, AtRisk: true,
				FixCommand: "mkdir -p " + quote.Shell(filepath.Dir(s.tree)) + " && mv " + quote.Shell(top) + " " + quote.Shell(s.tree),
			}, nil)
			return
		}
	}
	if real, err := filepath.EvalSymlinks(s.tree); err == nil && s.managed && real != s.tree {
		x.reportSymlinkedTree(s, real)
		return
	}
	f := Finding{Code: "missing-tree", ID: s.id, Path: s.tree, Problem: "the tree is missing; its commits are on its branch", Outcome: outcome}
	if _, registered := x.inventory().FindEntry(s.tree); registered && !s.managed {
		f.Problem += "; if it was moved, run 'git agency doctor' in its new directory first"
	}
	if around := filepath.Dir(filepath.Dir(s.tree)); !store.IsDir(around) {
		f.Problem, f.AtRisk = around+" does not exist, perhaps not mounted; if it was deleted, type '"+command+"'", true
		f.FixCommand, f.Outcome, fix = "mount "+quote.Shell(around), "", nil
	} else if end := fix; elsewhere {
		fix = func(ctx context.Context) error { // only git's entry names the other directory, which does not link back
			if err := repair.WriteEntryGitdir(x.repo, s.id, s.tree); err != nil {
				return err
			}
			return end(ctx)
		}
	}
	x.addFinding(f, fix)
}

// reportSymlinkedTree reports a symlink in place of a tree. No fix follows a symlink: it could lead anywhere.
func (x *checkRun) reportSymlinkedTree(s treeInfo, to string) {
	f := Finding{Code: "foreign-tree", ID: s.id, Path: s.tree, Problem: "a symbolic link to " + to + ", which is not the tree of this id", FixCommand: "rm " + quote.Shell(s.tree)}
	if here, _, err := x.LinkedEntry(to, s.id); err == nil && here {
		f.Code, f.AtRisk, f.Problem = "moved-tree", true, "the tree was moved to "+to+" and replaced with a symbolic link"
		f.FixCommand += " && mv " + quote.Shell(to) + " " + quote.Shell(s.tree)
	}
	x.addFinding(f, nil)
}

// treeMovedWithData reports whether the tree is in its place, but its record names another path where nothing is.
func (x *checkRun) treeMovedWithData(recorded string, s treeInfo) bool {
	return recorded != "" && recorded != s.tree && !store.IsDir(recorded) && store.IsDir(s.tree) && filepath.Base(filepath.Dir(recorded)) == s.id
}

// reportMovedData reports a tree that was moved together with the data directory or the repository.
func (x *checkRun) reportMovedData(s treeInfo, rewrite func() error) {
	x.addFinding(Finding{Code: "moved-data", ID: s.id, Path: s.tree, AtRisk: true, Problem: "the tree was moved here; its record and git still name the old path"},
		func(ctx context.Context) error {
			if s.branch == core.HeadsPrefix { // a broken record may not name the branch
				s.branch = x.entries[s.id].Branch
			}
			if err := x.relinkWorktree(ctx, s); err != nil {
				return err
			}
			return rewrite()
		})
}

// checkTree checks a tree whose record is valid. end is the fix for a record that belongs to another repository, which was
// at this path before.
func (x *checkRun) checkTree(ctx context.Context, s treeInfo, outcome string, end func(context.Context) error) {
	if !s.managed && x.formerEntry(s.tree) != "" {
		x.reportUnlinkedTree(s, func(ctx context.Context) error { return x.relinkFormerEntry(ctx, s.tree) })
		return
	}
	if !s.managed && !x.isOurWorktree(ctx, s) {
		x.addFinding(Finding{
			Code: "foreign-tree", ID: s.id, Path: s.tree, Problem: "the directory is not a worktree of this repository",
			FixCommand: "git agency worktree rm " + s.id,
		}, nil)
		return
	}
	// The next update of the record removes the file of a killed one.
	if left := slices.DeleteFunc(x.leftoverFiles(s.recordDir), store.IsRecordUpdate); len(left) > 0 && !x.changing {
		x.addFinding(Finding{Code: "leftovers", ID: s.id, Path: left[0], Problem: "incomplete file of a process that was killed"},
			func(context.Context) error { return store.RemoveLeftovers(s.recordDir) })
	}
	if s.managed && !guard.IsAccessible(s.tree) {
		x.reportUnreadableTree(s)
		return // nothing else can be found out
	}
	x.checkMarkers(s)
	if s.branch != core.HeadsPrefix && x.refs[s.branch] == "" && (s.managed || !followsBranch(s.tree)) {
		x.reportMissingBranch(ctx, s, outcome, end)
		return // without the branch, git cannot tell much else
	}
	if !s.managed {
		return
	}
	here, elsewhere, err := x.LinkedEntry(s.tree, s.id)
	entry, registered := x.entries[s.id]
	switch {
	case errors.Is(err, fs.ErrPermission):
		x.addFinding(Finding{
			Code: "unreadable-tree", ID: s.id, Path: filepath.Join(s.tree, ".git"), Problem: "its owner may not read the .git of the tree",
			FixCommand: "chmod u+r " + quote.Shell(filepath.Join(s.tree, ".git")),
		}, nil)
	case err != nil || elsewhere != "":
		x.addFinding(Finding{
			Code: "foreign-tree", ID: s.id, Path: s.tree, AtRisk: true, Problem: "the tree belongs to another repository, " + elsewhere,
			FixCommand: "mv " + quote.Shell(s.tree) + " " + quote.Shell(s.tree+".foreign"),
		}, nil)
	case !here || !registered || len(entry.BadFiles) > 0 || !core.SameDirectory(entry.Path, s.tree):
		x.reportUnlinkedTree(s, func(ctx context.Context) error { return x.relinkWorktree(ctx, s) })
	}
}

// reportUnlinkedTree reports a tree whose .git file, or whose entry in the git directory, names another path.
func (x *checkRun) reportUnlinkedTree(s treeInfo, relink func(context.Context) error) {
	x.addFinding(Finding{Code: "unlinked-tree", ID: s.id, Path: s.tree, AtRisk: true, Problem: "the tree and git's worktree entry do not refer to each other"}, relink)
}

// reportUnreadableTree reports a tree that its owner may not read or enter.
func (x *checkRun) reportUnreadableTree(s treeInfo) {
	x.addFinding(Finding{Code: "unreadable-tree", ID: s.id, Path: s.tree, Problem: "the permissions of the tree do not let its owner read and enter it"},
		func(context.Context) error {
			tree, err := guard.OpenOwnTree(s.tree)
			if err != nil {
				return err
			}
			return tree.Close()
		})
}

// isOurWorktree reports whether a tree is a worktree of this repository; true if that cannot be determined.
func (x *checkRun) isOurWorktree(ctx context.Context, s treeInfo) bool {
	holds, err := x.IsOwnWorktree(ctx, x.repo, s.tree)
	return holds || err != nil
}

// reportMissingBranch reports a branch that a record names but that does not exist.
func (x *checkRun) reportMissingBranch(ctx context.Context, s treeInfo, outcome string, end func(context.Context) error) {
	f := Finding{Code: "missing-branch", ID: s.id, Path: x.repo.RefPath(s.branch), AtRisk: true, Problem: "its branch " + core.ShortBranch(s.branch) + " does not exist"}
	if fi, err := os.Lstat(f.Path); err == nil && !fi.IsDir() {
		f.Problem = "its branch " + core.ShortBranch(s.branch) + " points to a commit that does not exist"
	}
	fix := func(ctx context.Context) error { return x.restoreBranch(ctx, s) }
	since, _ := ids.Time(s.id)
	if now := x.RenamedBranch(ctx, x.repo, s.branch, since); s.marker == guard.Integration && now != "" {
		f.Problem, f.Outcome = "its branch "+core.ShortBranch(s.branch)+" was renamed to "+core.ShortBranch(now), "the record names the new branch"
		f.AtRisk, fix = false, func(context.Context) error {
			return x.Store.UpdateWorktreeMeta(x.ID, s.id, func(m *store.WorktreeMeta) { m.Branch = core.ShortBranch(now) })
		}
	} else if !s.managed { // the branch of an adopted worktree is the user's own
		f.FixCommand, fix = "git branch "+quote.Shell(core.ShortBranch(s.branch))+" COMMIT", nil
	} else if commit, err := x.lastKnownCommit(ctx, s); fault.Is[*fault.NoCommitError](err) && (s.base != "" || !x.mayBeClone(ctx)) {
		f.Code, f.Path, f.Outcome, fix = "foreign-record", s.recordDir, outcome, end
		f.Problem = "neither its branch nor its commits are in this repository; the record belongs to an earlier repository at this path; if that was moved, run 'git agency doctor' in it first"
	} else if _, registered := x.entries[s.id]; !registered {
		f.Problem = "neither its branch " + core.ShortBranch(s.branch) + " nor git's worktree entry exists; the record may belong to an earlier repository at this path; if that was moved, run 'git agency doctor' in it first"
		f.FixCommand, fix = "git branch "+quote.Shell(core.ShortBranch(s.branch))+" "+cmp.Or(commit, "COMMIT"), nil
	}
	x.addFinding(f, fix)
}

// mayBeClone reports whether this repository has the base commit of a sandbox, but neither its branch nor its entry. Then it
// may be a clone of the repository that the sandbox belongs to, made at the path that this one had before it was moved.
func (x *checkRun) mayBeClone(ctx context.Context) bool {
	return slices.ContainsFunc(x.invocations, func(e store.Entry[store.InvocationMeta]) bool {
		_, registered := x.entries[e.ID]
		base := e.Record.BaseCommit
		if base == "" || registered || x.refs[core.SandboxRef(e.ID)] != "" || e.Record.HasEnded() {
			return false
		}
		found, err := x.repo.Lookup(ctx, base+"^{commit}")
		return err != nil || !found[0].Missing()
	})
}

// checkMarkers finds missing and wrong markers in a tree.
func (x *checkRun) checkMarkers(s treeInfo) {
	marked, err := s.marker.IsIn(s.tree)
	if err == nil && !marked {
		x.addFinding(Finding{Code: "missing-marker", ID: s.id, Path: s.marker.Path(s.tree), Problem: "the marker file is missing"},
			func(context.Context) error {
				if s.marker == guard.Sandbox {
					return s.marker.Restore(s.tree)
				}
				_, err := s.marker.Write(s.tree) // unlike Restore, moves nothing out of the way: the tree is the user's
				return err
			})
	}
	if wrong, err := guard.Integration.IsIn(s.tree); s.marker == guard.Sandbox && err == nil && wrong {
		path := guard.Integration.Path(s.tree)
		x.addFinding(Finding{
			Code: "wrong-marker", ID: s.id, Path: path, Problem: "the sandbox has the marker of an integration worktree",
			FixCommand: "rm " + quote.Shell(path),
		}, nil)
	}
}

// checkUploads finds uploads (put) that were killed.
func (x *checkRun) checkUploads(ctx context.Context, s treeInfo) {
	var interrupted []upload.InterruptedPut
	err := x.withUploadTarget(s, func(to upload.Target) (err error) { interrupted, err = upload.FindInterrupted(ctx, to); return err })
	if err != nil { // other checks report a tree that cannot be opened
		return
	}
	for _, put := range interrupted {
		x.addFinding(Finding{
			Code: "interrupted-put", ID: s.id, Path: put.Stage, AtRisk: put.HoldsReplaced,
			Problem: "an upload of files ('git agency put') was interrupted",
		}, func(ctx context.Context) error {
			timeout, err := x.Settings.LockTimeout()
			if err != nil {
				return err
			}
			return sandbox.Of(x.Repository, s.id).RecoverUploads(ctx, timeout)
		})
	}
}

// withUploadTarget opens the tree of a sandbox, calls do and closes the tree. Of an overlay it is the upper directory, in which
// uploads leave their files.
func (x *checkRun) withUploadTarget(s treeInfo, do func(upload.Target) error) error {
	dir, err := x.WrittenDir(s.id)
	if err != nil {
		return err
	}
	tree, err := guard.OpenTree(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(sandbox.Of(x.Repository, s.id).UploadTarget(tree)), tree.Close())
}
