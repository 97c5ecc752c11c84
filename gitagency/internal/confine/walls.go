package confine

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// wall is one path of a plan and what is put there.
type wall struct {
	kind  kind
	path  string
	layer Layer // of a layered one
	under int   // which of the walls is the nearest around it; -1 for none
}

type kind int

const (
	private kind = iota
	hidden
	kept
	writable
	layered
	held  // a directory that stays as it is, except that nobody can move it
	fixed // held, and cannot be written
)

var kindNames = [...]string{"private", "hidden", "kept", "writable", "layered", "held", "fixed"}

func (k kind) String() string { return kindNames[k] }

// covers reports whether what was there is not there any more, so that what lies below needs a place made
// for it.
func (k kind) covers() bool { return k == private || k == hidden }

// arrange gives the walls of a plan in the order in which they are put up: what lies around others first,
// and then what is fixed in them.
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

	var around []int // the walls that this one is in, from the outermost
	arranged := walls[:0]
	for _, w := range walls {
		if err := plain(w.path); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", w.kind, err)
		}
		for len(around) > 0 && !within(w.path, arranged[around[len(around)-1]].path) {
			around = around[:len(around)-1]
		}
		w.under = -1
		if len(around) > 0 {
			w.under = around[len(around)-1]
			switch outer := arranged[w.under]; {
			case outer.path == w.path:
				return nil, nil, fmt.Errorf("%s cannot be both %s and %s", w.path, outer.kind, w.kind)
			case outer.kind == hidden && w.kind == hidden:
				continue // nothing is to be seen there already
			}
		}
		around = append(around, len(arranged))
		arranged = append(arranged, w)
	}
	fixtures, err = fasten(arranged, p.Fixed)
	return arranged, fixtures, err
}

// fasten gives what is fixed, and what must be held so that walls stay where they are. A mount point can
// be neither moved nor removed, but the directory it is in can, and something else be put in its place:
// where that could be done, every directory up to the next wall becomes a mount point too.
func fasten(walls []wall, fix []string) (fixtures []wall, err error) {
	hold := func(p string, around wall) {
		if around.kind == hidden || around.kind == kept || p == around.path {
			return
		}
		for dir := path.Dir(p); dir != around.path; dir = path.Dir(dir) {
			fixtures = append(fixtures, wall{kind: held, path: dir, under: -1})
		}
	}
	for _, w := range walls {
		if w.under >= 0 {
			hold(w.path, walls[w.under])
		}
	}
	for _, f := range fix {
		if err := plain(f); err != nil {
			return nil, fmt.Errorf("fixed: %w", err)
		}
		fixtures = append(fixtures, wall{kind: fixed, path: f, under: -1})
		for _, w := range slices.Backward(walls) { // of those around it the last is the nearest
			if within(f, w.path) {
				hold(f, w)
				break
			}
		}
	}
	slices.SortStableFunc(fixtures, byPath)
	return slices.Compact(fixtures), nil
}

// byPath sorts by path, directories before what is in them, and by kind.
func byPath(a, b wall) int {
	if c := slices.Compare(strings.Split(a.path, "/"), strings.Split(b.path, "/")); c != 0 {
		return c
	}
	return int(a.kind) - int(b.kind)
}

// within reports whether a path is dir or lies below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// plain refuses paths that no wall can be built on.
func plain(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0):
		return fmt.Errorf("%q is not a plain absolute path", p)
	case p == "/" || p == "/dev" || within(p, "/proc"):
		return fmt.Errorf("%s is not for a plan to change", p)
	}
	return nil
}
