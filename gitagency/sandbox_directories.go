package gitagency

import (
	"errors"
	"io"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// mostListed bounds how much of a directory is looked at for Directories: nobody reads through more.
const mostListed = 10_000

// Directories lists the directories right below one of the sandbox, which is named as ExecOptions.Cwd is.
// Only names that Cwd could go on with are among them, so neither .git nor links. It only looks: it waits for
// nobody, and what is listed may be gone a moment later.
func (s *Sandbox) Directories(path string) (names []string, err error) {
	tree, err := guard.OpenTree(s.tree)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	dir, _, err := tree.Directory(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	entries, err := dir.ReadDir(mostListed)
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
