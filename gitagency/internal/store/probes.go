package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// Probe is the record of a job that asks a node what it offers. It exists from before the job is submitted until everything that
// the job leaves is removed, so that the leftovers of a killed process can be found.
type Probe struct {
	SchemaVersion string    `json:"schema_version"`
	ID            string    `json:"probe_id"` // in the names of the job and of its refs in the hub
	Platform      string    `json:"platform"`
	Hub           string    `json:"hub,omitempty"` // empty for the repository itself
	PID           int       `json:"pid"`           // process that waits for the answer
	PIDStarted    string    `json:"pid_started"`
	StartedAt     time.Time `json:"started_at"`
	JobCommit     string    `json:"job_commit"`             // commit of its job in the hub
	PlatformJob   string    `json:"platform_job,omitempty"` // id of the job at its engine; empty as long as that has not told it

	Err error `json:"-"` // why the record cannot be read; then only ID is known
}

// ProbesDir returns the directory with the records of probes. Engines write the output of their jobs there.
func (s Store) ProbesDir(repoID string) string { return filepath.Join(s.RepoDir(repoID), "probes") }

// ProbePath returns the path of the record of a probe.
func (s Store) ProbePath(repoID, id string) string {
	return filepath.Join(s.ProbesDir(repoID), id+probeSuffix)
}

const probeSuffix = ".json"

// WriteProbe writes the record of a probe. The caller holds the repository lock.
func (s Store) WriteProbe(repoID string, p Probe) error {
	dir := s.ProbesDir(repoID)
	if err := durable.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := durable.RemoveTemps(dir); err != nil {
		return err
	}
	p.SchemaVersion = SchemaVersion
	return writeJSON(s.ProbePath(repoID, p.ID), p)
}

// Probes returns the records of all probes.
func (s Store) Probes(repoID string) (all []Probe, err error) {
	entries, err := os.ReadDir(s.ProbesDir(repoID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		id, is := strings.CutSuffix(entry.Name(), probeSuffix)
		if !is || !ids.Valid(id) {
			continue
		}
		p, err := readJournal[Probe](s.ProbePath(repoID, id))
		switch {
		case err != nil:
			all = append(all, Probe{ID: id, Err: err})
		case p != nil: // it was not removed meanwhile
			p.ID = id
			all = append(all, *p)
		}
	}
	return all, nil
}

// RemoveProbe removes the record of a probe, and the directory with the last one. The caller holds the repository lock.
func (s Store) RemoveProbe(repoID, id string) error {
	dir := s.ProbesDir(repoID)
	err := errors.Join(durable.RemoveIfExists(s.ProbePath(repoID, id)), durable.RemoveTemps(dir))
	_ = os.Remove(dir) // which fails if there are others
	return err
}
