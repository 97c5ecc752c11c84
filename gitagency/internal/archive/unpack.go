package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Sections lists the sections of the archive at a path, and whether each holds all of its tree. A missing archive has
// none.
func Sections(ctx context.Context, name string) (map[string]bool, error) {
	file, err := openArchive(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sections := map[string]bool{}
	err = readEntries(ctx, file, func(e *storedEntry) error {
		section, _, _ := strings.Cut(e.Name, "/")
		sections[section] = sections[section] || isSection(e.Name)
		return nil
	})
	return sections, err
}

// UnpackRequest says what to write where.
type UnpackRequest struct {
	Section string           // required
	Top     *guard.DirHandle // required: the tree to write to

	// Rename returns another name for an entry directly in the tree; an empty name leaves it out. It may be nil.
	Rename func(name string) string

	// LeaveOut reports whether an entry is not written. It may be nil.
	LeaveOut func(path string) bool

	// Rewrite returns the content to write for a small file. It may be nil.
	Rewrite func(path string, content []byte) []byte
}

// maxRewrite is the size up to which Rewrite is asked.
const maxRewrite = 1 << 16

// Unpack writes a section of the archive at a path into a tree, over what is there: an entry replaces anything of the
// same name, but a directory is merged. Nothing outside of the tree is reached, whatever the archive says. The owner
// gets access to everything; setuid, setgid and sticky bits are not set. It returns the entries that it cannot create:
// sockets, devices, and hard links to entries that are missing.
func Unpack(ctx context.Context, name string, req UnpackRequest) (skipped []Loss, err error) {
	file, err := openArchive(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	u := &unpacker{ctx: ctx, UnpackRequest: req, tree: cursor{top: req.Top, open: makeDir}}
	defer func() { err = errors.Join(err, u.tree.close()) }()
	err = readEntries(ctx, file, func(e *storedEntry) error {
		section, inside, _ := strings.Cut(e.Name, "/")
		if section != req.Section || inside == "" {
			return nil
		}
		at, err := u.place(inside)
		if err == nil && at != "" && (req.LeaveOut == nil || !req.LeaveOut(at)) {
			err = u.unpackEntry(e, at)
		}
		if err != nil {
			return fmt.Errorf("unpack %s from %s: %w", guard.QuotePath(e.Name), name, err)
		}
		return nil
	})
	return u.skipped, err
}

type unpacker struct {
	ctx context.Context
	UnpackRequest
	tree    cursor
	skipped []Loss
}

// place checks the path of an entry, and returns where it goes; empty if it is left out.
func (u *unpacker) place(inside string) (string, error) {
	inside = strings.TrimSuffix(inside, "/")
	for part := range strings.SplitSeq(inside, "/") {
		if part == "" || part == "." || part == ".." || strings.IndexByte(part, 0) >= 0 {
			return "", fmt.Errorf("path %s", guard.QuotePath(inside))
		}
	}
	if u.Rename == nil {
		return inside, nil
	}
	first, rest, below := strings.Cut(inside, "/")
	if first = u.Rename(first); first == "" || !below {
		return first, nil
	}
	return first + "/" + rest, nil
}

// makeDir opens a directory. It creates a missing one, and replaces whatever else has its name.
func makeDir(in *guard.DirHandle, name string) (*guard.DirHandle, error) {
	fi, err := in.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case fi.Mode.IsDir():
		return in.OpenDirForce(name)
	default:
		if err := in.Remove(name); err != nil {
			return nil, err
		}
	}
	dir, err := in.Mkdir(name)
	if err != nil {
		return nil, err
	}
	if err := dir.Chmod(0o755); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func (u *unpacker) unpackEntry(e *storedEntry, at string) error {
	if e.Typeflag == tar.TypeDir {
		dir, err := u.tree.dir(at)
		if err != nil {
			return err
		}
		return dir.Chmod(fs.FileMode(e.Mode).Perm() | 0o700)
	}
	if kind := describeUnsupported(e); kind != "" {
		u.skipped = append(u.skipped, Loss{Path: at, Why: kind})
		return nil
	}
	if e.Typeflag == tar.TypeLink {
		return u.link(e, at)
	}
	dir, err := u.tree.dir(path.Dir(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	if err := dir.RemoveAll(name); err != nil {
		return err
	}
	switch e.Typeflag {
	case tar.TypeReg:
		return u.writeFile(dir, name, at, e)
	case tar.TypeSymlink:
		return dir.Symlink(e.Linkname, name)
	case tar.TypeFifo:
		return dir.Mkfifo(name, fs.FileMode(e.Mode).Perm()|0o600)
	}
	return fmt.Errorf("type %q", e.Typeflag)
}

// describeUnsupported names the type of an entry that cannot be created again; empty for all others.
func describeUnsupported(e *storedEntry) string {
	switch {
	case e.PAXRecords[socketRecord] != "":
		return "a socket"
	case e.Typeflag == tar.TypeChar || e.Typeflag == tar.TypeBlock:
		return "a device"
	}
	return ""
}

// link creates a hard link to an entry that was unpacked before. It needs two directories, so that it copies the handle
// of the first.
func (u *unpacker) link(e *storedEntry, at string) error {
	section, inside, _ := strings.Cut(e.Linkname, "/")
	target, err := u.place(inside)
	if err != nil || section != u.Section || target == "" {
		return errors.Join(err, fmt.Errorf("link to %s", guard.QuotePath(e.Linkname)))
	}
	if target == at {
		return nil
	}
	skip := func() error {
		u.skipped = append(u.skipped, Loss{Path: at, Why: "a hard link to " + guard.QuotePath(target) + ", which the archive does not hold"})
		return nil
	}
	from, err := u.Top.OpenPath(path.Dir(target))
	if errors.Is(err, fs.ErrNotExist) {
		return skip()
	}
	if err != nil {
		return err
	}
	defer from.Close()
	if fi, err := from.Lstat(path.Base(target)); errors.Is(err, fs.ErrNotExist) {
		return skip()
	} else if err != nil {
		return err
	} else if !fi.Mode.IsRegular() {
		return fmt.Errorf("link to %s, which is %s", guard.QuotePath(e.Linkname), guard.DescribeType(fi.Mode))
	}
	dir, err := u.tree.dir(path.Dir(at))
	if err != nil {
		return err
	}
	if err := dir.RemoveAll(path.Base(at)); err != nil {
		return err
	}
	return from.Link(path.Base(target), dir, path.Base(at))
}

// writeFile creates a file with the content of an entry.
func (u *unpacker) writeFile(dir *guard.DirHandle, name, at string, e *storedEntry) (err error) {
	content := e.content()
	if u.Rewrite != nil && e.data == nil && e.Size <= maxRewrite {
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		content = bytes.NewReader(u.Rewrite(at, data))
	}
	file, err := dir.CreateFile(name, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	content = contextReader{u.ctx, content}
	if e.data == nil {
		if _, err := io.Copy(file, content); err != nil {
			return err
		}
	} else if err := writeSegments(file, content, e); err != nil {
		return err
	}
	return file.Chmod(fs.FileMode(e.Mode).Perm() | 0o600)
}

// writeSegments writes the data of a sparse file, and leaves its holes.
func writeSegments(file *os.File, content io.Reader, e *storedEntry) error {
	if err := file.Truncate(e.Size); err != nil {
		return err
	}
	for _, s := range e.data {
		if _, err := io.CopyN(io.NewOffsetWriter(file, s.offset), content, s.length); err != nil {
			return err
		}
	}
	return nil
}
