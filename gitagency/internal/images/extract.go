package images

import (
	"archive/tar"
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
	x := extraction{root: root, dirs: map[string]dirMeta{}}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
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

// extraction is the state of extract.
type extraction struct {
	root *os.Root
	dirs map[string]dirMeta // permissions and times of directories, set when nothing is created in them any more
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
	if strings.HasPrefix(name, "../") || name == ".." {
		return fmt.Errorf("the image has a file outside of its root: %q", h.Name)
	}
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
		return x.root.Link(clean(h.Linkname), name)
	}
	if slices.Contains([]byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeXGlobalHeader}, h.Typeflag) {
		return nil
	}
	return fmt.Errorf("%q is an entry of an unknown type", h.Name)
}

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

// makeParents creates the directories of an entry for which the archive has none. Symbolic links in the path are followed
// within the root.
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
