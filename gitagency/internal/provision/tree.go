package provision

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// TreeCopy describes the copy of a whole directory.
type TreeCopy struct {
	From string                 // required: canonical path
	Into string                 // required: canonical path of an empty directory
	Omit func(path string) bool // paths relative to From of which only an empty file or directory is made, such as mount points; may be nil
}

// Copy copies all files of a directory, those of git directories too, with their permissions and modification times; the owner can
// read all copies. Symbolic links are copied as they are, and files that disappear meanwhile are left out. It returns the paths of
// named pipes, sockets and devices, which are not copied. The error is an *UnreadableError if the user may not read a file. After an
// error some of the files may have been copied.
func (t TreeCopy) Copy(ctx context.Context) (special []string, err error) {
	from, err := openTop(t.From)
	if err != nil {
		return nil, unreadable(".", err)
	}
	defer from.Close()
	into, err := openTop(t.Into)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	before, err := from.Stat()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := copier{ctx: ctx, fail: cancel, patterns: &patterns{}, idle: make(chan struct{}, runtime.GOMAXPROCS(0)-1), whole: true, omit: t.Omit}
	if err = c.copyContent(from, into); err == nil {
		err = c.finishDir(into, before)
	}
	slices.Sort(c.result.Special)
	return c.result.Special, err
}

// makeEmpty makes an empty file or directory in the place of an omitted one.
func makeEmpty(into *guard.DirHandle, name string, as fs.FileMode) error {
	if as.IsDir() {
		dir, err := into.Mkdir(name)
		if err != nil {
			return err
		}
		return errors.Join(dir.Chmod(0o755), dir.Close())
	}
	f, err := into.CreateFile(name, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
