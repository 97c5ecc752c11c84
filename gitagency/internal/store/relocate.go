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
		record, err := s.readRepoRecord(e.Name())
		if err != nil {
			record = RepoRecord{}
		}
		record.RepoID = e.Name()
		repos = append(repos, record)
	}
	return repos, nil
}

// readRepoRecord reads repo.json of a repository.
func (s Store) readRepoRecord(repoID string) (record RepoRecord, err error) {
	path := filepath.Join(s.RepoDir(repoID), "repo.json")
	data, err := durable.ReadFile(path, maxRecordBytes)
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, fmt.Errorf("%s: %w", path, err)
	}
	return record, nil
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

// Relocation describes a move of records from a former id of a repository that was begun. It stays in repo.json until the
// moved trees are linked again: after an interruption, the remaining files do not show which records were to be moved.
type Relocation struct {
	From     string   `json:"from"`     // former id
	Replaced bool     `json:"replaced"` // another repository is at the former path, whose records stay
	IDs      []string `json:"ids"`
	Copied   []string `json:"copied,omitempty"` // adopted worktrees that both repositories may use
}

// RelocateRepo moves all records and trees of a repository to its new id. It does not change the paths inside the
// records. An interrupted call can be repeated; nothing is ever overwritten.
func (s Store) RelocateRepo(from, to, commonDir string, now time.Time) error {
	recorded, err := s.RecordedIDs(from)
	if err != nil {
		return err
	}
	archives, err := s.TrashArchives(from)
	if err != nil {
		return err
	}
	if err := s.RelocateRecords(to, commonDir, now, Relocation{From: from, IDs: sortedUnion(recorded, archives)}); err != nil {
		return err
	}
	return s.RemoveUnusedRepo(from)
}

// RelocateRecords is RelocateRepo for the records of some ids.
func (s Store) RelocateRecords(to, commonDir string, now time.Time, move Relocation) error {
	if err := s.beginRelocation(to, commonDir, now, move); err != nil {
		return err
	}
	for _, id := range move.Copied {
		meta := metaPath(s.WorktreeDir(to, id))
		if _, there := FirstExisting(meta); there {
			continue
		}
		data, err := durable.ReadFile(metaPath(s.WorktreeDir(move.From, id)), maxRecordBytes)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(meta), 0o700); err != nil {
			return err
		}
		if err := durable.WriteFile(meta, data, 0o600); err != nil {
			return err
		}
	}
	return s.relocateIDs(move.From, to, func(id string) bool { return slices.Contains(move.IDs, id) })
}

// beginRelocation writes to repo.json which records are moved, before any is. It adds them to those of an interrupted call.
func (s Store) beginRelocation(to, commonDir string, now time.Time, move Relocation) error {
	if err := s.EnsureRepo(to, commonDir, now); err != nil {
		return err
	}
	return updateJSON(filepath.Join(s.RepoDir(to), "repo.json"), func(r *RepoRecord) {
		r.FormerIDs = sortedUnion(r.FormerIDs, []string{move.From})
		if at := slices.IndexFunc(r.Relocations, func(m Relocation) bool { return m.From == move.From }); at >= 0 {
			begun := &r.Relocations[at]
			begun.Replaced = begun.Replaced || move.Replaced
			begun.IDs, begun.Copied = sortedUnion(begun.IDs, move.IDs), sortedUnion(begun.Copied, move.Copied)
			return
		}
		r.Relocations = append(r.Relocations, move)
	})
}

// EndRelocation removes from repo.json what RelocateRecords wrote there, once the moved trees are linked again. The former
// id stays, as it tells former paths.
func (s Store) EndRelocation(from, to string) error {
	return updateJSON(filepath.Join(s.RepoDir(to), "repo.json"), func(r *RepoRecord) {
		r.Relocations = slices.DeleteFunc(r.Relocations, func(m Relocation) bool { return m.From == from })
	})
}

func sortedUnion(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// relocateIDs moves the archives, trees and records of the ids that concerns selects.
func (s Store) relocateIDs(from, to string, concerns func(id string) bool) error {
	if err := s.relocateArchives(from, to, concerns); err != nil {
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
			if !concerns(id) {
				continue
			}
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
	return nil
}

// relocateArchives moves the archives of the ids that concerns selects.
func (s Store) relocateArchives(from, to string, concerns func(id string) bool) error {
	found, err := s.TrashArchives(from)
	found = slices.DeleteFunc(found, func(id string) bool { return !concerns(id) })
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
