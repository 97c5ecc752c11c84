package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// diffTrees lists the changes between two commits or trees that may exist only in the merger. ok is false if a tree object
// is not in git's canonical form: then git has to compare them.
func (m *Merger) diffTrees(ctx context.Context, from, to string) (changes []treeChange, ok bool, err error) {
	was, is, err := m.treePair(ctx, from, to)
	if err != nil {
		return nil, false, err
	}
	ok, err = m.diffDirs(ctx, "", was, is, &changes)
	return changes, ok, err
}

// diffDirs compares two tree objects; nil: the directory does not exist on that side.
func (m *Merger) diffDirs(ctx context.Context, at string, was, is []byte, changes *[]treeChange) (ok bool, err error) {
	var sides [3][]treeEntry
	for i, oid := range [][]byte{was, is} {
		if oid == nil {
			continue
		}
		dir, err := m.readTree(ctx, oid)
		if err != nil || !dir.canonical && len(dir.entries) > 0 {
			return false, err
		}
		sides[i] = dir.entries
	}
	for {
		name, more := nextName(sides)
		if !more {
			return true, nil
		}
		var entries [2]treeEntry
		for i := range entries {
			if items := sides[i]; len(items) > 0 && bytes.Equal(items[0].name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		if ok, err := m.diffEntry(ctx, at+string(name), entries[0], entries[1], changes); err != nil || !ok {
			return false, err
		}
	}
}

// diffEntry appends the changes of one name. If a file replaces a directory, all files below are deleted and the file is
// added, and the other way round.
func (m *Merger) diffEntry(ctx context.Context, path string, was, is treeEntry, changes *[]treeChange) (ok bool, err error) {
	switch wasDir, isDir := was.mode == modeTree, is.mode == modeTree; {
	case was.equal(is):
		return true, nil
	case wasDir || isDir:
		var dirs [2][]byte
		for i, it := range []treeEntry{was, is} {
			if it.mode == modeTree {
				dirs[i] = it.oid
			}
		}
		if ok, err = m.diffDirs(ctx, path+"/", dirs[0], dirs[1], changes); err != nil || !ok || wasDir == isDir {
			return ok, err
		}
		if wasDir {
			was = treeEntry{}
		} else {
			is = treeEntry{}
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
	case was.mode != is.mode && (was.mode != modeFile && was.mode != modeExecutable || is.mode != modeFile && is.mode != modeExecutable):
		c.status = 'T'
	}
	c.oldMode, c.oldOID = m.modeAndOID(was)
	c.newMode, c.newOID = m.modeAndOID(is)
	*changes = append(*changes, c)
	return true, nil
}

// modeAndOID returns the mode and object id of one side of a change, as git diff-tree prints them.
func (m *Merger) modeAndOID(it treeEntry) (mode, oid string) {
	if it.oid == nil {
		return "000000", strings.Repeat("0", 2*m.format.idSize())
	}
	return fmt.Sprintf("%06o", it.mode), hexID(it.oid)
}
