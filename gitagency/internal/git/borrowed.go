package git

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Borrowed is a directory below another from which the repository borrows objects, as objects/info/alternates says; empty when
// there is none. They would go with that directory.
func (r *Repo) Borrowed(below string) (string, error) {
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
