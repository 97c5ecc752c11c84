package walls

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// checkLinks refuses a path of the policy that leads through a symbolic link which commands of a sandbox can change: they
// could choose what the next commands read or write, or show what is hidden.
func (d *planner) checkLinks() error {
	for _, p := range d.Policy.Named {
		if link := d.changeableLink(p.Name, p.Path); link != "" {
			return &RefusedError{Key: p.Key, Path: p.Name, Why: "commands in sandboxes can change the symbolic link " + link, Remedy: "name a path that does not lead through it"}
		}
	}
	return nil
}

// changeableLink returns a symbolic link between a path and the place that it leads to which commands of a sandbox can
// change; empty if there is none. A link that stays in the directory in which they can change it gives them nothing.
func (d *planner) changeableLink(name, path string) string {
	if name == path {
		return ""
	}
	links, leadsTo := d.followLinks(name)
	for _, place := range append([]string{d.Tree, d.DataDir, d.OverlayDir}, d.Policy.Write...) {
		if leadsTo == path && d.isInside(path, place) {
			continue
		}
		for _, link := range links {
			if d.isInside(filepath.Dir(link.Path), place) {
				return link.Path
			}
		}
	}
	return ""
}

// isInside reports whether a path is a directory or lies inside of it, also under another name by a bind mount.
func (d *planner) isInside(path, dir string) bool {
	how := d.files.Overlap(path, dir)
	return how == guard.Same || how == guard.Inside
}

// maxLinks bounds the symbolic links that are followed for one path, as the kernel does.
const maxLinks = 40

// followLinks returns the symbolic links that the lookup of a path follows, and where it leads to. It goes component by
// component, as the kernel does.
func (d *planner) followLinks(path string) (links []Link, at string) {
	at = "/"
	for todo := strings.Split(path, "/"); len(todo) > 0 && len(links) < maxLinks; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target := d.files.ReadLink(next)
		if target == "" {
			at = next
			continue
		}
		links = append(links, Link{next, target})
		if filepath.IsAbs(target) {
			at = "/"
		}
		todo = slices.Concat(strings.Split(target, "/"), todo)
	}
	return links, at
}
