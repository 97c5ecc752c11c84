package git

import (
	"bytes"
	"context"
	"slices"
)

// mergeTrees does a trivial merge, tree entry by tree entry: of every name at least one side equals the base, or both sides
// are equal. Else plain is false, and git has to merge.
//
// The result is exactly git's, because git looks for renames only where they can matter: for a file that is deleted on one
// side and modified or deleted on the other; and for a directory that is deleted on one side while the other adds a file to
// it. In both cases neither side equals the base, so plain is false.
func (m *Merger) mergeTrees(ctx context.Context, base, ours, theirs string) (tree string, plain bool, err error) {
	if ours == theirs {
		return ours, true, nil
	}
	var made []rawObject
	top, plain, err := m.mergeEntries(ctx, &made, rootEntry(base), rootEntry(ours), rootEntry(theirs))
	if err != nil || !plain {
		return "", false, err
	}
	if top.oid == nil { // empty tree
		return "", false, nil
	}
	return hexID(top.oid), true, m.addObjects(ctx, made...)
}

// rootEntry returns a nameless tree entry for a root tree.
func rootEntry(tree string) treeEntry { return treeEntry{mode: modeTree, oid: rawID(tree)} }

func (it treeEntry) equal(other treeEntry) bool {
	return it.mode == other.mode && bytes.Equal(it.oid, other.oid)
}

// mergeEntries is mergeTrees for one name; an entry without an object id does not exist. It appends new trees to made.
func (m *Merger) mergeEntries(ctx context.Context, made *[]rawObject, base, ours, theirs treeEntry) (merged treeEntry, plain bool, err error) {
	switch {
	case ours.equal(base):
		return theirs, true, nil
	case theirs.equal(base):
		return ours, true, nil
	case ours.oid == nil || theirs.oid == nil: // a file deleted on both sides may be renamed to two places
		return treeEntry{}, false, nil
	case ours.equal(theirs) && base.mode != modeTree:
		return ours, true, nil
	case ours.mode != modeTree || theirs.mode != modeTree || base.oid != nil && base.mode != modeTree:
		return treeEntry{}, false, nil
	}
	var sides [3][]treeEntry
	for i, side := range []treeEntry{base, ours, theirs} {
		if side.oid == nil {
			continue
		}
		t, err := m.readTree(ctx, side.oid)
		if err != nil || !t.canonical {
			return treeEntry{}, false, err
		}
		sides[i] = t.entries
	}
	dir := &builtTree{entries: make([]treeEntry, 0, max(len(sides[1]), len(sides[2])))}
	for {
		name, more := nextName(sides)
		if !more {
			break
		}
		var entries [3]treeEntry
		for i, items := range sides {
			if len(items) > 0 && bytes.Equal(items[0].name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		it, plain, err := m.mergeEntries(ctx, made, entries[0], entries[1], entries[2])
		if err != nil || !plain {
			return treeEntry{}, false, err
		}
		if it.oid != nil {
			dir.entries = append(dir.entries, it)
		}
	}
	if len(dir.entries) == 0 {
		return treeEntry{}, true, nil
	}
	byName := dir.entries
	if !slices.IsSortedFunc(dir.entries, compareTreeOrder) {
		dir.entries = slices.Clone(dir.entries)
		slices.SortFunc(dir.entries, compareTreeOrder)
	}
	dir.encode(m.format)
	m.mu.Lock()
	m.cacheTree(dir.oid, &Tree{entries: byName, canonical: true}, len(dir.content))
	m.mu.Unlock()
	*made = append(*made, rawObject{kind: "tree", oid: dir.oid, content: dir.content})
	return treeEntry{mode: modeTree, name: ours.name, oid: dir.oid}, true, nil
}

// nextName returns the smallest name among the first entries of the sides.
func nextName(sides [3][]treeEntry) (name []byte, more bool) {
	for _, items := range sides {
		if len(items) > 0 && (!more || bytes.Compare(items[0].name, name) < 0) {
			name, more = items[0].name, true
		}
	}
	return name, more
}
