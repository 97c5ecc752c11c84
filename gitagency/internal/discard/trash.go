package discard

import (
	"context"
	"errors"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// moveToTrash captures the sandbox under the trash ref, and in an archive where a commit cannot hold it, and records the
// invocation as discarded. The record is the commit point: before it everything is undone on failure, after it only
// removal is left.
func moveToTrash(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) (err error) {
	tx := r.BeginTx("discard")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	scanStart := time.Now()
	// 1. Capture the content as a commit that no ref points at yet.
	var captured core.TrashContent
	if err := tx.Step(ctx, "capture", func() error {
		captured, err = r.CaptureForTrash(ctx, repo, TrashSubject(r, entry), o)
		return err
	}); err != nil {
		return err
	}
	defer captured.Close()
	// 2. Write what the commit does not hold to the archive. A discard that was killed before it wrote the record may have
	// left an archive with an older state.
	if err := tx.Step(ctx, "archive", func() error {
		if err := r.Store.RemoveTrashArchive(r.ID, entry.ID); err != nil {
			return err
		}
		return writeArchive(ctx, r, tx, entry.ID, captured, o, nil)
	}); err != nil {
		return err
	}
	// 3. Point the trash ref at the commit.
	if err := tx.Step(ctx, "trash", func() error {
		return r.KeepCommit(ctx, tx, repo, core.TrashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	// 4. Commit point: write the record.
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
				m.Landing, m.FinishedAt, m.CheckedAt = entry.Record.Landing, entry.Record.FinishedAt, entry.Record.CheckedAt
				m.HasTrashArchive, m.HadWalledGit = entry.Record.HasTrashArchive, entry.Record.HadWalledGit
			})
		})
		checked := &scanStart
		if o.Lost != nil && len(*o.Lost) > 0 { // if the removal fails, the next discard keeps what it can, however old
			checked = nil
		}
		return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
			now := r.Now()
			m.Landing, m.FinishedAt, m.CheckedAt = store.Discarded, &now, checked
			m.HasTrashArchive, m.HadWalledGit = r.HasTrashArchive(entry.ID), store.IsDir(r.UpperDir(entry.ID))
		})
	}); err != nil {
		return err
	}
	tx.Commit()
	recordTrash(r, entry.ID, "discard", captured.Commit)
	return nil
}

// writeArchive writes the archive of an invocation. Its undo removes a new one; the additions to an existing one stay.
func writeArchive(ctx context.Context, r *core.Repository, tx *undo.Tx, id string, captured core.TrashContent, o core.TrashOptions, beforeChange func() error) error {
	if !r.HasTrashArchive(id) {
		tx.Undo("archive", func(context.Context) error { return r.Store.RemoveTrashArchive(r.ID, id) })
	}
	return r.WriteTrashArchive(ctx, id, captured, o, beforeChange)
}

// addToTrash adds changes made to a sandbox after it had ended to its trash ref and its archive, without replacing what
// they keep. It renews the date of the record first: pruning decides by that date and must never take the new content
// for old, even if this process dies in between.
func addToTrash(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) (err error) {
	tx := r.BeginTx("discard")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	kept := ""
	var captured core.TrashContent
	if err := tx.Step(ctx, "capture", func() error {
		if kept, err = r.TrashCommit(ctx, repo, entry.ID); err != nil {
			return err
		}
		subject := TrashSubject(r, entry)
		subject.Onto, o.Late = kept, true
		captured, err = r.CaptureForTrash(ctx, repo, subject, o)
		return err
	}); err != nil {
		return err
	}
	defer captured.Close()
	renew := func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
				m.FinishedAt, m.HasTrashArchive = entry.Record.FinishedAt, entry.Record.HasTrashArchive
			})
		})
		return renewFinishedAt(r, entry.ID)
	}
	if err := tx.Step(ctx, "archive", func() error {
		return writeArchive(ctx, r, tx, entry.ID, captured, o, func() error { return errors.Join(renew(), recordArchive(r, entry.ID)) })
	}); err != nil {
		return err
	}
	if captured.Commit == kept {
		tx.Commit()
		return nil // no changes that a commit holds
	}
	if err := tx.Step(ctx, "record", renew); err != nil {
		return err
	}
	if err := tx.Step(ctx, "trash", func() error {
		return r.KeepCommit(ctx, tx, repo, core.TrashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	tx.Commit()
	recordTrash(r, entry.ID, "keep", captured.Commit)
	return nil
}

// renewFinishedAt sets the end date of an invocation to now, because there was work in its sandbox until now.
func renewFinishedAt(r *core.Repository, id string) error {
	return r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
		now := r.Now()
		m.FinishedAt = &now
	})
}

// recordArchive records that an invocation has an archive.
func recordArchive(r *core.Repository, id string) error {
	return r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) { m.HasTrashArchive = true })
}

// recordTrash appends an event with the trash ref and its commit to the history of an invocation.
func recordTrash(r *core.Repository, id, what, commit string) {
	r.AppendEvent(id, event{r.EventTime(), what, core.TrashRef(id), commit})
}

type event struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Ref    string    `json:"trash_ref"`
	Commit string    `json:"trash_commit"`
}
