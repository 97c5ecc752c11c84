// Package sources reads the files to upload into a sandbox: the trees named on the command line, and JSON. It must never
// follow a symlink that another user put in place of a listed file, or write to a sandbox.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency"
)

// Plan is the list of files to upload for sources that were named on the command line.
type Plan struct {
	Files []gitagency.File

	sandbox    *gitagency.Sandbox
	roots      []*os.Root        // source directories that the files are read from
	namedLinks map[string]string // symlinks named on the command line, by destination
}

// NewPlan lists everything that copying the sources to a destination in the sandbox creates.
func NewPlan(ctx context.Context, sandbox *gitagency.Sandbox, sources []string, dest string) (*Plan, error) {
	p := &Plan{sandbox: sandbox, namedLinks: map[string]string{}}
	if err := p.addSources(ctx, sources, dest); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plan) addSources(ctx context.Context, sources []string, dest string) error {
	inside, isDir, err := p.sandbox.Locate(ctx, dest)
	if err != nil {
		return err
	}
	into := isDir || len(sources) > 1 || strings.HasSuffix(dest, "/") || strings.HasSuffix(dest, "/.")
	for _, source := range sources {
		to := inside
		if base := filepath.Base(source); into && !namesContents(source, base) {
			to = path.Join(inside, base)
		}
		if err := p.checkNamed(source, to); err != nil {
			return err
		}
		if err := p.addTree(ctx, source, to); err != nil {
			return err
		}
	}
	return nil
}

// checkNamed checks a source that was named on the command line. The user may mean the target of a symlink, so one
// that dangles or leads to something that cannot be uploaded is refused; otherwise it would only seem to have been
// copied.
func (p *Plan) checkNamed(source, to string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return &Error{err}
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	p.namedLinks[to] = source
	switch target, err := os.Stat(source); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP):
		return refuseSource(source, "is a symbolic link without a target")
	case err != nil:
		return &Error{err}
	case !target.IsDir() && !target.Mode().IsRegular():
		return refuseSource(source, "is "+fileKind(target.Mode())+"; only regular files, directories and symbolic links can be copied")
	}
	return nil
}

// fileKind names the type of a file that is neither a regular file nor a directory.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

// refuseSource returns the error for a source that cannot be uploaded.
func refuseSource(source, why string) error {
	return &Error{&gitagency.ConfinementError{Path: source, Why: why}}
}

// namesContents reports whether a source means the contents of a directory, as in "put <id> . dir", and not a
// directory with a name.
func namesContents(source, base string) bool {
	return base == "." || base == ".." || base == "/" || strings.HasSuffix(source, "/.") || strings.HasSuffix(source, "/..")
}

// addTree adds a source and everything below it. No file is opened before all sources were listed, since a source may
// be in the sandbox.
func (p *Plan) addTree(ctx context.Context, source, to string) error {
	if err := checkSelfCopy(p.sandbox, source); err != nil {
		return err
	}
	below, err := p.openSource(source)
	if err != nil {
		return &Error{err}
	}
	err = below.walk(func(name, rel string, info fs.FileInfo) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		file := gitagency.File{Path: path.Join(to, rel), Mode: info.Mode().Type() | info.Mode().Perm()}
		switch file.Mode.Type() {
		case 0:
			file.Open = func() (io.ReadCloser, error) { return below.open(name, rel, info) }
		case fs.ModeSymlink:
			target, err := below.readlink(name, rel)
			if err != nil {
				return err
			}
			file.Content = []byte(target)
		case fs.ModeDir:
		default:
			return refuseSource(name, "is "+fileKind(file.Mode)+"; only regular files, directories and symbolic links can be copied")
		}
		p.Files = append(p.Files, file)
		return nil
	})
	if err != nil {
		return &Error{err}
	}
	return nil
}

// openSource opens a source; a directory is opened as an os.Root. Other users may write there and replace a listed
// file by a symlink, and must not make us copy a file that they cannot read themselves.
func (p *Plan) openSource(source string) (*sourceTree, error) {
	info, err := os.Lstat(source)
	if err != nil || !info.IsDir() {
		return &sourceTree{source: source, info: info}, err
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return nil, err
	}
	p.roots = append(p.roots, root)
	if now, err := root.Stat("."); err != nil || !os.SameFile(info, now) {
		return nil, errors.Join(err, changedError(source))
	}
	return &sourceTree{source, info, root}, nil
}

// Close closes the source directories.
func (p *Plan) Close() {
	for _, root := range p.roots {
		_ = root.Close() // opened for reading only
	}
}

// FindLink finds a symlink of the plan by its destination. source is its path if it was named on the command line.
func (p *Plan) FindLink(dest string) (source string, found bool) {
	found = slices.ContainsFunc(p.Files, func(f gitagency.File) bool { return f.Path == dest && f.Mode.Type() == fs.ModeSymlink })
	return p.namedLinks[dest], found
}

// sourceTree is a source and everything below it.
type sourceTree struct {
	source string
	info   fs.FileInfo
	root   *os.Root // nil unless the source is a directory
}

// walk visits the source and all files below it, each with its name as the user would write it and its path relative
// to the source.
func (t *sourceTree) walk(visit func(name, rel string, info fs.FileInfo) error) error {
	if t.root == nil {
		return visit(t.source, ".", t.info)
	}
	return fs.WalkDir(t.root.FS(), ".", func(rel string, _ fs.DirEntry, err error) error {
		name := t.source
		if rel != "." {
			name = filepath.Join(t.source, rel)
		}
		if err != nil {
			return withPath(name, err)
		}
		info, err := t.root.Lstat(rel)
		if err != nil {
			return withPath(name, err)
		}
		return visit(name, rel, info)
	})
}

func (t *sourceTree) readlink(name, rel string) (string, error) {
	if t.root == nil {
		return os.Readlink(name)
	}
	target, err := t.root.Readlink(rel)
	return target, withPath(name, err)
}

// open opens a file for reading. It refuses a file that was replaced since it was listed.
func (t *sourceTree) open(name, rel string, listed fs.FileInfo) (_ io.ReadCloser, err error) {
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	var f *os.File
	if t.root == nil {
		f, err = os.OpenFile(name, flags, 0)
	} else {
		f, err = t.root.OpenFile(rel, flags, 0)
	}
	if err != nil {
		return nil, &Error{withPath(name, err)}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("is no longer a regular file")}
	case !os.SameFile(info, listed):
		err = changedError(name)
	}
	if err != nil {
		return nil, &Error{errors.Join(err, f.Close())}
	}
	return f, nil
}

// changedError reports a source that was replaced while it was read.
func changedError(name string) error {
	return &fs.PathError{Op: "read", Path: name, Err: errors.New("was replaced while it was read")}
}

// withPath replaces the path in an error by name, which the user knows.
func withPath(name string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		return &fs.PathError{Op: inner.Op, Path: name, Err: inner.Err}
	}
	return err
}

// checkSelfCopy refuses a source that contains the sandbox.
func checkSelfCopy(sandbox *gitagency.Sandbox, source string) error {
	full, err := filepath.Abs(source)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	if err != nil {
		return nil // reading the source reports the error
	}
	if tree := sandbox.WorkDir(); full == tree || full == "/" || strings.HasPrefix(tree, full+"/") {
		return fmt.Errorf("%s contains the sandbox that it would be copied into", source)
	}
	return nil
}

// Error reports a source that could not be read; the sandbox is not involved.
type Error struct{ Err error }

func (e *Error) Error() string {
	var inner *fs.PathError
	if errors.As(e.Err, &inner) { // leave out the name of the system call
		return inner.Path + ": " + inner.Err.Error()
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }
