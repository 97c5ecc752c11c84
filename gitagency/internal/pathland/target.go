package pathland

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
)

// target is one of the directories that a landing changes. Everything in it is reached from its handle, without following symbolic
// links.
type target struct {
	path    string // of the directory
	root    *os.File
	read    *beneath.Dir
	staging *os.File // directory in it with the new files, and later the old ones; nil until it is open
}

// openTarget opens a directory, whose path has no symbolic links.
func openTarget(dir string) (*target, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil && real != dir {
		err = &fs.PathError{Op: "open", Path: dir, Err: errors.New("it leads to " + real + " now")}
	}
	if err != nil {
		return nil, err
	}
	read, err := beneath.OpenDeep(dir)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: dir, Err: err}, read.Close())
	}
	return &target{path: dir, root: os.NewFile(uintptr(fd), dir), read: read}, nil
}

func (t *target) close() error {
	err := errors.Join(t.read.Close(), t.root.Close())
	if t.staging != nil {
		err = errors.Join(err, t.staging.Close())
	}
	return err
}

// openStaging opens the staging directory called name, and makes it first if asked to. It is nil if there is none.
func (t *target) openStaging(name string, make bool) error {
	if make {
		if err := unix.Mkdirat(t.fd(), name, 0o700); err != nil {
			return &fs.PathError{Op: "mkdir", Path: filepath.Join(t.path, name), Err: err}
		}
	}
	fd, err := unix.Openat(t.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && !make {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(t.path, name), Err: err}
	}
	t.staging = os.NewFile(uintptr(fd), filepath.Join(t.path, name))
	if make {
		return t.staging.Chmod(0o700) // a set-group-ID directory made it one, and its group that of all new files
	}
	return nil
}

func (t *target) fd() int { return int(t.root.Fd()) }

func (t *target) stagingFD() int { return int(t.staging.Fd()) }

// inParent calls do with the directory of a path, and the last component.
func (t *target) inParent(name string, do func(dir int, base string) error) error {
	at, opened := t.fd(), -1
	defer func() {
		if opened >= 0 {
			_ = unix.Close(opened)
		}
	}()
	if parent := path.Dir(name); parent != "." {
		for part := range strings.SplitSeq(parent, "/") {
			next, err := unix.Openat(at, part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return &fs.PathError{Op: "open", Path: filepath.Join(t.path, parent), Err: err}
			}
			if opened >= 0 {
				_ = unix.Close(opened)
			}
			at, opened = next, next
		}
	}
	if err := do(at, path.Base(name)); err != nil {
		return &fs.PathError{Op: "change", Path: filepath.Join(t.path, name), Err: err}
	}
	return nil
}

// inode returns the inode of a path of the directory; 0 if there is nothing.
func (t *target) inode(name string) (ino uint64, err error) {
	err = t.inParent(name, func(dir int, base string) (err error) { ino, err = inodeAt(dir, base); return err })
	if beneath.IsGone(err) {
		return 0, nil
	}
	return ino, err
}

// inodeAt returns the inode of a name in a directory; 0 if there is nothing.
func inodeAt(dir int, name string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return 0, nil
	}
	return st.Ino, err
}
