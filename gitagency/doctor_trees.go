package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// checkSandboxes checks the record and the tree of every invocation.
func (x *examination) sandboxes(ctx context.Context) error {
	for _, e := range x.invocations {
		if x.elsewhere[e.ID] {
			continue
		}
		s := subject{
			id: e.ID, home: x.store.InvocationDir(x.ID, e.ID), tree: x.store.SandboxTreePath(x.ID, e.ID),
			branch: sandboxRef(e.ID), base: e.Record.BaseCommit, marker: guard.Sandbox, ours: true,
		}
		switch {
		case e.Broken != store.Whole && e.Intent != nil:
			x.interrupted(s, func(ctx context.Context) error { return x.abandonSandbox(ctx, x.repo, e.ID, *e.Intent) })
		case x.movedData(e.Record.SandboxPath, s):
			x.relocated(s, func() error {
				return x.store.UpdateInvocationMeta(x.ID, e.ID, func(m *store.InvocationMeta) { m.SandboxPath = s.tree })
			})
		case e.Broken == store.MissingTree:
			x.missingTree(s, "git agency discard "+e.ID, "it counts as discarded; what was committed is kept as "+trashRef(e.ID), x.discardAway(e))
		case e.Broken != store.Whole:
			x.unreadable(s, e.Broken, e.Detail, salvaged(e.ID), func(ctx context.Context) error { return x.salvage(ctx, s, e.Detail) })
		case ended(e.Record):
			x.endedSandbox(s, e)
		default:
			x.halfEnded(s, "half-discarded")
			x.puts(ctx, s)
			x.rollbacks(s)
			x.wholeTree(ctx, s, "it counts as discarded; its files are kept as "+trashRef(e.ID), x.discardAway(e))
			x.verifications(s, e)
		}
	}
	return nil
}

// checkIntegrationWorktrees checks the record and the tree of every integration worktree.
func (x *examination) integrationWorktrees(ctx context.Context) error {
	for _, e := range x.worktrees {
		if x.elsewhere[e.ID] {
			continue
		}
		w := x.worktree(e)
		s := subject{
			id: e.ID, home: x.store.WorktreeDir(x.ID, e.ID), tree: e.Tree, branch: heads + e.Record.Branch,
			marker: guard.Integration, ours: !w.adopted,
		}
		made := s
		made.tree = x.store.WorktreeTreePath(x.ID, e.ID)
		switch {
		case e.Broken != store.Whole && e.Intent != nil:
			x.interrupted(s, func(ctx context.Context) error { return x.undoWorktree(ctx, x.repo, w) })
		case e.Broken == store.Incomplete:
			x.unreadable(s, e.Broken, e.Detail, "", func(ctx context.Context) error { return x.undoWorktree(ctx, x.repo, w) })
		case x.movedData(e.Record.TreePath, made) || w.movedHere() && store.IsDir(made.tree):
			x.relocated(made, x.rewritePlace(e.ID, made.tree))
		case w.movedHere() || e.Broken == store.MissingTree && x.movedAdopted(s) != "":
			to := cmp.Or(x.movedAdopted(s), s.tree)
			x.found(Finding{Code: "moved-tree", ID: e.ID, Path: e.Tree, What: "the tree is at " + to + " now"},
				func(context.Context) error { return x.rewritePlace(e.ID, to)() })
		case e.Broken == store.MissingTree:
			x.missingTree(s, "git agency worktree rm "+e.ID, "it is archived; its branch stays", x.archiveAway(w))
		case e.Broken != store.Whole:
			x.unreadable(s, e.Broken, e.Detail, "it gets its record back", func(ctx context.Context) error { return x.rewriteRecord(w) })
		case w.State == store.Archived:
			x.archived(ctx, s, w)
		default:
			x.halfEnded(s, "half-archived")
			x.wholeTree(ctx, s, "it is archived; its files are kept as "+trashRef(e.ID), x.archiveAway(w))
		}
	}
	return nil
}

// hasOtherRepoID reports whether the record of a worktree names another repository id: the repository was moved.
func (w Worktree) movedHere() bool {
	m := w.entry.Record
	return m.WorktreeID == w.ID && m.RepoID != "" && m.RepoID != w.RepoID
}

// treeInfo describes a sandbox or an integration worktree to the checks.
type subject struct {
	id, home, tree string
	branch         string // full ref
	base           string
	marker         guard.Marker
	ours           bool // we created the tree, and git's worktree entry is named by the id
}

func (s subject) spec() changeset.Spec {
	return changeset.Spec{ID: s.id, Tree: s.tree, Branch: s.branch, Base: s.base, Scratch: s.home}
}

// reportInterruptedCreation reports a creation that was killed.
func (x *examination) interrupted(s subject, undo func(context.Context) error) {
	x.found(Finding{Code: "interrupted-creation", ID: s.id, Path: s.home, What: "its creation was interrupted; nothing was ever run in it"}, undo)
}

// reportBrokenRecord reports a record that is missing or invalid.
func (x *examination) unreadable(s subject, reason store.Reason, detail, outcome string, fix func(context.Context) error) {
	code := string(reason)
	if reason == store.Incomplete {
		code = "empty-record"
	}
	f := Finding{Code: code, ID: s.id, Path: s.home, What: detail, Outcome: outcome, AtRisk: store.IsDir(s.tree) || store.IsDir(store.Aside(s.tree)) || x.refs[s.branch] != ""}
	if meta, closed := store.Closed(s.home); closed { // the record may be fine but unreadable for us
		f.Mend, f.Outcome, fix = "chmod u+rwx "+ShellWord(s.home), "", nil
		if fi, err := os.Lstat(meta); err == nil && fi.Mode().Perm()&0o400 == 0 {
			f.Mend = "chmod u+rw " + ShellWord(meta)
		} else if err == nil { // only its owner can change the mode
			f.Mend = fmt.Sprintf("sudo chown %d %s", os.Geteuid(), ShellWord(meta))
		}
	}
	x.found(f, fix)
}

// reportMissingTree reports a record whose tree is gone, or was moved with "git worktree move".
func (x *examination) missingTree(s subject, command, outcome string, fix func(context.Context) error) {
	to := x.entries[s.id].Path
	elsewhere := s.ours && !onePlace(to, s.tree) && store.IsDir(to)
	if here, _, err := x.tied(to, s.id); elsewhere && here && err == nil {
		x.found(Finding{
			Code: "moved-tree", ID: s.id, Path: s.tree, What: "the tree was moved to " + to, AtRisk: true,
			Mend: "mkdir -p " + ShellWord(filepath.Dir(s.tree)) + " && git worktree move " + ShellWord(to) + " " + ShellWord(s.tree),
		}, nil)
		return
	}
	if real, err := filepath.EvalSymlinks(s.tree); err == nil && s.ours && real != s.tree {
		x.linkedTree(s, real)
		return
	}
	f := Finding{Code: "missing-tree", ID: s.id, Path: s.tree, What: "the tree is gone; what was committed is on its branch", Outcome: outcome}
	if around := filepath.Dir(filepath.Dir(s.tree)); !store.IsDir(around) {
		f.What, f.AtRisk = around+" is not there: not mounted, perhaps; if it is gone for good, type '"+command+"'", true
		f.Mend, f.Outcome, fix = "mount "+ShellWord(around), "", nil
	} else if end := fix; elsewhere {
		fix = func(ctx context.Context) error { // only git's entry names the other directory, which does not link back
			if err := x.repo.PointAt(s.id, s.tree); err != nil {
				return err
			}
			return end(ctx)
		}
	}
	x.found(f, fix)
}

// reportSymlinkedTree reports a symlink in place of a tree. No fix follows a symlink: it could lead anywhere.
func (x *examination) linkedTree(s subject, to string) {
	f := Finding{Code: "foreign-tree", ID: s.id, Path: s.tree, What: "there is a link, to " + to + ", which is not its tree", Mend: "rm " + ShellWord(s.tree)}
	if here, _, err := x.tied(to, s.id); err == nil && here {
		f.Code, f.AtRisk, f.What = "moved-tree", true, "the tree was moved to "+to+", and a link left for it"
		f.Mend += " && mv " + ShellWord(to) + " " + ShellWord(s.tree)
	}
	x.found(f, nil)
}

// treeMovedWithData reports whether the tree is in its place, but its record names another path where nothing is.
func (x *examination) movedData(recorded string, s subject) bool {
	return recorded != "" && recorded != s.tree && !store.IsDir(recorded) && store.IsDir(s.tree) && filepath.Base(filepath.Dir(recorded)) == s.id
}

// reportMovedData reports a tree that was moved together with the data directory or the repository.
func (x *examination) relocated(s subject, rewrite func() error) {
	x.found(Finding{Code: "moved-data", ID: s.id, Path: s.tree, AtRisk: true, What: "it was moved here; its record and git still know it elsewhere"},
		func(ctx context.Context) error {
			if s.branch == heads { // a broken record may not name the branch
				s.branch = x.entries[s.id].Branch
			}
			if err := x.relink(ctx, s); err != nil {
				return err
			}
			return rewrite()
		})
}

// checkTree checks a tree whose record is valid. end is the fix for a record that belongs to another repository, which was
// at this path before.
func (x *examination) wholeTree(ctx context.Context, s subject, outcome string, end func(context.Context) error) {
	if !s.ours && !x.belongs(ctx, s) {
		x.found(Finding{
			Code: "foreign-tree", ID: s.id, Path: s.tree, What: "what is there is not a worktree of this repository",
			Mend: "git agency worktree rm " + s.id,
		}, nil)
		return
	}
	if left := x.leftovers(s.home); len(left) > 0 && !x.unsettled {
		x.found(Finding{Code: "leftovers", ID: s.id, Path: left[0], What: "a file that was being written when somebody was killed"},
			func(context.Context) error { return store.RemoveLeftovers(s.home) })
	}
	x.markers(s)
	if s.branch != heads && x.refs[s.branch] == "" {
		x.missingBranch(ctx, s, outcome, end)
		return // without the branch, git cannot tell much else
	}
	if !s.ours {
		return
	}
	here, elsewhere, err := x.tied(s.tree, s.id)
	entry, registered := x.entries[s.id]
	switch {
	case err != nil || elsewhere != "":
		x.found(Finding{
			Code: "foreign-tree", ID: s.id, Path: s.tree, AtRisk: true, What: "what is there belongs to another repository, " + elsewhere,
			Mend: "mv " + ShellWord(s.tree) + " " + ShellWord(s.tree+".foreign"),
		}, nil)
	case !here || !registered || len(entry.Flaws) > 0 || !onePlace(entry.Path, s.tree):
		x.found(Finding{Code: "unlinked-tree", ID: s.id, Path: s.tree, AtRisk: true, What: "tree and repository do not know each other any more"},
			func(ctx context.Context) error { return x.relink(ctx, s) })
	}
}

// isOurWorktree reports whether a tree is a worktree of this repository; true if that cannot be determined.
func (x *examination) belongs(ctx context.Context, s subject) bool {
	holds, err := x.holds(ctx, x.repo, s.tree)
	return holds || err != nil
}

// reportMissingBranch reports a branch that a record names but that does not exist.
func (x *examination) missingBranch(ctx context.Context, s subject, outcome string, end func(context.Context) error) {
	f := Finding{Code: "missing-branch", ID: s.id, Path: x.repo.RefPath(s.branch), AtRisk: true, What: "its branch " + short(s.branch) + " is gone"}
	if fi, err := os.Lstat(f.Path); err == nil && !fi.IsDir() {
		f.What = "its branch " + short(s.branch) + " leads to no commit that is there"
	}
	fix := func(ctx context.Context) error { return x.restoreBranch(ctx, s) }
	if !s.ours { // the branch of an adopted worktree is the user's own
		f.Mend, fix = "git branch "+ShellWord(short(s.branch))+" COMMIT", nil
	} else if _, err := x.lastKnown(ctx, s); is[*NoCommitError](err) {
		f.Code, f.Path, f.Outcome, fix = "foreign-record", s.home, outcome, end
		f.What = "neither its branch nor its commits are in this repository; it belongs to one that was here before"
	}
	x.found(f, fix)
}

// checkMarkers finds missing and wrong markers in a tree.
func (x *examination) markers(s subject) {
	marked, err := s.marker.In(s.tree)
	if err == nil && !marked {
		x.found(Finding{Code: "missing-marker", ID: s.id, Path: s.marker.Path(s.tree), What: "the marker that says what the directory is"},
			func(context.Context) error {
				if s.marker == guard.Sandbox {
					return s.marker.Restore(s.tree)
				}
				_, err := s.marker.Write(s.tree) // unlike Restore, moves nothing out of the way: the tree is the user's
				return err
			})
	}
	if wrong, err := guard.Integration.In(s.tree); s.marker == guard.Sandbox && err == nil && wrong {
		path := guard.Integration.Path(s.tree)
		x.found(Finding{
			Code: "wrong-marker", ID: s.id, Path: path, What: "a sandbox that says it is an integration worktree",
			Mend: "rm " + ShellWord(path),
		}, nil)
	}
}

// checkUploads finds uploads (put) that were killed.
func (x *examination) puts(ctx context.Context, s subject) {
	interrupted, err := inTree(s.tree, func(tree *guard.Tree) ([]upload.Interrupted, error) { return upload.Find(ctx, tree) })
	if err != nil { // other checks report a tree that cannot be opened
		return
	}
	for _, put := range interrupted {
		x.found(Finding{
			Code: "interrupted-put", ID: s.id, Path: put.Stage, AtRisk: put.Replaced,
			What: "files were being put into it when somebody was killed",
		}, func(ctx context.Context) error {
			timeout, err := x.lockTimeout()
			if err != nil {
				return err
			}
			_, err = inTree(s.tree, func(tree *guard.Tree) (bool, error) { return true, upload.Recover(ctx, tree, timeout) })
			return err
		})
	}
}

// withTree opens a tree, calls do and closes the tree.
func inTree[T any](path string, do func(*guard.Tree) (T, error)) (T, error) {
	tree, err := guard.OpenTree(path)
	if err != nil {
		var none T
		return none, err
	}
	result, err := do(tree)
	return result, errors.Join(err, tree.Close())
}

// checkPrematureTrash finds the trash ref of an invocation or a worktree that has not ended.
func (x *examination) halfEnded(s subject, code string) {
	if commit := x.refs[trashRef(s.id)]; commit != "" && !x.unsettled {
		f := Finding{Code: code, ID: s.id, Path: x.repo.RefPath(trashRef(s.id)), What: "ending it was interrupted before anything was removed"}
		x.found(f, func(ctx context.Context) error { return x.forgetKept(ctx, s, f, commit) })
	}
}

// checkEndedSandbox finds parts that should have been removed with an invocation.
func (x *examination) endedSandbox(s subject, e store.Entry[store.InvocationMeta]) {
	if x.unsettled {
		return
	}
	left := x.remains(s)
	if e.Record.Landing == store.Landed && x.beingTidied(s.id) {
		return
	}
	if x.refs[s.branch] != "" && !x.checkedOutElsewhere(s) {
		left = append(left, x.repo.RefPath(s.branch))
	}
	if len(left) == 0 {
		return
	}
	x.found(Finding{
		Code: "interrupted-discard", ID: s.id, Path: left[0], What: "it was " + e.Record.Landing + ", but not all of it is gone",
		AtRisk: store.IsDir(s.tree) || store.IsDir(store.Aside(s.tree)),
	}, func(ctx context.Context) error {
		if _, err := x.end(ctx, x.repo, e); err != nil {
			return err
		}
		return store.RemoveLeftovers(s.home)
	})
}

// checkArchivedWorktree finds parts that should have been removed with a worktree.
func (x *examination) archived(ctx context.Context, s subject, w Worktree) {
	if x.unsettled {
		return
	}
	var left []string
	if s.ours {
		left = x.remains(s)
	} else if marked, err := s.marker.In(s.tree); err == nil && marked && !x.claimed(s.tree) && x.belongs(ctx, s) {
		left = append(left, s.marker.Path(s.tree))
	}
	left = append(left, x.leftovers(s.home)...)
	if len(left) == 0 {
		return
	}
	x.found(Finding{
		Code: "interrupted-archive", ID: s.id, Path: left[0], What: "it was archived, but not all of it is gone",
		AtRisk: s.ours && (store.IsDir(s.tree) || store.IsDir(store.Aside(s.tree))),
	}, x.archiveAway(w))
}

// remainingPaths lists the existing parts of a tree that has ended.
func (x *examination) remains(s subject) []string {
	candidates := []string{s.tree, store.Aside(s.tree), store.Done(s.tree), x.repo.AdminDir(s.id)}
	if around := filepath.Dir(s.tree); around != s.home {
		candidates = append(candidates, around)
	}
	var left []string
	for _, path := range candidates {
		if _, there := store.Taken(path); there {
			left = append(left, path)
		}
	}
	return append(left, x.leftovers(s.home)...)
}

// leftoverFiles lists the files that a killed process left beside a record.
func (x *examination) leftovers(home string) []string {
	left, err := store.Leftovers(home)
	if err != nil {
		x.warn("%s: %v", home, err)
	}
	return left
}

// checkedOutElsewhere reports whether another worktree has the branch of an ended sandbox checked out. Then the branch
// rightly stays.
func (x *examination) checkedOutElsewhere(s subject) bool {
	worktrees := []git.Worktree{{Path: x.CommonDir, Branch: x.repo.MainBranch()}}
	for _, e := range x.entries {
		if e.Name != s.id {
			worktrees = append(worktrees, e.Worktree)
		}
	}
	return elsewhere(worktrees, s.spec()) != ""
}
