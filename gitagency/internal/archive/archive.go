// Package archive keeps the files of a tree that no commit can hold in a tar file, and writes them into a tree again. It
// owns the format of that file.
//
// Trees are read and written through directory handles only: no path is followed out of a tree, no special file is
// opened, and neither the length of a path nor the depth of a tree is limited by the system. It never decides which
// files are worth keeping, and knows nothing of git.
//
// The format is POSIX pax, so that tar can list and extract an archive:
//
//   - An entry is named <section>/<path>; the bytes of a path are kept as they are.
//   - The entry <section>/ says that the section holds all of its tree. Without it, it holds parts.
//   - Of two entries with the same name the later one counts.
//   - Sparse files are stored without their holes, in GNU's sparse format 0.1.
//   - Hard links within one section are links. A socket, which tar has no type for, is a named pipe with the record
//     GITAGENCY.socket.
package archive

import (
	"errors"
	"fmt"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Section is a tree, or parts of it, in an archive.
type Section struct {
	Name  string           // required: one path component
	Top   *guard.DirHandle // required: the tree
	Files []File           // from Scan of Top
	Whole bool             // Files are all of the tree
}

// Loss is a file that an archive does not hold, or that was not restored from one.
type Loss struct {
	Path string // with the section
	Why  string
	Size int64 // bytes that it would need in the archive; 0 where that is not the reason
}

func (l Loss) String() string { return guard.QuotePath(l.Path) + ": " + l.Why }

// TooLargeError reports an archive that would be larger than allowed.
type TooLargeError struct {
	Size, Limit int64
	Largest     Loss // its largest file
	Files       int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("an archive of %d files would have %s, more than the limit of %s; the largest is %s with %s",
		e.Files, FormatSize(e.Size), FormatSize(e.Limit), guard.QuotePath(e.Largest.Path), FormatSize(e.Largest.Size))
}

// UnreadableError reports files that cannot be read, so that no archive can hold them.
type UnreadableError struct{ Files []Loss }

func (e *UnreadableError) Error() string {
	text := "no archive can hold " + e.Files[0].String()
	if n := len(e.Files) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// InvalidError reports an archive that this package did not write, or that was damaged.
type InvalidError struct {
	Path string // of the archive
	Err  error
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is not a valid archive: %v", e.Path, e.Err)
}

func (e *InvalidError) Unwrap() error { return e.Err }

// FormatSize formats a number of bytes for messages.
func FormatSize(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// cursor opens directories of a tree, one at a time. It goes on from the directory that it opened last where that is a
// parent, so that going down a deep tree costs one open per level, and it holds two descriptors at most.
type cursor struct {
	top  *guard.DirHandle
	at   *guard.DirHandle // nil: none is open yet
	path string           // of at, relative to top
	open func(in *guard.DirHandle, name string) (*guard.DirHandle, error)
}

// dir returns the directory at a clean path relative to the top. It is valid until the next call.
func (c *cursor) dir(to string) (*guard.DirHandle, error) {
	if to == "." {
		return c.top, c.close() // an entry of the top that is replaced may be the directory that is open
	}
	rest := to
	switch {
	case c.at != nil && to == c.path:
		return c.at, nil
	case c.at != nil && len(to) > len(c.path) && to[:len(c.path)] == c.path && to[len(c.path)] == '/':
		rest = to[len(c.path)+1:]
	default:
		if err := c.close(); err != nil {
			return nil, err
		}
	}
	for rest != "" {
		name := rest
		rest = ""
		for i := range len(name) {
			if name[i] == '/' {
				name, rest = name[:i], name[i+1:]
				break
			}
		}
		in := c.at
		if in == nil {
			in, c.path = c.top, ""
		}
		next, err := c.open(in, name)
		if err != nil {
			return nil, err
		}
		here := path.Join(c.path, name)
		if err := c.close(); err != nil {
			return nil, errors.Join(err, next.Close())
		}
		c.at, c.path = next, here
	}
	return c.at, nil
}

// close closes the directory that is open.
func (c *cursor) close() error {
	if c.at == nil {
		return nil
	}
	err := c.at.Close()
	c.at, c.path = nil, ""
	return err
}
