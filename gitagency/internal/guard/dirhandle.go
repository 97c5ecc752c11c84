package guard

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DirHandle is an open directory of a tree. It was opened without following any symlink, so it is the directory that
// its path names, and its methods take single path components only: no operation reaches outside. It uses one file
// descriptor. os.Root would not do: it follows symlinks that stay inside, and cannot rename between two directories.
type DirHandle struct {
	Path string // relative to the tree
	dir  *os.File
}

// Info is the result of Lstat on an entry of a directory.
type Info struct {
	Mode          fs.FileMode
	Device, Inode uint64
	Modified      time.Time
	Size          int64
	Allocated     int64  // bytes on disk, less than Size for a sparse file
	Links         uint64 // number of hard links
}

// OpenTop opens the top directory of the tree.
func (t *Tree) OpenTop() (*DirHandle, error) {
	dir, err := t.root.Open(".")
	if err != nil {
		return nil, withCallerPath("enter", ".", err)
	}
	return &DirHandle{Path: ".", dir: dir}, nil
}

// OpenDir opens a subdirectory, and never a symlink.
func (f *DirHandle) OpenDir(name string) (*DirHandle, error) {
	there := path.Join(f.Path, name)
	dir, err := f.openAt("enter", name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		if fi, err := f.Lstat(name); err == nil && !fi.Mode.IsDir() {
			return nil, CheckIsDir(there, fi.Mode)
		}
	}
	if err != nil {
		return nil, err
	}
	return &DirHandle{Path: there, dir: dir}, nil
}

// OpenDirForce is OpenDir that first restores the owner's permissions on the subdirectory if they are missing.
func (f *DirHandle) OpenDirForce(name string) (*DirHandle, error) {
	dir, err := f.OpenDir(name)
	if errors.Is(err, fs.ErrPermission) && f.GrantOwnerAccess(name) == nil {
		return f.OpenDir(name)
	}
	return dir, err
}

// OpenPath opens a directory further down, by a clean relative path.
func (f *DirHandle) OpenPath(path string) (*DirHandle, error) {
	return f.walkPath(path, (*DirHandle).OpenDir)
}

// OpenPathForce is OpenPath that opens every component with OpenDirForce.
func (f *DirHandle) OpenPathForce(path string) (*DirHandle, error) {
	return f.walkPath(path, (*DirHandle).OpenDirForce)
}

func (f *DirHandle) walkPath(path string, enter func(*DirHandle, string) (*DirHandle, error)) (*DirHandle, error) {
	at, err := f.OpenDir(".")
	if err != nil || path == "." {
		return at, err
	}
	for name := range strings.SplitSeq(path, "/") {
		next, err := enter(at, name)
		if closeErr := at.Close(); err == nil && closeErr != nil {
			err = errors.Join(closeErr, next.Close())
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// Mkdir creates a subdirectory with mode 0700 and opens it.
func (f *DirHandle) Mkdir(name string) (*DirHandle, error) {
	if err := f.callAt("make", name, func(dir int) error { return unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return nil, err
	}
	return f.OpenDir(name)
}

// CreateFile creates a file for writing. It never opens an existing file, which may be a hard link to a file outside
// of the tree.
func (f *DirHandle) CreateFile(name string, perm fs.FileMode) (*os.File, error) {
	return f.openAt("make", name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(perm.Perm()))
}

// OpenFile opens a regular file for reading.
func (f *DirHandle) OpenFile(name string) (*os.File, error) {
	file, err := f.openAt("read", name, unix.O_RDONLY|unix.O_NONBLOCK, 0) // opening a FIFO would block
	if err != nil {
		return nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &ConfinementError{Path: path.Join(f.Path, name), Why: "is " + DescribeType(fi.Mode())}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// OpenFileForce is OpenFile that opens a file without read permission too: it grants the permission for the moment of
// opening, and takes it back.
func (f *DirHandle) OpenFileForce(name string) (*os.File, error) {
	file, err := f.OpenFile(name)
	if !errors.Is(err, fs.ErrPermission) {
		return file, err
	}
	fi, statErr := f.Lstat(name)
	if statErr != nil || !fi.Mode.IsRegular() {
		return nil, err
	}
	chmod := func(perm fs.FileMode) error {
		return f.callAt("chmod", name, func(dir int) error { return chmodFileAt(dir, name, uint32(perm.Perm())) })
	}
	if chmod(fi.Mode|0o400) != nil {
		return nil, err
	}
	file, err = f.OpenFile(name)
	if back := chmod(fi.Mode); back != nil && err == nil {
		return nil, errors.Join(back, file.Close())
	}
	return file, err
}

// OpenFIFO opens a FIFO without blocking, with flags such as O_RDWR; anything else is refused.
func (f *DirHandle) OpenFIFO(name string, flags int) (*os.File, error) {
	file, err := f.openAt("open", name, flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := file.Stat()
	if err == nil && fi.Mode().Type() != fs.ModeNamedPipe {
		err = &ConfinementError{Path: path.Join(f.Path, name), Why: "is " + DescribeType(fi.Mode())}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Readlink returns the target of a symbolic link.
func (f *DirHandle) Readlink(name string) (target string, err error) {
	for size := 256; ; size *= 2 {
		n, buf := 0, make([]byte, size)
		if err := f.callAt("readlink", name, func(dir int) (err error) { n, err = unix.Readlinkat(dir, name, buf); return err }); err != nil {
			return "", err
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// Mkfifo creates a named pipe.
func (f *DirHandle) Mkfifo(name string, perm fs.FileMode) error {
	return f.callAt("make", name, func(dir int) error { return mkfifoAt(dir, name, uint32(perm.Perm())) })
}

// Link creates a hard link, in another directory, to an entry that is no directory. A symlink is linked itself.
func (f *DirHandle) Link(name string, in *DirHandle, as string) error {
	if err := in.callAt("make", as, func(int) error { return nil }); err != nil { // checks the name
		return err
	}
	return f.callAt("link", name, func(dir int) error { return unix.Linkat(dir, name, int(in.dir.Fd()), as, 0) })
}

// Symlink creates a symbolic link.
func (f *DirHandle) Symlink(target, name string) error {
	return f.callAt("make", name, func(dir int) error { return unix.Symlinkat(target, dir, name) })
}

// Move renames an entry into another directory, under the same name.
func (f *DirHandle) Move(name string, to *DirHandle) error { return f.MoveAs(name, to, name) }

// MoveNoReplace is Move that fails if the name exists in the other directory.
func (f *DirHandle) MoveNoReplace(name string, to *DirHandle) error {
	return f.MoveAsNoReplace(name, to, name)
}

// MoveAsNoReplace is MoveAs that fails if the new name exists in the other directory.
func (f *DirHandle) MoveAsNoReplace(name string, to *DirHandle, as string) error {
	if err := to.callAt("make", as, func(int) error { return nil }); err != nil { // checks the name
		return err
	}
	return f.callAt("move", name, func(dir int) error { return renameNoReplace(dir, name, int(to.dir.Fd()), as) })
}

// Exchange atomically swaps two entries of the same name, in this directory and another. The error is
// errors.ErrUnsupported or EINVAL where the kernel or file system cannot do it.
func (f *DirHandle) Exchange(name string, with *DirHandle) error {
	return f.callAt("exchange", name, func(dir int) error { return renameExchange(dir, name, int(with.dir.Fd())) })
}

// renameIfAbsent stands in for renameNoReplace without kernel support. It is racy: the name may be created in
// between.
func renameIfAbsent(from int, name string, to int, as string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(to, as, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		if err == nil {
			err = unix.EEXIST
		}
		return err
	}
	return unix.Renameat(from, name, to, as)
}

// MoveAs is Move to another name.
func (f *DirHandle) MoveAs(name string, to *DirHandle, as string) error {
	return f.callAt("move", name, func(dir int) error { return unix.Renameat(dir, name, int(to.dir.Fd()), as) })
}

// Remove removes a file, a symlink or an empty directory.
func (f *DirHandle) Remove(name string) error {
	return f.callAt("remove", name, func(dir int) error {
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			if asDir := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(asDir, unix.ENOTDIR) {
				return asDir
			}
		}
		return err
	})
}

// Lstat returns the metadata of an entry, without following a symlink.
func (f *DirHandle) Lstat(name string) (Info, error) {
	var st unix.Stat_t
	err := f.callAt("stat", name, func(dir int) error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return infoFromStat(&st), err
}

// Fstat returns the metadata of an open file.
func Fstat(file *os.File) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return Info{}, &fs.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return infoFromStat(&st), nil
}

// Stat returns the metadata of the directory itself. Unlike Lstat(".") it needs no permission to search the directory.
func (f *DirHandle) Stat() (Info, error) { return Fstat(f.dir) }

// Names lists the entries of the directory, unsorted.
func (f *DirHandle) Names() ([]string, error) {
	again, err := f.openAt("enter", ".", unix.O_RDONLY|unix.O_DIRECTORY, 0) // each descriptor can be listed only once
	if err != nil {
		return nil, err
	}
	names, err := again.Readdirnames(-1)
	return names, errors.Join(err, again.Close())
}

// Chmod sets the permissions of the directory itself.
func (f *DirHandle) Chmod(perm fs.FileMode) error { return f.dir.Chmod(perm) }

// SetModified sets the modification time of an entry, of a symlink itself, or of the directory with the name ".".
func (f *DirHandle) SetModified(name string, at time.Time) error {
	stamp := unix.NsecToTimespec(at.UnixNano())
	return f.callAt("set the time of", name, func(dir int) error {
		return unix.UtimesNanoAt(dir, name, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// GrantOwnerAccess adds all owner permissions to a subdirectory, including one that cannot be opened.
func (f *DirHandle) GrantOwnerAccess(name string) error {
	var st unix.Stat_t
	if err := f.callAt("stat", name, func(dir int) error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return err
	}
	if err := CheckIsDir(path.Join(f.Path, name), infoFromStat(&st).Mode); err != nil {
		return err
	}
	return f.callAt("chmod", name, func(dir int) error { return chmodDirAt(dir, name, uint32(st.Mode&0o7777|0o700)) })
}

// WithWriteAccess calls do, which needs permission to write in the directory. If the owner has none, it is granted
// for the duration of the call.
func (f *DirHandle) WithWriteAccess(do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	fi, statErr := f.Stat()
	if statErr != nil || fi.Mode&0o300 == 0o300 || f.dir.Chmod(fi.Mode|0o300) != nil {
		return err
	}
	return errors.Join(do(), f.dir.Chmod(fi.Mode))
}

// Close closes the descriptor.
func (f *DirHandle) Close() error { return f.dir.Close() }

// openAt opens an entry without following symlinks.
func (f *DirHandle) openAt(op, name string, flags int, perm uint32) (*os.File, error) {
	var fd int
	err := f.callAt(op, name, func(dir int) (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(f.Path, name)), nil
}

// callAt runs a system call on an entry and retries it after EINTR. The name must be a single path component.
func (f *DirHandle) callAt(op, name string, ask func(dir int) error) error {
	err := error(unix.EINVAL)
	if name != "" && name != ".." && !strings.ContainsAny(name, "/\x00") {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = ask(int(f.dir.Fd()))
		}
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path.Join(f.Path, name), Err: err}
	}
	return nil
}

func infoFromStat(st *unix.Stat_t) Info {
	i := Info{Mode: fs.FileMode(st.Mode & 0o777), Device: uint64(st.Dev), Inode: st.Ino, Modified: time.Unix(st.Mtim.Unix()), Size: st.Size, Allocated: 512 * int64(st.Blocks), Links: uint64(st.Nlink)}
	for bit, mode := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if uint32(st.Mode)&bit != 0 {
			i.Mode |= mode
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		i.Mode |= fs.ModeDir
	case unix.S_IFLNK:
		i.Mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		i.Mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		i.Mode |= fs.ModeSocket
	case unix.S_IFBLK:
		i.Mode |= fs.ModeDevice
	case unix.S_IFCHR:
		i.Mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFREG:
	default:
		i.Mode |= fs.ModeIrregular
	}
	return i
}
