package walls

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// markOverlays marks the directories that the user makes writable within the sandbox only, with an overlay.
func (d *planner) markOverlays() error {
	for _, path := range d.Policy.OverlayWrite {
		e, err := d.checkWriteGrant(path, "private:"+path)
		if err == nil && e.Kind == File && d.inPrivateHome(e.Path) {
			continue // a copy in the private home
		}
		if err == nil {
			if why := d.whyNoOverlay(e); why != "" && !(e.Kind == Directory && slices.Contains(d.Policy.Copied, e.Path)) {
				err = &RefusedError{Key: WriteKey, Path: "private:" + path, Why: why, Remedy: overlayRemedy(e), NoOverlay: e.Kind == Directory}
			}
		}
		if err != nil {
			return err
		}
		d.markPath(e.Path, Overlaid, false, Cause{ReasonPrivateWrite, path})
	}
	return nil
}

// overlayRemedy says what to grant instead of a path on which no overlay can be mounted.
func overlayRemedy(e Entry) string {
	if e.Kind == Directory {
		return "grant a directory below it, or another one"
	}
	return "grant its directory, private:" + filepath.Dir(e.Path) + ", or make the file itself writable, without private:"
}

// markWritable marks the paths that the user makes writable directly.
func (d *planner) markWritable() error {
	for _, path := range d.Policy.Write {
		e, err := d.checkWriteGrant(path, path)
		if file := d.gitConfigIn(e.Path); err == nil && file != "" {
			err = &RefusedError{Key: WriteKey, Path: path, Why: "git outside of the sandbox obeys " + file, Remedy: "grant another directory, or private:" + path}
		}
		if err != nil {
			return err
		}
		d.markPath(e.Path, Writable, false, Cause{ReasonWrite, path})
	}
	return nil
}

// checkWriteGrant looks up a path to be made writable, and refuses those that would break the guarantees of the walls.
func (d *planner) checkWriteGrant(path, value string) (Entry, error) {
	refuse := func(why, remedy string) (Entry, error) {
		return Entry{}, &RefusedError{Key: WriteKey, Path: value, Why: why, Remedy: remedy}
	}
	const below = "grant a path below it"
	e := d.lookup(path)
	switch {
	case e.Kind == Absent:
		return refuse("it does not exist", "create it, or unset the key")
	case e.Kind == Device, IsKernelDir(e.Path):
		return refuse("it is a device or a file system of the kernel", "grant another directory; /tmp and /dev/shm are writable in every sandbox")
	case e.Path == "/":
		return refuse("it is the root directory", below)
	case d.homeDir() != "" && guard.IsOrContains(e.Path, d.homeDir()):
		return refuse("it contains your home directory, whose files control your programs", below)
	case d.marks[e.Path].visibility == Private:
		return refuse("every sandbox has its own", below)
	}
	for _, path := range d.Policy.Secrets {
		if secret := d.lookup(path); secret.Kind != Absent && guard.IsOrContains(secret.Path, e.Path) {
			return refuse("it is hidden, because it contains secrets", "grant another directory")
		}
	}
	protected := append([]string{d.GitDir, d.DataDir, d.OverlayDir, d.Tree}, d.IntegrationTrees...)
	for _, place := range append([]string{e.Path}, d.files.Mounts(e.Path)...) {
		if other, rel := d.findOverlap(place, protected); rel != guard.Disjoint {
			what := "it"
			if place != e.Path {
				what = place + ", which is mounted there,"
			}
			return refuse(fmt.Sprintf("%s %s %s, %s", what, rel, other, d.describeProtected(other)), "grant another directory")
		}
	}
	return e, nil
}

// gitConfigIn returns a file or directory that controls git outside of the sandbox and that a command could change if a path
// were writable; empty if there is none.
func (d *planner) gitConfigIn(path string) string {
	for _, file := range d.GitConfig {
		if file == "" {
			continue
		}
		if guard.IsOrContains(path, file) || guard.IsOrContains(file, path) {
			return file
		}
		links, _ := d.followLinks(file)
		for _, link := range links { // one that leads to another link, which a command could replace
			if guard.IsOrContains(path, link.Path) {
				return link.Path
			}
		}
	}
	return ""
}

func (d *planner) describeProtected(path string) string {
	switch path {
	case d.Tree:
		return "the sandbox"
	case d.GitDir:
		return "the git directory"
	case d.DataDir, d.OverlayDir:
		return "the data directory"
	}
	return "an integration worktree"
}

// findOverlap finds which of the others overlaps with a path, preferring the one that is the same directory.
func (d *planner) findOverlap(path string, others []string) (which string, how guard.Relation) {
	for _, other := range others {
		rel := d.files.Overlap(path, other)
		if rel == guard.Same || rel != guard.Disjoint && how == guard.Disjoint {
			which, how = other, rel
		}
		if rel == guard.Same {
			break
		}
	}
	return which, how
}

// whyNoOverlay returns the reason why no overlay can be mounted on a path, or "".
func (d *planner) whyNoOverlay(e Entry) string {
	switch {
	case e.Kind != Directory:
		return "only a directory can have an overlay"
	case e.Owner != d.uid:
		return "it belongs to another user, whose files cannot be changed through an overlay"
	}
	if why := d.whyUnmapped(e); why != "" {
		return "it " + why
	}
	if points := d.files.Mounts(e.Path); len(points) > 0 {
		return "an overlay cannot contain a mount point: " + points[0]
	}
	return d.files.WhyNoOverlay(e.Path, d.GitDir)
}

// mountsInCopy returns the outermost mount points in a directory of Policy.Copied. The copy has nothing there.
func (d *planner) mountsInCopy(dir string) (points []string) {
	if !slices.Contains(d.Policy.Copied, dir) {
		return nil
	}
	all := d.files.Mounts(dir)
	slices.SortFunc(all, byDepth)
	for _, point := range all {
		_, marked := d.marks[point]
		if !marked && !slices.ContainsFunc(points, func(outer string) bool { return guard.IsOrContains(outer, point) }) {
			points = append(points, point)
		}
	}
	return points
}

// isInDataDir reports whether a path is the data directory or lies inside of it, also under another name by a bind mount.
func (d *planner) isInDataDir(path string) bool {
	return d.isInside(path, d.DataDir) || d.isInside(path, d.OverlayDir)
}
