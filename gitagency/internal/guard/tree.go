package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree is a directory tree accessed through an open handle: nothing outside of it can be reached through it, even if
// names and symlinks change concurrently.
type Tree struct {
	Path string // canonical path
	root *os.Root

	isMounted bool // only root leads to its content: another directory is at Path
}

// OpenTree opens a directory, which must not be a symlink.
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
		return nil, &ConfinementError{Path: path, Why: "leads to " + QuotePath(real)}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	// A symlink may have replaced it in the meantime, for example one to another sandbox.
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = &ConfinementError{Path: path, Why: "was replaced while it was being opened"}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Tree{Path: path, root: root}, nil
}

// OpenMountedTree opens a directory that is open already, as dir, and which is at path only in other namespaces: here there is
// another directory at path.
func OpenMountedTree(dir *os.File, path string) (*Tree, error) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return nil, withCallerPath("open", path, err)
	}
	return &Tree{Path: path, root: root, isMounted: true}, nil
}

// OpenOwnTree is OpenTree for a directory that belongs to this program. If a command in it has removed the permission to
// read or enter it, the owner's permissions are restored.
func OpenOwnTree(path string) (*Tree, error) {
	if err := RestoreOwnAccess(path); err != nil && !errors.Is(err, fs.ErrPermission) { // root may read it all the same
		return nil, err
	}
	return OpenTree(path)
}

// RestoreOwnAccess is RestoreAccess for the path of a directory that belongs to this program. It follows no symbolic link at the path, and
// does nothing to anything but a directory.
func RestoreOwnAccess(path string) error {
	if IsAccessible(path) {
		return nil
	}
	return grantAccess(path)
}

func grantAccess(path string) error {
	parent, err := OpenTree(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	in, err := parent.OpenTop()
	if err != nil {
		return err
	}
	return errors.Join(in.GrantOwnerAccess(filepath.Base(path)), in.Close())
}

// RestoreAccess gives the owner of an open directory all permissions on it, if the permission to read or enter it is
// missing.
func RestoreAccess(dir *os.File) error {
	fi, err := dir.Stat()
	if err != nil || fi.Mode()&readAndEnter == readAndEnter {
		return err
	}
	return dir.Chmod(fi.Mode() | 0o700)
}

// IsAccessible reports whether its owner may read and enter a directory. It is true for everything else.
func IsAccessible(path string) bool {
	fi, err := os.Lstat(path)
	return err != nil || !fi.IsDir() || fi.Mode()&readAndEnter == readAndEnter
}

// readAndEnter is the permissions that the owner of a directory needs to read what is in it.
const readAndEnter = 0o500

// Close closes the handle.
func (t *Tree) Close() error { return t.root.Close() }

// HasMarker is Marker.IsIn for an open tree. Missing owner permissions on the marker's directory do not hide the
// marker: they are restored.
func (t *Tree) HasMarker(m Marker) (bool, error) {
	is, err := m.isIn(t.root.Lstat)
	if !errors.Is(err, fs.ErrPermission) {
		return is, err
	}
	top, topErr := t.OpenTop()
	if topErr != nil {
		return false, err
	}
	if errors.Join(top.GrantOwnerAccess(AgencyDir), top.Close()) != nil {
		return false, err
	}
	return m.isIn(t.root.Lstat)
}

// OpenWorkDir opens a directory of the tree as a working directory and returns its path. The argument is relative to
// the tree, or absolute and inside of it; symlinks in it are resolved. Callers must use the handle, because the path
// may lead elsewhere a moment later.
func (t *Tree) OpenWorkDir(path string) (*os.File, string, error) {
	inside, err := t.resolveInside(path)
	if err != nil {
		return nil, "", err
	}
	dir, err := t.root.OpenFile(inside, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", withCallerPath("enter", path, err)
	}
	at := filepath.Join(t.Path, inside)
	if !t.isMounted {
		return dir, at, nil
	}
	defer dir.Close()
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the name of dir is one of this process alone
	if err != nil {
		return nil, "", withCallerPath("enter", path, err)
	}
	return os.NewFile(uintptr(fd), at), at, nil
}

// ResolvePath returns the target of a path, relative to the top of the tree, and whether it is a directory. It
// accepts the same paths as OpenWorkDir, and paths that do not exist.
func (t *Tree) ResolvePath(path string) (inside string, isDir bool, err error) {
	if inside, err = t.resolveInside(path); err != nil {
		return "", false, err
	}
	fi, err := t.root.Lstat(inside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inside, false, nil
	case err != nil:
		return "", false, withCallerPath("stat", path, err)
	}
	return inside, fi.IsDir(), nil
}

// Lstat returns the metadata of an entry of the tree. It follows symlinks in parent directories only while they stay
// inside.
func (t *Tree) Lstat(path string) (fs.FileInfo, error) {
	fi, err := t.root.Lstat(path)
	if err != nil {
		return nil, withCallerPath("stat", path, err)
	}
	return fi, nil
}

// Readlink returns the target of a symbolic link in the tree.
func (t *Tree) Readlink(path string) (string, error) {
	target, err := t.root.Readlink(path)
	if err != nil {
		return "", withCallerPath("stat", path, err)
	}
	return target, nil
}

// resolveInside resolves a path relative to the tree and checks its names against the policy.
func (t *Tree) resolveInside(path string) (string, error) {
	full, below := path, path
	switch {
	case path == "":
		return ".", nil
	case !filepath.IsAbs(path):
		full = t.Path + "/" + path
	case strings.HasPrefix(path, t.Path+"/"):
		below = strings.TrimLeft(path[len(t.Path):], "/")
	default:
		below = "" // another spelling of the tree, or a path outside
	}
	if below != "" && pathProblem(below) != "" {
		return "", &ConfinementError{Path: path, Why: pathProblem(below)}
	}
	if strings.ContainsRune(path, 0) {
		return "", &ConfinementError{Path: path, Why: "contains invisible characters"}
	}
	real, err := t.resolve(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP):
		return "", &ConfinementError{Path: path, Why: "goes through a dangling symbolic link"}
	case err != nil:
		return "", withCallerPath("resolve", path, err)
	case real == t.Path:
		return ".", nil
	case !Contains(t.Path, real):
		return "", &ConfinementError{Path: path, Why: "leads out of the sandbox"}
	}
	inside := strings.TrimPrefix(real, t.Path+"/")
	if why := pathProblem(inside); why != "" {
		return "", &ConfinementError{Path: path, Why: "leads to " + QuotePath(inside) + ", which " + why}
	}
	return inside, nil
}

// resolve is Resolve for a path that may lead into the tree.
func (t *Tree) resolve(path string) (string, error) {
	if !t.isMounted {
		return Resolve(path)
	}
	return resolveWith(path, fileLookup{
		lstat:    lookupIn(t, t.root.Lstat, os.Lstat),
		stat:     lookupIn(t, t.root.Stat, os.Stat),
		readlink: lookupIn(t, t.root.Readlink, os.Readlink),
	})
}

// lookupIn returns a function that looks a path up in a mounted tree if it is below that, and else outside.
func lookupIn[T any](t *Tree, inside, outside func(string) (T, error)) func(string) (T, error) {
	return func(path string) (T, error) {
		if rel, below := strings.CutPrefix(path, t.Path+"/"); below {
			return inside(rel)
		}
		return outside(path)
	}
}

// CheckIsDir returns an error if the file type of a path is not a directory.
func CheckIsDir(path string, mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return nil
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return &fs.PathError{Op: "enter", Path: path, Err: syscall.ENOTDIR}
	default:
		return &ConfinementError{Path: path, Why: "is " + DescribeType(mode)}
	}
}

// DescribeType names a file type for error messages.
func DescribeType(mode fs.FileMode) string {
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
	return "not a regular file"
}

// withCallerPath rewrites an error to name the path as the caller gave it, without internal handles.
func withCallerPath(op, path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return &fs.PathError{Op: op, Path: path, Err: errno}
	}
	var inner *fs.PathError
	if errors.As(err, &inner) { // os.Root's own error: the path escapes
		return &ConfinementError{Path: path, Why: "leads elsewhere: " + inner.Err.Error()}
	}
	return err
}
