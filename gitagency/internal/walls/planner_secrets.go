package walls

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// markSecrets marks the paths hidden by default, and the sockets of agents (ssh-agent and the like) that act for the
// user.
func (d *planner) markSecrets() error {
	for _, path := range d.Policy.Secrets {
		if err := d.markSecret(path); err != nil {
			return err
		}
	}
	for _, path := range d.AgentSockets {
		e := d.lookup(path)
		dir := e
		if e.Kind != Directory {
			dir = d.lookup(filepath.Dir(path))
		}
		// More sockets may appear beside it: hide the whole directory, unless it holds other things.
		switch {
		case IsKernelDir(e.Path) || IsKernelDir(dir.Path):
		case dir.Kind == Directory && !d.isShared(dir.Path):
			d.markPath(dir.Path, Hidden, true, Cause{ReasonAgentSocket, path})
		case e.Kind == Socket || e.Kind == File:
			d.markPath(e.Path, Hidden, true, Cause{ReasonAgentSocket, path})
		}
	}
	return nil
}

// markFiltered marks the files that are shown with another content, and copies of those in the git directory that another
// mount shows; the originals there are replaced in the upper directory of the overlay.
func (d *planner) markFiltered() error {
	for _, f := range d.Policy.Filtered {
		e := d.lookup(f.Path)
		switch _, marked := d.marks[e.Path]; {
		case e.Kind != File || marked || IsKernelDir(e.Path) || guard.IsOrContains(d.Tree, e.Path):
		case guard.IsOrContains(d.GitDir, e.Path):
			for _, name := range d.files.OtherNames(e.Path) {
				if other := d.lookup(name); other.Kind == File && other.Path == name {
					d.marks[name] = pathMark{visibility: Filtered, optional: true, text: string(f.Text), cause: Cause{ReasonCredentials, f.Path}}
				}
			}
		default:
			d.marks[e.Path] = pathMark{visibility: Filtered, optional: true, text: string(f.Text), cause: Cause{ReasonCredentials, f.Path}}
		}
	}
	return nil
}

func (d *planner) markSecret(path string) error {
	e := d.lookup(path)
	if e.Kind == Absent || e.Kind == Device || IsKernelDir(e.Path) {
		return nil // a disabled shell history is often a symlink to /dev/null
	}
	if d.neededBelow(e.Path) != "" {
		return &RefusedError{Wall: hiddenSecrets, Why: fmt.Sprintf("%s is a link to %s, which cannot be hidden", path, e.Path), Remedy: "replace the link with a file or directory"}
	}
	if !guard.IsOrContains(d.Tree, e.Path) && !guard.IsOrContains(d.GitDir, e.Path) { // a repository may contain a file of that name
		d.markPath(e.Path, Hidden, true, Cause{ReasonSecret, path})
	}
	return nil
}

// isShared reports whether a directory holds more than sockets.
func (d *planner) isShared(dir string) bool {
	if strings.Count(dir, "/") < 3 { // such as /var/lib
		return true
	}
	for _, place := range slices.Concat([]string{d.homeDir(), d.Tree, d.GitDir}, d.IntegrationTrees, d.PathDirs, d.KeepVisible) {
		if place != "" && (guard.IsOrContains(dir, place) || guard.IsOrContains(dir, d.lookup(place).Path)) {
			return true
		}
	}
	return guard.IsOrContains(d.Tree, dir) || guard.IsOrContains(d.GitDir, dir)
}

// reachableSockets finds the sockets that commands could connect to. A socket in an overlay is another inode, on which
// no process listens; sockets in writable directories may belong to the sandbox; and a socket that the user made
// visible is meant to be used.
func (d *planner) reachableSockets(plan Plan, listening []string) []string {
	var found []string
	seen := func(path string) bool {
		s := plan.VisibilityOf(path)
		return (s == ReadOnly || s == KeptVisible || s == MaskedAround) && !IsKernelDir(path)
	}
	for _, path := range listening {
		if !filepath.IsAbs(path) || !seen(filepath.Clean(path)) {
			continue
		}
		e := d.lookup(path)
		if e.Kind == Socket && seen(e.Path) && !slices.Contains(plan.Kept, e.Path) && d.marks[e.Path].visibility != KeptVisible {
			found = append(found, e.Path)
			found = append(found, slices.DeleteFunc(d.files.OtherNames(e.Path), func(name string) bool { return !seen(name) })...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
