package git

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// treeEntry is one entry of a tree object.
type item struct {
	mode  uint32
	name  []byte
	oid   []byte
	below *node // the subtree, where it was built in memory
}

const modeKind = 0o170000 // bits of a mode that tell files, symbolic links, submodules and trees apart

// isTree reports whether the entry is a subtree, also where its mode has permission bits that git does not write.
func (it item) isTree() bool { return it.mode&modeKind == modeTree }

// isGitlink reports whether the entry is the commit of a submodule.
func (it item) isGitlink() bool { return it.mode&modeKind == modeGitlink }

// nextTreeEntry decodes the first entry of a tree object, or of the rest of one: "<mode> SP <name> NUL <oid>", where oid has
// size bytes. Name and oid of the entry are parts of data. It is not ok where data is not an entry.
func nextTreeEntry(data []byte, size int) (it item, rest []byte, ok bool) {
	space := bytes.IndexByte(data, ' ')
	if space < 1 {
		return item{}, nil, false
	}
	var mode uint32
	for _, c := range data[:space] {
		if c < '0' || c > '7' || mode>>29 != 0 {
			return item{}, nil, false
		}
		mode = mode<<3 | uint32(c-'0')
	}
	data = data[space+1:]
	end := bytes.IndexByte(data, 0)
	if end < 1 || len(data) < end+1+size {
		return item{}, nil, false
	}
	return item{mode: mode, name: data[:end:end], oid: data[end+1 : end+1+size : end+1+size]}, data[end+1+size:], true
}

// Tree is a parsed tree object.
type twig struct {
	items []item // sorted by name, which is not git's order where there are subtrees
	plain bool   // the object is not empty, and byte for byte as git would write these entries
}

// parseTree parses a tree object whose ids have size bytes. The entries are parts of data.
func parseTree(data []byte, size int) (*twig, error) {
	const usual = 20 // bytes of mode and name
	t := &twig{plain: len(data) > 0, items: make([]item, 0, len(data)/(size+usual))}
	for len(data) > 0 {
		it, rest, ok := nextTreeEntry(data, size)
		if !ok {
			return nil, fmt.Errorf("tree: %w", errCutOff)
		}
		switch it.mode {
		case modeFile, modeProgram, modeLink, modeGitlink, modeTree:
			// A mode with leading zeros is longer than git writes it.
			t.plain = t.plain && len(data)-len(rest) == len(modeText(it.mode))+len(it.name)+size+2
		default:
			t.plain = false
		}
		if n := len(t.items); n > 0 && inTreeOrder(t.items[n-1], it) >= 0 {
			t.plain = false
		}
		t.items = append(t.items, it)
		data = rest
	}
	if byName := func(a, b item) int { return bytes.Compare(a.name, b.name) }; !slices.IsSortedFunc(t.items, byName) {
		slices.SortStableFunc(t.items, byName)
	}
	for i := 1; i < len(t.items); i++ {
		t.plain = t.plain && !bytes.Equal(t.items[i-1].name, t.items[i].name)
	}
	return t, nil
}

// find returns the entry of a name. Of a tree that is nil it finds none.
func (t *twig) find(name string) (item, bool) {
	if t == nil {
		return item{}, false
	}
	i := sort.Search(len(t.items), func(i int) bool { return string(t.items[i].name) >= name })
	if i == len(t.items) || string(t.items[i].name) != name {
		return item{}, false
	}
	return t.items[i], true
}

// builtTree is a tree object built in memory. Once it is encoded it does not change.
type node struct {
	items   []item // in git's order
	content []byte
	oid     []byte
}

// leafChange is a file, symbolic link or submodule to be put into a tree; without an oid, the path is removed.
type leaf struct {
	mode uint32
	oid  []byte
	path string
}

// buildTree builds the tree of index entries without conflicts. Entries that are only intended to be added are left out.
func plant(entries []stagedEntry, format ObjectFormat) *node {
	p := planter{format: format, entries: entries}
	return p.grow(0, 0, len(entries))
}

// treeBuilder builds trees of index entries, which are sorted by name.
type planter struct {
	format  ObjectFormat
	entries []stagedEntry
}

// build builds the tree of the entries from lo to hi, whose names have their first depth bytes in common.
func (p *planter) grow(depth, lo, hi int) *node {
	n := &node{items: make([]item, 0, min(hi-lo, 8))}
	for i := lo; i < hi; {
		e := &p.entries[i]
		rest := e.name[depth:]
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			if !e.intended {
				n.items = append(n.items, item{mode: e.mode, name: rest, oid: e.oid})
			}
			i++
			continue
		}
		prefix, end := e.name[:depth+slash+1], i+1
		for end < hi && bytes.HasPrefix(p.entries[end].name, prefix) {
			end++
		}
		if sub := p.grow(len(prefix), i, end); len(sub.items) > 0 {
			n.items = append(n.items, item{mode: modeTree, name: rest[:slash], oid: sub.oid, below: sub})
		}
		i = end
	}
	n.seal(p.format)
	return n
}

// encode computes the content and the id of the tree object.
func (n *node) seal(format ObjectFormat) {
	size := 0
	for _, it := range n.items {
		size += len(modeText(it.mode)) + 1 + len(it.name) + 1 + len(it.oid)
	}
	const most = 32 // bytes of the object header
	all := append(strconv.AppendInt(append(make([]byte, 0, most+size), "tree "...), int64(size), 10), 0)
	head := len(all)
	for _, it := range n.items {
		all = append(append(all, modeText(it.mode)...), ' ')
		all = append(append(all, it.name...), 0)
		all = append(all, it.oid...)
	}
	n.content, n.oid = all[head:], format.sum(all)
}

// formatMode returns a mode as git writes it in a tree object.
func modeText(mode uint32) string {
	switch mode {
	case modeFile:
		return "100644"
	case modeProgram:
		return "100755"
	case modeTree:
		return "40000"
	}
	return strconv.FormatUint(uint64(mode), 8)
}

// hashObject returns the id of an object.
func nameObject(format ObjectFormat, kind string, content []byte) []byte {
	h := format.hash()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return h.Sum(nil)
}

// withChanges returns the tree with some leaves added, replaced or removed. A file in the place of a needed directory is
// removed, and so is a directory in the place of a new leaf.
func (n *node) amend(format ObjectFormat, changes []leaf) *node {
	if len(changes) == 0 {
		return n
	}
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b leaf) int {
		// Of two changes of a path, the removal comes first.
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(len(a.oid), len(b.oid)))
	})
	return n.amended(format, 0, changes)
}

// withChangesBelow applies sorted changes whose paths have their first depth bytes, the path of this tree, in common.
func (n *node) amended(format ObjectFormat, depth int, changes []leaf) *node {
	items := map[string]item{}
	for _, it := range n.items {
		items[string(it.name)] = it
	}
	for i := 0; i < len(changes); {
		rest := changes[i].path[depth:]
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			c := changes[i]
			i++
			if had := items[rest]; c.oid == nil {
				if had.mode != modeTree { // the leaves of a directory have changes of their own
					delete(items, rest)
				}
			} else {
				items[rest] = item{mode: c.mode, name: []byte(rest), oid: c.oid}
			}
			continue
		}
		end := i + 1
		for end < len(changes) && strings.HasPrefix(changes[end].path, changes[i].path[:depth+slash+1]) {
			end++
		}
		had, below := items[rest[:slash]], &node{}
		if had.mode == modeTree {
			below = had.below
		}
		sub := below.amended(format, depth+slash+1, changes[i:end])
		switch {
		case len(sub.items) > 0:
			items[rest[:slash]] = item{mode: modeTree, name: []byte(rest[:slash]), oid: sub.oid, below: sub}
		case had.mode == modeTree:
			delete(items, rest[:slash])
		}
		i = end
	}
	made := &node{items: make([]item, 0, len(items))}
	for _, it := range items {
		made.items = append(made.items, it)
	}
	slices.SortFunc(made.items, inTreeOrder)
	made.seal(format)
	return made
}

// compareTreeOrder compares entries in git's order, in which the name of a subtree ends in a slash.
func inTreeOrder(a, b item) int {
	n := min(len(a.name), len(b.name))
	if c := bytes.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return cmp.Compare(a.after(n), b.after(n))
}

// orderByte returns the byte at n of the name by which git sorts the entry; 0 behind its end.
func (it item) after(n int) int {
	switch {
	case n < len(it.name):
		return int(it.name[n])
	case it.isTree():
		return '/'
	}
	return 0
}

// rawObject is an object to be written.
type object struct {
	kind    string // commit, tree or blob
	oid     []byte
	content []byte
}

// visitNew visits the entries that a known tree, which is in the repository, does not have at the same path: trees, which
// have to be written, and leaves, whose objects an index claims to exist. It skips subtrees that both trees have.
func (n *node) novel(t *teller, known []byte, each func(path string, dir *node, leaf item)) error {
	return n.novelBelow(t, "", known, each)
}

func (n *node) novelBelow(t *teller, path string, known []byte, each func(path string, dir *node, leaf item)) error {
	if bytes.Equal(n.oid, known) {
		return nil
	}
	var has *twig
	if known != nil {
		var err error
		if has, err = t.tree(known); err != nil {
			return err
		}
	}
	each(path, n, item{})
	for _, it := range n.items {
		had, _ := has.find(string(it.name))
		switch {
		case bytes.Equal(had.oid, it.oid) && had.mode == it.mode: // with another mode, the index may claim a wrong type
		case it.below == nil:
			each(path+string(it.name), nil, it)
		default:
			var below []byte
			if had.mode == modeTree {
				below = had.oid
			}
			if err := it.below.novelBelow(t, path+string(it.name)+"/", below, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// hexOID returns the id in hex.
func (n *node) name() string { return hex.EncodeToString(n.oid) }
