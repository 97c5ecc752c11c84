package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// diffTrees lists the changes between two commits or trees that may exist only in the merger. ok is false if a tree object
// is not in git's canonical form: then git has to compare them.
func (m *Merger) changes(ctx context.Context, from, to string) (changes []treeChange, ok bool, err error) {
	was, is, err := m.pair(ctx, from, to)
	if err != nil {
		return nil, false, err
	}
	ok, err = m.changesBelow(ctx, "", was, is, &changes)
	return changes, ok, err
}

// diffDirs compares two tree objects; nil: the directory does not exist on that side.
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

// diffEntry appends the changes of one name. If a file replaces a directory, all files below are deleted and the file is
// added, and the other way round.
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

// modeAndOID returns the mode and object id of one side of a change, as git diff-tree prints them.
func (m *Merger) side(it item) (mode, oid string) {
	if it.oid == nil {
		return "000000", strings.Repeat("0", 2*m.format.size())
	}
	return fmt.Sprintf("%06o", it.mode), hexID(it.oid)
}
