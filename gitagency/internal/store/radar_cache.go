package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// RadarDir returns the directory of the caches of a repository, of which radar has most. Everything in it can be computed
// again, so it is written without fsync, and a file that cannot be read counts as missing.
func (s Store) RadarDir(repoID string) string { return filepath.Join(s.RepoDir(repoID), "radar") }

// ReadRadarCache returns the cached data of a name, or nil when there is none.
func (s Store) ReadRadarCache(repoID, name string) []byte {
	const most = 1 << 30
	data, err := durable.ReadFile(filepath.Join(s.RadarDir(repoID), name), most)
	if err != nil {
		return nil
	}
	return data
}

const radarTempPrefix = ".new-"

// WriteRadarCache stores data under a name, atomically.
func (s Store) WriteRadarCache(repoID, name string, data []byte) error {
	dir := s.RadarDir(repoID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.CreateTemp(dir, radarTempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// PruneRadarCache deletes all cache files that keep rejects, except temporary files that are still being written.
func (s Store) PruneRadarCache(repoID string, keep func(name string) bool) error {
	const long = time.Hour // upper bound for writing one file
	entries, err := os.ReadDir(s.RadarDir(repoID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if keep(e.Name()) {
			continue
		}
		if fi, err := e.Info(); strings.HasPrefix(e.Name(), radarTempPrefix) && err == nil && time.Since(fi.ModTime()) < long {
			continue
		}
		if gone := os.Remove(filepath.Join(s.RadarDir(repoID), e.Name())); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
