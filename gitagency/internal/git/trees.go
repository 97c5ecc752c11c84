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
type treeEntry struct {
	mode    uint32
	name    []byte
	oid     []byte
	subtree *builtTree // the subtree, where it was built in memory
}

const modeKind = 0o170000 // bits of a mode that tell files, symbolic links, submodules and trees apart

// isTree reports whether the entry is a subtree, also where its mode has permission bits that git does not write.
func (it treeEntry) isTree() bool { return it.mode&modeKind == modeTree }

// isGitlink reports whether the entry is the commit of a submodule.
func (it treeEntry) isGitlink() bool { return it.mode&modeKind == modeGitlink }

// nextTreeEntry decodes the first entry of a tree object, or of the rest of one: "<mode> SP <name> NUL <oid>", where oid has
// size bytes. Name and oid of the entry are parts of data. It is not ok where data is not an entry.
func nextTreeEntry(data []byte, size int) (it treeEntry, rest []byte, ok bool) {
	space := bytes.IndexByte(data, ' ')
	if space < 1 {
		return treeEntry{}, nil, false
	}
	var mode uint32
	for _, c := range data[:space] {
		if c < '0' || c > '7' || mode>>29 != 0 {
			return treeEntry{}, nil, false
		}
		mode = mode<<3 | uint32(c-'0')
	}
	data = data[space+1:]
	end := bytes.IndexByte(data, 0)
	if end < 1 || len(data) < end+1+size {
		return treeEntry{}, nil, false
	}
	return treeEntry{mode: mode, name: data[:end:end], oid: data[end+1 : end+1+size : end+1+size]}, data[end+1+size:], true
}

// Tree is a parsed tree object.
type Tree struct {
	entries   []treeEntry // sorted by name, which is not git's order where there are subtrees
	canonical bool        // the object is not empty, and byte for byte as git would write these entries
}

// parseTree parses a tree object whose ids have size bytes. The entries are parts of data.
func parseTree(data []byte, size int) (*Tree, error) {
	const usual = 20 // bytes of mode and name
	t := &Tree{canonical: len(data) > 0, entries: make([]treeEntry, 0, len(data)/(size+usual))}
	for len(data) > 0 {
		it, rest, ok := nextTreeEntry(data, size)
		if !ok {
			return nil, fmt.Errorf("tree: %w", errTruncated)
		}
		switch it.mode {
		case modeFile, modeExecutable, modeSymlink, modeGitlink, modeTree:
			// A mode with leading zeros is longer than git writes it.
			t.canonical = t.canonical && len(data)-len(rest) == len(formatMode(it.mode))+len(it.name)+size+2
		default:
			t.canonical = false
		}
		if n := len(t.entries); n > 0 && compareTreeOrder(t.entries[n-1], it) >= 0 {
			t.canonical = false
		}
		t.entries = append(t.entries, it)
		data = rest
	}
	if byName := func(a, b treeEntry) int { return bytes.Compare(a.name, b.name) }; !slices.IsSortedFunc(t.entries, byName) {
		slices.SortStableFunc(t.entries, byName)
	}
	for i := 1; i < len(t.entries); i++ {
		t.canonical = t.canonical && !bytes.Equal(t.entries[i-1].name, t.entries[i].name)
	}
	return t, nil
}

// find returns the entry of a name. Of a tree that is nil it finds none.
func (t *Tree) find(name string) (treeEntry, bool) {
	if t == nil {
		return treeEntry{}, false
	}
	i := sort.Search(len(t.entries), func(i int) bool { return string(t.entries[i].name) >= name })
	if i == len(t.entries) || string(t.entries[i].name) != name {
		return treeEntry{}, false
	}
	return t.entries[i], true
}

// builtTree is a tree object built in memory. Once it is encoded it does not change.
type builtTree struct {
	entries []treeEntry // in git's order
	content []byte
	oid     []byte
}

// leafChange is a file, symbolic link or submodule to be put into a tree; without an oid, the path is removed.
type leafChange struct {
	mode uint32
	oid  []byte
	path string
}

// buildTree builds the tree of index entries without conflicts. Entries that are only intended to be added are left out.
func buildTree(entries []indexEntry, format ObjectFormat) *builtTree {
	p := treeBuilder{format: format, entries: entries}
	return p.build(0, 0, len(entries))
}

// treeBuilder builds trees of index entries, which are sorted by name.
type treeBuilder struct {
	format  ObjectFormat
	entries []indexEntry
}

// build builds the tree of the entries from lo to hi, whose names have their first depth bytes in common.
func (p *treeBuilder) build(depth, lo, hi int) *builtTree {
	n := &builtTree{entries: make([]treeEntry, 0, min(hi-lo, 8))}
	for i := lo; i < hi; {
		e := &p.entries[i]
		rest := e.name[depth:]
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			if !e.intentToAdd {
				n.entries = append(n.entries, treeEntry{mode: e.mode, name: rest, oid: e.oid})
			}
			i++
			continue
		}
		prefix, end := e.name[:depth+slash+1], i+1
		for end < hi && bytes.HasPrefix(p.entries[end].name, prefix) {
			end++
		}
		if sub := p.build(len(prefix), i, end); len(sub.entries) > 0 {
			n.entries = append(n.entries, treeEntry{mode: modeTree, name: rest[:slash], oid: sub.oid, subtree: sub})
		}
		i = end
	}
	n.encode(p.format)
	return n
}

// encode computes the content and the id of the tree object.
func (n *builtTree) encode(format ObjectFormat) {
	size := 0
	for _, it := range n.entries {
		size += len(formatMode(it.mode)) + 1 + len(it.name) + 1 + len(it.oid)
	}
	const most = 32 // bytes of the object header
	all := append(strconv.AppendInt(append(make([]byte, 0, most+size), "tree "...), int64(size), 10), 0)
	head := len(all)
	for _, it := range n.entries {
		all = append(append(all, formatMode(it.mode)...), ' ')
		all = append(append(all, it.name...), 0)
		all = append(all, it.oid...)
	}
	n.content, n.oid = all[head:], format.hashSum(all)
}

// formatMode returns a mode as git writes it in a tree object.
func formatMode(mode uint32) string {
	switch mode {
	case modeFile:
		return "100644"
	case modeExecutable:
		return "100755"
	case modeTree:
		return "40000"
	}
	return strconv.FormatUint(uint64(mode), 8)
}

// hashObject returns the id of an object.
func hashObject(format ObjectFormat, kind string, content []byte) []byte {
	h := format.newHash()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return h.Sum(nil)
}

// withChanges returns the tree with some leaves added, replaced or removed. A file in the place of a needed directory is
// removed, and so is a directory in the place of a new leaf.
func (n *builtTree) withChanges(format ObjectFormat, changes []leafChange) *builtTree {
	if len(changes) == 0 {
		return n
	}
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b leafChange) int {
		// Of two changes of a path, the removal comes first.
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(len(a.oid), len(b.oid)))
	})
	return n.withChangesBelow(format, 0, changes)
}

// withChangesBelow applies sorted changes whose paths have their first depth bytes, the path of this tree, in common.
func (n *builtTree) withChangesBelow(format ObjectFormat, depth int, changes []leafChange) *builtTree {
	items := map[string]treeEntry{}
	for _, it := range n.entries {
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
				items[rest] = treeEntry{mode: c.mode, name: []byte(rest), oid: c.oid}
			}
			continue
		}
		end := i + 1
		for end < len(changes) && strings.HasPrefix(changes[end].path, changes[i].path[:depth+slash+1]) {
			end++
		}
		had, below := items[rest[:slash]], &builtTree{}
		if had.mode == modeTree {
			below = had.subtree
		}
		sub := below.withChangesBelow(format, depth+slash+1, changes[i:end])
		switch {
		case len(sub.entries) > 0:
			items[rest[:slash]] = treeEntry{mode: modeTree, name: []byte(rest[:slash]), oid: sub.oid, subtree: sub}
		case had.mode == modeTree:
			delete(items, rest[:slash])
		}
		i = end
	}
	made := &builtTree{entries: make([]treeEntry, 0, len(items))}
	for _, it := range items {
		made.entries = append(made.entries, it)
	}
	slices.SortFunc(made.entries, compareTreeOrder)
	made.encode(format)
	return made
}

// compareTreeOrder compares entries in git's order, in which the name of a subtree ends in a slash.
func compareTreeOrder(a, b treeEntry) int {
	n := min(len(a.name), len(b.name))
	if c := bytes.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return cmp.Compare(a.orderByte(n), b.orderByte(n))
}

// orderByte returns the byte at n of the name by which git sorts the entry; 0 behind its end.
func (it treeEntry) orderByte(n int) int {
	switch {
	case n < len(it.name):
		return int(it.name[n])
	case it.isTree():
		return '/'
	}
	return 0
}

// rawObject is an object to be written.
type rawObject struct {
	kind    string // commit, tree or blob
	oid     []byte
	content []byte
}

// visitNew visits the entries that a known tree, which is in the repository, does not have at the same path: trees, which
// have to be written, and leaves, whose objects an index claims to exist. It skips subtrees that both trees have.
func (n *builtTree) visitNew(t *catFile, known []byte, each func(path string, dir *builtTree, leaf treeEntry)) error {
	return n.visitNewBelow(t, "", known, each)
}

func (n *builtTree) visitNewBelow(t *catFile, path string, known []byte, each func(path string, dir *builtTree, leaf treeEntry)) error {
	if bytes.Equal(n.oid, known) {
		return nil
	}
	var has *Tree
	if known != nil {
		var err error
		if has, err = t.readTree(known); err != nil {
			return err
		}
	}
	each(path, n, treeEntry{})
	for _, it := range n.entries {
		had, _ := has.find(string(it.name))
		switch {
		case bytes.Equal(had.oid, it.oid) && had.mode == it.mode: // with another mode, the index may claim a wrong type
		case it.subtree == nil:
			each(path+string(it.name), nil, it)
		default:
			var below []byte
			if had.mode == modeTree {
				below = had.oid
			}
			if err := it.subtree.visitNewBelow(t, path+string(it.name)+"/", below, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// hexOID returns the id in hex.
func (n *builtTree) hexOID() string { return hex.EncodeToString(n.oid) }
