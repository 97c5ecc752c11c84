package gitagency

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// The verbs by which the integration branch moves.
const (
	verbLand   = "land"
	verbUnland = "unland"
	verbPush   = "push" // what somebody else has pushed is merged
)

// publication is an integration branch that moves, with the tree that a person has it checked out in: what landing, taking
// that back and merging what others have pushed have in common.
type publication struct {
	merger  *git.Merger // who has made the commit that it goes to
	advance git.Advance
	note    store.Landing // for who finds it half done; the rest of it is filled in
	dry     bool          // it is only found out whether it could be done
	record  func() error  // writes down that it is done; nil where nothing is on record
	then    []step        // what follows from that
}

// carryOut is the transaction. Until the refs have moved whatever fails or is cancelled is undone, last step first; from
// then on it is done, and every step only goes on, and may be done again by whoever finds the note of it.
func (r *Repository) carryOut(ctx context.Context, p publication) (done bool, err error) {
	// 1. Whatever could stop it stops it here.
	moving, err := p.merger.Advance(ctx, p.advance)
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := moving.Close(); closeErr != nil {
			r.warn("%s: %v", p.advance.Tree, closeErr)
		}
	}()
	if p.dry {
		return false, nil
	}
	if err := r.advance(ctx, p.merger, moving, r.noteOf(p.note, p.advance)); err != nil {
		return false, err
	}
	// 8. and all that follows. Each of them may have been done before.
	onward := context.WithoutCancel(ctx)
	steps := []step{{"index", func() error { return moving.Publish(onward) }}}
	if p.record != nil {
		steps = append(steps, step{"record", p.record})
	}
	steps = append(steps, step{"clear", moving.Clear}, step{"done", func() error { return r.store.RemoveLanding(r.ID) }})
	return true, r.forward(onward, p.note.Verb, append(steps, p.then...))
}

// noteOf completes what somebody who finds it half done has to know.
func (r *Repository) noteOf(note store.Landing, a git.Advance) store.Landing {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // it is made of strings
	}
	note.Advance, note.PID, note.StartedAt = data, os.Getpid(), r.now()
	return note
}

// advance is carryOut up to the point at which the refs have moved.
func (r *Repository) advance(ctx context.Context, merger *git.Merger, moving *git.Advancing, note store.Landing) (err error) {
	tx := r.begin(note.Verb)
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	var stuck error // by what it could not be undone
	moving.Wake(ctx)
	// 2. What nobody has seen yet becomes part of the repository.
	if err := tx.Step(ctx, "objects", func() error { return merger.Keep(ctx) }); err != nil {
		return err
	}
	// 3. The note, in case we do not live to finish it.
	if err := tx.Step(ctx, "note", func() error {
		tx.Undo("note", func(context.Context) error {
			if stuck != nil {
				return nil // who comes next tries again
			}
			return r.store.RemoveLanding(r.ID)
		})
		return r.store.WriteLanding(r.ID, note)
	}); err != nil {
		return err
	}
	// 4. No git of the person's writes the index any more.
	if err := tx.Step(ctx, "lock", func() error {
		tx.Undo("lock", func(ctx context.Context) error {
			err := moving.Undo(ctx)
			if !onlyStranded(err) { // of which only the person knows what is right
				stuck = err
			}
			return err
		})
		return moving.Lock(ctx)
	}); err != nil {
		return err
	}
	for _, s := range []step{
		{"prepare", func() error { return moving.Prepare(ctx) }}, // 5. The branch is where it was, and stays there.
		{"files", func() error { return moving.Files(ctx) }},     // 6. The person's files, and beside it the new index.
	} {
		if err := tx.Step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	// 7. The commit point. What goes wrong behind it is no reason to undo anything, nor to stop.
	landed := false
	if err := tx.Step(ctx, "commit", func() error {
		if err := context.Cause(ctx); err != nil {
			return err // the last moment to turn back
		}
		err := moving.Commit(ctx)
		landed = err == nil
		return err
	}); err != nil && !landed {
		return err
	}
	tx.Commit()
	if b := moving.Behind(); b != nil {
		r.warn("%v; to bring it along: git -C %s read-tree -m -u %s %s", b, ShellWord(b.Tree), b.Old, b.New)
	}
	return nil
}

// onlyStranded reports whether nothing else is wrong than that somebody has written to paths.
func onlyStranded(err error) bool {
	switch e := err.(type) {
	case nil, *git.StrandedError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(part error) bool { return !onlyStranded(part) })
	}
	return false
}
