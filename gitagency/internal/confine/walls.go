package confine

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// mountSpec is one mount of a plan.
type wall struct {
	kind  kind
	path  string
	layer Layer // with kind overlaid
	under int   // index of the nearest mount around it; -1: none
}

type kind int

const (
	private kind = iota
	hidden
	kept
	writable
	layered
	held  // a directory bind-mounted on itself, so that it cannot be moved
	fixed // pinned, and read-only
)

var kindNames = [...]string{"private", "hidden", "kept", "writable", "layered", "held", "fixed"}

func (k kind) String() string { return kindNames[k] }

// hidesContent reports whether a mount covers the original content, so that mounts below it need new mount points.
func (k kind) covers() bool { return k == private || k == hidden }

// orderMounts returns the mounts of a plan in the order in which they are attached, parents first, and then the fixed
// paths.
func arrange(p Plan) (walls, fixtures []wall, err error) {
	add := func(k kind, paths []string) {
		for _, path := range paths {
			walls = append(walls, wall{kind: k, path: path})
		}
	}
	add(private, p.Private)
	add(hidden, p.Hidden)
	add(hidden, p.Sockets)
	add(kept, p.Kept)
	add(writable, p.Writable)
	for _, l := range p.Layers {
		walls = append(walls, wall{kind: layered, path: l.Path, layer: l})
		for _, path := range []string{l.Upper, l.Work} {
			if err := plain(path); err != nil {
				return nil, nil, fmt.Errorf("layer of %s: %w", l.Path, err)
			}
		}
	}
	slices.SortStableFunc(walls, byPath)
	walls = slices.Compact(walls)

	var ancestors []int // indices of the mounts around this one, from the outermost
	arranged := walls[:0]
	for _, w := range walls {
		if err := plain(w.path); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", w.kind, err)
		}
		for len(ancestors) > 0 && !within(w.path, arranged[ancestors[len(ancestors)-1]].path) {
			ancestors = ancestors[:len(ancestors)-1]
		}
		w.under = -1
		if len(ancestors) > 0 {
			w.under = ancestors[len(ancestors)-1]
			switch outer := arranged[w.under]; {
			case outer.path == w.path:
				return nil, nil, fmt.Errorf("%s cannot be both %s and %s", w.path, outer.kind, w.kind)
			case outer.kind == hidden && w.kind == hidden:
				continue // its parent hides it already
			}
		}
		ancestors = append(ancestors, len(arranged))
		arranged = append(arranged, w)
	}
	fixtures, err = fasten(arranged, p.Fixed)
	return arranged, fixtures, err
}

// planFixed returns the fixed paths, and the directories to be pinned so that mounts stay where they are. A mount point
// can be neither moved nor removed, but its parent directory can be renamed and replaced: where that is possible, every
// directory up to the next mount is made a mount point, too.
func fasten(walls []wall, fix []string) (fixtures []wall, err error) {
	pin := func(p string, outer wall) {
		if outer.kind == hidden || outer.kind == kept || p == outer.path {
			return
		}
		for dir := path.Dir(p); dir != outer.path; dir = path.Dir(dir) {
			fixtures = append(fixtures, wall{kind: held, path: dir, under: -1})
		}
	}
	for _, w := range walls {
		if w.under >= 0 {
			pin(w.path, walls[w.under])
		}
	}
	for _, f := range fix {
		if err := plain(f); err != nil {
			return nil, fmt.Errorf("fixed: %w", err)
		}
		fixtures = append(fixtures, wall{kind: fixed, path: f, under: -1})
		for _, w := range slices.Backward(walls) { // the last one that contains it is the nearest
			if within(f, w.path) {
				pin(f, w)
				break
			}
		}
	}
	slices.SortStableFunc(fixtures, byPath)
	return slices.Compact(fixtures), nil
}

// byPath sorts by path, directories before their content, and then by kind.
func byPath(a, b wall) int {
	if c := slices.Compare(strings.Split(a.path, "/"), strings.Split(b.path, "/")); c != 0 {
		return c
	}
	return int(a.kind) - int(b.kind)
}

// isWithin reports whether path is dir or below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// checkPath refuses paths that no mount can be planned on.
func plain(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0):
		return fmt.Errorf("%q is not a plain absolute path", p)
	case p == "/" || p == "/dev" || within(p, "/proc"):
		return fmt.Errorf("%s is not for a plan to change", p)
	}
	return nil
}
