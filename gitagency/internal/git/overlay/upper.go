// Package overlay reads the upper directory of an overlay mount as data: changed files, whiteouts and opaque
// directories. An agent may have written everything in it, so it follows no symlink and bounds what it reads. It
// changes nothing there but the whiteouts and opaque marks of objects/, which RemoveObjectWhiteouts removes, and the file
// that ReplaceUpperFile is told to replace.
package overlay

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"golang.org/x/sys/unix"
)

// A sandbox writes to the git directory through an overlay mount; the upper directory holds its changes. All of it is
// untrusted, and may change while we read it. So it is read component by component with openat, without following
// symlinks, and never by git.

// Limits of a fingerprint scan. An upper directory beyond them counts as changed.
const (
	maxUpperNames = 10_000
	maxUpperDepth = 32
	maxUpperTime  = 100 * time.Millisecond
)

// Fingerprint returns a digest of an overlay upper directory over a git directory. With an equal fingerprint, HEAD, the
// index and the refs of the worktree called name are unchanged; objects and reflogs are not covered. An upper directory
// that cannot be read, or is beyond the limits, never has the same fingerprint twice.
//
// The digest is made of stat data. Programs can set every time of a file but the ctime, which only the kernel writes.
func Fingerprint(upper, name string) (string, error) {
	root, err := OpenDirAt(unix.AT_FDCWD, upper)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: upper, Err: err}
	}
	entry := EntryIn(upper, name)
	p := fingerprinter{
		sum: sha256.New(), deadline: time.Now().Add(maxUpperTime),
		sharedIndexPrefix: filepath.Join(entry, "sharedindex."),
		skip: map[string]bool{
			"objects": true, "logs": true, "modules": true, "lfs": true,
			filepath.Join(entry, "logs"): true, filepath.Join(entry, "modules"): true,
		},
	}
	if err := p.addDir(root, "", 0); err != nil {
		return "unknown-" + rand.Text(), nil
	}
	return hex.EncodeToString(p.sum.Sum(nil)), nil
}

// fingerprinter computes a Fingerprint within its limits.
type fingerprinter struct {
	sum               hash.Hash
	skip              map[string]bool
	sharedIndexPrefix string // path prefix of the shared files of a split index
	nameCount         int
	deadline          time.Time
}

var ErrLimitExceeded = errors.New("too many files or too much data")

// addDir adds a directory and closes it.
func (p *fingerprinter) addDir(fd int, at string, depth int) error {
	dir := os.NewFile(uintptr(fd), at)
	defer dir.Close()
	if depth > maxUpperDepth {
		return ErrLimitExceeded
	}
	fmt.Fprintf(p.sum, "opaque %q\n", beneath.OverlayXattr(fd, "opaque"))
	var names []string
	for {
		some, err := dir.Readdirnames(512)
		names = append(names, some...)
		p.nameCount += len(some)
		switch {
		case err == io.EOF:
			slices.Sort(names)
			return p.addNames(fd, at, depth, names)
		case err != nil:
			return err
		case p.nameCount > maxUpperNames || time.Now().After(p.deadline):
			return ErrLimitExceeded
		}
	}
}

// addNames adds the entries of an open directory, and recurses into subdirectories.
func (p *fingerprinter) addNames(fd int, at string, depth int, names []string) error {
	for _, name := range names {
		path := at + name
		// Git updates the mtime of a shared index file when it reads a split index; changes of the content show in
		// the index.
		if p.skip[path] || strings.HasPrefix(path, p.sharedIndexPrefix) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err // also for a deleted file: the sandbox is being written to
		}
		if beneath.IsWhiteout(&st) {
			// A whiteout. Overlayfs hard-links all of them to one inode, whose ctime changes with each new one.
			fmt.Fprintf(p.sum, "%q gone\n", path)
			continue
		}
		fmt.Fprintf(p.sum, "%q %d %o %d\n", path, st.Ino, st.Mode, st.Rdev)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			// The times of a directory do not count, only its names: lock files come and go in it.
			fmt.Fprintf(p.sum, "%d %d %d\n", st.Size, st.Ctim.Nano(), st.Mtim.Nano())
			continue
		}
		sub, err := OpenDirAt(fd, name)
		if err != nil {
			return err
		}
		if err := p.addDir(sub, path+"/", depth+1); err != nil {
			return err
		}
		if time.Now().After(p.deadline) {
			return ErrLimitExceeded
		}
	}
	return nil
}

// EntryIn returns the path of a worktree's entry, with its HEAD and index, in the directory to which a sandbox's git writes. That
// is an upper directory over the common git directory, or the git directory of a clone, which is named .git, and is the entry
// itself.
func EntryIn(upper, name string) string {
	if filepath.Base(upper) == cloneName {
		return ""
	}
	return filepath.Join("worktrees", name)
}

// cloneName is the name of every git directory of a clone.
const cloneName = ".git"

// OpaqueEntry returns the path of a worktree's entry in the upper directory if it is opaque or in an opaque directory, so that
// it hides the real entry; otherwise "". That of a clone always is.
func OpaqueEntry(upper, name string) string {
	if upper == "" {
		return ""
	}
	at, err := OpenDirAt(unix.AT_FDCWD, upper)
	if EntryIn(upper, name) == "" {
		if err != nil {
			return ""
		}
		unix.Close(at)
		return upper
	}
	opaque := false
	for _, part := range []string{"worktrees", name} {
		if err != nil {
			return ""
		}
		var next int
		next, err = OpenDirAt(at, part)
		unix.Close(at)
		at = next
		opaque = opaque || err == nil && beneath.OverlayXattr(at, "opaque") == "y"
	}
	if err != nil {
		return ""
	}
	unix.Close(at)
	if !opaque {
		return ""
	}
	return filepath.Join(upper, "worktrees", name)
}

// UpperFile is the state of one file in the upper directory.
type UpperFile struct {
	Found   bool // the upper directory has the file
	Deleted bool // a whiteout or an opaque directory hides the file of the lower directory
	Data    []byte
	ModTime time.Time
}

// ReadUpperFile reads a regular file of at most limit bytes from the upper directory. Where neither Found nor Deleted
// is set, the file of the lower directory is visible.
func ReadUpperFile(upper, rel string, limit int64) (UpperFile, error) {
	fail := func(err error) (UpperFile, error) {
		return UpperFile{}, &fs.PathError{Op: "read", Path: filepath.Join(upper, rel), Err: err}
	}
	if !filepath.IsLocal(rel) {
		return fail(errors.New("not in the upper directory"))
	}
	dir, err := OpenDirAt(unix.AT_FDCWD, upper)
	if err != nil {
		return fail(err)
	}
	defer func() { unix.Close(dir) }()
	parts := strings.Split(filepath.Clean(rel), "/")
	opaque := false
	for i, part := range parts {
		opaque = opaque || beneath.OverlayXattr(dir, "opaque") == "y"
		var st unix.Stat_t
		err := unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW)
		kind := st.Mode & unix.S_IFMT
		switch {
		case err == unix.ENOENT:
			return UpperFile{Deleted: opaque}, nil
		case err != nil:
			return fail(err)
		case beneath.IsWhiteout(&st):
			return UpperFile{Deleted: true}, nil
		case i == len(parts)-1:
			if kind != unix.S_IFREG {
				return fail(errors.New("not a regular file"))
			}
			found, err := readUpperRegular(dir, part, limit)
			if err != nil {
				return fail(err)
			}
			return found, nil
		case kind == unix.S_IFREG && st.Size == 0: // possibly a whiteout that is marked by an xattr
			if f, err := readUpperRegular(dir, part, 0); err == nil && f.Deleted {
				return f, nil
			}
			return fail(unix.ENOTDIR)
		}
		next, err := OpenDirAt(dir, part)
		if err != nil {
			return fail(err)
		}
		unix.Close(dir)
		dir = next
	}
	return fail(errors.New("empty path"))
}

// readUpperRegular reads a regular file, or finds that it is a whiteout marked by an xattr.
func readUpperRegular(dir int, name string, limit int64) (UpperFile, error) {
	// Non-blocking: the sandbox may have replaced the file by a pipe.
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return UpperFile{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return UpperFile{}, err
	case !fi.Mode().IsRegular():
		return UpperFile{}, errors.New("not a regular file")
	case fi.Size() == 0 && beneath.OverlayXattr(fd, "whiteout") != "":
		return UpperFile{Deleted: true}, nil
	case fi.Size() > limit:
		return UpperFile{}, fmt.Errorf("larger than %d bytes", limit)
	}
	data := durable.AllocBuffer(fi.Size())
	if n, err := io.ReadFull(f, data); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return UpperFile{}, err
	} else {
		data = data[:n] // the file may have been truncated; the parser of the data detects that
	}
	return UpperFile{Found: true, Data: data, ModTime: fi.ModTime()}, nil
}

// OpenDirAt opens a directory without following a symlink in the last component.
func OpenDirAt(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
