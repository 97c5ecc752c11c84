package merge

import (
	"bytes"
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// DiffTrees lists the changes between two commits or trees that may exist only in the merger. ok is false if a tree object
// is not in git's canonical form: then git has to compare them.
func (m *Merger) DiffTrees(ctx context.Context, from, to string) (changes []git.TreeChange, ok bool, err error) {
	was, is, err := m.treePair(ctx, from, to)
	if err != nil {
		return nil, false, err
	}
	d := dirDiffer{m, newWalkLimit(m.Repo, "comparing the trees of "+from+" and "+to), nil}
	ok, err = d.diffDirs(ctx, "", was, is)
	return d.changes, ok, err
}

// dirDiffer collects the changes between two trees.
type dirDiffer struct {
	*Merger
	limit   *walkLimit
	changes []git.TreeChange
}

// diffDirs compares two tree objects; nil: the directory does not exist on that side.
func (d *dirDiffer) diffDirs(ctx context.Context, at string, was, is []byte) (ok bool, err error) {
	if err := d.limit.add(at); err != nil {
		return false, err
	}
	var sides [3][]object.TreeEntry
	for i, oid := range [][]byte{was, is} {
		if oid == nil {
			continue
		}
		dir, err := d.readTree(ctx, oid)
		if err != nil || !dir.Canonical && len(dir.Entries) > 0 {
			return false, err
		}
		sides[i] = dir.Entries
	}
	for {
		name, more := nextName(sides)
		if !more {
			return true, nil
		}
		var entries [2]object.TreeEntry
		for i := range entries {
			if items := sides[i]; len(items) > 0 && bytes.Equal(items[0].Name, name) {
				entries[i], sides[i] = items[0], items[1:]
			}
		}
		if ok, err := d.diffEntry(ctx, at+string(name), entries[0], entries[1]); err != nil || !ok {
			return false, err
		}
	}
}

// diffEntry appends the changes of one name. If a file replaces a directory, all files below are deleted and the file is
// added, and the other way round.
func (d *dirDiffer) diffEntry(ctx context.Context, path string, was, is object.TreeEntry) (ok bool, err error) {
	switch wasDir, isDir := was.Mode == object.ModeTree, is.Mode == object.ModeTree; {
	case was.Equal(is):
		return true, nil
	case wasDir || isDir:
		var dirs [2][]byte
		for i, it := range []object.TreeEntry{was, is} {
			if it.Mode == object.ModeTree {
				dirs[i] = it.OID
			}
		}
		if ok, err = d.diffDirs(ctx, path+"/", dirs[0], dirs[1]); err != nil || !ok || wasDir == isDir {
			return ok, err
		}
		if wasDir {
			was = object.TreeEntry{}
		} else {
			is = object.TreeEntry{}
		}
	}
	if was.OID == nil && is.OID == nil {
		return true, nil
	}
	c := git.TreeChange{Status: 'M', Path: path}
	switch {
	case was.OID == nil:
		c.Status = 'A'
	case is.OID == nil:
		c.Status = 'D'
	case was.Mode != is.Mode && (was.Mode != object.ModeFile && was.Mode != object.ModeExecutable || is.Mode != object.ModeFile && is.Mode != object.ModeExecutable):
		c.Status = 'T'
	}
	c.OldMode, c.OldOID = d.modeAndOID(was)
	c.NewMode, c.NewOID = d.modeAndOID(is)
	d.changes = append(d.changes, c)
	return true, d.limit.add(path)
}

// modeAndOID returns the mode and object id of one side of a change, as git diff-tree prints them.
func (m *Merger) modeAndOID(it object.TreeEntry) (mode, oid string) {
	if it.OID == nil {
		return "000000", m.format.ZeroID()
	}
	return fmt.Sprintf("%06o", it.Mode), object.HexOID(it.OID)
}
