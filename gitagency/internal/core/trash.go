package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// ToolIdentity is the author of commits that no person made; they must not need a configured user.
var ToolIdentity = object.Identity{Name: "git-agency", Email: "git-agency@localhost"}

// ToolSignature returns ToolIdentity with a time stamp.
func ToolSignature(at time.Time) object.Signature {
	return object.Signature{Identity: ToolIdentity, When: fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700"))}
}

// CaptureTree writes the content of a tree that is about to be removed as a commit; no ref points at it yet. The
// content that an earlier capture kept (Onto) stays part of it.
func (r *Repository) CaptureTree(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (snapshot.CaptureResult, error) {
	s, err := r.PrepareCapture(s)
	if err != nil {
		return snapshot.CaptureResult{}, err
	}
	return snapshot.Capture(ctx, repo, s)
}

// CaptureDryRun returns the result that CaptureTree would return, and changes nothing.
func (r *Repository) CaptureDryRun(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (snapshot.CaptureResult, error) {
	s, err := r.PrepareCapture(s)
	if err != nil {
		return snapshot.CaptureResult{}, err
	}
	return snapshot.DryRunCapture(ctx, repo, s)
}

// PrepareCapture fills in the author, the omitted directory and the trust of a capture. It refuses a tree with a
// mount inside.
func (r *Repository) PrepareCapture(s git.WorktreeSpec) (git.WorktreeSpec, error) {
	if !store.IsDir(s.Dir) {
		s.Dir = "" // the tree is gone, or replaced by a symbolic link to a directory that is not ours
	} else if points := guard.MountsBelow(s.Dir); len(points) > 0 {
		return s, &fault.UnsafePathError{Path: s.Dir, Why: "something is mounted at " + points[0] + "; unmount it first"}
	}
	s.Omit, s.Author, s.TrustConfig = guard.AgencyDir, ToolIdentity, r.TrustsRepoConfig(s.Name)
	var err error
	if s.Dir != "" {
		s.IsClone = store.IsDir(store.CloneOf(s.Dir))
		s.Overlay, err = r.OverlayTree(s.Name)
	}
	return s, err
}

// StepsToRemoveTree returns the steps that remove a tree whose content was captured:
//
//   - tree: renames the tree to .aside, so that processes that know the path no longer reach it; captures changes made
//     after since; renames the tree to .done;
//   - files: deletes it.
//
// The name shows how far the removal got, so an interrupted one can be continued at any point. A tree of which some files
// are not kept is not renamed to .done, and one that cannot be deleted is renamed back: the next removal tries to keep
// what is left, and what was added meanwhile.
// late, which may be nil, is called before changes are kept that were not captured earlier.
func (r *Repository) StepsToRemoveTree(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, since time.Time, o TrashOptions, late func() error) []Step {
	return []Step{
		{"tree", func() error { return r.withdrawTree(ctx, repo, s, since, o, late) }},
		{"files", func() error { return removeWithdrawnTree(s.Dir, o) }},
	}
}

func (r *Repository) withdrawTree(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, since time.Time, o TrashOptions, late func() error) error {
	aside := store.WithdrawnPath(s.Dir)
	if _, there := store.FirstExisting(aside); !there && store.IsDir(s.Dir) {
		if err := os.Rename(s.Dir, aside); err != nil {
			return err
		}
	}
	if !store.IsDir(aside) {
		return MarkRemovable(s.Dir)
	}
	if touched, err := TreeModifiedSince(aside, s.Dir, since); err != nil || touched { // on an error, capture again to be safe
		if err := r.keepLateChanges(ctx, repo, s, aside, o, late); err != nil {
			return err
		}
	}
	if o.hasLosses() {
		return nil
	}
	return MarkRemovable(s.Dir)
}

// MarkRemovable renames a withdrawn tree, whose content was captured, to .done. The directory of an overlay is then moved into it,
// so that both are deleted together: in .aside its upper directory would look like late changes. After a kill between the two
// steps, the next call does the second.
func MarkRemovable(tree string) error {
	aside, done := store.WithdrawnPath(tree), store.RemovablePath(tree)
	if store.IsDir(aside) {
		if err := removeTree(done); err != nil {
			return err
		}
		if err := os.Rename(aside, done); err != nil {
			return err
		}
	}
	return moveOverlay(store.OverlayOf(tree), removableOverlay(tree))
}

// removableOverlay returns the path of an overlay in a tree that MarkRemovable has renamed.
func removableOverlay(tree string) string { return filepath.Join(store.RemovablePath(tree), "overlay") }

// moveOverlay renames the directory of an overlay. It does nothing if that, or the parent of the new path, does not exist.
func moveOverlay(from, to string) error {
	if err := os.Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeWithdrawnTree deletes a tree that was captured and withdrawn.
func removeWithdrawnTree(tree string, o TrashOptions) error {
	aside, done := store.WithdrawnPath(tree), store.RemovablePath(tree)
	if err := removeTree(done); err != nil {
		if _, there := store.FirstExisting(aside); !there {
			err = errors.Join(err, moveOverlay(removableOverlay(tree), store.OverlayOf(tree)), os.Rename(done, aside))
		}
		return err
	}
	if o.hasLosses() {
		if err := removeTree(aside); err != nil {
			return err
		}
	}
	return removeTree(tree) // a symbolic link, or a new tree that was captured a moment ago
}

// removeTree removes a tree of any depth.
func removeTree(path string) error {
	err := durable.RemoveTree(path)
	if !errors.Is(err, syscall.ENAMETOOLONG) && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	parent, err := guard.OpenTree(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	top, err := parent.OpenTop()
	if err != nil {
		return err
	}
	return errors.Join(top.RemoveAll(filepath.Base(path)), top.Close())
}

// keepLateChanges adds changes made after a capture to the commit under the trash ref, and to the archive.
func (r *Repository) keepLateChanges(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, aside string, o TrashOptions, late func() error) error {
	onto, err := r.TrashCommit(ctx, repo, s.Name)
	if err != nil {
		return err
	}
	s.Dir, s.Onto, o.Late = aside, onto, true
	captured, err := r.CaptureForTrash(ctx, repo, s, o)
	if err != nil {
		return err
	}
	defer captured.Close()
	if err := r.WriteTrashArchive(ctx, s.Name, captured, o, late); err != nil {
		return err
	}
	if captured.Commit == captured.BranchTip || captured.Commit == onto {
		return nil
	}
	if late != nil {
		if err := late(); err != nil {
			return err
		}
	}
	return r.KeepCommit(ctx, &undo.Tx{}, repo, TrashRef(s.Name), captured.Commit)
}

// TreeModifiedSince is ModifiedSince for the withdrawn tree of a sandbox. That of an overlay has a marker alone, which is no
// content, and no process can change its upper directory any more.
func TreeModifiedSince(aside, tree string, since time.Time) (bool, error) {
	if store.IsDir(store.OverlayOf(tree)) {
		return false, nil
	}
	return ModifiedSince(aside, since)
}

// ModifiedSince reports whether any file or directory in a tree was created or changed after a moment, or up to 100
// ms before it: file system clocks are coarse. For files the ctime counts too, which programs cannot set; for
// directories it does not, as renaming changes it.
func ModifiedSince(tree string, since time.Time) (bool, error) {
	return modifiedSince(tree, since, func(*unix.Stat_t) bool { return true })
}

// EntryModifiedSince is ModifiedSince for the directory of a worktree in the git directory. The ctime of a file that has several
// names does not count: the index of an overlay is a hard link to that of its layer until git replaces it, and each sandbox that
// starts from the layer, or ends, changes the ctime for all.
func EntryModifiedSince(dir string, since time.Time) (bool, error) {
	return modifiedSince(dir, since, func(st *unix.Stat_t) bool { return st.Nlink == 1 })
}

func modifiedSince(tree string, since time.Time, ctimeCounts func(*unix.Stat_t) bool) (bool, error) {
	since = since.Add(-100 * time.Millisecond)
	touched := false
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err != nil {
			return err
		}
		changed := time.Unix(st.Mtim.Unix())
		if !d.IsDir() && ctimeCounts(&st) && time.Unix(st.Ctim.Unix()).After(changed) {
			changed = time.Unix(st.Ctim.Unix())
		}
		if changed.After(since) {
			touched = true
			return fs.SkipAll
		}
		return nil
	})
	return touched, err
}

// TrashCommit returns the commit that a trash ref points at; empty if there is none.
func (r *Repository) TrashCommit(ctx context.Context, repo *git.Repo, id string) (string, error) {
	if tip, err := repo.Tip(ctx, TrashRef(id)); err != nil || tip == "" {
		return "", err
	}
	found, err := repo.Lookup(ctx, TrashRef(id)) // the object of the ref may be missing
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// KeepCommit points a ref at a commit and registers the undo.
func (r *Repository) KeepCommit(ctx context.Context, tx *undo.Tx, repo *git.Repo, ref, commit string) error {
	if commit == "" {
		return nil // the capture was empty
	}
	if err := repo.RemoveRefLeftovers(ctx, ref); err != nil { // removes the lock file of a killed attempt
		return err
	}
	found, err := repo.Lookup(ctx, ref)
	if err != nil {
		return err
	}
	old := found[0].OID
	if old == commit {
		return nil
	}
	if old == "" {
		old = strings.Repeat("0", len(commit))
	}
	tx.Undo("trash", func(ctx context.Context) error {
		now, err := repo.Lookup(ctx, ref)
		switch {
		case err != nil || now[0].OID != commit:
			return err
		case found[0].Missing():
			return repo.DeleteRef(ctx, ref, commit)
		}
		return repo.MoveRef(ctx, ref, old, commit, "agency: undo")
	})
	if err := repo.MoveRef(ctx, ref, commit, old, "agency: keep removed content"); err != nil {
		return err
	}
	return repo.SyncRef(ref) // must be on disk: the content it keeps is about to be deleted
}

// CheckTreeNotMoved refuses to end a tree that "git worktree move" has moved: only git's entry knows the new path.
func (r *Repository) CheckTreeNotMoved(repo *git.Repo, id, tree string) error {
	at := worktree.RegisteredTree(repo, id)
	if at == "" || !store.IsDir(at) {
		return nil
	}
	if real, err := guard.Resolve(at); err != nil || real != tree {
		return &fault.MovedError{ID: id, From: tree, To: at}
	}
	return nil
}

// DeleteTrashSteps returns the steps that delete the snapshot refs of an invocation and its trash ref, if they still
// have the given values, its archive, and the refs that keep commits of submodules and objects of the sandbox.
func (r *Repository) DeleteTrashSteps(ctx context.Context, repo *git.Repo, id string, snapshots map[string]string, trashCommit string) []Step {
	return []Step{
		{"snapshots", func() error { return repo.DeleteOwnedRefs(ctx, SnapshotsPrefix(id), snapshots) }},
		{"submodules", func() error {
			if !ids.Valid(id) {
				return nil
			}
			return errors.Join(submodule.DeleteRef(ctx, repo, SubmoduleRef(id)), Unpin(ctx, repo, id))
		}},
		{"archive", func() error {
			if !ids.Valid(id) { // it comes from a ref and is used in a path
				return nil
			}
			return r.Store.RemoveTrashArchive(r.ID, id)
		}},
		{"trash", func() error {
			if trashCommit == "" {
				return repo.RemoveRefLeftovers(ctx, TrashRef(id)) // the rest of an earlier attempt
			}
			return repo.DeleteOwnedRef(ctx, TrashRef(id), trashCommit)
		}},
	}
}
