package git

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// AlternateWithin returns an object directory below the given one that objects/info/alternates of the repository
// names; empty when there is none. Deleting that directory would delete the borrowed objects.
func (r *Repo) AlternateWithin(below string) (string, error) {
	const most = 1 << 20
	objects := filepath.Join(r.CommonDir, "objects")
	data, err := durable.ReadFile(filepath.Join(objects, "info", "alternates"), most)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		path := strings.TrimRight(line, "\n")
		if path == "" || path[0] == '#' {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(objects, path)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if rel, err := filepath.Rel(below, path); err == nil && filepath.IsLocal(rel) {
			return path, nil
		}
	}
	return "", nil
}
