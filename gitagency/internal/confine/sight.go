package confine

import (
	"path/filepath"
	"slices"
)

// Sight is how a path appears in a sandbox.
type Sight string

// The sights there are.
const (
	Seen      Sight = ""          // as it is, read-only
	KeptSight Sight = "kept"      // the same, in the middle of what is not seen
	Hidden    Sight = "hidden"    // empty
	Private   Sight = "private"   // empty at first, and writable
	Writable  Sight = "writable"  // as it is, and writable
	Layered   Sight = "layered"   // as it is, and what is written stays in the sandbox
	FixedFile Sight = "read-only" // in the middle of what is writable
)

// At says how a path appears, which is without symbolic links.
func (p Plan) At(path string) Sight {
	if slices.Contains(p.Fixed, path) {
		return FixedFile
	}
	sight, depth := Seen, -1
	p.each(func(place string, s Sight) {
		if holds(place, path) && len(place) > depth {
			sight, depth = s, len(place)
		}
	})
	return sight
}

// around is how what lies right around a path appears.
func (p Plan) around(path string) Sight {
	if path == "/" {
		return Seen
	}
	return p.At(filepath.Dir(path))
}

// Sees reports whether what is at a path outside is there inside.
func (p Plan) Sees(path string) bool { s := p.At(path); return s != Hidden && s != Private }

// Writes reports whether files can be made below a path.
func (p Plan) Writes(path string) bool {
	s := p.At(path)
	return s == Private || s == Writable || s == Layered
}

func (p Plan) each(yield func(string, Sight)) {
	for _, list := range []struct {
		paths []string
		sight Sight
	}{{p.Private, Private}, {p.Hidden, Hidden}, {p.Kept, KeptSight}, {p.Writable, Writable}} {
		for _, path := range list.paths {
			yield(path, list.sight)
		}
	}
	for _, l := range p.Layers {
		yield(l.Path, Layered)
	}
}
