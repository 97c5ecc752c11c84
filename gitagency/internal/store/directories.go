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

// DirectoryMeta is the record of a directory that belongs to no repository, and of which there are snapshots all the
// same, in a repository beside the record.
type DirectoryMeta struct {
	SchemaVersion string    `json:"schema_version"`
	DirectoryID   string    `json:"directory_id"`
	Path          string    `json:"path"`
	OnboardedAt   time.Time `json:"onboarded_at"`
}

func (m DirectoryMeta) check() string {
	return missing(m.SchemaVersion, m.OnboardedAt, []field{{"directory_id", m.DirectoryID}, {"path", m.Path}})
}

// DirectoryID names a directory by its canonical path.
func DirectoryID(path string) string { return RepoID(path) }

// DirectoryDir holds all there is of a directory, and the lock for it; of all directories, for "".
func (s Store) DirectoryDir(id string) string { return filepath.Join(s.Root, "directories", id) }

// DirectoryGitDir is its repository.
func (s Store) DirectoryGitDir(id string) string { return filepath.Join(s.DirectoryDir(id), "git") }

// DirectoryMemory is an index by which files are known that have not changed since they were last read.
func (s Store) DirectoryMemory(id string) string { return filepath.Join(s.DirectoryDir(id), "index") }

// Directory reads the record of a directory. Without one the error is fs.ErrNotExist; with one that says nothing, or
// speaks of another, it is a *CorruptRecordError.
func (s Store) Directory(id string) (DirectoryMeta, error) {
	var meta DirectoryMeta
	path := metaPath(s.DirectoryDir(id))
	data, err := durable.ReadFile(path, maxRecord)
	if err != nil {
		return meta, err
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return meta, &CorruptRecordError{Path: path, What: err.Error()}
	}
	what := meta.check()
	if what == "" && (meta.DirectoryID != id || DirectoryID(meta.Path) != id) {
		what = fmt.Sprintf("it is of %s, %s", meta.DirectoryID, meta.Path)
	}
	if what != "" {
		return meta, &CorruptRecordError{Path: path, What: what}
	}
	return meta, nil
}

// CorruptRecordError is a record that cannot be made sense of.
type CorruptRecordError struct{ Path, What string }

func (e *CorruptRecordError) Error() string { return e.Path + ": " + e.What }

// Directories lists the ids of those that have a record, also one that cannot be made sense of.
func (s Store) Directories() ([]string, error) {
	entries, err := os.ReadDir(s.DirectoryDir(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if _, there := Taken(metaPath(s.DirectoryDir(e.Name()))); there && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// EnsureDirectories makes the place for directories, and clears what killed removals left in it.
func (s Store) EnsureDirectories() error {
	dir := s.DirectoryDir("")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temps, err := durable.Temps(dir)
	for _, path := range temps {
		err = errors.Join(err, durable.RemoveTree(path))
	}
	return err
}

// EnsureDirectory makes the place for the repository of a directory that has no record, and clears what a killed
// process left there. The caller holds the lock.
func (s Store) EnsureDirectory(id string) error {
	if err := errors.Join(durable.RemoveTemps(s.DirectoryDir(id)), durable.Remove(s.DirectoryMemory(id)), durable.RemoveTree(s.DirectoryGitDir(id))); err != nil {
		return err
	}
	return durable.Mkdir(s.DirectoryGitDir(id), 0o700)
}

// WriteDirectory writes the record of a directory, atomically and durably.
func (s Store) WriteDirectory(meta DirectoryMeta) error {
	return errors.Join(durable.SyncDir(s.DirectoryDir("")), writeJSON(metaPath(s.DirectoryDir(meta.DirectoryID)), meta))
}

// RemoveDirectory removes all there is of a directory, from one moment to the next, and what that leaves empty.
func (s Store) RemoveDirectory(id string) error {
	if err := durable.RemoveAway(s.DirectoryDir(id)); err != nil {
		return err
	}
	for _, dir := range []string{s.DirectoryDir(""), s.Root} {
		_ = os.Remove(dir) // what is not empty has other users
	}
	return nil
}
