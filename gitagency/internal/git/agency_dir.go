package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Prefixes of the short-lived entries in AgencyDir, which are used under the repository lock.
const (
	CapturePrefix    = "capture-"  // a scratch git directory for a worktree that is being captured
	QuarantinePrefix = "incoming-" // received objects that were not checked yet
	RemovedPrefix    = "removed-"  // a worktree's administrative directory that is being removed
)

// AgencyDir returns our directory inside the common directory.
func (r *Repo) AgencyDir() string {
	if r.dryRunDir != "" {
		return r.dryRunDir
	}
	return filepath.Join(r.CommonDir, "agency")
}

// Leftovers lists the entries that killed processes left in AgencyDir. The caller holds the repository lock, so that
// no live process uses them.
func (r *Repo) Leftovers() ([]string, error) {
	entries, err := os.ReadDir(r.AgencyDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var scraps []string
	for _, e := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }
		if slices.ContainsFunc([]string{CapturePrefix, QuarantinePrefix, RemovedPrefix}, begins) {
			scraps = append(scraps, filepath.Join(r.AgencyDir(), e.Name()))
		}
	}
	return scraps, nil
}
