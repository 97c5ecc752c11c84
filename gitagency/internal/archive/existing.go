package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"golang.org/x/sys/unix"
)

// existing is an archive that is to be extended.
type existing struct {
	file    *os.File
	end     int64             // offset of the trailer
	digests map[string][]byte // of the last entry of each name
	whole   map[string]bool   // sections that hold all of their tree
}

// openExisting reads the archive at a path; nil when there is none.
func openExisting(ctx context.Context, name string) (_ *existing, err error) {
	file, err := openArchive(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old := &existing{file: file, digests: map[string][]byte{}, whole: map[string]bool{}}
	err = readEntries(ctx, file, func(e *storedEntry) error {
		if isSection(e.Name) {
			old.whole[strings.TrimSuffix(e.Name, "/")] = true
		} else if old.digests[strings.TrimSuffix(e.Name, "/")], err = e.digest(); err != nil {
			return err
		}
		old.end = e.end()
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return old, nil
}

// openArchive opens an archive for reading, and never a symlink or a special file.
func openArchive(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &InvalidError{name, errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isSection reports whether a name is that of a section that holds all of its tree.
func isSection(name string) bool { return strings.IndexByte(name, '/') == len(name)-1 }

// storedEntry is an entry of an archive that is being read.
type storedEntry struct {
	*tar.Header
	file *os.File
	at   int64     // offset of its content in the file
	data []segment // of a sparse file
}

// readEntries calls visit for every entry of an archive. The reader of package tar does not read ahead, so that the
// offset of the file is that of the content.
func readEntries(ctx context.Context, file *os.File, visit func(*storedEntry) error) error {
	r := tar.NewReader(file)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &InvalidError{file.Name(), err}
		}
		e := &storedEntry{Header: h, file: file}
		if e.at, err = file.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
		if text, sparse := h.PAXRecords[sparseMap]; sparse && h.Typeflag == tar.TypeReg {
			if e.data, err = parseSegments(text, h.Size); err != nil {
				return &InvalidError{file.Name(), fmt.Errorf("%s: %w", guard.QuotePath(h.Name), err)}
			}
		}
		if h.Typeflag == tar.TypeReg {
			if fi, err := file.Stat(); err != nil {
				return err
			} else if e.storedBytes() > fi.Size()-e.at {
				return &InvalidError{file.Name(), fmt.Errorf("%s: %w", guard.QuotePath(h.Name), io.ErrUnexpectedEOF)}
			}
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}

// storedBytes is the number of bytes of content in the archive.
func (e *storedEntry) storedBytes() int64 {
	if e.Typeflag != tar.TypeReg {
		return 0
	}
	if e.data == nil {
		return e.Size
	}
	n := int64(0)
	for _, s := range e.data {
		n += s.length
	}
	return n
}

func (e *storedEntry) end() int64 { return e.at + e.storedBytes() + padding(e.storedBytes()) }

// content returns a reader of the stored content, which leaves the offset of the file alone.
func (e *storedEntry) content() io.Reader { return io.NewSectionReader(e.file, e.at, e.storedBytes()) }

// digest identifies the entry: two entries with the same digest restore the same file.
func (e *storedEntry) digest() ([]byte, error) {
	return digest(byte(e.Typeflag), e.PAXRecords[socketRecord] != "", fs.FileMode(e.Mode), e.Linkname, e.Size, e.data, e.content())
}

func digest(kind byte, socket bool, perm fs.FileMode, target string, size int64, data []segment, content io.Reader) ([]byte, error) {
	if kind != tar.TypeReg {
		size = 0
	}
	if kind == tar.TypeDir {
		perm = 0 // a scan grants its owner access
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%c %t %o %q %d %v\n", kind, socket, perm.Perm(), target, size, data)
	if _, err := io.Copy(sum, content); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}

// Covers reports whether sections have every file of the archive at a path as it is there. A missing archive has none.
func Covers(ctx context.Context, sections []Section, path string) (bool, error) {
	old, err := openExisting(ctx, path)
	if err != nil || old == nil {
		return err == nil, err
	}
	defer old.file.Close()
	w := &writer{ctx: ctx, Options: Options{Limit: math.MaxInt64, Force: true}}
	if err := w.plan(sections, old); err != nil {
		return false, err
	}
	changed := map[string]bool{}
	for _, e := range w.entries {
		changed[e.name] = true
	}
	for _, l := range w.result.Lost {
		changed[l.Path] = true
	}
	for _, s := range sections {
		for _, f := range s.Files {
			if name := s.Name + "/" + f.Path; !changed[name] {
				delete(old.digests, name)
			}
		}
	}
	return len(old.digests) == 0, nil
}

// holds reports whether an archive has the same entry already.
func (old *existing) holds(e entry) (bool, error) {
	if old == nil || old.digests[e.name] == nil {
		return false, nil
	}
	kind, target := typeOf(e.Info.Mode), e.Target
	var content io.Reader = bytes.NewReader(nil)
	switch {
	case e.linkTo != "":
		kind, target = tar.TypeLink, e.linkTo
	case e.Info.Mode.IsRegular():
		dir, err := e.in.OpenPathForce(path.Dir(e.Path))
		if err != nil {
			return false, err
		}
		defer dir.Close()
		file, err := dir.OpenFileForce(path.Base(e.Path))
		if err != nil {
			return false, err
		}
		defer file.Close()
		content = e.content(file)
	}
	sum, err := digest(kind, e.Info.Mode&fs.ModeSocket != 0, e.Info.Mode, target, e.Info.Size, e.data, content)
	return err == nil && bytes.Equal(sum, old.digests[e.name]), err
}
