package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// extract unpacks an archive into a directory. Whatever the archive says, nothing outside of the directory is touched. All files
// belong to the user; devices, pipes and sockets are left out, and so are the bits that change a user.
func extract(from io.Reader, dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	x := extraction{root: root, omitted: map[string]bool{}, dirs: map[string]dirMeta{}}
	counted := &zeroCounter{from: from}
	for archive := tar.NewReader(counted); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && counted.zeros < endOfArchive:
			return errors.New("the archive of the image has no end")
		case errors.Is(err, io.EOF) && !x.hasFiles:
			return errors.New("the image has no files")
		case errors.Is(err, io.EOF):
			return x.finishDirs()
		}
		if err == nil {
			err = x.entry(header, archive)
		}
		if err != nil {
			return err
		}
	}
}

// endOfArchive is the number of zero bytes at the end of an archive, of which one that was cut off may have none.
const endOfArchive = 1024

// zeroCounter counts the zero bytes at the end of what was read.
type zeroCounter struct {
	from  io.Reader
	zeros int
}

func (z *zeroCounter) Read(p []byte) (n int, err error) {
	n, err = z.from.Read(p)
	if rest := len(bytes.TrimRight(p[:n], "\x00")); rest > 0 {
		z.zeros = n - rest
	} else {
		z.zeros += n
	}
	return n, err
}

// extraction is the state of extract.
type extraction struct {
	root     *os.Root
	hasFiles bool
	omitted  map[string]bool    // devices and the like, which other names may be links to
	dirs     map[string]dirMeta // permissions and times of directories, set when nothing is created in them any more
}

type dirMeta struct {
	mode fs.FileMode
	time time.Time
}

// entry unpacks one entry. A later one replaces an earlier one of its name.
func (x *extraction) entry(h *tar.Header, content io.Reader) error {
	name := clean(h.Name)
	if name == "." {
		return nil
	}
	switch {
	case strings.HasPrefix(name, "../") || name == "..":
		return fmt.Errorf("the image has a file outside of its root: %q", h.Name)
	case len(name) > maxPath || strings.Count(name, "/") > maxDepth:
		return fmt.Errorf("the image has a path that is too long: %q…", name[:100])
	}
	x.hasFiles = true
	if err := x.makeParents(path.Dir(name)); err != nil {
		return err
	}
	mode := h.FileInfo().Mode().Perm()
	if h.Typeflag != tar.TypeDir {
		if err := x.remove(name); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		x.dirs[name] = dirMeta{mode | 0o700, h.ModTime}
		return x.makeDir(name)
	case tar.TypeReg:
		return x.file(name, mode, h.ModTime, content)
	case tar.TypeSymlink:
		return x.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if !x.omitted[clean(h.Linkname)] {
			return x.root.Link(clean(h.Linkname), name)
		}
		x.omitted[name] = true
		return nil
	}
	if slices.Contains([]byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeXGlobalHeader}, h.Typeflag) {
		x.omitted[name] = true
		return nil
	}
	return fmt.Errorf("%q is an entry of an unknown type", h.Name)
}

// Limits of a path: what the kernel takes, and more directories than any image has.
const (
	maxPath  = 3000
	maxDepth = 200
)

// clean returns a name in an archive, relative to the root.
func clean(name string) string { return path.Clean(strings.TrimLeft(name, "/")) }

// remove removes an earlier entry of a name.
func (x *extraction) remove(name string) error {
	fi, err := x.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		return x.root.RemoveAll(name)
	}
	return x.root.Remove(name)
}

// makeDir creates a directory; what had its name and is none gives way.
func (x *extraction) makeDir(name string) error {
	fi, err := x.root.Lstat(name)
	if err == nil && fi.IsDir() {
		return nil
	}
	if err == nil {
		err = x.root.Remove(name)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = x.root.Mkdir(name, 0o700)
	}
	return err
}

// makeParents creates the directories of an entry for which the archive has none. A symbolic link in the path is followed if it is
// relative and stays in the root; any other gives way to a directory.
func (x *extraction) makeParents(dir string) error {
	if dir == "." {
		return nil
	}
	if fi, err := x.root.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := x.makeParents(path.Dir(dir)); err != nil {
		return err
	}
	x.dirs[dir] = dirMeta{0o755, time.Time{}}
	return x.makeDir(dir)
}

// file writes one file.
func (x *extraction) file(name string, mode fs.FileMode, modified time.Time, content io.Reader) (err error) {
	f, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return x.root.Chtimes(name, modified, modified) // some programs compare times of their files
}

// finishDirs sets the permissions and times of the directories, inner ones first, since it changes the times of those around.
func (x *extraction) finishDirs() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(x.dirs))) {
		fi, err := x.root.Lstat(name)
		if err != nil || !fi.IsDir() {
			continue // a later entry has replaced it
		}
		d := x.dirs[name]
		if err := x.root.Chmod(name, d.mode); err != nil {
			return err
		}
		if !d.time.IsZero() {
			if err := x.root.Chtimes(name, d.time, d.time); err != nil {
				return err
			}
		}
	}
	return nil
}
