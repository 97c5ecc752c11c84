package walls

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// maskHidden plans the masks that keep paths hidden when they are replaced outside, as programs do that write a new file
// and rename it. In a writable overlay they stay hidden anyway, and a directory that is writable directly cannot have a
// mask.
func (d *planner) maskHidden(plan *Plan) {
	for _, path := range plan.maskable() {
		dir := d.maskFor(*plan, path)
		if dir == "" || plan.VisibilityOf(dir) == MaskedAround {
			continue
		}
		plan.Masked = append(plan.Masked, dir)
		plan.Kept = slices.DeleteFunc(plan.Kept, func(k string) bool { return k == dir })
	}
	// The highest directories are enough.
	plan.Masked = slices.DeleteFunc(plan.Masked, func(dir string) bool {
		return slices.ContainsFunc(plan.Masked, func(outer string) bool { return guard.Contains(outer, dir) })
	})
	// The user works in integration trees while commands run; a directory that the user grants may matter as much.
	for _, path := range slices.Concat(d.IntegrationTrees, d.Policy.Read) {
		e := d.lookup(path)
		if e.Kind == Directory && plan.VisibilityOf(e.Path) == MaskedAround && !plan.showsChangesOf(e.Path) && !IsAround(e.Path, plan.maskable()) {
			plan.Kept = append(plan.Kept, e.Path)
		}
	}
}

// maskable returns the paths that masks can hide or filter.
func (p Plan) maskable() []string {
	paths := slices.Clone(p.Hidden)
	for _, f := range p.Filtered {
		paths = append(paths, f.Path)
	}
	return paths
}

// maskFor returns the highest directory around a hidden path in which the user could replace or rename it, up to the
// home directory; empty if it needs no mask or can have none.
func (d *planner) maskFor(plan Plan, path string) (mask string) {
	if path == d.DataDir || path == d.OverlayDir || d.isSystemSecret(path) || d.isHiddenTree(path) {
		return "" // programs of the user do not replace these
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if e := d.lookup(dir); e.Kind != Directory || e.Path != dir || e.Owner != d.uid {
			break
		}
		if s := plan.VisibilityOf(dir); s != ReadOnly && s != KeptVisible && s != MaskedAround {
			break
		}
		mask = dir
		if dir == d.homeDir() || d.uid == 0 && !d.isInHome(dir) { // to root, all directories belong
			break
		}
	}
	return mask
}

// isSystemSecret reports whether root hides a path that is hidden by default and not in a home.
func (d *planner) isSystemSecret(path string) bool {
	return d.uid == 0 && !d.isInHome(path) && d.marks[path].optional && (guard.IsOrContains("/etc", path) || guard.IsOrContains("/var", path))
}

func (d *planner) isInHome(path string) bool {
	return d.homeDir() != "" && guard.IsOrContains(d.homeDir(), path)
}

// showsChangesOf reports whether a directory below a masked one is mounted unchanged, alone or with a directory around
// it.
func (p Plan) showsChangesOf(path string) bool {
	for _, outer := range p.Masked {
		rest, below := strings.CutPrefix(path, outer+"/")
		if !below {
			continue
		}
		dir := outer
		for name := range strings.SplitSeq(rest, "/") {
			if dir += "/" + name; !ShowsChanges(outer, dir) {
				return false
			}
			if !IsAround(dir, p.maskable()) {
				return true
			}
		}
	}
	return false
}

// IsAround reports whether a directory below a masked one contains a hidden path.
func IsAround(dir string, hiddenPaths []string) bool {
	return slices.ContainsFunc(hiddenPaths, func(h string) bool { return guard.Contains(dir, h) })
}

// ShowsChanges reports whether a directory below a masked one is mounted unchanged, unless it contains hidden paths. For
// directories of settings, such as ~/.config, that is not worth the time: the overlay shows the files that were there
// when they were first used.
func ShowsChanges(maskedDir, dir string) bool { return !strings.Contains(dir[len(maskedDir):], "/.") }
