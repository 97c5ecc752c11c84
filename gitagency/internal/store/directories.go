package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// DirectoryMeta is the record of a directory outside of any repository. Its snapshots are kept in a git repository
// beside the record.
type DirectoryMeta struct {
	SchemaVersion string    `json:"schema_version"`
	DirectoryID   string    `json:"directory_id"`
	Path          string    `json:"path"`
	OnboardedAt   time.Time `json:"onboarded_at"`
}

func (m DirectoryMeta) problem() string {
	return recordProblem(m.SchemaVersion, m.OnboardedAt, []requiredField{{"directory_id", m.DirectoryID}, {"path", m.Path}})
}

// DirectoryID derives the id of a directory from its canonical path.
func DirectoryID(path string) string { return RepoID(path) }

// DirectoryDir returns the path that holds the record, repository and lock of a directory, or, for an empty id, the
// parent of all of these.
func (s Store) DirectoryDir(id string) string { return filepath.Join(s.Root, "directories", id) }

// DirectoryGitDir returns the path of the git directory that holds the snapshots.
func (s Store) DirectoryGitDir(id string) string { return filepath.Join(s.DirectoryDir(id), "git") }

// DirectoryIndexPath returns the path of the index file whose stat data tells unchanged files from changed ones.
func (s Store) DirectoryIndexPath(id string) string {
	return filepath.Join(s.DirectoryDir(id), "index")
}

// Directory reads the record of a directory. The error is fs.ErrNotExist when there is no record, and a
// *CorruptRecordError when the record is incomplete or belongs to another directory.
func (s Store) Directory(id string) (DirectoryMeta, error) {
	var meta DirectoryMeta
	path := metaPath(s.DirectoryDir(id))
	data, err := durable.ReadFile(path, maxRecordBytes)
	if err != nil {
		return meta, err
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return meta, &CorruptRecordError{Path: path, Problem: err.Error()}
	}
	what := meta.problem()
	if what == "" && (meta.DirectoryID != id || DirectoryID(meta.Path) != id) {
		what = fmt.Sprintf("it belongs to another directory: %s, %s", meta.DirectoryID, meta.Path)
	}
	if what != "" {
		return meta, &CorruptRecordError{Path: path, Problem: what}
	}
	return meta, nil
}

// CorruptRecordError reports a record that cannot be parsed, or that is incomplete or inconsistent.
type CorruptRecordError struct{ Path, Problem string }

func (e *CorruptRecordError) Error() string { return e.Path + ": " + e.Problem }

// Directories lists the ids of all directories that have a record, including corrupt records.
func (s Store) Directories() ([]string, error) {
	entries, err := os.ReadDir(s.DirectoryDir(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if _, there := FirstExisting(metaPath(s.DirectoryDir(e.Name()))); there && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// EnsureDirectories creates the parent of all directory records and removes the remains of killed removals from it.
func (s Store) EnsureDirectories() error {
	dir := s.DirectoryDir("")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temps, err := durable.ListTemps(dir)
	for _, path := range temps {
		err = errors.Join(err, durable.RemoveTree(path))
	}
	return err
}

// PrepareDirectory creates an empty git directory for a directory that has no record yet, and first removes the files
// that a killed process left there. The caller holds the lock of the directory.
func (s Store) PrepareDirectory(id string) error {
	if err := errors.Join(durable.RemoveTemps(s.DirectoryDir(id)), durable.Remove(s.DirectoryIndexPath(id)), durable.RemoveTree(s.DirectoryGitDir(id))); err != nil {
		return err
	}
	return durable.Mkdir(s.DirectoryGitDir(id), 0o700)
}

// WriteDirectory writes the record of a directory, atomically and durably.
func (s Store) WriteDirectory(meta DirectoryMeta) error {
	return errors.Join(durable.SyncDir(s.DirectoryDir("")), writeJSON(metaPath(s.DirectoryDir(meta.DirectoryID)), meta))
}

// RemoveDirectory atomically removes the record and repository of a directory, and parent directories that become
// empty.
func (s Store) RemoveDirectory(id string) error {
	if err := durable.RemoveAtomically(s.DirectoryDir(id)); err != nil {
		return err
	}
	for _, dir := range []string{s.DirectoryDir(""), s.Root} {
		_ = os.Remove(dir) // fails when not empty: others use it
	}
	return nil
}
