package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// LandingJournal describes a landing that is in progress or was interrupted. It is written before the landing changes
// the user's branches or files, and removed once the result is recorded. A repository has at most one, because a
// landing holds the repository lock.
type LandingJournal struct {
	SchemaVersion string          `json:"schema_version"`
	InvocationID  string          `json:"invocation_id"`
	Verb          string          `json:"verb"` // "land", "unland", or "push" for a merge of commits that others pushed
	Strategy      string          `json:"strategy,omitempty"`
	Tip           string          `json:"tip"`     // land: tip of the sandbox's branch; push: the commit that others pushed; unland: the commit that landed
	Update        json.RawMessage `json:"advance"` // the branch update: old and new commit, and the checkout that follows
	PID           int             `json:"pid"`
	StartedAt     time.Time       `json:"started_at"`
}

// LandingJournalPath returns the path of the landing journal.
func (s Store) LandingJournalPath(repoID string) string {
	return filepath.Join(s.RepoDir(repoID), "landing.json")
}

// WriteLandingJournal writes the journal of a landing that is about to start.
func (s Store) WriteLandingJournal(repoID string, note LandingJournal) error {
	note.SchemaVersion = SchemaVersion
	return writeJSON(s.LandingJournalPath(repoID), note)
}

// ReadLandingJournal returns the journal of an unfinished landing, or nil when there is none.
func (s Store) ReadLandingJournal(repoID string) (*LandingJournal, error) {
	return readJournal[LandingJournal](s.LandingJournalPath(repoID))
}

// readJournal reads the journal of an unfinished operation; it returns nil when there is none.
func readJournal[T any](path string) (*T, error) {
	data, err := durable.ReadFile(path, maxRecordBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var note T
	if err := json.Unmarshal(data, &note); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &note, nil
}

// RemoveLandingJournal deletes the landing journal, durably.
func (s Store) RemoveLandingJournal(repoID string) error {
	return durable.Remove(s.LandingJournalPath(repoID))
}
