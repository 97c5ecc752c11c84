package git

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
)

// brought visits what is at a path, and is not the same in any of those that are known to be at that path: a directory
// before what is in it, of which nothing is visited unless visit wants more. Submodules are elsewhere. A directory that
// git cannot read is an *UnsoundError.
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
			continue // as nearly all of it
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

// holdsSame reports whether two entries lead to the same object, whether or not it is a program.
func (it item) holdsSame(other item) bool {
	return it.object() == other.object() && string(it.oid) == string(other.oid)
}

// object is the kind of what an entry leads to.
func (it item) object() string {
	switch it.mode {
	case modeTree:
		return "tree"
	case modeGitlink:
		return "commit"
	}
	return "blob"
}

// unreadable reports whether an error is that git cannot read an object, and not that nobody could ask it.
func unreadable(err error) bool {
	return errors.Is(err, errCutOff) || errors.As(err, new(*IncompleteError)) || errors.As(err, new(*Error))
}

// adopt makes the merger have itself what a tree has and others do not have at the same path. Git does not write what is in
// the repository already, also where nothing leads to it: then only we would know that it is needed.
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

// adoptOne makes the merger have an object itself. One that is large it only watches.
func (m *Merger) adoptOne(ctx context.Context, raw []byte) error {
	const most = 1 << 17 // in its file, which may be a thousand times as much
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
	if err != nil { // it is in a pack, of the repository or our own
		return nil
	}
	m.talking.Lock()
	o, data, err := m.askForAny(ctx, oid)
	m.talking.Unlock()
	if err != nil || o.Missing() {
		return err // who needs it will say so
	}
	return m.add(ctx, object{kind: o.Type, oid: raw, content: data})
}
