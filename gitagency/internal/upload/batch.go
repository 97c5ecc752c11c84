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

// File is something to put into a tree, as the library's File says it.
type File struct {
	Path    string
	Content []byte
	Open    func() (io.ReadCloser, error)
	Mode    fs.FileMode
}

// batch is what is put at once, as the tree it makes.
type batch struct {
	tree  *guard.Tree
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
func newBatch(tree *guard.Tree, files []File) (*batch, error) {
	b := &batch{
		tree: tree, top: &node{name: ".", path: ".", given: ".", dir: true, children: map[string]*node{}},
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
	for n := range b.top.all {
		if n.file != nil && n.file.Mode.Type() == fs.ModeSymlink {
			if err := b.checkWay(n); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// checkFile checks what can be checked of a file alone, and returns its path without what is needless.
func checkFile(f *File) (string, error) {
	clean, err := guard.CleanPath(f.Path)
	if err != nil {
		return "", err
	}
	kind := f.Mode.Type()
	switch {
	case kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink:
		return "", &guard.ConfinementError{Path: f.Path, Why: "is " + guard.Describe(f.Mode)}
	case f.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
		return "", &guard.ConfinementError{Path: f.Path, Why: "has permissions beyond 0777"}
	case kind != fs.ModeDir && clean != "." && strings.HasSuffix(f.Path, "/"):
		return "", &guard.ConfinementError{Path: f.Path, Why: "ends like the name of a directory, and is a file"}
	case kind != fs.ModeDir && (clean == "." || strings.HasSuffix(f.Path, "/.")):
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
	var confined *guard.ConfinementError
	if errors.As(err, &confined) {
		return &guard.ConfinementError{Path: f.Path, Why: "goes through " + guard.Quoted(confined.Path) + ", which " + confined.Why}
	}
	if err != nil {
		return err
	}
	at := path.Join(parent, path.Base(clean))
	if at != clean && refusal(at) != "" { // by way of a link it may have become too long
		return &guard.ConfinementError{Path: f.Path, Why: "leads to " + guard.Quoted(at) + ", which " + refusal(at)}
	}
	n := b.top
	names := strings.Split(at, "/")
	for i, name := range names {
		switch {
		case !n.dir && n.file.Mode.Type() == fs.ModeSymlink:
			return &guard.ConfinementError{Path: f.Path, Why: "goes through a symbolic link that is put along with it"}
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

// refuseLink says what is wrong with where a symbolic link leads.
func refuseLink(n *node, why string) error {
	return &guard.ConfinementError{Path: n.given, Why: "is a symbolic link to " + guard.Quoted(string(n.file.Content)) + ", which " + why}
}

// checkWay makes sure that a symbolic link stays inside on the whole way that it leads, through links of the
// batch and of the tree.
func (b *batch) checkWay(n *node) error {
	const most = 40 // links, as many as the kernel follows
	at, way := dirOf(n.path), strings.Split(string(n.file.Content), "/")
	for links := 0; len(way) > 0; {
		name := way[0]
		way = way[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && len(at) == 0:
			return refuseLink(n, "leads out of the sandbox")
		case name == "..":
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clip(at), name)
		target, isLink, err := b.linkAt(strings.Join(at, "/"))
		if err != nil {
			return err
		}
		if !isLink {
			continue
		}
		if links++; links > most {
			return refuseLink(n, "leads in a circle")
		}
		at = at[:len(at)-1]
		if below, inside := strings.CutPrefix(target, b.tree.Path+"/"); inside || target == b.tree.Path {
			at, target = nil, strings.TrimPrefix(below, b.tree.Path)
		} else if strings.HasPrefix(target, "/") {
			return refuseLink(n, "goes through a link out of the sandbox, "+guard.Quoted(name))
		}
		way = append(strings.Split(target, "/"), way...)
	}
	if there := strings.Join(at, "/"); there != "" && refusal(there) != "" {
		return refuseLink(n, "leads to "+guard.Quoted(there)+", which "+refusal(there))
	}
	return nil
}

// dirOf are the directories that a path lies in.
func dirOf(name string) []string {
	names := strings.Split(name, "/")
	return names[:len(names)-1]
}

// linkAt says where the link at a path leads when all is put, and whether there is one. No link is on the way.
func (b *batch) linkAt(at string) (target string, isLink bool, err error) {
	if n := b.top.find(at); n != nil && !n.dir {
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

// checkLink makes sure that a symbolic link may be what it says: by names that may be used, and up no further than
// the top. Going up again after going down could lead anywhere, if on the way down there comes to be a link.
func checkLink(n *node) error {
	target := string(n.file.Content)
	refuse := func(why string) error { return refuseLink(n, why) }
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
	case len(target) > guard.LongestPath:
		return refuse(refusal(target))
	case down != "" && refusal(down) != "":
		return refuse(refusal(down))
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
		fi, err := b.tree.Lstat(real)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.absent[real] = true
		case err != nil:
			return "", about("look at", dir, err)
		case fi.Mode()&fs.ModeSymlink != 0:
			b.links[real] = dir
			if real, err = b.follow(dir, real); err != nil {
				return "", err
			}
		default:
			if err := guard.WantDirectory(dir, fi.Mode()); err != nil {
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

// check holds the batch against what is in the tree, and returns what would be made: everything that is not
// a directory already.
func (b *batch) check(top *guard.Folder) (made []*node, err error) {
	err = b.existing(top, func(_ *node, at *guard.Folder, child *node, there *guard.Info) error {
		switch {
		case there == nil:
			made = slices.AppendSeq(made, child.all)
		case !child.dir:
			made = append(made, child)
			return wantFile(child.path, there.Mode)
		default:
			return guard.WantDirectory(child.path, there.Mode)
		}
		return nil
	})
	return made, err
}

// existing visits the children of every directory of the batch that is in the tree, with what stands in their
// place there. However deep it goes, one directory is open at a time.
func (b *batch) existing(top *guard.Folder, visit func(n *node, at *guard.Folder, child *node, there *guard.Info) error) (err error) {
	c := cursor{top: top, find: (*guard.Folder).Find}
	defer func() { err = errors.Join(err, c.close()) }()
	stack := []*node{b.top}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		at, err := c.to(n.path)
		if err != nil {
			return err
		}
		for _, name := range n.names {
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
			if there != nil && child.dir {
				stack = append(stack, child)
			}
		}
	}
	return nil
}

// wantFile says what is wrong with what stands where a file is to be put. A link is replaced, like a file.
func wantFile(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		return nil
	case mode.IsDir():
		return &fs.PathError{Op: "put", Path: path, Err: syscall.EISDIR}
	default:
		return &guard.ConfinementError{Path: path, Why: "is " + guard.Describe(mode)}
	}
}

// refusal says why a path may not be used; empty when it may.
func refusal(path string) string {
	var confined *guard.ConfinementError
	if errors.As(guard.CheckPath(path), &confined) {
		return confined.Why
	}
	return ""
}

// about words an error about a path as the caller knows it, and not by the way it was reached.
func about(op, path string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		return &fs.PathError{Op: op, Path: path, Err: inner.Err}
	}
	return err
}
