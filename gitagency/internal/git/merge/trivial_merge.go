package merge

import (
	"bytes"
	"context"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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
	var made []object.Raw
	top, plain, err := m.mergeEntries(ctx, &made, rootEntry(base), rootEntry(ours), rootEntry(theirs))
	if err != nil || !plain {
		return "", false, err
	}
	if top.OID == nil { // empty tree
		return "", false, nil
	}
	return object.HexOID(top.OID), true, m.AddObjects(ctx, made...)
}

// rootEntry returns a nameless tree entry for a root tree.
func rootEntry(tree string) object.TreeEntry {
	return object.TreeEntry{Mode: object.ModeTree, OID: object.RawOID(tree)}
}

// mergeEntries is mergeTrees for one name; an entry without an object id does not exist. It appends new trees to made.
func (m *Merger) mergeEntries(ctx context.Context, made *[]object.Raw, base, ours, theirs object.TreeEntry) (merged object.TreeEntry, plain bool, err error) {
	switch {
	case ours.Equal(base):
		return theirs, true, nil
	case theirs.Equal(base):
		return ours, true, nil
	case ours.OID == nil || theirs.OID == nil: // a file deleted on both sides may be renamed to two places
		return object.TreeEntry{}, false, nil
	case ours.Equal(theirs) && base.Mode != object.ModeTree:
		return ours, true, nil
	case ours.Mode != object.ModeTree || theirs.Mode != object.ModeTree || base.OID != nil && base.Mode != object.ModeTree:
		return object.TreeEntry{}, false, nil
	}
	var sides [3][]object.TreeEntry
	for i, side := range []object.TreeEntry{base, ours, theirs} {
		if side.OID == nil {
			continue
		}
		t, err := m.readTree(ctx, side.OID)
		if err != nil || !t.Canonical {
			return object.TreeEntry{}, false, err
		}
		sides[i] = t.Entries
	}
	dir := &object.BuiltTree{Entries: make([]object.TreeEntry, 0, max(len(sides[1]), len(sides[2])))}
	for {
		name, more := nextName(sides)
		if !more {
			break
		}
		var entries [3]object.TreeEntry
		for i, items := range sides {
			if len(items) > 0 && bytes.Equal(items[0].Name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		it, plain, err := m.mergeEntries(ctx, made, entries[0], entries[1], entries[2])
		if err != nil || !plain {
			return object.TreeEntry{}, false, err
		}
		if it.OID != nil {
			dir.Entries = append(dir.Entries, it)
		}
	}
	if len(dir.Entries) == 0 {
		return object.TreeEntry{}, true, nil
	}
	byName := dir.Entries
	if !slices.IsSortedFunc(dir.Entries, object.CompareTreeOrder) {
		dir.Entries = slices.Clone(dir.Entries)
		slices.SortFunc(dir.Entries, object.CompareTreeOrder)
	}
	dir.Encode(m.format)
	m.mu.Lock()
	m.cacheTree(dir.OID, &object.Tree{Entries: byName, Canonical: true}, len(dir.Content))
	m.mu.Unlock()
	*made = append(*made, object.Raw{Kind: "tree", OID: dir.OID, Content: dir.Content})
	return object.TreeEntry{Mode: object.ModeTree, Name: ours.Name, OID: dir.OID}, true, nil
}

// nextName returns the smallest name among the first entries of the sides.
func nextName(sides [3][]object.TreeEntry) (name []byte, more bool) {
	for _, items := range sides {
		if len(items) > 0 && (!more || bytes.Compare(items[0].Name, name) < 0) {
			name, more = items[0].Name, true
		}
	}
	return name, more
}
