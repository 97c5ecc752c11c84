package index

import (
	"bytes"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// BuildTree builds the tree of index entries without conflicts. Entries that are only intended to be added are left out.
func BuildTree(entries []Entry, format object.Format) *object.BuiltTree {
	p := treeBuilder{format: format, entries: entries}
	return p.build(0, 0, len(entries))
}

// treeBuilder builds trees of index entries, which are sorted by name.
type treeBuilder struct {
	format  object.Format
	entries []Entry
}

// build builds the tree of the entries from lo to hi, whose names have their first depth bytes in common.
func (p *treeBuilder) build(depth, lo, hi int) *object.BuiltTree {
	n := &object.BuiltTree{Entries: make([]object.TreeEntry, 0, min(hi-lo, 8))}
	for i := lo; i < hi; {
		e := &p.entries[i]
		rest := e.Name[depth:]
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			if !e.IntentToAdd {
				n.Entries = append(n.Entries, object.TreeEntry{Mode: e.Mode, Name: rest, OID: e.OID})
			}
			i++
			continue
		}
		prefix, end := e.Name[:depth+slash+1], i+1
		for end < hi && bytes.HasPrefix(p.entries[end].Name, prefix) {
			end++
		}
		if sub := p.build(len(prefix), i, end); len(sub.Entries) > 0 {
			n.Entries = append(n.Entries, object.TreeEntry{Mode: object.ModeTree, Name: rest[:slash], OID: sub.OID, Subtree: sub})
		}
		i = end
	}
	n.Encode(p.format)
	return n
}
