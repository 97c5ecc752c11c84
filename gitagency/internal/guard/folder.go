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

// Folder is an open directory of a tree. It was reached without following any link, so that it is where
// its path said, and names in it are single ones: nothing that is done in it happens elsewhere. It costs one
// descriptor. os.Root would follow links that stay inside, and cannot move from one to another.
type Folder struct {
	Path string // relative to the tree
	dir  *os.File
}

// Info is what Lstat says of something in a folder.
type Info struct {
	Mode          fs.FileMode
	Device, Inode uint64
	Modified      time.Time
}

// Top opens the tree itself as a folder.
func (t *Tree) Top() (*Folder, error) {
	dir, err := t.root.Open(".")
	if err != nil {
		return nil, plainly("enter", ".", err)
	}
	return &Folder{Path: ".", dir: dir}, nil
}

// Enter opens a directory of the folder.
func (f *Folder) Enter(name string) (*Folder, error) {
	there := path.Join(f.Path, name)
	dir, err := f.open("enter", name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		if fi, err := f.Lstat(name); err == nil && !fi.Mode.IsDir() {
			return nil, WantDirectory(there, fi.Mode)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Folder{Path: there, dir: dir}, nil
}

// Force is Enter that opens up a directory whose owner took his own permissions away.
func (f *Folder) Force(name string) (*Folder, error) {
	dir, err := f.Enter(name)
	if errors.Is(err, fs.ErrPermission) && f.Widen(name) == nil {
		return f.Enter(name)
	}
	return dir, err
}

// Find opens a folder further down, by a clean path.
func (f *Folder) Find(path string) (*Folder, error) { return f.find(path, (*Folder).Enter) }

// FindForce is Find that goes by Force.
func (f *Folder) FindForce(path string) (*Folder, error) { return f.find(path, (*Folder).Force) }

func (f *Folder) find(path string, enter func(*Folder, string) (*Folder, error)) (*Folder, error) {
	at, err := f.Enter(".")
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

// Make makes a directory, for us alone, and opens it.
func (f *Folder) Make(name string) (*Folder, error) {
	if err := f.do("make", name, func(dir int) error { return unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return nil, err
	}
	return f.Enter(name)
}

// Create makes a file to write to. Nothing that is there already is ever opened for that: it may have another name
// outside.
func (f *Folder) Create(name string, perm fs.FileMode) (*os.File, error) {
	return f.open("make", name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(perm.Perm()))
}

// Read opens a regular file.
func (f *Folder) Read(name string) (*os.File, error) {
	file, err := f.open("read", name, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would keep us waiting
	if err != nil {
		return nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &ConfinementError{Path: path.Join(f.Path, name), Why: "is " + Describe(fi.Mode())}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Symlink makes a symbolic link.
func (f *Folder) Symlink(target, name string) error {
	return f.do("make", name, func(dir int) error { return unix.Symlinkat(target, dir, name) })
}

// Move renames what is in the folder into another.
func (f *Folder) Move(name string, to *Folder) error { return f.MoveAs(name, to, name) }

// MoveNew is Move that replaces nothing.
func (f *Folder) MoveNew(name string, to *Folder) error {
	return f.do("move", name, func(dir int) error { return moveNew(dir, name, int(to.dir.Fd())) })
}

// Exchange has two of the same name, in this folder and another, change places at once. The error is
// errors.ErrUnsupported or EINVAL where that cannot be done.
func (f *Folder) Exchange(name string, with *Folder) error {
	return f.do("exchange", name, func(dir int) error { return exchange(dir, name, int(with.dir.Fd())) })
}

// renameNew is moveNew where the kernel has no such thing: somebody may be quicker.
func renameNew(from int, name string, to int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(to, name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		if err == nil {
			err = unix.EEXIST
		}
		return err
	}
	return unix.Renameat(from, name, to, name)
}

// MoveAs is Move that also gives it another name.
func (f *Folder) MoveAs(name string, to *Folder, as string) error {
	return f.do("move", name, func(dir int) error { return unix.Renameat(dir, name, int(to.dir.Fd()), as) })
}

// Remove removes a file, a link or an empty directory.
func (f *Folder) Remove(name string) error {
	return f.do("remove", name, func(dir int) error {
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			if asDir := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(asDir, unix.ENOTDIR) {
				return asDir
			}
		}
		return err
	})
}

// Lstat looks at something in the folder.
func (f *Folder) Lstat(name string) (Info, error) {
	var st unix.Stat_t
	err := f.do("look at", name, func(dir int) error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return info(&st), err
}

// StatOf looks at a file that is open.
func StatOf(file *os.File) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return Info{}, &fs.PathError{Op: "look at", Path: file.Name(), Err: err}
	}
	return info(&st), nil
}

// Stat looks at the folder itself.
func (f *Folder) Stat() (Info, error) { return f.Lstat(".") }

// Names lists what is in the folder, in no order.
func (f *Folder) Names() ([]string, error) {
	again, err := f.Handle() // a directory is read only once
	if err != nil {
		return nil, err
	}
	names, err := again.Readdirnames(-1)
	return names, errors.Join(err, again.Close())
}

// Handle opens the folder once more, for what is tied to a handle, such as a lock.
func (f *Folder) Handle() (*os.File, error) {
	return f.open("enter", ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// Chmod sets the permissions of the folder itself.
func (f *Folder) Chmod(perm fs.FileMode) error { return f.dir.Chmod(perm) }

// Widen gives the owner all permissions on a directory of the folder, which need not be one that can be opened.
func (f *Folder) Widen(name string) error {
	var st unix.Stat_t
	if err := f.do("look at", name, func(dir int) error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return err
	}
	if err := WantDirectory(path.Join(f.Path, name), info(&st).Mode); err != nil {
		return err
	}
	return f.do("open up", name, func(dir int) error { return chmodAt(dir, name, uint32(st.Mode&0o7777|0o700)) })
}

// Writable does something in the folder for which one must be allowed to write there, also where somebody took
// that permission away from himself: then he gets it for as long as it takes.
func (f *Folder) Writable(do func() error) error {
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

// Close gives the descriptor back.
func (f *Folder) Close() error { return f.dir.Close() }

// open opens what a name stands for, and nothing that it leads to.
func (f *Folder) open(op, name string, flags int, perm uint32) (*os.File, error) {
	var fd int
	err := f.do(op, name, func(dir int) (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(f.Path, name)), nil
}

// do asks the kernel about a name in the folder, which must be a single one.
func (f *Folder) do(op, name string, ask func(dir int) error) error {
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

func info(st *unix.Stat_t) Info {
	i := Info{Mode: fs.FileMode(st.Mode & 0o777), Device: uint64(st.Dev), Inode: st.Ino, Modified: time.Unix(st.Mtim.Unix())}
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
	case unix.S_IFBLK, unix.S_IFCHR:
		i.Mode |= fs.ModeDevice
	case unix.S_IFREG:
	default:
		i.Mode |= fs.ModeIrregular
	}
	return i
}
