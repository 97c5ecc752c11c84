package git

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
)

// walkNew calls visit for a tree entry, and recursively for all entries below it, that differ from every known entry at the
// same path. It visits a tree before its entries, and skips those if visit returns false. It skips submodules, whose
// commits are in other repositories. A tree that git cannot read is a fsck error with its path.
func (m *Merger) walkNew(ctx context.Context, path string, it treeEntry, known []treeEntry, visit func(path string, it treeEntry) (more bool, err error)) error {
	if it.mode == modeGitlink || slices.ContainsFunc(known, it.sameObject) {
		return nil
	}
	more, err := visit(path, it)
	if err != nil || !more || it.mode != modeTree {
		return err
	}
	dir, err := m.readTree(ctx, it.oid)
	if isUnreadableObject(err) {
		return &FsckError{Path: path, Why: err.Error()}
	}
	if err != nil {
		return err
	}
	var like []*Tree
	for _, k := range known {
		if k.mode != modeTree {
			continue
		}
		t, err := m.readTree(ctx, k.oid)
		if err != nil {
			return err
		}
		like = append(like, t)
	}
	at := strings.TrimPrefix(path+"/", "./")
	for _, next := range dir.entries {
		name := string(next.name)
		if slices.ContainsFunc(like, func(t *Tree) bool { had, there := t.find(name); return there && next.sameObject(had) }) {
			continue // the common case, without allocation
		}
		var before []treeEntry
		for _, t := range like {
			if had, there := t.find(name); there {
				before = append(before, had)
			}
		}
		if err := m.walkNew(ctx, at+name, next, before, visit); err != nil {
			return err
		}
	}
	return nil
}

// sameObject reports whether two tree entries name the same object, whatever their executable bits.
func (it treeEntry) sameObject(other treeEntry) bool {
	return it.objectType() == other.objectType() && string(it.oid) == string(other.oid)
}

// objectType returns the type of the object that a tree entry names.
func (it treeEntry) objectType() string {
	switch it.mode {
	case modeTree:
		return "tree"
	case modeGitlink:
		return "commit"
	}
	return "blob"
}

// isUnreadableObject reports whether an error means that git cannot read an object, rather than that git could not run.
func isUnreadableObject(err error) bool {
	return errors.Is(err, errTruncated) || errors.As(err, new(*IncompleteError)) || errors.As(err, new(*Error))
}

// adoptNewObjects copies into the merger all objects of a tree that the known trees do not have at the same path. Git
// writes no object that the repository already has, even if no ref reaches it: gc could then delete it before the refs
// move.
func (m *Merger) adoptNewObjects(ctx context.Context, tree string, known ...string) error {
	var tops []treeEntry
	for _, name := range append([]string{tree}, known...) {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return err
		}
		tops = append(tops, rootEntry(oid))
	}
	return m.walkNew(ctx, ".", tops[0], tops[1:], func(_ string, it treeEntry) (bool, error) { return true, m.adoptObject(ctx, it.oid) })
}

// adoptObject copies a loose object of the repository into the merger. It only records the path of a large one, so that
// hasLostObjects notices when it is deleted.
func (m *Merger) adoptObject(ctx context.Context, raw []byte) error {
	const most = 1 << 17 // compressed; the content may be a thousand times larger
	oid := hexID(raw)
	m.mu.Lock()
	_, is := m.pending[string(raw)]
	m.mu.Unlock()
	if _, err := os.Lstat(m.repo.loosePath(oid)); is || err == nil {
		return nil
	}
	fi, err := os.Lstat(m.realRepo.loosePath(oid))
	if err == nil && fi.Size() > most {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.persistedPaths = append(m.persistedPaths, m.realRepo.loosePath(oid))
		return nil
	}
	if err != nil { // in a pack of the repository or of the merger
		return nil
	}
	m.mu.Lock()
	o, data, err := m.readAnyLocked(ctx, oid)
	m.mu.Unlock()
	if err != nil || o.Missing() {
		return err // a missing object is reported when it is needed
	}
	return m.addObjects(ctx, rawObject{kind: o.Type, oid: raw, content: data})
}
