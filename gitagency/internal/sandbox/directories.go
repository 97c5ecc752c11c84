package sandbox

import (
	"cmp"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// maxListedEntries bounds the number of directory entries that Directories reads; the list is for people.
const maxListedEntries = 10_000

// Directories lists the subdirectories of a directory of the sandbox, which is named as in ExecOptions.Cwd. The list
// has only names that Cwd accepts: neither .git nor symbolic links. It takes no lock, so an entry may be gone a
// moment later.
func (s *Sandbox) Directories(path string) (names []string, err error) {
	layers, err := s.Repo.OverlayTree(s.ID)
	if err != nil {
		return nil, err
	}
	entries, err := s.listDirectory(layers, path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries[:min(len(entries), maxListedEntries)] {
		if e.Kind.IsDir() && guard.CheckPath(e.Name) == nil {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// listDirectory lists a directory of the sandbox. In an overlay, which is not mounted here, it follows no symbolic links.
func (s *Sandbox) listDirectory(layers *overlay.Tree, path string) (entries []beneath.Entry, err error) {
	if layers != nil {
		tree, err := beneath.OpenLayers(s.Tree, layers.Dirs()...)
		if err != nil {
			return nil, err
		}
		entries, _, err := tree.ReadDir(filepath.Clean(cmp.Or(path, ".")))
		return entries, errors.Join(err, tree.Close())
	}
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
	found, err := dir.ReadDir(maxListedEntries)
	for _, e := range found {
		entries = append(entries, beneath.Entry{Name: e.Name(), Kind: e.Type()})
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
