package walls

import (
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// HomeDir returns the directory with the content of the private home of a sandbox.
func HomeDir(overlayDir string) string { return filepath.Join(overlayDir, "home") }

// markHome marks the home directory as private, and the integration trees as hidden: their ignored and untracked files
// may be secrets, and git needs only the git directory.
func (d *planner) markHome() error {
	if !d.PrivateHome {
		return nil
	}
	home := d.homeDir()
	switch {
	case home == "/":
		return &RefusedError{Wall: privateHome, Why: "the home directory is /", Remedy: "set HOME to a directory of its own, or agency.sandbox.home to readonly"}
	case guard.IsOrContains(d.Tree, home), guard.IsOrContains(d.GitDir, home), guard.IsOrContains(d.DataDir, home), guard.IsOrContains(d.OverlayDir, home):
		return &RefusedError{Wall: privateHome, Why: "the home directory " + home + " is in a directory of the sandbox or the repository", Remedy: "set HOME to another directory, or agency.sandbox.home to readonly"}
	}
	if _, marked := d.marks[home]; home != "" && !marked { // a home that is /tmp is private in any case
		d.privateHome = home
		d.markPath(home, Private, false, Cause{Reason: ReasonHome})
	}
	for _, tree := range d.IntegrationTrees {
		if e := d.lookup(tree); e.Kind == Directory && !isSystemDir(e.Path) {
			d.markPath(e.Path, Hidden, true, Cause{ReasonIntegration, tree})
		}
	}
	return nil
}

// inPrivateHome reports whether a path is below the private home.
func (d *planner) inPrivateHome(path string) bool {
	return d.privateHome != "" && guard.IsOrContains(d.privateHome, path)
}

// hidesIntegration reports whether the files of integration trees are hidden.
func (d *planner) hidesIntegration() bool { return d.PrivateHome }

// isHiddenTree reports whether a path is hidden because it is an integration tree.
func (d *planner) isHiddenTree(path string) bool {
	return d.hidesIntegration() && slices.ContainsFunc(d.IntegrationTrees, func(tree string) bool { return d.lookup(tree).Path == path })
}

// systemDirs are directories without which no command can run. Some people have the configuration of a machine in a
// repository.
var systemDirs = []string{"/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/etc", "/nix/store", "/dev", "/proc", "/sys"}

// isSystemDir reports whether a directory is or contains one of systemDirs.
func isSystemDir(dir string) bool {
	return slices.ContainsFunc(systemDirs, func(system string) bool { return guard.IsOrContains(dir, system) })
}

// markTools marks the directories of tools in the private home: writable within the sandbox where an overlay can be
// mounted, so that programs can be installed there, else read-only. The login of the sandbox's own agent is read-only.
func (d *planner) markTools() error {
	for _, path := range d.Tools {
		e := d.lookup(path)
		switch {
		case !d.canShow(e) || d.whyChangeable(path, e.Path) != "":
		case d.whyNoOverlay(e) == "":
			d.markPath(e.Path, Overlaid, true, Cause{ReasonTool, path})
		default:
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonTool, path})
		}
	}
	for _, path := range d.Logins {
		if e := d.lookup(path); d.canShow(e) && d.whyChangeable(path, e.Path) == "" {
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonLogin, path})
		}
	}
	return nil
}

// canShow reports whether something can be shown in the private home without showing a part of a repository, a sandbox
// or the whole home.
func (d *planner) canShow(e Entry) bool {
	if e.Kind != Directory && e.Kind != File || !d.inPrivateHome(e.Path) || e.Path == d.privateHome {
		return false
	}
	for _, place := range d.protectedPlaces() {
		if real := d.lookup(place).Path; guard.IsOrContains(place, e.Path) || guard.IsOrContains(e.Path, place) || real != "" && (guard.IsOrContains(real, e.Path) || guard.IsOrContains(e.Path, real)) {
			return false
		}
	}
	return true
}

// protectedPlaces returns the directories of the sandbox, the repository and the integration trees. A tree that contains
// the private home, as of a repository with the settings in a home, does not protect the caches and tools there.
func (d *planner) protectedPlaces() []string {
	places := []string{d.GitDir, d.DataDir, d.OverlayDir, d.Tree}
	for _, tree := range d.IntegrationTrees {
		if d.privateHome == "" || !guard.IsOrContains(d.lookup(tree).Path, d.privateHome) {
			places = append(places, tree)
		}
	}
	return places
}

// fillLinks adds the symbolic links in private directories through which the home, tools, caches and grants are reached.
func (d *planner) fillLinks(plan *Plan) {
	seen := map[string]bool{}
	paths := slices.Concat([]string{d.Home}, d.Tools, d.Logins, d.Policy.Caches, d.knownCaches, d.Policy.LinkNames)
	for _, named := range d.Policy.Named {
		paths = append(paths, named.Name)
	}
	for _, path := range paths {
		e := d.lookup(path)
		isCopy := slices.Contains(d.Policy.LinkNames, path) && slices.Contains(d.Policy.OverlayWrite, e.Path) // a file in the private home
		if e.Kind == Absent || e.Path == path || !plan.IsVisible(e.Path) && !isCopy && path != d.Home {
			continue
		}
		links, _ := d.followLinks(path)
		for _, link := range links {
			if !seen[link.Path] && plan.VisibilityOf(link.Path) == Private {
				plan.Links = append(plan.Links, link)
			}
			seen[link.Path] = true
		}
	}
}
