package merge

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// walkNew calls visit for a tree entry, and recursively for all entries below it, that differ from every known entry at
// the same path. It visits a tree before its entries, and skips those if visit returns false. It skips submodules,
// whose commits are in other repositories. A tree that git cannot read is a *fsck.Error with its path.
func (m *Merger) walkNew(ctx context.Context, path string, it object.TreeEntry, known []object.TreeEntry, visit func(path string, it object.TreeEntry) (more bool, err error)) error {
	if it.Mode == object.ModeGitlink || slices.ContainsFunc(known, it.SameObject) {
		return nil
	}
	more, err := visit(path, it)
	if err != nil || !more || it.Mode != object.ModeTree {
		return err
	}
	dir, err := m.readTree(ctx, it.OID)
	if isUnreadableObject(err) {
		return &fsck.Error{Path: path, Why: err.Error()}
	}
	if err != nil {
		return err
	}
	var like []*object.Tree
	for _, k := range known {
		if k.Mode != object.ModeTree {
			continue
		}
		t, err := m.readTree(ctx, k.OID)
		if err != nil {
			return err
		}
		like = append(like, t)
	}
	at := strings.TrimPrefix(path+"/", "./")
	for _, next := range dir.Entries {
		name := string(next.Name)
		if slices.ContainsFunc(like, func(t *object.Tree) bool { had, there := t.Find(name); return there && next.SameObject(had) }) {
			continue // the common case, without allocation
		}
		var before []object.TreeEntry
		for _, t := range like {
			if had, there := t.Find(name); there {
				before = append(before, had)
			}
		}
		if err := m.walkNew(ctx, at+name, next, before, visit); err != nil {
			return err
		}
	}
	return nil
}

// isUnreadableObject reports whether an error means that git cannot read an object, rather than that git could not run.
func isUnreadableObject(err error) bool {
	return errors.Is(err, object.ErrTruncated) || errors.As(err, new(*object.IncompleteError)) || errors.As(err, new(*git.Error))
}

// adoptNewObjects copies into the merger all objects of a tree that the known trees do not have at the same path. Git
// writes no object that the repository already has, even if no ref reaches it: gc could then delete it before the refs
// move.
func (m *Merger) adoptNewObjects(ctx context.Context, tree string, known ...string) error {
	var tops []object.TreeEntry
	for _, name := range append([]string{tree}, known...) {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return err
		}
		tops = append(tops, rootEntry(oid))
	}
	seen := map[string]bool{} // a tree at several paths is read once
	return m.walkNew(ctx, ".", tops[0], tops[1:], func(_ string, it object.TreeEntry) (bool, error) {
		if seen[string(it.OID)] {
			return false, nil
		}
		seen[string(it.OID)] = true
		return true, m.adoptObject(ctx, it.OID)
	})
}

// adoptObject copies a loose object of the repository into the merger. It only records the path of a large one, so that
// HasLostObjects notices when it is deleted.
func (m *Merger) adoptObject(ctx context.Context, raw []byte) error {
	const most = 1 << 17 // compressed; the content may be a thousand times larger
	oid := object.HexOID(raw)
	m.mu.Lock()
	_, is := m.pending[string(raw)]
	m.mu.Unlock()
	if _, err := os.Lstat(m.Repo.LoosePath(oid)); is || err == nil {
		return nil
	}
	fi, err := os.Lstat(m.realRepo.LoosePath(oid))
	if err == nil && fi.Size() > most {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.PersistedPaths = append(m.PersistedPaths, m.realRepo.LoosePath(oid))
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
	return m.AddObjects(ctx, object.Raw{Kind: o.Type, OID: raw, Content: data})
}
