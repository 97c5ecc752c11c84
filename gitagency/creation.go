package gitagency

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// creation is what distinguishes making a sandbox from making an integration worktree.
type creation struct {
	verb   string
	home   string         // the directory of the record
	ensure func() error   // makes it, exclusively
	spec   changeset.Spec // the tree, its branch and the commit it starts from
	marker guard.Marker
	record func() error // writes meta.json
}

// create is the one transaction by which trees come to be. The caller holds the repository lock and
// has checked that every name in c is free and every path safe. Until step 10 is done nothing exists
// for anybody else, and whatever fails or is cancelled is undone, last step first.
func (r *Repository) create(ctx context.Context, repo *git.Repo, c creation) (err error) {
	tx := r.begin(c.verb)
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	trees := backend(repo)
	around := filepath.Dir(c.spec.Tree)

	// 1.–4. The id is ours, and everybody can see what for.
	intent, err := r.claim(ctx, tx, repo, c.home, c.ensure, store.Intent{
		ID: c.spec.ID, Command: c.verb, Tree: c.spec.Tree, Branch: c.spec.Branch, Base: c.spec.Base,
		Tip: c.spec.Tip, FromSnapshot: c.spec.Files,
	})
	if err != nil {
		return err
	}
	// 5. The directory around the tree, where that is not the record's.
	if around != c.home {
		if err := tx.Step(ctx, "sandbox-dir", func() error {
			if err := durable.Mkdir(around, 0o700); err != nil {
				return err
			}
			tx.Undo("sandbox-dir", func(context.Context) error { return durable.Remove(around) })
			return nil
		}); err != nil {
			return err
		}
	}
	// 6. Tree, branch, registration with git, checkout.
	if err := trees.Create(ctx, tx, c.spec); err != nil {
		return err
	}
	// 7. What was checked out must not pass itself off as marked.
	if err := tx.Step(ctx, "inspect", func() error { return refuseMarkers(c.spec) }); err != nil {
		return err
	}
	// 8. The marker: from here on the directory says what it is.
	if err := tx.Step(ctx, "marker", func() error { _, err := c.marker.Write(c.spec.Tree); return err }); err != nil {
		return err
	}
	// 9. Nothing the record will promise may be lost to a power cut after it.
	if err := tx.Step(ctx, "sync", func() error {
		if err := durable.Sync(filepath.Join(c.spec.Tree, guard.Dir)); err != nil {
			return err
		}
		return trees.Sync(c.spec)
	}); err != nil {
		return err
	}
	// 10. It exists.
	return r.publish(ctx, tx, c.home, intent, c.record)
}

// claim begins a creation: the directories of the repository and of the record, the intent, and the
// line that hides markers.
func (r *Repository) claim(ctx context.Context, tx *undo.Tx, repo *git.Repo, home string, ensure func() error, intent store.Intent) (*store.OpenIntent, error) {
	var open *store.OpenIntent
	if err := tx.Step(ctx, "repo-dir", func() error {
		if _, there := store.Taken(r.store.RepoDir(r.ID)); !there {
			tx.Undo("repo-dir", func(context.Context) error { return r.store.DropRepo(r.ID) })
		}
		return r.store.EnsureRepo(r.ID, r.CommonDir, r.now())
	}); err != nil {
		return nil, err
	}
	// That the directory was not there before makes the id ours.
	if err := tx.Step(ctx, "record-dir", func() error {
		if err := ensure(); err != nil {
			return err
		}
		tx.Undo("record-dir", func(context.Context) error { return durable.RemoveTree(home) })
		return nil
	}); err != nil {
		return nil, err
	}
	// What is about to be made, in case we do not live to undo it.
	if err := tx.Step(ctx, "intent", func() error {
		intent.PID, intent.StartedAt = os.Getpid(), r.now()
		var err error
		if intent.Exclude, err = repo.ExcludeState(excludeLine); err != nil {
			return err
		}
		if open, err = store.WriteIntent(home, intent); err != nil {
			return err
		}
		tx.Undo("intent", func(context.Context) error { return open.Remove() })
		return nil
	}); err != nil {
		return nil, err
	}
	// Markers must not show in git status, in any worktree.
	return open, tx.Step(ctx, "exclude", func() error {
		undo, err := repo.Exclude(excludeLine)
		if undo != nil {
			tx.Undo("exclude", func(context.Context) error { return undo() })
		}
		return err
	})
}

// excludeLine keeps markers out of git status, in every worktree.
const excludeLine = "/" + guard.Dir + "/"

// publish is the commit point: the record is written, and the intent has no use any more.
func (r *Repository) publish(ctx context.Context, tx *undo.Tx, home string, intent *store.OpenIntent, record func() error) error {
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error { return store.RemoveMeta(home) })
		return record()
	}); err != nil {
		return err
	}
	tx.Commit()
	// An intent beside a record means nothing, so this cannot fail any more.
	if err := intent.Remove(); err != nil {
		r.warn("%s: %v", home, err)
	}
	return nil
}

// freeID proposes ids until taken finds nothing in the way. Two in one second are normal.
func (r *Repository) freeID(ctx context.Context, taken func(id string) (what string, err error)) (string, time.Time, error) {
	const tries = 100
	what := ""
	for range tries {
		if err := context.Cause(ctx); err != nil {
			return "", time.Time{}, err
		}
		id, at, err := r.ids.New()
		if err != nil {
			return "", time.Time{}, err
		}
		if what, err = taken(id); err != nil {
			return "", time.Time{}, err
		}
		if what == "" {
			return id, at, nil
		}
	}
	return "", time.Time{}, &NoFreeIDError{Tries: tries, Taken: what}
}

// abandon undoes what an interrupted creation left. Paths and names follow from the id, not from what
// the intent says: it is a file, and what it names gets removed.
func (r *Repository) abandon(ctx context.Context, repo *git.Repo, home string, spec changeset.Spec) error {
	if err := checkReal(spec.Tree); err != nil {
		return err
	}
	if err := r.refuseWorkedIn(ctx, repo, spec); err != nil {
		return err
	}
	spec.Scratch = home
	if err := backend(repo).Abandon(ctx, spec); err != nil {
		return err
	}
	if around := filepath.Dir(spec.Tree); around != home {
		if err := durable.Remove(around); err != nil {
			return err
		}
	}
	return durable.RemoveTree(home)
}

// leave takes back what the first creation in a repository makes besides itself, when that was undone and
// nothing else has come to be there.
func (r *Repository) leave(repo *git.Repo, intent store.Intent) error {
	for _, kind := range []string{"worktrees", "invocations", "sandboxes"} {
		if found, err := r.store.IDs(r.ID, kind); err != nil || len(found) > 0 {
			return err
		}
	}
	if err := repo.Unexclude(excludeLine, intent.Exclude); err != nil {
		return err
	}
	return r.store.DropRepo(r.ID)
}

// refuseWorkedIn looks whether somebody worked in a tree that is said never to have come to be. The
// marker is written when all else is done; before that, what git calls changes is what is not there yet.
func (r *Repository) refuseWorkedIn(ctx context.Context, repo *git.Repo, spec changeset.Spec) error {
	for _, m := range []guard.Marker{guard.Sandbox, guard.Integration} {
		marked, err := m.In(spec.Tree)
		if err != nil || !marked {
			continue
		}
		untouched, err := r.asCreated(ctx, repo, spec)
		if err != nil {
			return err
		}
		if !untouched {
			return &WorkedInError{Path: spec.Tree}
		}
	}
	return nil
}

// asCreated reports whether a tree holds what its creation put there, and nothing else.
func (r *Repository) asCreated(ctx context.Context, repo *git.Repo, spec changeset.Spec) (bool, error) {
	subject := git.Subject{Name: spec.ID, Tree: spec.Tree, Branch: spec.Branch, Base: spec.Base}
	if spec.Files == "" {
		captured, err := r.capture(ctx, repo, subject)
		return !captured.Dirty && captured.Commit == spec.Start(), err
	}
	// It began with work in it: that of a snapshot, which has it still.
	subject, err := r.capturable(subject)
	if err != nil {
		return false, err
	}
	subject.Trusted = false // whose snapshot it was need not be known any more
	return repo.Holds(ctx, spec.Files, subject)
}

// refuseMarkers looks for an .agency that came with the commit, by whatever way: tracked, in another
// letter case on a file system that does not care, or written by a filter.
func refuseMarkers(spec changeset.Spec) error {
	if _, err := os.Lstat(filepath.Join(spec.Tree, guard.Dir)); err == nil {
		return &TrackedMarkerError{Commit: cmp.Or(spec.Files, spec.Start())}
	} else if !os.IsNotExist(err) {
		return err
	}
	return nil
}
