package confine

import (
	"path/filepath"
	"slices"
)

// Visibility says how a path appears in a sandbox.
type Sight string

// The visibilities.
const (
	Seen      Sight = ""          // unchanged, read-only
	KeptSight Sight = "kept"      // the same, below something hidden or private
	Hidden    Sight = "hidden"    // empty
	Private   Sight = "private"   // empty at first, and writable
	Writable  Sight = "writable"  // unchanged, and writable
	Layered   Sight = "layered"   // unchanged, and writable within the sandbox
	FixedFile Sight = "read-only" // read-only, below something writable
)

// VisibilityOf returns the visibility of a path, which must not contain symbolic links.
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

// parentVisibility returns the visibility of the parent directory of a path.
func (p Plan) around(path string) Sight {
	if path == "/" {
		return Seen
	}
	return p.At(filepath.Dir(path))
}

// IsVisible reports whether the content of a path outside is there inside.
func (p Plan) Sees(path string) bool { s := p.At(path); return s != Hidden && s != Private }

// IsWritable reports whether files can be created below a path.
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
