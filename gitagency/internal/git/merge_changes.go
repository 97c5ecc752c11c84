package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// changes is treeChanges of two commits or trees, of which nobody but the merger may know yet. It is not ok where a tree is
// written in such a way that only git can tell what is in it.
func (m *Merger) changes(ctx context.Context, from, to string) (changes []treeChange, ok bool, err error) {
	was, is, err := m.pair(ctx, from, to)
	if err != nil {
		return nil, false, err
	}
	ok, err = m.changesBelow(ctx, "", was, is, &changes)
	return changes, ok, err
}

// changesBelow compares two directories, of which one may not be there.
func (m *Merger) changesBelow(ctx context.Context, at string, was, is []byte, changes *[]treeChange) (ok bool, err error) {
	var sides [3][]item
	for i, oid := range [][]byte{was, is} {
		if oid == nil {
			continue
		}
		dir, err := m.twig(ctx, oid)
		if err != nil || !dir.plain && len(dir.items) > 0 {
			return false, err
		}
		sides[i] = dir.items
	}
	for {
		name, more := firstName(sides)
		if !more {
			return true, nil
		}
		var entries [2]item
		for i := range entries {
			if items := sides[i]; len(items) > 0 && bytes.Equal(items[0].name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		if ok, err := m.changed(ctx, at+string(name), entries[0], entries[1], changes); err != nil || !ok {
			return false, err
		}
	}
}

// changed lists what became of one name: a directory that is a file now is gone with all that was in it, and a file is new.
func (m *Merger) changed(ctx context.Context, path string, was, is item, changes *[]treeChange) (ok bool, err error) {
	switch wasDir, isDir := was.mode == modeTree, is.mode == modeTree; {
	case was.is(is):
		return true, nil
	case wasDir || isDir:
		var dirs [2][]byte
		for i, it := range []item{was, is} {
			if it.mode == modeTree {
				dirs[i] = it.oid
			}
		}
		if ok, err = m.changesBelow(ctx, path+"/", dirs[0], dirs[1], changes); err != nil || !ok || wasDir == isDir {
			return ok, err
		}
		if wasDir {
			was = item{}
		} else {
			is = item{}
		}
	}
	if was.oid == nil && is.oid == nil {
		return true, nil
	}
	c := treeChange{status: 'M', path: path}
	switch {
	case was.oid == nil:
		c.status = 'A'
	case is.oid == nil:
		c.status = 'D'
	case was.mode != is.mode && (was.mode != modeFile && was.mode != modeProgram || is.mode != modeFile && is.mode != modeProgram):
		c.status = 'T'
	}
	c.oldMode, c.oldOID = m.side(was)
	c.newMode, c.newOID = m.side(is)
	*changes = append(*changes, c)
	return true, nil
}

// side is what one side of a change has, as git writes it.
func (m *Merger) side(it item) (mode, oid string) {
	if it.oid == nil {
		return "000000", strings.Repeat("0", 2*m.format.size())
	}
	return fmt.Sprintf("%06o", it.mode), hexID(it.oid)
}
