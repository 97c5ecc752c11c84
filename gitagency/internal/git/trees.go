package git

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// node is a directory as git writes it, in our memory. Once it has a name it does not change any more.
type node struct {
	items   []item // in git's order
	content []byte
	oid     []byte
}

// item is one name in a directory.
type item struct {
	mode  uint32
	name  []byte
	oid   []byte
	below *node // where it is a directory that we have made
}

// leaf is something in a tree that is not a directory.
type leaf struct {
	mode uint32
	oid  []byte
	path string
}

// plant makes the tree of what is staged without a conflict. What is only meant to be added is not in it.
func plant(entries []stagedEntry, format ObjectFormat) *node {
	p := planter{format: format, entries: entries}
	return p.grow(0, 0, len(entries))
}

type planter struct {
	format  ObjectFormat
	entries []stagedEntry
}

// grow makes the directory whose entries are those from lo to hi, which have so many bytes of path in common.
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

// seal gives a directory its name.
func (n *node) seal(format ObjectFormat) {
	size := 0
	for _, it := range n.items {
		size += len(modeText(it.mode)) + 1 + len(it.name) + 1 + len(it.oid)
	}
	const most = 32 // of what stands before it
	all := append(strconv.AppendInt(append(make([]byte, 0, most+size), "tree "...), int64(size), 10), 0)
	head := len(all)
	for _, it := range n.items {
		all = append(append(all, modeText(it.mode)...), ' ')
		all = append(append(all, it.name...), 0)
		all = append(all, it.oid...)
	}
	n.content, n.oid = all[head:], format.sum(all)
}

// modeText is a mode as a tree has it.
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

// nameObject is the id of an object.
func nameObject(format ObjectFormat, kind string, content []byte) []byte {
	h := format.hash()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return h.Sum(nil)
}

// amend is the same tree with other leaves: one without an object is taken away. What is in the place of a
// directory that is needed, or of a leaf, makes room.
func (n *node) amend(format ObjectFormat, changes []leaf) *node {
	if len(changes) == 0 {
		return n
	}
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b leaf) int {
		// What goes makes room for what comes in its place.
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(len(a.oid), len(b.oid)))
	})
	return n.amended(format, 0, changes)
}

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
				if had.mode != modeTree { // what is below it has changes of its own
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

// inTreeOrder: git sorts directories as if they had a slash behind.
func inTreeOrder(a, b item) int {
	n := min(len(a.name), len(b.name))
	if c := bytes.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return cmp.Compare(a.after(n), b.after(n))
}

func (it item) after(n int) int {
	switch {
	case n < len(it.name):
		return int(it.name[n])
	case it.mode == modeTree:
		return '/'
	}
	return 0
}

// object is one that is to be written.
type object struct {
	kind    string
	oid     []byte
	content []byte
}

// novel gathers what a tree has and another one, which is in the repository, has not: directories to be written,
// and leaves that somebody said are there. Nothing below a directory that both have is looked at.
func (n *node) novel(t *teller, known []byte, each func(path string, dir *node, leaf item)) error {
	return n.novelBelow(t, "", known, each)
}

func (n *node) novelBelow(t *teller, path string, known []byte, each func(path string, dir *node, leaf item)) error {
	if bytes.Equal(n.oid, known) {
		return nil
	}
	has := map[string]item{}
	if known != nil {
		var err error
		if has, err = t.tree(known); err != nil {
			return err
		}
	}
	each(path, n, item{})
	for _, it := range n.items {
		had := has[string(it.name)]
		switch {
		case bytes.Equal(had.oid, it.oid) && had.mode == it.mode: // else it may be said to be what it is not
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

// parseTree reads a tree object.
func parseTree(data []byte, size int) (map[string]item, error) {
	items := map[string]item{}
	for len(data) > 0 {
		e, rest, ok := nextInTree(data, size)
		if data = rest; !ok {
			return nil, fmt.Errorf("tree: %w", errCutOff)
		}
		items[e.name] = item{mode: e.mode, name: []byte(e.name), oid: []byte(e.oid)}
	}
	return items, nil
}

func (n *node) name() string { return hex.EncodeToString(n.oid) }
