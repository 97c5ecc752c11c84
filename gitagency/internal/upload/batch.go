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
			return nil, &fs.PathError{Op: "put", Path: n.givenPath, Err: errors.New("takes the place of a link that leads to others of them, " + dir)}
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
		return "", &guard.ConfinementError{Path: f.Path, Why: "ends like the name of a directory, and is a file"}
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
			return &guard.ConfinementError{Path: f.Path, Why: "goes through a symbolic link that is put along with it"}
		case !n.isDir:
			return &fs.PathError{Op: "put", Path: n.givenPath, Err: errors.New("is a file, and a directory of " + f.Path)}
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
			return &fs.PathError{Op: "put", Path: f.Path, Err: errors.New("is there twice")}
		}
		n = next
	}
	n.file = f
	if f.Mode.Type() == fs.ModeSymlink {
		return checkLinkTarget(n)
	}
	return nil
}

// linkError returns the error for a refused target of a symbolic link.
func linkError(n *node, why string) error {
	return &guard.ConfinementError{Path: n.givenPath, Why: "is a symbolic link to " + guard.QuotePath(string(n.file.Content)) + ", which " + why}
}

// checkLinkPath follows a symbolic link through all symlinks of the batch and of the tree, and makes sure that it
// stays inside at every step.
func (b *batch) checkLinkPath(n *node) error {
	const most = 40 // symlinks; the kernel follows no more
	at, way := parentNames(n.path), strings.Split(string(n.file.Content), "/")
	for links := 0; len(way) > 0; {
		name := way[0]
		way = way[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && len(at) == 0:
			return linkError(n, "leads out of the sandbox")
		case name == "..":
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clip(at), name)
		target, isLink, err := b.linkTargetAt(strings.Join(at, "/"))
		if err != nil {
			return err
		}
		if !isLink {
			continue
		}
		if links++; links > most {
			return linkError(n, "leads in a circle")
		}
		at = at[:len(at)-1]
		if below, inside := strings.CutPrefix(target, b.tree.Path+"/"); inside || target == b.tree.Path {
			at, target = nil, strings.TrimPrefix(below, b.tree.Path)
		} else if strings.HasPrefix(target, "/") {
			return linkError(n, "goes through a link out of the sandbox, "+guard.QuotePath(name))
		}
		way = append(strings.Split(target, "/"), way...)
	}
	if there := strings.Join(at, "/"); there != "" && pathProblem(there) != "" {
		return linkError(n, "leads to "+guard.QuotePath(there)+", which "+pathProblem(there))
	}
	return nil
}

// parentNames returns the names of the directories above a path.
func parentNames(name string) []string {
	names := strings.Split(name, "/")
	return names[:len(names)-1]
}

// linkTargetAt returns the target of the symlink that will be at a path after the put, if any. The path has no
// symlinks in its parents.
func (b *batch) linkTargetAt(at string) (target string, isLink bool, err error) {
	if n := b.root.lookup(at); n != nil && !n.isDir {
		return string(n.file.Content), n.file.Mode.Type() == fs.ModeSymlink, nil
	}
	fi, err := b.tree.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG):
		return "", false, nil
	case err != nil:
		return "", false, err
	case fi.Mode()&fs.ModeSymlink == 0:
		return "", false, nil
	}
	target, err = b.tree.Readlink(at)
	return target, true, err
}

// checkLinkTarget checks the text of a symbolic link's target: allowed names only, and ".." only at the start and
// never above the top. A ".." after a name could lead anywhere if that name became a symlink.
func checkLinkTarget(n *node) error {
	target := string(n.file.Content)
	refuse := func(why string) error { return linkError(n, why) }
	down, up := target, 0
	for {
		down = strings.TrimLeft(down, "/")
		first, rest, more := strings.Cut(down, "/")
		if first != ".." && first != "." {
			break
		}
		if first == ".." {
			up++
		}
		if down = rest; !more {
			down = "."
			break
		}
	}
	switch {
	case n.file.Open != nil:
		return refuse("has no content")
	case strings.HasPrefix(target, "/"):
		return refuse("is absolute")
	case target == "":
		return refuse("is empty")
	case up > strings.Count(n.path, "/"):
		return refuse("leads out of the sandbox")
	case len(target) > guard.MaxPathLen:
		return refuse(pathProblem(target))
	case down != "" && pathProblem(down) != "":
		return refuse(pathProblem(down))
	}
	return nil
}

// resolveDir resolves the symlinks of a directory given by a clean path.
func (b *batch) resolveDir(dir string) (string, error) {
	if dir == "." {
		return ".", nil
	}
	if real, known := b.resolved[dir]; known {
		return real, nil
	}
	parent, err := b.resolveDir(path.Dir(dir))
	if err != nil {
		return "", err
	}
	real := path.Join(parent, path.Base(dir))
	if !b.missing[parent] {
		fi, err := b.tree.Lstat(real)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.missing[real] = true
		case err != nil:
			return "", withPath("look at", dir, err)
		case fi.Mode()&fs.ModeSymlink != 0:
			b.linkDirs[real] = dir
			if real, err = b.followLink(dir, real); err != nil {
				return "", err
			}
		default:
			if err := guard.CheckIsDir(dir, fi.Mode()); err != nil {
				return "", err
			}
		}
	} else {
		b.missing[real] = true
	}
	b.resolved[dir] = real
	return real, nil
}

// followLink returns the target of a symlink of the tree, which must be a directory inside of it.
func (b *batch) followLink(dir, link string) (string, error) {
	inside, isDir, err := b.tree.ResolvePath(link)
	var confined *guard.ConfinementError
	switch {
	case errors.As(err, &confined):
		return "", &guard.ConfinementError{Path: dir, Why: confined.Why}
	case err != nil:
		return "", err
	case !isDir:
		return "", &fs.PathError{Op: "enter", Path: dir, Err: syscall.ENOTDIR}
	}
	return inside, nil
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
