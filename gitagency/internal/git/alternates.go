package git

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Alternates lists the object directories that this repository borrows from, directly or indirectly. Unreadable files
// are left out: git reports them itself.
func (r *Repo) Alternates() []string {
	const most = 100 // git follows fewer
	var found []string
	for next := []string{filepath.Join(r.CommonDir, "objects")}; len(next) > 0 && len(found) < most; next = next[1:] {
		alternates, _ := readAlternates(next[0])
		found, next = append(found, alternates...), append(next, alternates...)
	}
	return found
}

// AlternateWithin returns an object directory below the given one that objects/info/alternates of the repository
// names; empty when there is none. Deleting that directory would delete the borrowed objects.
func (r *Repo) AlternateWithin(below string) (string, error) {
	alternates, err := readAlternates(filepath.Join(r.CommonDir, "objects"))
	for _, path := range alternates {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if rel, err := filepath.Rel(below, path); err == nil && filepath.IsLocal(rel) {
			return path, nil
		}
	}
	return "", err
}

// readAlternates returns the paths in info/alternates of an object directory; none if it does not exist.
func readAlternates(objects string) (paths []string, err error) {
	data, err := durable.ReadFile(filepath.Join(objects, "info", "alternates"), 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	relativeTo := objects
	if real, err := filepath.EvalSymlinks(objects); err == nil { // as git does
		relativeTo = real
	}
	for line := range strings.Lines(string(data)) {
		path := strings.TrimSuffix(line, "\n")
		if path == "" || path[0] == '#' {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(relativeTo, path)
		}
		paths = append(paths, filepath.Clean(path))
	}
	return paths, nil
}
