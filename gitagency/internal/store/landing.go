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

// Landing is the note of a landing that is under way, or was interrupted: it is written before anything of the person's
// changes, and goes when everything is written down. There is one at most: whoever lands holds the repository lock.
type Landing struct {
	SchemaVersion string          `json:"schema_version"`
	InvocationID  string          `json:"invocation_id"`
	Verb          string          `json:"verb"` // "land", "unland" for one that is taken back, "push" for a merge of what others have pushed
	Strategy      string          `json:"strategy,omitempty"`
	Tip           string          `json:"tip"`     // what came: the end of the sandbox's work, what others have pushed or, of one that is taken back, the commit by which it had landed
	Advance       json.RawMessage `json:"advance"` // from where to where which branch goes, and whose files with it
	PID           int             `json:"pid"`
	StartedAt     time.Time       `json:"started_at"`
}

// LandingPath is where the note of a landing lies.
func (s Store) LandingPath(repoID string) string {
	return filepath.Join(s.RepoDir(repoID), "landing.json")
}

// WriteLanding writes the note of a landing that is about to begin.
func (s Store) WriteLanding(repoID string, note Landing) error {
	note.SchemaVersion = SchemaVersion
	return writeJSON(s.LandingPath(repoID), note)
}

// Landing is the note of a landing; nil when there is none.
func (s Store) Landing(repoID string) (*Landing, error) {
	return readNote[Landing](s.LandingPath(repoID))
}

// readNote reads the note of something that is under way; nil when there is none.
func readNote[T any](path string) (*T, error) {
	data, err := durable.ReadFile(path, maxRecord)
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

// RemoveLanding takes the note away, durably.
func (s Store) RemoveLanding(repoID string) error { return durable.Remove(s.LandingPath(repoID)) }
