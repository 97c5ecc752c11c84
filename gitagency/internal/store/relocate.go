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

// Repos lists the repositories that there are records of, by the names of their directories. One whose
// repo.json cannot be read has no common dir.
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
		data, err := durable.ReadFile(filepath.Join(s.RepoDir(e.Name()), "repo.json"), maxRecord)
		if err != nil || json.Unmarshal(data, &record) != nil {
			record = RepoRecord{}
		}
		record.RepoID = e.Name()
		repos = append(repos, record)
	}
	return repos, nil
}

// IDs lists the ids that have a directory of a kind: "worktrees", "invocations" or "sandboxes".
func (s Store) IDs(repoID, kind string) ([]string, error) {
	return idsIn(filepath.Join(s.RepoDir(repoID), kind), "")
}

// Relocate moves everything that is kept for one repository to the name it has now. Paths in the
// records stay as they were. It can be interrupted and called again; nothing is ever replaced.
func (s Store) Relocate(from, to, commonDir string, now time.Time) error {
	if err := s.EnsureRepo(to, commonDir, now); err != nil {
		return err
	}
	// First of all the decision: who takes this up later cannot tell from what is left any more.
	if err := updateJSON(filepath.Join(s.RepoDir(to), "repo.json"), func(r *RepoRecord) {
		if !slices.Contains(r.Formerly, from) {
			r.Formerly = append(r.Formerly, from)
		}
	}); err != nil {
		return err
	}
	// A tree moves before its record, so that no record is ever without what it promises.
	for _, kind := range []string{"sandboxes", "invocations", "worktrees"} {
		found, err := s.IDs(from, kind)
		if err != nil {
			return err
		}
		for _, id := range found {
			target := filepath.Join(s.RepoDir(to), kind, id)
			if _, taken := Taken(target); taken {
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
	return s.DropRepo(from)
}

// Closed reports whether the record in a directory is one that we may not read, and its path.
func Closed(dir string) (meta string, closed bool) {
	_, err := durable.ReadFile(metaPath(dir), maxRecord)
	return metaPath(dir), errors.Is(err, fs.ErrPermission)
}

// RemoveRecord removes a record and its directory. A directory that holds anything else, as a tree, stays
// with all that is in it, and is an error.
func RemoveRecord(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		known := []string{metaPath(dir), intentPath(dir), eventsPath(dir), Done(filepath.Join(dir, "tree"))}
		if !slices.Contains(known, path) && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			return &fs.PathError{Op: "remove", Path: path, Err: errors.New("it is not part of the record")}
		}
	}
	return durable.RemoveTree(dir)
}

// Remnant is what is left of the record in a directory, as text.
func Remnant(dir string) string {
	data, err := durable.ReadFile(metaPath(dir), maxRecord)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.ReplaceAll(string(data), "\x00", "?"), "?")
}
