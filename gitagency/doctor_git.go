package gitagency

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// zeroTime is earlier than the mtime of every file.
var epoch time.Time

// checkGitLocks finds git's lock files that no process can be using.
func (x *examination) locks(context.Context) error {
	locks, err := x.repo.Locks()
	evidence := []string{}
	for _, l := range locks {
		evidence = append(evidence, filepath.Join(x.CommonDir, l.Rel))
	}
	if err != nil || x.inUse(evidence) {
		return err
	}
	for _, l := range locks {
		f := Finding{
			Code: "stale-lock", ID: x.owner(l.Rel), Path: filepath.Join(x.CommonDir, l.Rel), along: l.Rel == "packed-refs.lock",
			What: "a git that was killed left its lock; others wait for it in vain",
		}
		x.found(f, func(context.Context) error { return x.repo.RemoveLock(l) })
	}
	return nil
}

// gitInUse reports whether another process is working in the repository, so that the files seen just now may be in use.
func (x *examination) inUse(evidence []string) bool {
	if x.unsettled || len(evidence) == 0 {
		return x.unsettled
	}
	trees := []string{}
	for _, e := range x.entries {
		trees = append(trees, e.Path)
	}
	who := x.repo.AtWork(trees, evidence)
	if who != "" {
		x.busy = who
	}
	return who != ""
}

// checkOrphanReflogs finds reflogs of refs that do not exist: they keep git from creating a ref of that name.
func (x *examination) orphanLogs(ctx context.Context) error {
	refs, err := x.repo.OrphanLogs(ctx)
	evidence := []string{}
	for _, ref := range refs {
		evidence = append(evidence, x.repo.LogPath(ref))
	}
	if err != nil || x.inUse(evidence) {
		return err
	}
	for _, ref := range refs {
		f := Finding{
			Code: "orphan-log", ID: x.owner("logs/" + ref), Path: x.repo.LogPath(ref),
			What: "the log of " + ref + ", which does not exist",
		}
		fix := func(context.Context) error { return x.repo.RemoveLog(ref) }
		only, err := x.repo.OnlyLogged(ctx, ref)
		switch {
		case err != nil:
			f.AtRisk, fix = true, nil
			f.What += " and cannot be looked into: " + err.Error()
			f.Mend = "mv " + ShellWord(f.Path) + " ."
		case x.undecided(ref):
			// The reflog of a discard that had not removed anything yet, or of a snapshot that was not completed. The captured files
			// were still in place.
		case len(only) > 0:
			f.AtRisk, fix = true, nil
			f.What += " and names commits that nothing else holds"
			f.Mend = fmt.Sprintf("git update-ref %s %s", ShellWord(ref), only[0])
		}
		x.found(f, fix)
	}
	return nil
}

// isUnfinishedRef reports whether a missing ref is the trash ref of an invocation or a worktree that has not ended, or a
// snapshot ref that no command has reported.
func (x *examination) undecided(ref string) bool {
	return slices.ContainsFunc(x.invocations, func(e store.Entry[store.InvocationMeta]) bool {
		return e.Broken == store.Whole && (ref == trashRef(e.ID) && !ended(e.Record) || snapshotNumber(e.ID, ref) > 0)
	}) || slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return ref == trashRef(e.ID) && e.Broken == store.Whole && e.Record.State == store.Present
	})
}

// checkWorktreeEntries finds damaged or half-created entries of git's linked worktrees.
func (x *examination) gitEntries(context.Context) error {
	half := func(e git.Entry) bool { return len(e.Flaws) > 0 || e.Locked && e.LockReason == "initializing" }
	evidence := []string{}
	for name, e := range x.entries {
		if half(e) {
			evidence = append(evidence, x.repo.AdminDir(name))
		}
	}
	if x.inUse(evidence) {
		return nil
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		id := x.owner(filepath.Join("worktrees", name))
		f := Finding{ID: id, Path: x.repo.AdminDir(name)}
		switch {
		case len(e.Flaws) > 0:
			x.damaged(e, f)
		case half(e):
			f.Code = "initializing-entry"
			f.What = "a 'git worktree add' that was killed left it locked; its tree is " + e.Path
			x.found(f, func(context.Context) error { return x.repo.Unlock(e) })
		}
	}
	return nil
}

// reportDamagedEntry reports a worktree entry that git cannot read. The fix rewrites the parts that can be reconstructed.
func (x *examination) damaged(e git.Entry, f Finding) {
	f.Code, f.AtRisk = "damaged-entry", e.Used
	f.What = "git's entry of a worktree is damaged (" + strings.Join(e.Flaws, ", ") + ")"
	if slices.Contains(e.Flaws, "commondir") {
		f.What += "; git cannot list worktrees, nor branches, before that is mended"
	}
	beyond := x.repo.Beyond(e)
	if len(beyond) < len(e.Flaws) {
		x.found(f, func(context.Context) error { return x.repo.RepairEntry(e) })
		return // the next run reports the flaws that remain
	}
	f.Mend = "git worktree repair TREE"
	if slices.Contains(beyond, "HEAD") {
		f.Mend = "echo ref: refs/heads/BRANCH > " + ShellWord(filepath.Join(f.Path, "HEAD"))
	}
	x.found(f, nil)
}

func (x *examination) entryNames() []string {
	var names []string
	for name := range x.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkUnrecorded finds worktree entries and branches that are named by an id but have no record.
func (x *examination) strays(ctx context.Context) error {
	if x.unmounted || x.unsettled {
		return nil
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		if !ids.Valid(name) || x.known(name) {
			continue
		}
		f := Finding{ID: name, Path: x.repo.AdminDir(name)}
		_, elsewhere, err := x.tied(e.Path, name)
		place, ours := dataDirOf(name, e.Path)
		switch {
		case err == nil && store.IsDir(e.Path) && elsewhere != "":
			f.Code, f.What = "copied-entry", "its tree belongs to "+elsewhere+"; this repository is a copy of that one"
			x.found(f, func(context.Context) error { return x.repo.RemoveAdmin(name) })
		case ours && (store.Store{Root: place}).Records(x.ID, name):
			x.warn("%s is on record in another data directory; 'AGENCY_DATA_DIR=%s git agency doctor' looks there", name, ShellWord(place))
		case store.IsDir(e.Path) && ours:
			f.Code, f.AtRisk, f.What = "other-data-dir", true, "its tree is in another data directory, "+place
			f.Mend = "AGENCY_DATA_DIR=" + ShellWord(place) + " git agency doctor"
			x.found(f, nil)
		}
	}
	refs, err := x.repo.Refs(ctx, heads+branchRoot+"/sandbox-*")
	if err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		id := strings.TrimPrefix(ref, sandboxRef(""))
		e, registered := x.entries[id]
		if !ids.Valid(id) || x.known(id) || registered && store.IsDir(e.Path) {
			continue
		}
		s := subject{id: id, home: x.store.InvocationDir(x.ID, id), tree: x.store.SandboxTreePath(x.ID, id), branch: ref, marker: guard.Sandbox, ours: true}
		if x.checkedOutElsewhere(s) {
			continue
		}
		x.found(Finding{Code: "orphan-branch", ID: id, Path: x.repo.RefPath(ref), AtRisk: true, What: "a branch of a sandbox that there is no record of", Outcome: "it is kept as " + trashRef(id)},
			func(ctx context.Context) error { return x.salvage(ctx, s, "there was no record at all") })
	}
	return nil
}

// checkScratch finds temporary files and directories of killed commands.
func (x *examination) scratch(context.Context) error {
	if x.unsettled {
		return nil
	}
	scraps, err := x.scraps(x.repo)
	if err != nil {
		return err
	}
	for _, path := range scraps {
		x.found(Finding{Code: "leftover-scratch", ID: x.owner(x.relative(path)), Path: path, What: "what a command that was killed needed for a moment"},
			func(context.Context) error { return durable.RemoveTree(path) })
	}
	temps, err := x.store.Temps(x.ID)
	if err != nil {
		return err
	}
	excluding, err := durable.Temps(filepath.Join(x.CommonDir, "info"))
	if err != nil {
		return err
	}
	for _, path := range append(temps, excluding...) {
		x.found(Finding{Code: "leftover-scratch", ID: x.owner(x.relative(path)), Path: path, along: true, What: "a file that was being written when somebody was killed"},
			func(context.Context) error { return durable.RemoveTree(path) })
	}
	return nil
}

// relativePath returns a path relative to the git directory or the data directory.
func (x *examination) relative(path string) string {
	for _, dir := range []string{x.CommonDir, x.DataDir} {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// checkExclude finds a missing line in info/exclude, without which git status shows the markers.
func (x *examination) exclude(context.Context) error {
	if len(x.worktrees) == 0 && len(x.invocations) == 0 || x.unsettled {
		return nil
	}
	path := filepath.Join(x.CommonDir, "info", "exclude")
	missing, err := x.repo.ExcludeState(excludeLine)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if missing == "" {
		return nil
	}
	for _, e := range x.worktrees {
		if e.Broken == store.Whole && e.Record.State == store.Present {
			x.found(Finding{Code: "visible-markers", ID: "info/exclude", Path: path, What: "the line " + excludeLine + " is gone; git status shows markers"},
				func(context.Context) error { _, err := x.repo.Exclude(excludeLine); return err })
			return nil
		}
	}
	return nil
}
