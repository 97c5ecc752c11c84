package gitagency

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
	"golang.org/x/sys/unix"
)

// toolIdentity is the author of commits that no person made; they must not need a configured user.
var toolIdentity = object.Identity{Name: "git-agency", Email: "git-agency@localhost"}

// toolSignature returns toolIdentity with a time stamp.
func toolSignature(at time.Time) object.Signature {
	return object.Signature{Identity: toolIdentity, When: fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700"))}
}

// captureTree writes the content of a tree that is about to be removed as a commit; no ref points at it yet. The
// content that an earlier capture kept (Onto) stays part of it.
func (r *Repository) captureTree(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (snapshot.CaptureResult, error) {
	s, err := r.prepareCapture(s)
	if err != nil {
		return snapshot.CaptureResult{}, err
	}
	return snapshot.Capture(ctx, repo, s)
}

// captureDryRun returns the result that captureTree would return, and changes nothing.
func (r *Repository) captureDryRun(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (snapshot.CaptureResult, error) {
	s, err := r.prepareCapture(s)
	if err != nil {
		return snapshot.CaptureResult{}, err
	}
	return snapshot.DryRunCapture(ctx, repo, s)
}

// prepareCapture fills in the author, the omitted directory and the trust of a capture. It refuses a tree with a
// mount inside.
func (r *Repository) prepareCapture(s git.WorktreeSpec) (git.WorktreeSpec, error) {
	if !store.IsDir(s.Dir) {
		s.Dir = "" // the tree is gone, or replaced by a symbolic link to a directory that is not ours
	} else if points := guard.MountsBelow(s.Dir); len(points) > 0 {
		return s, &UnsafePathError{Path: s.Dir, Why: "something is mounted at " + points[0] + "; unmount it first"}
	}
	s.Omit, s.Author, s.TrustConfig = guard.AgencyDir, toolIdentity, r.trustsRepoConfig(s.Name)
	return s, nil
}

// removeCapturedTree removes a tree whose content was captured. It first renames the tree to .aside, so that
// processes that know the path no longer reach it; then it captures changes made after since; then it renames the
// tree to .done and deletes it. The name shows how far the removal got, so an interrupted one can be
// continued at any point. late, which may be nil, is called before changes are kept that were not captured earlier.
func (r *Repository) removeCapturedTree(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, since time.Time, late func() error) error {
	tree, aside, done := s.Dir, store.WithdrawnPath(s.Dir), store.RemovablePath(s.Dir)
	if _, there := store.FirstExisting(aside); !there && store.IsDir(tree) {
		if err := os.Rename(tree, aside); err != nil {
			return err
		}
	}
	if store.IsDir(aside) {
		if touched, err := modifiedSince(aside, since); err != nil || touched { // on an error, capture again to be safe
			if err := r.keepLateChanges(ctx, repo, s, aside, late); err != nil {
				return err
			}
		}
		if err := durable.RemoveTree(done); err != nil {
			return err
		}
		if err := os.Rename(aside, done); err != nil {
			return err
		}
	}
	for _, path := range []string{done, tree} { // path tree may hold a symbolic link, or a new tree that was captured a moment ago
		if err := durable.RemoveTree(path); err != nil {
			return err
		}
	}
	return nil
}

// keepLateChanges adds changes made after a capture to the commit under the trash ref.
func (r *Repository) keepLateChanges(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, aside string, late func() error) error {
	onto, err := r.trashCommit(ctx, repo, s.Name)
	if err != nil {
		return err
	}
	s.Dir, s.Onto = aside, onto
	captured, err := r.captureTree(ctx, repo, s)
	if err != nil || captured.Commit == captured.BranchTip || captured.Commit == onto {
		return err
	}
	if late != nil {
		if err := late(); err != nil {
			return err
		}
	}
	return r.keepCommit(ctx, &undo.Tx{}, repo, trashRef(s.Name), captured.Commit)
}

// modifiedSince reports whether any file or directory in a tree was created or changed after a moment, or up to 100
// ms before it: file system clocks are coarse. For files the ctime counts too, which programs cannot set; for
// directories it does not, as renaming changes it.
func modifiedSince(tree string, since time.Time) (bool, error) {
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
		if !d.IsDir() && time.Unix(st.Ctim.Unix()).After(changed) {
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

// trashCommit returns the commit that a trash ref points at; empty if there is none.
func (r *Repository) trashCommit(ctx context.Context, repo *git.Repo, id string) (string, error) {
	if tip, err := repo.Tip(ctx, trashRef(id)); err != nil || tip == "" {
		return "", err
	}
	found, err := repo.Lookup(ctx, trashRef(id)) // the object of the ref may be missing
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// keepCommit points a ref at a commit and registers the undo.
func (r *Repository) keepCommit(ctx context.Context, tx *undo.Tx, repo *git.Repo, ref, commit string) error {
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
	if err := repo.MoveRef(ctx, ref, commit, old, "agency: keep what was there"); err != nil {
		return err
	}
	return repo.SyncRef(ref) // must be on disk: the content it keeps is about to be deleted
}

// checkTreeNotMoved refuses to end a tree that "git worktree move" has moved: only git's entry knows the new path.
func (r *Repository) checkTreeNotMoved(repo *git.Repo, id, tree string) error {
	at := repo.RegisteredTree(id)
	if at == "" || !store.IsDir(at) {
		return nil
	}
	if real, err := guard.Resolve(at); err != nil || real != tree {
		return &MovedError{ID: id, From: tree, To: at}
	}
	return nil
}
