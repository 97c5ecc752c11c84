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
		if e.Kind != Directory || e.Path == "/" || d.homeDir() != "" && guard.IsOrContains(e.Path, d.homeDir()) || IsKernelDir(e.Path) {
			continue
		}
		// Comparing names is enough: an overlay changes nothing in its lower directory, whatever other names that has.
		touching := func(place string) bool { return guard.IsOrContains(place, e.Path) || guard.IsOrContains(e.Path, place) }
		switch {
		case slices.ContainsFunc(protected, touching), d.changeableLink(path, e.Path) != "":
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonCache, path})
		case d.inPrivateHome(e.Path):
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonCache, path})
		}
	}
	d.hideOmitted()
	return nil
}

// hideOmitted marks what is omitted from caches that are no overlays. A symbolic link stays: nothing can be mounted on it.
func (d *planner) hideOmitted() {
	for _, path := range d.Policy.Caches {
		dir := d.lookup(path).Path
		if d.marks[dir].visibility != KeptVisible {
			continue
		}
		for _, name := range d.omittedIn(dir) {
			if e := d.lookup(name); e.Path == name && e.Kind != Absent && e.Kind != Device {
				d.markPath(name, Hidden, true, Cause{ReasonOtherCache, path})
			}
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
