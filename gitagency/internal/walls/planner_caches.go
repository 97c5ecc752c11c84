package walls

import (
	"path/filepath"
	"slices"
	"strings"
)

// markCaches marks the caches of tools.
func (d *planner) markCaches() error {
	protected := d.protectedPlaces()
	for _, path := range d.Policy.Caches {
		e := d.lookup(path)
		if e.Kind != Directory || e.Path == "/" || d.homeDir() != "" && contains(e.Path, d.homeDir()) || isKernelDir(e.Path) {
			continue
		}
		// Comparing names is enough: an overlay changes nothing in its lower directory, whatever other names that has.
		touching := func(place string) bool { return contains(place, e.Path) || contains(e.Path, place) }
		switch {
		case slices.ContainsFunc(protected, touching):
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
		case d.inPrivateHome(e.Path):
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
	return nil
}

// omittedIn returns the paths that the overlay of a cache leaves out, without those at or below which something is mounted.
func (d *planner) omittedIn(dir string) (paths []string) {
	cause := d.marks[dir].cause
	if cause.Reason != ReasonCache {
		return nil
	}
	mounted := map[string]bool{}
	for path := range d.marks {
		if rest, below := strings.CutPrefix(path, dir+"/"); below {
			name, _, _ := strings.Cut(rest, "/")
			mounted[name] = true
		}
	}
	for _, name := range d.Policy.Omitted[cause.Named] {
		if !mounted[name] {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}
