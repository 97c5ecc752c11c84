package walls

import (
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Visibility says how a path appears in a sandbox.
type Visibility string

// The visibilities.
const (
	ReadOnly      Visibility = ""          // unchanged, read-only
	KeptVisible   Visibility = "kept"      // the same, below something hidden or private
	Hidden        Visibility = "hidden"    // empty
	Filtered      Visibility = "filtered"  // with another content, read-only
	Private       Visibility = "private"   // empty at first, and writable
	MaskedAround  Visibility = "masked"    // unchanged, read-only, around hidden paths
	Writable      Visibility = "writable"  // unchanged, and writable
	Overlaid      Visibility = "layered"   // unchanged, and writable within the sandbox
	FixedReadOnly Visibility = "read-only" // read-only, below something writable
	Replaced      Visibility = "replaced"  // of the sandbox or of another root file system instead of the machine
)

// VisibilityOf returns the visibility of a path, which must not contain symbolic links.
func (p Plan) VisibilityOf(path string) Visibility {
	if p.Software.Dir != "" && !p.Software.shows(path) {
		return Replaced
	}
	if slices.Contains(p.Fixed, path) {
		return FixedReadOnly
	}
	sight, depth := ReadOnly, -1
	p.forEachPath(func(place string, s Visibility) {
		if guard.IsOrContains(place, path) && len(place) > depth {
			sight, depth = s, len(place)
		}
	})
	return sight
}

// parentVisibility returns the visibility of the parent directory of a path.
func (p Plan) parentVisibility(path string) Visibility {
	if path == "/" {
		return ReadOnly
	}
	return p.VisibilityOf(filepath.Dir(path))
}

// IsVisible reports whether the content of a path outside is there inside.
func (p Plan) IsVisible(path string) bool {
	s := p.VisibilityOf(path)
	return s != Hidden && s != Private && s != Replaced
}

// IsWritable reports whether files can be created below a path.
func (p Plan) IsWritable(path string) bool {
	s := p.VisibilityOf(path)
	return s == Private || s == Writable || s == Overlaid
}

func (p Plan) forEachPath(yield func(string, Visibility)) {
	for _, list := range []struct {
		paths []string
		sight Visibility
	}{{p.Private, Private}, {p.Hidden, Hidden}, {p.Omitted, Hidden}, {p.Masked, MaskedAround}, {p.Kept, KeptVisible}, {p.Writable, Writable}} {
		for _, path := range list.paths {
			yield(path, list.sight)
		}
	}
	if p.Home.Path != "" {
		yield(p.Home.Path, Private)
	}
	for _, f := range p.Filtered {
		yield(f.Path, Filtered)
	}
	for _, l := range p.Overlays {
		yield(l.Path, Overlaid)
	}
	for _, b := range p.Bound {
		if b.ReadOnly {
			yield(b.Path, FixedReadOnly)
		} else {
			yield(b.Path, Private)
		}
	}
}
