package doctor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// zeroTime is earlier than the mtime of every file.
var zeroTime time.Time

// checkGitLocks finds git's lock files that no process can be using.
func (x *checkRun) checkGitLocks(context.Context) error {
	locks, err := repair.LockFiles(x.repo)
	evidence := []string{}
	for _, l := range locks {
		evidence = append(evidence, filepath.Join(x.CommonDir, l.RelPath))
	}
	if err != nil || x.gitInUse(evidence) {
		return err
	}
	for _, l := range locks {
		f := Finding{
			Code: "stale-lock", ID: x.ownerID(l.RelPath), Path: filepath.Join(x.CommonDir, l.RelPath),
			fixFirst: slices.Contains(git.PackedRefsLocks, l.RelPath),
			Problem:  "lock file of a git process that was killed; it blocks other git commands",
		}
		x.addFinding(f, func(context.Context) error { return repair.RemoveLockFile(x.repo, l) })
	}
	return nil
}

// gitInUse reports whether another process is working in the repository, so that the files seen just now may be in use.
func (x *checkRun) gitInUse(evidence []string) bool {
	if x.changing || len(evidence) == 0 {
		return x.changing
	}
	trees := []string{}
	for _, e := range x.entries {
		trees = append(trees, e.Path)
	}
	who := repair.RunningGit(x.repo, trees, evidence)
	if who != "" {
		x.activeProcess = who
	}
	return who != ""
}

// checkOrphanReflogs finds reflogs of refs that do not exist: they keep git from creating a ref of that name.
func (x *checkRun) checkOrphanReflogs(ctx context.Context) error {
	refs, err := repair.OrphanReflogs(ctx, x.repo)
	evidence := []string{}
	for _, ref := range refs {
		evidence = append(evidence, x.repo.ReflogPath(ref))
	}
	if err != nil || x.gitInUse(evidence) {
		return err
	}
	for _, ref := range refs {
		f := Finding{
			Code: "orphan-log", ID: x.ownerID("logs/" + ref), Path: x.repo.ReflogPath(ref),
			Problem: "reflog of " + ref + ", which does not exist",
		}
		fix := func(context.Context) error { return repair.RemoveReflog(x.repo, ref) }
		only, err := repair.OnlyInReflog(ctx, x.repo, ref)
		switch {
		case err != nil:
			f.AtRisk, fix = true, nil
			f.Problem += "; the reflog cannot be read: " + err.Error()
			f.FixCommand = "mv " + quote.Shell(f.Path) + " ."
		case x.isUnfinishedRef(ref):
			// The reflog of a discard that had not removed anything yet, or of a snapshot that was not completed. The captured files
			// were still in place.
		case len(only) > 0:
			f.AtRisk, fix = true, nil
			f.Problem += "; it names commits that no ref reaches"
			f.FixCommand = fmt.Sprintf("git update-ref %s %s", quote.Shell(ref), only[0])
		}
		x.addFinding(f, fix)
	}
	return nil
}

// isUnfinishedRef reports whether a missing ref is the trash ref of an invocation or a worktree that has not ended, or a
// snapshot ref that no command has reported.
func (x *checkRun) isUnfinishedRef(ref string) bool {
	return slices.ContainsFunc(x.invocations, func(e store.Entry[store.InvocationMeta]) bool {
		return e.Defect == store.NoDefect && (ref == core.TrashRef(e.ID) && !e.Record.HasEnded() || core.SnapshotNumber(e.ID, ref) > 0)
	}) || slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return ref == core.TrashRef(e.ID) && e.Defect == store.NoDefect && e.Record.State == store.Present
	})
}

// checkWorktreeEntries finds damaged or half-created entries of git's linked worktrees.
func (x *checkRun) checkWorktreeEntries(context.Context) error {
	half := func(e worktree.Entry) bool {
		return len(e.BadFiles) > 0 || e.Locked && e.LockReason == "initializing"
	}
	evidence := []string{}
	for name, e := range x.entries {
		if half(e) {
			evidence = append(evidence, x.repo.AdminDir(name))
		}
	}
	if x.gitInUse(evidence) {
		return nil
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		id := x.ownerID(filepath.Join("worktrees", name))
		f := Finding{ID: id, Path: x.repo.AdminDir(name)}
		switch {
		case len(e.BadFiles) > 0:
			x.reportDamagedEntry(e, f)
		case half(e):
			f.Code = "initializing-entry"
			f.Problem = "worktree entry still locked by a 'git worktree add' that was killed; its tree is " + e.Path
			x.addFinding(f, func(context.Context) error { return repair.UnlockWorktree(x.repo, e) })
		}
	}
	return nil
}

// reportDamagedEntry reports a worktree entry that git cannot read. The fix rewrites the parts that can be reconstructed.
func (x *checkRun) reportDamagedEntry(e worktree.Entry, f Finding) {
	f.Code, f.AtRisk = "damaged-entry", e.WasCheckedOut
	f.Problem = "git's worktree entry is damaged (" + strings.Join(e.BadFiles, ", ") + ")"
	if slices.Contains(e.BadFiles, "commondir") {
		f.Problem += "; git can list neither worktrees nor branches until it is repaired"
	}
	beyond := repair.UnrepairableFiles(x.repo, e)
	if len(beyond) < len(e.BadFiles) {
		x.addFinding(f, func(context.Context) error { return repair.RestoreEntry(x.repo, e) })
		return // the next run reports the flaws that remain
	}
	f.FixCommand = "git worktree repair TREE"
	if slices.Contains(beyond, "HEAD") {
		f.FixCommand = "echo ref: refs/heads/BRANCH > " + quote.Shell(filepath.Join(f.Path, "HEAD"))
	}
	x.addFinding(f, nil)
}

func (x *checkRun) entryNames() []string {
	var names []string
	for name := range x.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkUnrecorded finds worktree entries and branches that are named by an id but have no record.
func (x *checkRun) checkUnrecorded(ctx context.Context) error {
	if x.dataDirMissing || x.changing {
		return nil
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		if !ids.Valid(name) || x.isRecorded(name) {
			continue
		}
		f := Finding{ID: name, Path: x.repo.AdminDir(name)}
		_, elsewhere, err := x.LinkedEntry(e.Path, name)
		place, ours := core.DataDirOfEntry(name, e.Path)
		switch {
		case err == nil && store.IsDir(e.Path) && elsewhere != "":
			f.Code, f.Problem = "copied-entry", "its tree is a worktree of "+elsewhere+", of which this repository is a copy"
			x.addFinding(f, func(context.Context) error { return worktree.RemoveAdminDir(x.repo, name) })
		case ours && (store.Store{Root: place}).HasRecord(x.ID, name):
			x.Warn("the record of %s is in another data directory; 'AGENCY_DATA_DIR=%s git agency doctor' checks it", name, quote.Shell(place))
		case store.IsDir(e.Path) && ours:
			f.Code, f.AtRisk, f.Problem = "other-data-dir", true, "its tree is in another data directory, "+place
			f.FixCommand = "AGENCY_DATA_DIR=" + quote.Shell(place) + " git agency doctor"
			x.addFinding(f, nil)
		}
	}
	refs, err := x.repo.Refs(ctx, core.SandboxHeads+"*")
	if err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		id := strings.TrimPrefix(ref, core.SandboxRef(""))
		e, registered := x.entries[id]
		if !ids.Valid(id) || x.isRecorded(id) || registered && store.IsDir(e.Path) {
			continue
		}
		s := treeInfo{id: id, recordDir: x.Store.InvocationDir(x.ID, id), tree: x.Store.SandboxTreePath(x.ID, id), branch: ref, marker: guard.Sandbox, managed: true}
		if x.checkedOutElsewhere(s) {
			continue
		}
		x.addFinding(Finding{Code: "orphan-branch", ID: id, Path: x.repo.RefPath(ref), AtRisk: true, Problem: "branch of a sandbox without a record", Outcome: "the branch is deleted; its commits are kept as " + core.TrashRef(id)},
			func(ctx context.Context) error { return x.salvageSandbox(ctx, s, "there was no record") })
	}
	return nil
}

// checkScratch finds temporary files and directories of killed commands.
func (x *checkRun) checkScratch(context.Context) error {
	if x.changing {
		return nil
	}
	scraps, err := discard.LeftoverScratch(x.Repository, x.repo, x.cleanupRunning)
	if err != nil {
		return err
	}
	for _, path := range scraps {
		x.addFinding(Finding{Code: "leftover-scratch", ID: x.ownerID(x.relativePath(path)), Path: path, Problem: "temporary file of a command that was killed"},
			func(context.Context) error { return durable.RemoveTree(path) })
	}
	temps, err := x.Store.ListTemps(x.ID)
	if err != nil {
		return err
	}
	excluding, err := durable.ListTemps(filepath.Join(x.CommonDir, "info"))
	if err != nil {
		return err
	}
	for _, path := range append(temps, excluding...) {
		x.addFinding(Finding{Code: "leftover-scratch", ID: x.ownerID(x.relativePath(path)), Path: path, fixFirst: true, Problem: "incomplete file of a process that was killed"},
			func(context.Context) error { return durable.RemoveTree(path) })
	}
	return nil
}

// relativePath returns a path relative to the git directory or the data directory.
func (x *checkRun) relativePath(path string) string {
	for _, dir := range []string{x.CommonDir, x.DataDir} {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// checkExclude finds a missing line in info/exclude, without which git status shows the markers.
func (x *checkRun) checkExclude(context.Context) error {
	if len(x.worktrees) == 0 && len(x.invocations) == 0 || x.changing {
		return nil
	}
	path := filepath.Join(x.CommonDir, "info", "exclude")
	missing, err := x.repo.ExcludeState(core.ExcludePattern)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if missing == "" {
		return nil
	}
	for _, e := range x.worktrees {
		if e.Defect == store.NoDefect && e.Record.State == store.Present {
			x.addFinding(Finding{Code: "visible-markers", ID: "info/exclude", Path: path, Problem: "the line " + core.ExcludePattern + " is missing; git status shows the markers"},
				func(context.Context) error { _, err := x.repo.AddExclude(core.ExcludePattern); return err })
			return nil
		}
	}
	return nil
}
