package upload

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// File is a file, directory or symlink to put into a tree; see the public File of the library.
type File struct {
	Path    string
	Content []byte
	Open    func() (io.ReadCloser, error)
	Mode    fs.FileMode
}

// batch is the tree of all files of one put.
type batch struct {
	tree      *guard.Tree
	root      *node
	fileCount int // nodes that are not directories

	resolved map[string]string // named directory -> its path with symlinks resolved
	missing  map[string]bool   // resolved directories that are still to be created
	linkDirs map[string]string // path of a symlink in the tree -> directory named through it
}

// node is one path of a batch.
type node struct {
	name        string
	path        string // relative to the tree, symlinks resolved
	givenPath   string // as the caller spelled it
	file        *File  // nil for a directory that is only a parent of others
	isDir       bool
	children    map[string]*node
	sortedNames []string // keys of children

	identity identity // set once staged
}

// perm returns the final permissions of a node.
func (n *node) perm() fs.FileMode {
	switch {
	case n.file != nil && n.file.Mode.Perm() != 0:
		return n.file.Mode.Perm()
	case n.isDir:
		return 0o755
	}
	return 0o644
}

// ownerRestricted reports whether the final mode of a directory keeps even its owner from creating entries in it.
func (n *node) ownerRestricted() bool { return n.isDir && n.perm()&0o700 != 0o700 }

// subtree yields a node and everything below it, parents first.
func (n *node) subtree(yield func(*node) bool) { n.walk(yield) }

func (n *node) walk(yield func(*node) bool) bool {
	if !yield(n) {
		return false
	}
	for _, name := range n.sortedNames {
		if !n.children[name].walk(yield) {
			return false
		}
	}
	return true
}

// lookup returns the node at a path below, or nil.
func (n *node) lookup(path string) *node {
	for name := range strings.SplitSeq(path, "/") {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// newBatch checks the names of the files, and that no file of the batch is in the way of another. It reads the tree
// only to resolve directories.
func newBatch(tree *guard.Tree, files []File) (*batch, error) {
	b := &batch{
		tree: tree, root: &node{name: ".", path: ".", givenPath: ".", isDir: true, children: map[string]*node{}},
		resolved: map[string]string{}, missing: map[string]bool{}, linkDirs: map[string]string{},
	}
	paths := make([]string, len(files))
	for i := range files { // check all names before reading the tree
		var err error
		if paths[i], err = checkFile(&files[i]); err != nil {
			return nil, err
		}
	}
	for i := range files {
		if err := b.addFile(&files[i], paths[i]); err != nil {
			return nil, err
		}
	}
	for at, dir := range b.linkDirs {
		n := b.root.lookup(at)
		if n != nil && n.isDir {
			return nil, &fs.PathError{Op: "enter", Path: n.givenPath, Err: syscall.ENOTDIR}
		}
		if n != nil {
			return nil, &fs.PathError{Op: "put", Path: n.givenPath, Err: errors.New("would replace a symbolic link in the path of other files, " + dir)}
		}
	}
	for n := range b.root.subtree {
		n.sortedNames = make([]string, 0, len(n.children))
		for name := range n.children {
			n.sortedNames = append(n.sortedNames, name)
		}
		slices.Sort(n.sortedNames)
	}
	for n := range b.root.subtree {
		if n.file != nil && n.file.Mode.Type() == fs.ModeSymlink {
			if err := b.checkLinkPath(n); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// checkFile checks a file on its own and returns its cleaned path.
func checkFile(f *File) (string, error) {
	clean, err := guard.CleanPath(f.Path)
	if err != nil {
		return "", err
	}
	kind := f.Mode.Type()
	switch {
	case kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink:
		return "", &guard.ConfinementError{Path: f.Path, Why: "is " + guard.DescribeType(f.Mode)}
	case f.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
		return "", &guard.ConfinementError{Path: f.Path, Why: "has permissions beyond 0777"}
	case kind != fs.ModeDir && clean != "." && strings.HasSuffix(f.Path, "/"):
		return "", &guard.ConfinementError{Path: f.Path, Why: "ends in a slash, but is not a directory"}
	case kind != fs.ModeDir && (clean == "." || strings.HasSuffix(f.Path, "/.")):
		return "", &fs.PathError{Op: "put", Path: f.Path, Err: syscall.EISDIR}
	}
	return clean, nil
}

// addFile inserts a file into the tree of the batch.
func (b *batch) addFile(f *File, clean string) error {
	dir := f.Mode.IsDir()
	if clean == "." {
		return nil // the top directory exists
	}
	parent, err := b.resolveDir(path.Dir(clean))
	var confined *guard.ConfinementError
	if errors.As(err, &confined) {
		return &guard.ConfinementError{Path: f.Path, Why: "goes through " + guard.QuotePath(confined.Path) + ", which " + confined.Why}
	}
	if err != nil {
		return err
	}
	at := path.Join(parent, path.Base(clean))
	if at != clean && pathProblem(at) != "" { // resolving symlinks may have made it too long
		return &guard.ConfinementError{Path: f.Path, Why: "leads to " + guard.QuotePath(at) + ", which " + pathProblem(at)}
	}
	n := b.root
	names := strings.Split(at, "/")
	for i, name := range names {
		switch {
		case !n.isDir && n.file.Mode.Type() == fs.ModeSymlink:
			return &guard.ConfinementError{Path: f.Path, Why: "goes through a symbolic link of the same put"}
		case !n.isDir:
			return &fs.PathError{Op: "put", Path: n.givenPath, Err: errors.New("is a file, but also a parent directory of " + f.Path)}
		}
		last := i == len(names)-1
		next := n.children[name]
		if next == nil {
			next = &node{name: name, path: path.Join(n.path, name), givenPath: f.Path, isDir: !last || dir}
			if next.isDir {
				next.children = map[string]*node{}
			}
			n.children[name] = next
			if !next.isDir {
				b.fileCount++
			}
		} else if last && !(dir && next.isDir) {
			return &fs.PathError{Op: "put", Path: f.Path, Err: errors.New("occurs twice")}
		}
		n = next
	}
	n.file = f
	if f.Mode.Type() == fs.ModeSymlink {
		return checkLinkTarget(n)
	}
	return nil
}

// checkAgainstTree checks the batch against the current files of the tree and returns the nodes that the put will
// create: all but the directories that exist.
func (b *batch) checkAgainstTree(top *guard.DirHandle) (made []*node, err error) {
	err = b.walkExisting(top, func(_ *node, at *guard.DirHandle, child *node, there *guard.Info) error {
		switch {
		case there == nil:
			made = slices.AppendSeq(made, child.subtree)
		case !child.isDir:
			made = append(made, child)
			return checkReplaceable(child.path, there.Mode)
		default:
			return guard.CheckIsDir(child.path, there.Mode)
		}
		return nil
	})
	return made, err
}

// walkExisting visits the children of all directories of the batch that exist in the tree, together with the current
// entry of the same name, nil if there is none. It keeps one directory open at a time, at any depth.
func (b *batch) walkExisting(top *guard.DirHandle, visit func(n *node, at *guard.DirHandle, child *node, there *guard.Info) error) (err error) {
	c := cursor{top: top, openPath: (*guard.DirHandle).OpenPath}
	defer func() { err = errors.Join(err, c.close()) }()
	stack := []*node{b.root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		at, err := c.open(n.path)
		if err != nil {
			return err
		}
		for _, name := range n.sortedNames {
			child := n.children[name]
			fi, lookErr := at.Lstat(name)
			there := &fi
			if errors.Is(lookErr, fs.ErrNotExist) {
				there, lookErr = nil, nil
			}
			if lookErr != nil {
				return lookErr
			}
			if err := visit(n, at, child, there); err != nil {
				return err
			}
			if there != nil && child.isDir {
				stack = append(stack, child)
			}
		}
	}
	return nil
}

// checkReplaceable returns an error if an entry of this type may not be replaced by a file. A symlink is replaced
// like a file.
func checkReplaceable(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return nil
	case mode.IsDir():
		return &fs.PathError{Op: "put", Path: path, Err: syscall.EISDIR}
	default:
		return &guard.ConfinementError{Path: path, Why: "is " + guard.DescribeType(mode)}
	}
}

// pathProblem describes why a path is refused; it is empty for an allowed path.
func pathProblem(path string) string {
	var confined *guard.ConfinementError
	if errors.As(guard.CheckPath(path), &confined) {
		return confined.Why
	}
	return ""
}

// withPath rewrites an error to name the path as the caller gave it.
func withPath(op, path string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		return &fs.PathError{Op: op, Path: path, Err: inner.Err}
	}
	return err
}
