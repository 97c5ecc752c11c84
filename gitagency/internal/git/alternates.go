package git

import (
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
		data, err := durable.ReadFile(filepath.Join(next[0], "info", "alternates"), 1<<20)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			path := strings.TrimSuffix(line, "\n")
			if path == "" || path[0] == '#' {
				continue
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(next[0], path)
			}
			found, next = append(found, filepath.Clean(path)), append(next, filepath.Clean(path))
		}
	}
	return found
}
