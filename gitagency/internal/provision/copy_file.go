package provision

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"golang.org/x/sys/unix"
)

// chunk is the number of bytes that are copied before the context is checked again.
const chunk = 64 << 20

// copyFile copies a regular file: it shares the blocks where the file system can, else the kernel copies the data.
func (c *copier) copyFile(from, into *guard.DirHandle, name string) (err error) {
	source, err := from.OpenFile(name)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return unreadable(path.Join(from.Path, name), err)
	}
	defer source.Close()
	fi, err := guard.Fstat(source)
	if err != nil {
		return err
	}
	target, err := into.CreateFile(name, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // a tracked file
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, target.Close()); err == nil {
			c.count(fi.Size)
		}
	}()
	if err := c.copyData(target, source, fi); err != nil {
		return err
	}
	if err := target.Chmod(c.permissions(fi.Mode, 0o400)); err != nil {
		return err
	}
	return into.SetModified(name, fi.Modified)
}

func (c *copier) copyData(target, source *os.File, fi guard.Info) error {
	if fi.Size == 0 {
		return nil
	}
	if !c.noClone.Load() {
		if durable.CloneFile(int(target.Fd()), int(source.Fd())) == nil {
			return nil
		}
		c.noClone.Store(true) // both trees are mostly on one file system each
	}
	if fi.Allocated >= fi.Size {
		return c.copyRange(target, source, fi.Size)
	}
	return c.copySparse(target, source, fi.Size)
}

// copyRange copies up to size bytes from the current offset. A file that has become shorter is no error.
func (c *copier) copyRange(target, source *os.File, size int64) error {
	for size > 0 {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		n, err := io.CopyN(target, source, min(size, chunk))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// copySparse copies the data of a file without its holes.
func (c *copier) copySparse(target, source *os.File, size int64) error {
	for at := int64(0); at < size; {
		from, err := source.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			from = at // the file system does not tell
		}
		to, err := source.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			to = size
		}
		if to = min(to, size); to > from {
			if _, err := source.Seek(from, io.SeekStart); err != nil {
				return err
			}
			if _, err := target.Seek(from, io.SeekStart); err != nil {
				return err
			}
			if err := c.copyRange(target, source, to-from); err != nil {
				return err
			}
		}
		at = max(to, from+1)
	}
	return target.Truncate(size)
}
