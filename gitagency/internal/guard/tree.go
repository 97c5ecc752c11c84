package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ConfinementError is a path that is refused because of where it leads or what it is called.
type ConfinementError struct {
	Path string
	Why  string
}

func (e *ConfinementError) Error() string {
	return fmt.Sprintf("path confinement: %q %s", e.Path, e.Why)
}

// Tree is a directory tree that is worked in through an open handle: whatever happens to names and links
// meanwhile, nothing is reached through it that lies outside.
type Tree struct {
	Path string // canonical
	root *os.Root
}

// OpenTree opens a directory, which must not be a link to one.
func OpenTree(path string) (*Tree, error) {
	real, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	if real != path {
		return nil, &ConfinementError{Path: path, Why: "leads to " + real}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Tree{Path: path, root: root}, nil
}

// Close gives the handle back.
func (t *Tree) Close() error { return t.root.Close() }

// Carries is Marker.In for an open tree.
func (t *Tree) Carries(m Marker) (bool, error) {
	for _, name := range []string{Dir, filepath.Join(Dir, m.Name)} {
		fi, err := t.root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return false, nil
		case err != nil:
			return false, err
		case name != Dir:
			return fi.Mode().IsRegular(), nil
		case !fi.IsDir():
			return false, nil
		}
	}
	return false, nil
}

// Directory opens a directory of the tree to stand in and says where that is. The path is relative to the
// tree or an absolute one that leads into it; links on the way count for where they lead. The handle is
// what counts: the name may lead elsewhere a moment later.
func (t *Tree) Directory(path string) (*os.File, string, error) {
	inside, err := t.inside(path)
	if err != nil {
		return nil, "", err
	}
	dir, err := t.root.OpenFile(inside, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	return dir, filepath.Join(t.Path, inside), nil
}

// inside is where a path leads, relative to the tree.
func (t *Tree) inside(path string) (string, error) {
	if path == "" {
		return ".", nil
	}
	full := path
	if !filepath.IsAbs(path) {
		full = t.Path + "/" + path
	}
	real, err := Resolve(full)
	if err != nil {
		return "", err
	}
	if real == t.Path {
		return ".", nil
	}
	if !Contains(t.Path, real) {
		return "", &ConfinementError{Path: path, Why: "leads out of the sandbox"}
	}
	return strings.TrimPrefix(real, t.Path+"/"), nil
}
