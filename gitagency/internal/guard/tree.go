package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree is a directory tree that is worked in through an open handle: whatever happens to names and links
// meanwhile, nothing is reached through it that lies outside.
type Tree struct {
	Path string // canonical
	root *os.Root
}

// OpenTree opens a directory, which must not be a link to one.
func OpenTree(path string) (*Tree, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	real, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	if real != path {
		return nil, &ConfinementError{Path: path, Why: "leads to " + Quoted(real)}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	// A link may have taken its place meanwhile, for example one to another sandbox.
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = &ConfinementError{Path: path, Why: "was replaced at this moment"}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Tree{Path: path, root: root}, nil
}

// Close gives the handle back.
func (t *Tree) Close() error { return t.root.Close() }

// Carries is Marker.In for an open tree. Whoever took his own permissions on the directory of the marker away
// has not taken the marker away: he gets them back.
func (t *Tree) Carries(m Marker) (bool, error) {
	is, err := m.in(t.root.Lstat)
	if !errors.Is(err, fs.ErrPermission) {
		return is, err
	}
	top, topErr := t.Top()
	if topErr != nil {
		return false, err
	}
	if errors.Join(top.Widen(Dir), top.Close()) != nil {
		return false, err
	}
	return m.in(t.root.Lstat)
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
		return nil, "", plainly("enter", path, err)
	}
	return dir, filepath.Join(t.Path, inside), nil
}

// Locate says where a path leads, relative to the top of the tree, and whether a directory is there. The
// path is one that Directory would take, but need not exist.
func (t *Tree) Locate(path string) (inside string, isDir bool, err error) {
	if inside, err = t.inside(path); err != nil {
		return "", false, err
	}
	fi, err := t.root.Lstat(inside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inside, false, nil
	case err != nil:
		return "", false, plainly("look at", path, err)
	}
	return inside, fi.IsDir(), nil
}

// Lstat looks at something in the tree. Links on the way to it are followed as far as they stay inside.
func (t *Tree) Lstat(path string) (fs.FileInfo, error) {
	fi, err := t.root.Lstat(path)
	if err != nil {
		return nil, plainly("look at", path, err)
	}
	return fi, nil
}

// Readlink says where a symbolic link in the tree leads.
func (t *Tree) Readlink(path string) (string, error) {
	target, err := t.root.Readlink(path)
	if err != nil {
		return "", plainly("look at", path, err)
	}
	return target, nil
}

// inside is where a path leads, relative to the tree, by names that may be used in it.
func (t *Tree) inside(path string) (string, error) {
	full, below := path, path
	switch {
	case path == "":
		return ".", nil
	case !filepath.IsAbs(path):
		full = t.Path + "/" + path
	case strings.HasPrefix(path, t.Path+"/"):
		below = strings.TrimLeft(path[len(t.Path):], "/")
	default:
		below = "" // the tree by another name, or none of ours
	}
	if below != "" && refused(below) != "" {
		return "", &ConfinementError{Path: path, Why: refused(below)}
	}
	if strings.ContainsRune(path, 0) {
		return "", &ConfinementError{Path: path, Why: "contains characters that cannot be seen"}
	}
	real, err := Resolve(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP):
		return "", &ConfinementError{Path: path, Why: "goes through a link that leads nowhere"}
	case err != nil:
		return "", plainly("resolve", path, err)
	case real == t.Path:
		return ".", nil
	case !Contains(t.Path, real):
		return "", &ConfinementError{Path: path, Why: "leads out of the sandbox"}
	}
	inside := strings.TrimPrefix(real, t.Path+"/")
	if why := refused(inside); why != "" {
		return "", &ConfinementError{Path: path, Why: "leads to " + Quoted(inside) + ", which " + why}
	}
	return inside, nil
}

// WantDirectory says what is wrong with what stands where a directory should be.
func WantDirectory(path string, mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return nil
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return &fs.PathError{Op: "enter", Path: path, Err: syscall.ENOTDIR}
	default:
		return &ConfinementError{Path: path, Why: "is " + Describe(mode)}
	}
}

// Describe is what people call a file that is none.
func Describe(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	}
	return "no regular file"
}

// plainly words an error about a path as the caller knows it, without the handles it was reached by.
func plainly(op, path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return &fs.PathError{Op: op, Path: path, Err: errno}
	}
	var inner *fs.PathError
	if errors.As(err, &inner) { // os.Root has a reason of its own: the path leaves it
		return &ConfinementError{Path: path, Why: "leads elsewhere: " + inner.Err.Error()}
	}
	return err
}
