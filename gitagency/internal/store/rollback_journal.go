package store

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// RollbackJournal describes a rollback or sync that is in progress or was interrupted. It is written before anything
// changes in the sandbox and removed when all changes are done. A sync is a rollback to a state that no sandbox had
// before.
type RollbackJournal struct {
	SchemaVersion   string    `json:"schema_version"`
	InvocationID    string    `json:"invocation_id"`
	SnapshotCommit  string    `json:"snapshot"`     // commit of the target state
	SnapshotRef     string    `json:"snapshot_ref"` // ref that keeps the target commit alive
	LeftCommit      string    `json:"left"`         // commit of the state before the rollback
	LeftRef         string    `json:"left_ref"`
	FirstLeftCommit string    `json:"began,omitempty"`  // first state that was left, if LeftCommit is a half-finished rollback
	Verb            string    `json:"verb,omitempty"`   // "rollback" (also when empty, as older versions write it) or "sync"
	SyncedCommit    string    `json:"synced,omitempty"` // commit that a sync merges
	PID             int       `json:"pid"`
	StartedAt       time.Time `json:"started_at"`
}

func rollbackJournalPath(dir string) string { return filepath.Join(dir, "rollback.json") }

// RollbackJournalPath returns the path of an invocation's rollback journal.
func (s Store) RollbackJournalPath(repoID, invocationID string) string {
	return rollbackJournalPath(s.InvocationDir(repoID, invocationID))
}

// WriteRollbackJournal writes the journal of a rollback that is about to start.
func (s Store) WriteRollbackJournal(repoID string, note RollbackJournal) error {
	note.SchemaVersion = SchemaVersion
	return writeJSON(s.RollbackJournalPath(repoID, note.InvocationID), note)
}

// ReadRollbackJournal returns the journal of an invocation's unfinished rollback, or nil when there is none.
func (s Store) ReadRollbackJournal(repoID, invocationID string) (*RollbackJournal, error) {
	path := s.RollbackJournalPath(repoID, invocationID)
	note, err := readJournal[RollbackJournal](path)
	if err != nil || note == nil {
		return nil, err
	}
	if note.InvocationID != invocationID || note.SnapshotCommit == "" {
		return nil, fmt.Errorf("%s: not the journal of a rollback of %s", path, invocationID)
	}
	return note, nil
}

// RemoveRollbackJournal deletes the rollback journal, durably.
func (s Store) RemoveRollbackJournal(repoID, invocationID string) error {
	return durable.Remove(s.RollbackJournalPath(repoID, invocationID))
}
