package walls

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// checkLinks refuses a path of the policy that leads through a symbolic link which commands of a sandbox can change: they
// could choose what the next commands read or write, or show what is hidden. What it compares with is the result of the lookup
// that all steps use, and whose path is mounted without following links.
func (d *planner) checkLinks() error {
	for _, p := range d.Policy.Named {
		if why := d.whyChangeable(p.Name, d.lookup(p.Path).Path); why != "" {
			return &RefusedError{Key: p.Key, Path: p.Name, Why: why, Remedy: "name a path that does not lead through it"}
		}
	}
	return nil
}

// whyChangeable returns the reason why commands of a sandbox could choose what a path leads to, given the result of its
// lookup; empty if they cannot. If the links lead elsewhere now, one was replaced since.
func (d *planner) whyChangeable(name, path string) string {
	if name == path {
		return ""
	}
	links, leadsTo := d.followLinks(name)
	if link := d.changeableLink(links, leadsTo, path); link != "" {
		return "commands in sandboxes can change the symbolic link " + link
	}
	if leadsTo != path {
		return fmt.Sprintf("it led to %s and then to %s, so a symbolic link was changed meanwhile", path, leadsTo)
	}
	return ""
}

// changeableLink returns the first of the links followed for a path that commands of a sandbox can change; empty if there is
// none. A link that stays in the directory in which they can change it gives them nothing.
func (d *planner) changeableLink(links []Link, leadsTo, path string) string {
	for _, place := range append([]string{d.Tree, d.DataDir, d.OverlayDir}, d.Policy.Write...) {
		if len(links) == 0 || leadsTo == path && d.isInside(path, place) {
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

// FixedTarget returns the path of the regular file that a path leads to, without symbolic links, for a copy of it; empty if
// there is none, if it is in the data directory, or if commands of a sandbox could choose it by changing a link. The caller
// must open it without following links.
func FixedTarget(r Request, files FileLookup, name string) string {
	d := planner{Request: r, files: files}
	links, path := d.followLinks(name)
	if e := files.Lookup(path); e.Kind != File || e.Path != path || guard.IsOrContains(d.DataDir, path) || guard.IsOrContains(d.OverlayDir, path) || guard.IsOrContains(d.Tree, path) {
		return ""
	}
	if len(links) > 0 && (d.isInDataDir(path) || d.changeableLink(links, path, path) != "") {
		return ""
	}
	return path
}

// isInside reports whether a path is a directory or lies inside of it, also under another name by a bind mount. Names are
// compared first: a command could replace a part of the path while it is looked up.
func (d *planner) isInside(path, dir string) bool {
	if guard.IsOrContains(dir, path) {
		return true
	}
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
