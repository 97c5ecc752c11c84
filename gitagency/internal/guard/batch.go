package guard

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// File is something to put into a tree.
type File struct {
	Path string // relative to the top of the tree; directories on the way are made

	// Content is what a file holds, or where a symbolic link leads.
	Content []byte

	// Open is asked instead of Content, once and only when it is the file's turn.
	Open func() (io.ReadCloser, error)

	// Mode has the type, one of regular, fs.ModeDir and fs.ModeSymlink, and the permissions, which are set
	// whatever the umask says. Without any they are 0644, of a directory 0755. A directory that is there
	// already keeps its own.
	Mode fs.FileMode
}

// batch is what is put at once, as the tree it makes.
type batch struct {
	tree  *Tree
	top   *node
	nodes int // that are no directories

	real   map[string]string // where the directories that were named lead
	absent map[string]bool   // those of them that are still to be made
	links  map[string]string // those that are links, by where the link is
}

// node is a name in a batch.
type node struct {
	name     string
	path     string // relative to the tree, with no link on the way
	given    string // as the caller has it
	file     *File  // nil for a directory that only is on the way of others
	dir      bool
	children map[string]*node
	names    []string // of the children, in order

	identity identity // once it is staged
}

// perm are the permissions that a node gets.
func (n *node) perm() fs.FileMode {
	switch {
	case n.file != nil && n.file.Mode.Perm() != 0:
		return n.file.Mode.Perm()
	case n.dir:
		return 0o755
	}
	return 0o644
}

// narrow reports whether even the owner may not make anything in the directory.
func (n *node) narrow() bool { return n.dir && n.perm()&0o700 != 0o700 }

// all yields a node and everything below it, parents first.
func (n *node) all(yield func(*node) bool) { n.walk(yield) }

func (n *node) walk(yield func(*node) bool) bool {
	if !yield(n) {
		return false
	}
	for _, name := range n.names {
		if !n.children[name].walk(yield) {
			return false
		}
	}
	return true
}

// find is the node at a path below; nil when there is none.
func (n *node) find(path string) *node {
	for name := range strings.SplitSeq(path, "/") {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// newBatch checks the names of files, and that nothing in the batch is in the way of something else. The
// tree is only looked at for where directories lead.
func (t *Tree) newBatch(files []File) (*batch, error) {
	b := &batch{
		tree: t, top: &node{name: ".", path: ".", given: ".", dir: true, children: map[string]*node{}},
		real: map[string]string{}, absent: map[string]bool{}, links: map[string]string{},
	}
	paths := make([]string, len(files))
	for i := range files { // one bad name, and not even the others are looked up
		var err error
		if paths[i], err = checkFile(&files[i]); err != nil {
			return nil, err
		}
	}
	for i := range files {
		if err := b.add(&files[i], paths[i]); err != nil {
			return nil, err
		}
	}
	for at, dir := range b.links {
		n := b.top.find(at)
		if n != nil && n.dir {
			return nil, &fs.PathError{Op: "enter", Path: n.given, Err: syscall.ENOTDIR}
		}
		if n != nil {
			return nil, &fs.PathError{Op: "put", Path: n.given, Err: errors.New("takes the place of a link that leads to others of them, " + dir)}
		}
	}
	for n := range b.top.all {
		n.names = make([]string, 0, len(n.children))
		for name := range n.children {
			n.names = append(n.names, name)
		}
		slices.Sort(n.names)
	}
	return b, nil
}

// checkFile checks what can be checked of a file alone, and returns its path without what is needless.
func checkFile(f *File) (string, error) {
	clean, err := cleanPath(f.Path)
	if err != nil {
		return "", err
	}
	kind := f.Mode.Type()
	switch {
	case kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink:
		return "", &ConfinementError{Path: f.Path, Why: "is " + describe(f.Mode)}
	case f.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
		return "", &ConfinementError{Path: f.Path, Why: "has permissions beyond 0777"}
	case kind != fs.ModeDir && (clean == "." || strings.HasSuffix(f.Path, "/") || strings.HasSuffix(f.Path, "/.")):
		return "", &fs.PathError{Op: "put", Path: f.Path, Err: syscall.EISDIR}
	}
	return clean, nil
}

// add puts a file in its place in the batch.
func (b *batch) add(f *File, clean string) error {
	dir := f.Mode.IsDir()
	if clean == "." {
		return nil // the top is there
	}
	parent, err := b.resolve(path.Dir(clean))
	var confined *ConfinementError
	if errors.As(err, &confined) {
		return &ConfinementError{Path: f.Path, Why: "goes through " + quoted(confined.Path) + ", which " + confined.Why}
	}
	if err != nil {
		return err
	}
	at := path.Join(parent, path.Base(clean))
	if at != clean && refused(at) != "" { // by way of a link it may have become too long
		return &ConfinementError{Path: f.Path, Why: "leads to " + quoted(at) + ", which " + refused(at)}
	}
	n := b.top
	names := strings.Split(at, "/")
	for i, name := range names {
		switch {
		case !n.dir && n.file.Mode.Type() == fs.ModeSymlink:
			return &ConfinementError{Path: f.Path, Why: "goes through a symbolic link that is put along with it"}
		case !n.dir:
			return &fs.PathError{Op: "put", Path: n.given, Err: errors.New("is a file, and a directory of " + f.Path)}
		}
		last := i == len(names)-1
		next := n.children[name]
		if next == nil {
			next = &node{name: name, path: path.Join(n.path, name), given: f.Path, dir: !last || dir}
			if next.dir {
				next.children = map[string]*node{}
			}
			n.children[name] = next
			if !next.dir {
				b.nodes++
			}
		} else if last && !(dir && next.dir) {
			return &fs.PathError{Op: "put", Path: f.Path, Err: errors.New("is there twice")}
		}
		n = next
	}
	n.file = f
	if f.Mode.Type() == fs.ModeSymlink {
		return checkLink(n)
	}
	return nil
}

// checkLink makes sure that a symbolic link stays inside: by names that may be used, and up no further than
// the top. Going up again after going down could lead anywhere, if on the way down there is a link.
func checkLink(n *node) error {
	target := string(n.file.Content)
	refuse := func(why string) error {
		return &ConfinementError{Path: n.given, Why: "is a symbolic link to " + quoted(target) + ", which " + why}
	}
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
	case len(target) > longestPath:
		return refuse(refused(target))
	case down != "" && refused(down) != "":
		return refuse(refused(down))
	}
	return nil
}

// resolve says where a directory, given by a clean path, leads.
func (b *batch) resolve(dir string) (string, error) {
	if dir == "." {
		return ".", nil
	}
	if real, known := b.real[dir]; known {
		return real, nil
	}
	parent, err := b.resolve(path.Dir(dir))
	if err != nil {
		return "", err
	}
	real := path.Join(parent, path.Base(dir))
	if !b.absent[parent] {
		fi, err := b.tree.root.Lstat(real)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.absent[real] = true
		case err != nil:
			return "", plainly("look at", dir, err)
		case fi.Mode()&fs.ModeSymlink != 0:
			b.links[real] = dir
			if real, err = b.follow(dir, real); err != nil {
				return "", err
			}
		default:
			if err := wantDirectory(dir, fi); err != nil {
				return "", err
			}
		}
	} else {
		b.absent[real] = true
	}
	b.real[dir] = real
	return real, nil
}

// follow says where a link of the tree leads, which must be a directory in it.
func (b *batch) follow(dir, link string) (string, error) {
	inside, isDir, err := b.tree.Locate(link)
	var confined *ConfinementError
	switch {
	case errors.As(err, &confined):
		return "", &ConfinementError{Path: dir, Why: confined.Why}
	case err != nil:
		return "", err
	case !isDir:
		return "", &fs.PathError{Op: "enter", Path: dir, Err: syscall.ENOTDIR}
	}
	return inside, nil
}

// check holds the batch against what is in the tree, and returns what would be made: everything that is not
// a directory already.
func (b *batch) check(n *node, at *folder, made []*node) (_ []*node, err error) {
	for _, name := range n.names {
		child := n.children[name]
		fi, err := at.root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			for c := range child.all {
				made = append(made, c)
			}
			continue
		case err != nil:
			return nil, plainly("look at", child.path, err)
		}
		if !child.dir {
			if err := wantFile(child.path, fi); err != nil {
				return nil, err
			}
			made = append(made, child)
			continue
		}
		sub, err := at.enter(name)
		if err != nil {
			return nil, err
		}
		made, err = b.check(child, sub, made)
		if err := errors.Join(err, sub.close()); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// wantFile says what is wrong with what stands where a file is to be put. A link is replaced, like a file.
func wantFile(path string, fi fs.FileInfo) error {
	switch mode := fi.Mode(); {
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return nil
	case mode.IsDir():
		return &fs.PathError{Op: "put", Path: path, Err: syscall.EISDIR}
	default:
		return &ConfinementError{Path: path, Why: "is " + describe(mode)}
	}
}
