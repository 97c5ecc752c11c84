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
		switch {
		case !d.canBeCache(path, e, protected):
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
			d.markLinkedCaches(path, protected)
		case d.inPrivateHome(e.Path) && listed:
			d.markKnownCaches(path)
		case d.inPrivateHome(e.Path):
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
	return nil
}

// canBeCache reports whether a directory can be a cache: it is no part of a repository or a sandbox, does not contain the home,
// and commands cannot choose what its name leads to.
func (d *planner) canBeCache(name string, e Entry, protected []string) bool {
	if e.Kind != Directory || e.Path == "/" || d.homeDir() != "" && guard.IsOrContains(e.Path, d.homeDir()) || IsKernelDir(e.Path) {
		return false
	}
	// Comparing names is enough: an overlay changes nothing in its lower directory, whatever other names that has.
	touching := func(place string) bool { return guard.IsOrContains(place, e.Path) || guard.IsOrContains(e.Path, place) }
	return !slices.ContainsFunc(protected, touching) && d.whyChangeable(name, e.Path) == ""
}

// markLinkedCaches marks the known caches to which symbolic links in a directory lead. The overlay over the directory shows
// the links, and what they lead to would be missing in the private home, or read-only elsewhere.
func (d *planner) markLinkedCaches(dir string, protected []string) {
	for _, name := range d.Policy.Known[dir] {
		path := filepath.Join(dir, name)
		if d.files.ReadLink(filepath.Join(d.lookup(dir).Path, name)) == "" {
			continue
		}
		switch e := d.lookup(path); {
		case !d.canBeCache(path, e, protected):
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
		case d.inPrivateHome(e.Path):
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
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
