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
func (m *Merger) brought(ctx context.Context, path string, it item, known []item, visit func(path string, it item) (more bool, err error)) error {
	if it.mode == modeGitlink || slices.ContainsFunc(known, it.holdsSame) {
		return nil
	}
	more, err := visit(path, it)
	if err != nil || !more || it.mode != modeTree {
		return err
	}
	dir, err := m.twig(ctx, it.oid)
	if unreadable(err) {
		return &UnsoundError{Path: path, Why: err.Error()}
	}
	if err != nil {
		return err
	}
	var like []*twig
	for _, k := range known {
		if k.mode != modeTree {
			continue
		}
		t, err := m.twig(ctx, k.oid)
		if err != nil {
			return err
		}
		like = append(like, t)
	}
	at := strings.TrimPrefix(path+"/", "./")
	for _, next := range dir.items {
		name := string(next.name)
		if slices.ContainsFunc(like, func(t *twig) bool { had, there := t.find(name); return there && next.holdsSame(had) }) {
			continue // the common case, without allocation
		}
		var before []item
		for _, t := range like {
			if had, there := t.find(name); there {
				before = append(before, had)
			}
		}
		if err := m.brought(ctx, at+name, next, before, visit); err != nil {
			return err
		}
	}
	return nil
}

// sameObject reports whether two tree entries name the same object, whatever their executable bits.
func (it item) holdsSame(other item) bool {
	return it.object() == other.object() && string(it.oid) == string(other.oid)
}

// objectType returns the type of the object that a tree entry names.
func (it item) object() string {
	switch it.mode {
	case modeTree:
		return "tree"
	case modeGitlink:
		return "commit"
	}
	return "blob"
}

// isUnreadableObject reports whether an error means that git cannot read an object, rather than that git could not run.
func unreadable(err error) bool {
	return errors.Is(err, errCutOff) || errors.As(err, new(*IncompleteError)) || errors.As(err, new(*Error))
}

// adoptNewObjects copies into the merger all objects of a tree that the known trees do not have at the same path. Git
// writes no object that the repository already has, even if no ref reaches it: gc could then delete it before the refs
// move.
func (m *Merger) adopt(ctx context.Context, tree string, known ...string) error {
	var tops []item
	for _, name := range append([]string{tree}, known...) {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return err
		}
		tops = append(tops, leafOf(oid))
	}
	return m.brought(ctx, ".", tops[0], tops[1:], func(_ string, it item) (bool, error) { return true, m.adoptOne(ctx, it.oid) })
}

// adoptObject copies a loose object of the repository into the merger. It only records the path of a large one, so that
// hasLostObjects notices when it is deleted.
func (m *Merger) adoptOne(ctx context.Context, raw []byte) error {
	const most = 1 << 17 // compressed; the content may be a thousand times larger
	oid := hexID(raw)
	m.talking.Lock()
	_, is := m.pending[string(raw)]
	m.talking.Unlock()
	if _, err := os.Lstat(m.repo.loosePath(oid)); is || err == nil {
		return nil
	}
	fi, err := os.Lstat(m.real.loosePath(oid))
	if err == nil && fi.Size() > most {
		m.talking.Lock()
		defer m.talking.Unlock()
		m.put = append(m.put, m.real.loosePath(oid))
		return nil
	}
	if err != nil { // in a pack of the repository or of the merger
		return nil
	}
	m.talking.Lock()
	o, data, err := m.askForAny(ctx, oid)
	m.talking.Unlock()
	if err != nil || o.Missing() {
		return err // a missing object is reported when it is needed
	}
	return m.add(ctx, object{kind: o.Type, oid: raw, content: data})
}
