package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Repos lists all repositories that have records, identified by the names of their directories. CommonDir is empty
// where repo.json cannot be read.
func (s Store) Repos() ([]RepoRecord, error) {
	entries, err := os.ReadDir(filepath.Join(s.Root, "repos"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var repos []RepoRecord
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			continue
		}
		var record RepoRecord
		data, err := durable.ReadFile(filepath.Join(s.RepoDir(e.Name()), "repo.json"), maxRecordBytes)
		if err != nil || json.Unmarshal(data, &record) != nil {
			record = RepoRecord{}
		}
		record.RepoID = e.Name()
		repos = append(repos, record)
	}
	return repos, nil
}

// ListIDs lists the ids that have a directory of a kind: "worktrees", "invocations" or "sandboxes".
func (s Store) ListIDs(repoID, kind string) ([]string, error) {
	return listIDs(filepath.Join(s.RepoDir(repoID), kind), "")
}

// RecordedIDs lists the ids that have any directory below the records of a repository.
func (s Store) RecordedIDs(repoID string) ([]string, error) {
	var all []string
	for _, kind := range []string{"worktrees", "invocations", "sandboxes"} {
		found, err := s.ListIDs(repoID, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// RelocateRepo moves all records and trees of a repository to its new id. It does not change the paths inside the
// records. An interrupted call can be repeated; nothing is ever overwritten.
func (s Store) RelocateRepo(from, to, commonDir string, now time.Time) error {
	if err := s.EnsureRepo(to, commonDir, now); err != nil {
		return err
	}
	// Record the decision first: after an interruption, the remaining files do not show that a move was in progress.
	if err := updateJSON(filepath.Join(s.RepoDir(to), "repo.json"), func(r *RepoRecord) {
		if !slices.Contains(r.FormerIDs, from) {
			r.FormerIDs = append(r.FormerIDs, from)
		}
	}); err != nil {
		return err
	}
	if err := s.relocateArchives(from, to); err != nil {
		return err
	}
	// A tree moves before its record, so that no record ever names a missing tree.
	for _, kind := range []string{"sandboxes", "invocations", "worktrees"} {
		found, err := s.ListIDs(from, kind)
		if err != nil {
			return err
		}
		for _, id := range found {
			target := filepath.Join(s.RepoDir(to), kind, id)
			if _, taken := FirstExisting(target); taken {
				return &fs.PathError{Op: "move", Path: target, Err: fs.ErrExist}
			}
			if err := os.Rename(filepath.Join(s.RepoDir(from), kind, id), target); err != nil {
				return err
			}
		}
		if err := durable.SyncDir(filepath.Join(s.RepoDir(to), kind)); err != nil {
			return err
		}
	}
	return s.RemoveUnusedRepo(from)
}

// relocateArchives moves the archives of a repository to its new id.
func (s Store) relocateArchives(from, to string) error {
	found, err := s.TrashArchives(from)
	if err != nil || len(found) == 0 {
		return err
	}
	if err := s.EnsureTrashDir(to); err != nil {
		return err
	}
	for _, id := range found {
		target := s.TrashArchivePath(to, id)
		if _, taken := FirstExisting(target); taken {
			return &fs.PathError{Op: "move", Path: target, Err: fs.ErrExist}
		}
		if err := os.Rename(s.TrashArchivePath(from, id), target); err != nil {
			return err
		}
	}
	return durable.SyncDir(s.TrashDir(to))
}

// IsUnreadable returns the path of the record in a directory, and whether permissions prevent reading it.
func IsUnreadable(dir string) (meta string, closed bool) {
	_, err := durable.ReadFile(metaPath(dir), maxRecordBytes)
	return metaPath(dir), errors.Is(err, fs.ErrPermission)
}

// RemoveRecord removes a record with its directory. It is an error, and removes nothing, if the directory holds any
// other file, such as a tree.
func RemoveRecord(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		known := []string{metaPath(dir), intentPath(dir), eventsPath(dir), RemovablePath(filepath.Join(dir, "tree"))}
		if !slices.Contains(known, path) && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			return &fs.PathError{Op: "remove", Path: path, Err: errors.New("not part of the record")}
		}
	}
	return durable.RemoveTree(dir)
}

// ReadRawMeta returns the content of a possibly corrupt record as valid UTF-8 text, or "".
func ReadRawMeta(dir string) string {
	data, err := durable.ReadFile(metaPath(dir), maxRecordBytes)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.ReplaceAll(string(data), "\x00", "?"), "?")
}
