package sandbox

import (
	"errors"
	"io"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// maxListedEntries bounds the number of directory entries that Directories reads; the list is for people.
const maxListedEntries = 10_000

// Directories lists the subdirectories of a directory of the sandbox, which is named as in ExecOptions.Cwd. The list
// has only names that Cwd accepts: neither .git nor symbolic links. It takes no lock, so an entry may be gone a
// moment later.
func (s *Sandbox) Directories(path string) (names []string, err error) {
	tree, err := guard.OpenTree(s.Tree)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	dir, _, err := tree.OpenWorkDir(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	entries, err := dir.ReadDir(maxListedEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && guard.CheckPath(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
