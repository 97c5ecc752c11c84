package walls

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// markCaches marks the caches of tools.
func (d *planner) markCaches() error {
	protected := d.protectedPlaces()
	for _, path := range d.Policy.Caches {
		e := d.lookup(path)
		_, listed := d.Policy.Known[path]
		if e.Kind != Directory || e.Path == "/" || d.homeDir() != "" && guard.IsOrContains(e.Path, d.homeDir()) || IsKernelDir(e.Path) {
			continue
		}
		// Comparing names is enough: an overlay changes nothing in its lower directory, whatever other names that has.
		touching := func(place string) bool { return guard.IsOrContains(place, e.Path) || guard.IsOrContains(e.Path, place) }
		switch {
		case slices.ContainsFunc(protected, touching), d.whyChangeable(path, e.Path) != "":
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
		case d.inPrivateHome(e.Path) && listed:
			d.markKnownCaches(path)
		case d.inPrivateHome(e.Path):
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
	return nil
}

// markKnownCaches marks the known caches in a directory that cannot be an overlay. The directory itself is that of the private
// home, so that no other cache is visible, nor one that is created later.
func (d *planner) markKnownCaches(dir string) {
	for _, name := range d.Policy.Known[dir] {
		path := filepath.Join(dir, name)
		d.knownCaches = append(d.knownCaches, path)
		switch e := d.lookup(path); {
		case !d.canShow(e) || d.whyChangeable(path, e.Path) != "":
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
		default:
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
}

// omittedIn returns the paths that are omitted from a cache, without those that are marked, or below which something stays
// visible.
func (d *planner) omittedIn(dir string) (paths []string) {
	cause := d.marks[dir].cause
	if cause.Reason != ReasonCache {
		return nil
	}
	shown := map[string]bool{}
	for path, m := range d.marks {
		if rest, below := strings.CutPrefix(path, dir+"/"); below {
			name, further, _ := strings.Cut(rest, "/")
			if further == "" || m.visibility == KeptVisible || m.visibility == Writable || m.visibility == Overlaid {
				shown[name] = true
			}
		}
	}
	for _, name := range d.Policy.Omitted[cause.Named] {
		if !shown[name] {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}
