package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What lives a moment in a directory of our own inside the common dir, under the repository lock.
const (
	capturePrefix  = "capture-"  // a git directory for a tree that is being captured
	incomingPrefix = "incoming-" // objects that came in and were not found good yet
	removedPrefix  = "removed-"  // an entry of git's that is on its way out
)

// ownDir is that directory.
func (r *Repo) ownDir() string {
	if r.rehearsal != "" {
		return r.rehearsal
	}
	return filepath.Join(r.CommonDir, "agency")
}

// Scraps lists what killed processes left there. The caller holds the repository lock, so that nobody
// works with it any more.
func (r *Repo) Scraps() ([]string, error) {
	entries, err := os.ReadDir(r.ownDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var scraps []string
	for _, e := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }
		if slices.ContainsFunc([]string{capturePrefix, incomingPrefix, removedPrefix}, begins) {
			scraps = append(scraps, filepath.Join(r.ownDir(), e.Name()))
		}
	}
	return scraps, nil
}
