package gitagency

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// toolIdentity is who commits that no person made are by; they must not need a configured user.
var toolIdentity = git.Identity{Name: "git-agency", Email: "git-agency@localhost"}

// toolSignature is who and when such a commit is by.
func toolSignature(at time.Time) git.Signature {
	return git.Signature{Identity: toolIdentity, When: fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700"))}
}

// capture writes down what is in a tree that is about to go, as a commit nobody points at yet. What was
// kept of it before stays part of that.
func (r *Repository) capture(ctx context.Context, repo *git.Repo, s git.Subject) (git.Captured, error) {
	s, err := r.capturable(s)
	if err != nil {
		return git.Captured{}, err
	}
	return repo.Capture(ctx, s)
}

// rehearse finds what capture would find, and changes nothing.
func (r *Repository) rehearse(ctx context.Context, repo *git.Repo, s git.Subject) (git.Captured, error) {
	s, err := r.capturable(s)
	if err != nil {
		return git.Captured{}, err
	}
	return repo.Rehearse(ctx, s)
}

// capturable says of which tree, and as whom, unless that tree must not be touched.
func (r *Repository) capturable(s git.Subject) (git.Subject, error) {
	if !store.IsDir(s.Tree) {
		s.Tree = "" // gone, or a link to what was never ours
	} else if points := guard.MountedBelow(s.Tree); len(points) > 0 {
		return s, &UnsafePathError{Path: s.Tree, Why: "something is mounted at " + points[0] + "; unmount it first"}
	}
	s.Omit, s.Author, s.Trusted = guard.Dir, toolIdentity, r.trustsSettings(s.Name)
	return s, nil
}

// clear removes a tree whose content is kept. It is first put out of the way of whoever knows its path;
// what was written since it was captured is kept too, and only then it goes. Each of the names it has on
// the way says how far that was, so that it can be taken up again at any point. late, which may be nil,
// is called before something is kept that had not been captured.
func (r *Repository) clear(ctx context.Context, repo *git.Repo, s git.Subject, since time.Time, late func() error) error {
	tree, aside, done := s.Tree, store.Aside(s.Tree), store.Done(s.Tree)
	if _, there := store.Taken(aside); !there && store.IsDir(tree) {
		if err := os.Rename(tree, aside); err != nil {
			return err
		}
	}
	if store.IsDir(aside) {
		if touched, err := touchedSince(aside, since); err != nil || touched { // in doubt, look
			if err := r.keepLate(ctx, repo, s, aside, late); err != nil {
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
	for _, path := range []string{done, tree} { // at tree a link, or what was captured a moment ago
		if err := durable.RemoveTree(path); err != nil {
			return err
		}
	}
	return nil
}

// keepLate adds what came after a capture to what the capture kept.
func (r *Repository) keepLate(ctx context.Context, repo *git.Repo, s git.Subject, aside string, late func() error) error {
	onto, err := r.kept(ctx, repo, s.Name)
	if err != nil {
		return err
	}
	s.Tree, s.Onto = aside, onto
	captured, err := r.capture(ctx, repo, s)
	if err != nil || captured.Commit == captured.Branch || captured.Commit == onto {
		return err
	}
	if late != nil {
		if err := late(); err != nil {
			return err
		}
	}
	return r.keep(ctx, &undo.Tx{}, repo, trashRef(s.Name), captured.Commit)
}

// touchedSince reports whether anything in a tree was made or changed after a moment, or a little before: the clock of a file
// system is coarse. Of a file the time counts that nobody can set; a directory has another when it is moved.
func touchedSince(tree string, since time.Time) (bool, error) {
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

// kept is the commit that a trash ref points at; empty when there is none.
func (r *Repository) kept(ctx context.Context, repo *git.Repo, id string) (string, error) {
	if tip, err := repo.Tip(ctx, trashRef(id)); err != nil || tip == "" {
		return "", err
	}
	found, err := repo.Lookup(ctx, trashRef(id)) // it may lead nowhere
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// keep points a ref at a commit and registers how to take that back.
func (r *Repository) keep(ctx context.Context, tx *undo.Tx, repo *git.Repo, ref, commit string) error {
	if commit == "" {
		return nil // there was nothing at all
	}
	if err := repo.SweepRef(ctx, ref); err != nil { // of an attempt that was killed
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
	return repo.SyncRef(ref) // what it keeps is about to be deleted elsewhere
}

// checkNotMoved refuses to end what git has elsewhere than where it belongs: "git worktree move" is
// known to nobody but git.
func (r *Repository) checkNotMoved(repo *git.Repo, id, tree string) error {
	at := repo.RegisteredAt(id)
	if at == "" || !store.IsDir(at) {
		return nil
	}
	if real, err := guard.Resolve(at); err != nil || real != tree {
		return &MovedError{ID: id, From: tree, To: at}
	}
	return nil
}
