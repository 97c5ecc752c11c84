package main

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

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) putCommand() *cli.Command {
	return &cli.Command{
		Name:  "put",
		Usage: "copy files into a sandbox, all or nothing",
		UsageText: `git agency put <id> <src>... <dest>
   or: git agency put <id> --json (-|<file>)`,
		Description: `Copies files and directories into the sandbox as cp -r does: into <dest> if it is a directory, ends in a
slash, or there are several <src>; else <src> becomes <dest>. <dest> is relative to the sandbox, or an
absolute path in it; '.' is its top. Permissions are kept, symbolic links are copied as links, and existing
files are replaced. The copy is all or nothing.

Refused are paths and links that leave the sandbox, .git and .agency in any spelling, names with control
or invisible characters, and special files.

Exit status: 0 copied; 1 failed, nothing changed; 3 no such invocation; 4 broken; 5 refused for
safety, nothing changed; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: withLockTimeoutFlag("a discard of the sandbox", &cli.StringFlag{
			Name: "json", Usage: "read `FILE`, or standard input for -: [{\"path\", \"content\" or \"content_base64\", \"mode\"}]",
		}),
		Action: func(c *cli.Context) error {
			least, most := 3, -1
			if c.IsSet("json") {
				least, most = 1, 1
			}
			args, err := positionalArgs(c, least, most)
			if err != nil {
				return err
			}
			sandbox, err := t.openSandbox(c, args[0])
			if err != nil {
				return err
			}
			if c.IsSet("json") {
				files, err := readJSONFiles(c)
				if err != nil {
					return err
				}
				return withItemNumber(t.uploadFiles(c.Context, sandbox, files), files)
			}
			sources, dest := args[1:len(args)-1], args[len(args)-1]
			if slices.Contains(sources, "-") {
				return newUsageError(c, errors.New("'-' is no file; to put what standard input says use --json -, and ./- for a file of that name"))
			}
			found := copyPlan{sandbox: sandbox, namedLinks: map[string]string{}}
			defer found.close()
			if err := found.addSources(c.Context, sources, dest); err != nil {
				return err
			}
			return found.withLinkHint(t.uploadFiles(c.Context, sandbox, found.files))
		},
	}
}

// uploadFiles uploads files and reports how many.
func (t *tool) uploadFiles(ctx context.Context, sandbox *gitagency.Sandbox, files []gitagency.File) error {
	progress, end := t.startUploadProgress("putting files")
	err := sandbox.Upload(ctx, gitagency.UploadRequest{Files: files, Progress: progress})
	end()
	if err != nil {
		return &putError{err}
	}
	n := 0
	for _, f := range files {
		if !f.Mode.IsDir() {
			n++
		}
	}
	fmt.Fprintf(t.stderr, "put %s into %s\n", pluralize(n, "file", "files"), sandbox.ID)
	return nil
}

// copyPlan is the list of files to upload for sources that were named on the command line.
type copyPlan struct {
	sandbox    *gitagency.Sandbox
	files      []gitagency.File
	roots      []*os.Root        // source directories that the files are read from
	namedLinks map[string]string // symlinks named on the command line, by destination
}

// addSources adds everything that copying the sources to a destination in the sandbox creates.
func (f *copyPlan) addSources(ctx context.Context, sources []string, dest string) error {
	inside, isDir, err := f.sandbox.Locate(ctx, dest)
	if err != nil {
		return err
	}
	into := isDir || len(sources) > 1 || strings.HasSuffix(dest, "/") || strings.HasSuffix(dest, "/.")
	for _, source := range sources {
		to := inside
		if base := filepath.Base(source); into && !namesContents(source, base) {
			to = path.Join(inside, base)
		}
		if err := f.checkNamed(source, to); err != nil {
			return err
		}
		if err := f.addTree(ctx, source, to); err != nil {
			return err
		}
	}
	return nil
}

// checkNamed checks a source that was named on the command line. The user may mean the target of a symlink, so one
// that dangles or leads to something that cannot be uploaded is refused; otherwise it would only seem to have been
// copied.
func (f *copyPlan) checkNamed(source, to string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return &sourceError{err}
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	f.namedLinks[to] = source
	switch target, err := os.Stat(source); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP):
		return refuseSource(source, "is a symbolic link that leads to nothing")
	case err != nil:
		return &sourceError{err}
	case !target.IsDir() && !target.Mode().IsRegular():
		return refuseSource(source, "is "+fileKind(target.Mode())+", and only files, directories and links are put")
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
	return "no regular file"
}

// refuseSource returns the error for a source that cannot be uploaded.
func refuseSource(source, why string) error {
	return &sourceError{&gitagency.ConfinementError{Path: source, Why: why}}
}

// namesContents reports whether a source means the contents of a directory, as in "put <id> . dir", and not a
// directory with a name.
func namesContents(source, base string) bool {
	return base == "." || base == ".." || base == "/" || strings.HasSuffix(source, "/.") || strings.HasSuffix(source, "/..")
}

// addTree adds a source and everything below it. No file is opened before all sources were listed, since a source may
// be in the sandbox.
func (f *copyPlan) addTree(ctx context.Context, source, to string) error {
	if err := checkSelfCopy(f.sandbox, source); err != nil {
		return err
	}
	below, err := f.openSource(source)
	if err != nil {
		return &sourceError{err}
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
			return refuseSource(name, "is "+fileKind(file.Mode)+", and only files, directories and links are put")
		}
		f.files = append(f.files, file)
		return nil
	})
	if err != nil {
		return &sourceError{err}
	}
	return nil
}

// openSource opens a source; a directory is opened as an os.Root. Other users may write there and replace a listed
// file by a symlink, and must not make us copy a file that they cannot read themselves.
func (f *copyPlan) openSource(source string) (*sourceTree, error) {
	info, err := os.Lstat(source)
	if err != nil || !info.IsDir() {
		return &sourceTree{source: source, info: info}, err
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return nil, err
	}
	f.roots = append(f.roots, root)
	if now, err := root.Stat("."); err != nil || !os.SameFile(info, now) {
		return nil, errors.Join(err, changedError(source))
	}
	return &sourceTree{source, info, root}, nil
}

// close closes the source directories.
func (f *copyPlan) close() {
	for _, root := range f.roots {
		_ = root.Close() // opened for reading only
	}
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
		return nil, &sourceError{withPath(name, err)}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("is no regular file any more")}
	case !os.SameFile(info, listed):
		err = changedError(name)
	}
	if err != nil {
		return nil, &sourceError{errors.Join(err, f.Close())}
	}
	return f, nil
}

// changedError reports a source that was replaced while it was read.
func changedError(name string) error {
	return &fs.PathError{Op: "read", Path: name, Err: errors.New("is something else than it was a moment ago")}
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
		return fmt.Errorf("%s contains the sandbox that it would be put into", source)
	}
	return nil
}

// sourceError reports a source that could not be read; the sandbox is not involved.
type sourceError struct{ err error }

func (e *sourceError) Error() string {
	var inner *fs.PathError
	if errors.As(e.err, &inner) { // leave out the name of the system call
		return inner.Path + ": " + inner.Err.Error()
	}
	return e.err.Error()
}

func (e *sourceError) Unwrap() error { return e.err }

// putError marks an error in the sandbox.
type putError struct{ err error }

func (e *putError) Error() string { return e.err.Error() }
func (e *putError) Unwrap() error { return e.err }

// linkError reports a symlink that was refused.
type linkError struct {
	err    error
	source string // path of the link if it was named on the command line, else empty
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// withLinkHint turns an error about a symlink into a linkError.
func (f *copyPlan) withLinkHint(err error) error {
	var confined *gitagency.ConfinementError
	if errors.As(err, &confined) {
		for _, file := range f.files {
			if file.Path == confined.Path && file.Mode.Type() == fs.ModeSymlink {
				return &linkError{err, f.namedLinks[file.Path]}
			}
		}
	}
	return err
}
