package store

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// SandboxPlace is a sandbox that contains a path.
type SandboxPlace struct {
	Store  Store
	RepoID string
	ID     string // of the invocation
}

// FindSandbox returns the sandbox in whose tree a canonical path lies, by the names of the directories alone. Of several it is the
// outermost: an agent can make directories with any names in its tree.
func FindSandbox(path string) (at SandboxPlace, ok bool) {
	parts := strings.Split(path, string(filepath.Separator))
	for i := 0; i+4 < len(parts); i++ {
		if parts[i] == "repos" && parts[i+2] == "sandboxes" && ids.Valid(parts[i+3]) && parts[i+4] == "tree" {
			return SandboxPlace{Store: Store{Root: "/" + filepath.Join(parts[:i]...)}, RepoID: parts[i+1], ID: parts[i+3]}, true
		}
	}
	return SandboxPlace{}, false
}

// CommonDir returns the common directory of the repository with an id, as its record says.
func (s Store) CommonDir(repoID string) (string, error) {
	record, err := s.readRepoRecord(repoID)
	if err != nil {
		return "", err
	}
	if RepoID(record.CommonDir) != repoID {
		return "", fmt.Errorf("repo.json of %s names another repository, %s", repoID, record.CommonDir)
	}
	return record.CommonDir, nil
}
