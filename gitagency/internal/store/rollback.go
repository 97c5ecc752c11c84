package store

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Rollback is the note of a rollback that is under way, or was interrupted, or of a sync, which goes to a state that
// nobody was in yet: it is written before anything changes in the sandbox, and goes when all of it has.
type Rollback struct {
	SchemaVersion string    `json:"schema_version"`
	InvocationID  string    `json:"invocation_id"`
	Snapshot      string    `json:"snapshot"`     // the commit that the sandbox goes back to
	SnapshotRef   string    `json:"snapshot_ref"` // what keeps it
	Left          string    `json:"left"`         // the commit of the state that it leaves
	LeftRef       string    `json:"left_ref"`
	Began         string    `json:"began,omitempty"`  // the first state that was left, where this one was half-way
	Verb          string    `json:"verb,omitempty"`   // "rollback", which those of older tools do not say, or "sync"
	Synced        string    `json:"synced,omitempty"` // the commit that a sync brings in
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
}

func rollbackPath(dir string) string { return filepath.Join(dir, "rollback.json") }

// RollbackPath is where the note of a rollback lies.
func (s Store) RollbackPath(repoID, invocationID string) string {
	return rollbackPath(s.InvocationDir(repoID, invocationID))
}

// WriteRollback writes the note of a rollback that is about to begin.
func (s Store) WriteRollback(repoID string, note Rollback) error {
	note.SchemaVersion = SchemaVersion
	return writeJSON(s.RollbackPath(repoID, note.InvocationID), note)
}

// Rollback is the note of a rollback of an invocation; nil when there is none.
func (s Store) Rollback(repoID, invocationID string) (*Rollback, error) {
	path := s.RollbackPath(repoID, invocationID)
	note, err := readNote[Rollback](path)
	if err != nil || note == nil {
		return nil, err
	}
	if note.InvocationID != invocationID || note.Snapshot == "" {
		return nil, fmt.Errorf("%s: it is not that of a rollback of %s", path, invocationID)
	}
	return note, nil
}

// RemoveRollback removes the note of a rollback.
func (s Store) RemoveRollback(repoID, invocationID string) error {
	return durable.Remove(s.RollbackPath(repoID, invocationID))
}
