package guard

import (
	"errors"
	"io/fs"
	"os"
	"path"
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
	real, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	if real != path {
		return nil, &ConfinementError{Path: path, Why: "leads to " + quoted(real)}
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
func (t *Tree) Carries(m Marker) (bool, error) { return m.in(t.root.Lstat) }

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

// OpenRegular opens a file of the tree for reading. It must be a regular file that has no other name: what
// is also linked elsewhere may be somebody's secret, and anything else could keep a reader waiting.
func (t *Tree) OpenRegular(path string) (_ *os.File, err error) {
	inside, err := t.inside(path)
	if err != nil {
		return nil, err
	}
	f, err := t.root.OpenFile(inside, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, plainly("open", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case fi.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case !fi.Mode().IsRegular():
		return nil, &ConfinementError{Path: path, Why: "is " + describe(fi.Mode())}
	case links(fi) != 1:
		return nil, &ConfinementError{Path: path, Why: "is a hard link, and may be a file of elsewhere"}
	}
	return f, nil
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
		return "", &ConfinementError{Path: path, Why: "leads to " + quoted(inside) + ", which " + why}
	}
	return inside, nil
}

// folder is an open directory of a tree. It was reached without following any link, so that it is where
// its path says, and names in it are single ones.
type folder struct {
	root *os.Root
	dir  *os.File // the same
	path string   // relative to the tree
}

// top opens the tree itself as a folder.
func (t *Tree) top() (*folder, error) { return openFolder(t.root, ".", ".") }

func openFolder(parent *os.Root, name, path string) (_ *folder, err error) {
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, plainly("enter", path, err)
	}
	dir, err := root.OpenFile(".", os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(plainly("enter", path, err), root.Close())
	}
	return &folder{root: root, dir: dir, path: path}, nil
}

// enter opens a directory of the folder.
func (f *folder) enter(name string) (*folder, error) {
	there := path.Join(f.path, name)
	before, err := f.root.Lstat(name)
	if err != nil {
		return nil, plainly("enter", there, err)
	}
	if err := wantDirectory(there, before); err != nil {
		return nil, err
	}
	sub, err := openFolder(f.root, name, there)
	if err != nil {
		return nil, err
	}
	// The open follows links inside of the tree, if one took the place of the directory just now.
	after, err := sub.dir.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = &ConfinementError{Path: there, Why: "was replaced at this moment"}
	}
	if err != nil {
		return nil, errors.Join(err, sub.close())
	}
	return sub, nil
}

// find opens a folder further down.
func (f *folder) find(path string) (*folder, error) {
	at, err := openFolder(f.root, ".", f.path)
	if err != nil || path == "." {
		return at, err
	}
	for name := range strings.SplitSeq(path, "/") {
		next, err := at.enter(name)
		if err := errors.Join(err, at.close()); err != nil {
			if next != nil {
				err = errors.Join(err, next.close())
			}
			return nil, err
		}
		at = next
	}
	return at, nil
}

// move renames what is in one folder into another. os.Root can only do so within itself, and follows links
// on the way.
func (f *folder) move(name string, to *folder) error {
	if err := unix.Renameat(int(f.dir.Fd()), name, int(to.dir.Fd()), name); err != nil {
		return &fs.PathError{Op: "move", Path: path.Join(to.path, name), Err: err}
	}
	return nil
}

func (f *folder) close() error { return errors.Join(f.root.Close(), f.dir.Close()) }

// wantDirectory says what is wrong with what stands where a directory should be.
func wantDirectory(path string, fi fs.FileInfo) error {
	switch mode := fi.Mode(); {
	case mode.IsDir():
		return nil
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return &fs.PathError{Op: "enter", Path: path, Err: syscall.ENOTDIR}
	default:
		return &ConfinementError{Path: path, Why: "is " + describe(mode)}
	}
}

// describe is what people call a file that is none.
func describe(mode fs.FileMode) string {
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

func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 0
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
