package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"golang.org/x/sys/unix"
)

// File is an entry of a tree that an archive is to hold.
type File struct {
	Path   string // relative to the tree
	Info   guard.Info
	Target string // of a symbolic link

	data []segment // of a sparse file
	why  string    // reason why the archive cannot hold it; empty for all others
}

// segment is a part of a sparse file that is not a hole.
type segment struct{ offset, length int64 }

// Entry is an entry of a directory that a scan asks about.
type Entry struct {
	Path   string // relative to the tree
	Mode   fs.FileMode
	HasGit func() bool // reports whether it is a directory with an entry .git
}

// Choice says what a scan does with an entry.
type Choice int

const (
	Skip    Choice = iota // leave it out, with all below it
	Enter                 // leave it out, and ask about the entries of the directory
	Keep                  // list it, and ask about the entries of the directory
	KeepAll               // list it and all below it
)

// maxPath is the longest path that a reader of pax headers accepts, with room for other records.
const maxPath = 1 << 19

// Scan lists the entries of a tree that an archive is to hold, parents first. It grants the owner of the tree access to
// directories without permissions, as a removal of the tree would.
func Scan(ctx context.Context, top *guard.DirHandle, choose func(Entry) Choice) (files []File, err error) {
	s := scanner{choose: choose, tree: cursor{top: top, open: (*guard.DirHandle).OpenDirForce}, queue: []pendingDir{{path: "."}}}
	defer func() { err = errors.Join(err, s.tree.close()) }()
	for len(s.queue) > 0 {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		next := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		if err := s.scanDir(next); err != nil {
			return nil, err
		}
	}
	return s.files, nil
}

type scanner struct {
	choose func(Entry) Choice
	tree   cursor
	queue  []pendingDir
	files  []File
}

// pendingDir is a directory that is still to be listed.
type pendingDir struct {
	path string
	all  bool // all of it is kept
}

func (s *scanner) scanDir(p pendingDir) error {
	dir, names, err := s.list(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.path != ".":
		return nil // gone since it was listed
	case err != nil:
		s.files = append(s.files, File{Path: p.path, why: reasonOf(err), Info: guard.Info{Mode: fs.ModeDir}})
		return nil
	}
	first := len(s.queue)
	for _, name := range names {
		if err := s.visit(dir, name, p); err != nil {
			return err
		}
	}
	slices.Reverse(s.queue[first:]) // the queue is a stack: the first directory is listed first
	return nil
}

// list lists a directory, in order, after it granted its owner access to it.
func (s *scanner) list(at string) (*guard.DirHandle, []string, error) {
	dir, err := s.tree.dir(at)
	if err != nil {
		return nil, nil, err
	}
	fi, err := dir.Stat()
	if err != nil {
		return nil, nil, err
	}
	if fi.Mode&0o700 != 0o700 {
		_ = dir.Chmod(fi.Mode.Perm() | 0o700) // a failure shows up when the entries are read
	}
	names, err := dir.Names()
	slices.Sort(names)
	return dir, names, err
}

// visit decides about one entry of a directory.
func (s *scanner) visit(dir *guard.DirHandle, name string, p pendingDir) error {
	f := File{Path: path.Join(p.path, name)}
	var err error
	if f.Info, err = dir.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	choice := KeepAll
	if err == nil && !p.all {
		choice = s.choose(Entry{Path: f.Path, Mode: f.Info.Mode, HasGit: func() bool { return f.Info.Mode.IsDir() && holdsGit(dir, name) }})
	}
	isDir := err == nil && f.Info.Mode.IsDir()
	if isDir && choice != Skip {
		s.queue = append(s.queue, pendingDir{f.Path, choice == KeepAll})
	}
	if choice == Skip || choice == Enter {
		return nil
	}
	switch {
	case err != nil:
		f.why = reasonOf(err)
	case isDir && len(f.Path) > unix.PathMax:
		return nil // its entries imply it; the paths of a deep tree would need far more room than its files
	case len(f.Path) > maxPath:
		f.Path, f.why = f.Path[:200]+"...", "its path is longer than an archive can hold"
	case f.Info.Mode&fs.ModeSymlink != 0:
		if f.Target, err = dir.Readlink(name); err != nil {
			f.why = reasonOf(err)
		}
	case f.Info.Mode.IsRegular() && f.Info.Allocated < f.Info.Size:
		f.data, err = sparseSegments(dir, name, f.Info.Size)
		if err != nil {
			f.why = reasonOf(err)
		}
	}
	s.files = append(s.files, f)
	return nil
}

// holdsGit reports whether a directory has an entry .git of any kind. It is true where that cannot be told.
func holdsGit(in *guard.DirHandle, name string) bool {
	dir, err := in.OpenDirForce(name)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer dir.Close()
	if fi, err := dir.Stat(); err == nil && fi.Mode&0o700 != 0o700 {
		_ = dir.Chmod(fi.Mode.Perm() | 0o700)
	}
	_, err = dir.Lstat(".git")
	return !errors.Is(err, fs.ErrNotExist)
}

// maxSegments bounds the map of a sparse file, which has to fit into one pax header.
const maxSegments = 10_000

// sparseSegments lists the data of a sparse file. It is nil where the file has no holes.
func sparseSegments(dir *guard.DirHandle, name string, size int64) (_ []segment, err error) {
	file, err := dir.OpenFileForce(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data := []segment{}
	for at := int64(0); at < size; {
		from, err := file.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
			return nil, nil // the file system does not tell
		}
		if err != nil {
			return nil, err
		}
		to, err := file.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		from, to = min(from, size), min(to, size)
		if to > from {
			data = append(data, segment{from, to - from})
		}
		at = max(to, from+1)
	}
	for gap := int64(1 << 16); len(data) > maxSegments; gap *= 2 {
		data = mergeSegments(data, gap)
	}
	if len(data) == 1 && data[0] == (segment{0, size}) {
		return nil, nil
	}
	return append(data, segment{size, 0}), nil // GNU tar ends the map so too; it is never empty
}

// mergeSegments joins segments with a smaller gap between them.
func mergeSegments(data []segment, gap int64) []segment {
	merged := data[:1]
	for _, s := range data[1:] {
		if last := &merged[len(merged)-1]; s.offset-(last.offset+last.length) < gap {
			last.length = s.offset + s.length - last.offset
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// storedBytes is the number of bytes of content that the archive holds of a file.
func (f File) storedBytes() int64 {
	if !f.Info.Mode.IsRegular() {
		return 0
	}
	if f.data == nil {
		return f.Info.Size
	}
	n := int64(0)
	for _, s := range f.data {
		n += s.length
	}
	return n
}

// content returns a reader of the bytes of an open file that the archive holds.
func (f File) content(file *os.File) io.Reader {
	if f.data == nil {
		return io.NewSectionReader(file, 0, f.Info.Size)
	}
	var parts []io.Reader
	for _, s := range f.data {
		parts = append(parts, io.NewSectionReader(file, s.offset, s.length))
	}
	return io.MultiReader(parts...)
}

// reasonOf returns the reason of an error, without the path.
func reasonOf(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Op + ": " + at.Err.Error()
	}
	return err.Error()
}
