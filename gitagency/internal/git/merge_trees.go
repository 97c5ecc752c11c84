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
	var made []object
	top, plain, err := m.mergeEntries(ctx, &made, leafOf(base), leafOf(ours), leafOf(theirs))
	if err != nil || !plain {
		return "", false, err
	}
	if top.oid == nil { // empty tree
		return "", false, nil
	}
	return hexID(top.oid), true, m.add(ctx, made...)
}

// rootEntry returns a nameless tree entry for a root tree.
func leafOf(tree string) item { return item{mode: modeTree, oid: rawID(tree)} }

func (it item) is(other item) bool { return it.mode == other.mode && bytes.Equal(it.oid, other.oid) }

// mergeEntries is mergeTrees for one name; an entry without an object id does not exist. It appends new trees to made.
func (m *Merger) mergeEntries(ctx context.Context, made *[]object, base, ours, theirs item) (merged item, plain bool, err error) {
	switch {
	case ours.is(base):
		return theirs, true, nil
	case theirs.is(base):
		return ours, true, nil
	case ours.oid == nil || theirs.oid == nil: // a file deleted on both sides may be renamed to two places
		return item{}, false, nil
	case ours.is(theirs) && base.mode != modeTree:
		return ours, true, nil
	case ours.mode != modeTree || theirs.mode != modeTree || base.oid != nil && base.mode != modeTree:
		return item{}, false, nil
	}
	var sides [3][]item
	for i, side := range []item{base, ours, theirs} {
		if side.oid == nil {
			continue
		}
		t, err := m.twig(ctx, side.oid)
		if err != nil || !t.plain {
			return item{}, false, err
		}
		sides[i] = t.items
	}
	dir := &node{items: make([]item, 0, max(len(sides[1]), len(sides[2])))}
	for {
		name, more := firstName(sides)
		if !more {
			break
		}
		var entries [3]item
		for i, items := range sides {
			if len(items) > 0 && bytes.Equal(items[0].name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		it, plain, err := m.mergeEntries(ctx, made, entries[0], entries[1], entries[2])
		if err != nil || !plain {
			return item{}, false, err
		}
		if it.oid != nil {
			dir.items = append(dir.items, it)
		}
	}
	if len(dir.items) == 0 {
		return item{}, true, nil
	}
	byName := dir.items
	if !slices.IsSortedFunc(dir.items, inTreeOrder) {
		dir.items = slices.Clone(dir.items)
		slices.SortFunc(dir.items, inTreeOrder)
	}
	dir.seal(m.format)
	m.talking.Lock()
	m.remember(dir.oid, &twig{items: byName, plain: true}, len(dir.content))
	m.talking.Unlock()
	*made = append(*made, object{kind: "tree", oid: dir.oid, content: dir.content})
	return item{mode: modeTree, name: ours.name, oid: dir.oid}, true, nil
}

// nextName returns the smallest name among the first entries of the sides.
func firstName(sides [3][]item) (name []byte, more bool) {
	for _, items := range sides {
		if len(items) > 0 && (!more || bytes.Compare(items[0].name, name) < 0) {
			name, more = items[0].name, true
		}
	}
	return name, more
}
