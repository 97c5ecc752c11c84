package transport

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// storedObjects tells whether objects were removed from an object directory between two listings.
type storedObjects struct {
	packs map[string]bool      // names of the .idx files
	loose map[string]time.Time // mtimes of the directories of loose objects
}

// listStored lists the packs and the directories of loose objects in an object directory.
func listStored(objects string) (storedObjects, error) {
	s := storedObjects{map[string]bool{}, map[string]time.Time{}}
	entries, err := os.ReadDir(objects)
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		if len(e.Name()) != 2 || !e.IsDir() {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		s.loose[e.Name()] = fi.ModTime()
	}
	entries, err = os.ReadDir(filepath.Join(objects, "pack"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".idx") {
			s.packs[e.Name()] = true
		}
	}
	return s, nil
}

// hasAllOf reports whether all objects of an earlier listing still exist. A directory of loose objects that has changed
// counts as one that lost some, because its mtime does not tell. Packs of other sandboxes, the usual change, do not.
func (s storedObjects) hasAllOf(before storedObjects) bool {
	for name := range before.packs {
		if !s.packs[name] {
			return false
		}
	}
	for name, modTime := range before.loose {
		if now, there := s.loose[name]; !there || !now.Equal(modTime) {
			return false
		}
	}
	return true
}
