package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MarkConflict records that two sandboxes conflict. began is false if that was recorded before, by this or another process.
func (s Store) MarkConflict(repoID, a, b string) (began bool, err error) {
	path := s.conflictPath(repoID, a, b)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// ClearConflict records that two sandboxes do not conflict. ended is false if no conflict was recorded.
func (s Store) ClearConflict(repoID, a, b string) (ended bool, err error) {
	err = os.Remove(s.conflictPath(repoID, a, b))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// conflictPath returns the path of the empty file that says that two sandboxes conflict. It is in the directory of the
// invocation with the lesser id, so that it is removed together with that record.
func (s Store) conflictPath(repoID, a, b string) string {
	return filepath.Join(s.InvocationDir(repoID, min(a, b)), "conflicts", max(a, b))
}
