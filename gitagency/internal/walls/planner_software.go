package walls

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

// Software is another root file system, whose programs the commands of a sandbox run. They see nothing of the machine but
// what is shown; git-agency's own processes behind the walls see the machine.
type Software struct {
	Dir   string         `json:"dir"`             // directory with the root file system
	Mount string         `json:"mount"`           // directory that becomes the root of the commands
	Shown []string       `json:"shown"`           // paths that are there too, as the walls show them, with everything below
	Bound []BindMount    `json:"bound,omitempty"` // single files of the machine, read-only
	Files []FilteredFile `json:"files,omitempty"` // files of the root file system with another content

	Sockets rawPaths `json:"socket_paths,omitempty"` // paths in the root file system at which processes of the machine listen; see Plan.Sockets
}

// ProgramInSoftware is the path of git-agency itself in another root file system: agents ask questions with it.
const ProgramInSoftware = "/usr/local/bin/git-agency"

// SoftwareFlag stands for the configuration key in refusals, and SoftwareRemedy says what to choose instead.
const (
	SoftwareFlag   = "--software"
	SoftwareRemedy = "name a directory with a root file system, or an image of podman or docker"
)

// MountOfSoftware returns the directory on which another root file system is mounted, given Request.OverlayDir.
func MountOfSoftware(overlayDir string) string { return filepath.Join(overlayDir, "software") }

// fillSoftware plans another root file system. It is the last step: until then, the plan says what the walls show of the
// machine.
func (d *planner) fillSoftware(plan *Plan, sockets []string) error {
	if d.Software == "" {
		return nil
	}
	root := d.lookup(d.Software)
	if err := d.checkSoftware(root); err != nil {
		return err
	}
	s := Software{Dir: root.Path, Mount: MountOfSoftware(d.OverlayDir), Files: d.SoftwareFiles}
	shown := append([]string{plan.Home.Path, d.Tree, d.GitDir, d.DataDir, d.OverlayDir}, plan.Private...)
	for _, path := range d.KeepVisible {
		if e := d.lookup(path); e.Kind != Absent {
			shown = append(shown, e.Path)
		}
	}
	for path, m := range d.marks {
		if m.isGrant() && plan.IsVisible(path) {
			shown = append(shown, path)
		}
	}
	slices.SortFunc(shown, byDepth)
	for _, path := range slices.Compact(shown) {
		if path != "" && !s.shows(path) {
			s.Shown = append(s.Shown, path)
		}
	}
	bind := func(path, source string) {
		if e := d.lookup(source); e.Kind == File && !s.shows(path) {
			s.Bound = append(s.Bound, BindMount{Path: path, Source: e.Path, ReadOnly: true})
		}
	}
	bind(ProgramInSoftware, d.Program)
	if plan.Network == HostNetwork {
		bind("/etc/resolv.conf", "/etc/resolv.conf")
		bind("/etc/hosts", "/etc/hosts")
	} else { // of the names, only that of the loopback leads anywhere
		s.Files = append(slices.Clone(s.Files), FilteredFile{Path: "/etc/hosts", Text: []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n")})
	}
	if plan.LandlockABI < landlock.SocketsABI {
		for _, socket := range sockets {
			if guard.Contains(root.Path, socket) {
				s.Sockets = append(s.Sockets, socket[len(root.Path):])
			}
		}
	}
	s.Files = slices.DeleteFunc(slices.Clone(s.Files), func(f FilteredFile) bool { return s.shows(f.Path) })
	plan.Software = s
	return nil
}

// checkSoftware refuses a directory that is no root file system of its own, or whose files would show what is hidden.
func (d *planner) checkSoftware(root Entry) error {
	refuse := func(format string, args ...any) error {
		return &RefusedError{Wall: OtherRoot, Key: SoftwareFlag, Path: d.Software, Why: fmt.Sprintf(format, args...), Remedy: SoftwareRemedy}
	}
	switch {
	case root.Kind != Directory:
		return refuse("it is no directory")
	case !utf8.ValidString(root.Path):
		return refuse("its path is not valid UTF-8")
	case isSystemDir(root.Path):
		return refuse("it is or contains a directory of this machine's own software")
	}
	if home := d.homeDir(); home != "" {
		if how := d.files.Overlap(root.Path, home); how == guard.Same || how == guard.Encloses {
			return refuse("it is or contains your home directory")
		}
	}
	protected := []string{d.Tree, d.GitDir, d.DataDir, d.OverlayDir}
	if d.SoftwareDir != "" && guard.Contains(d.lookup(d.SoftwareDir).Path, root.Path) {
		protected = nil // git-agency unpacked it
	}
	if other, how := d.findOverlap(root.Path, protected); how != guard.Disjoint {
		return refuse("it %s %s, %s", how, other, d.describeProtected(other))
	}
	names := d.namesOf(root.Path)
	for _, tree := range d.IntegrationTrees {
		e := d.lookup(tree)
		if e.Kind == Directory && anyPair(names, d.namesOf(e.Path), guard.IsOrContains) {
			return refuse("it contains %s, an integration worktree", e.Path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.marks)) {
		if v := d.marks[path].visibility; (v == Hidden || v == Filtered) && guard.Contains(root.Path, path) {
			return refuse("it contains %s, which is hidden", path)
		}
	}
	for _, path := range d.Policy.Write {
		e := d.lookup(path)
		overlap := func(a, b string) bool { return guard.IsOrContains(a, b) || guard.Contains(b, a) }
		if e.Kind != Absent && anyPair(names, d.namesOf(e.Path), overlap) {
			return &RefusedError{Wall: OtherRoot, Key: SoftwareFlag, Path: d.Software, Why: "commands could write to it, by the grant of " + e.Path, Remedy: "grant another directory"}
		}
	}
	if why := d.whyChangeable(d.Software, root.Path); why != "" {
		return refuse("%s", why)
	}
	for _, point := range d.files.Mounts(root.Path) {
		return &RefusedError{Wall: OtherRoot, Key: SoftwareFlag, Path: d.Software, Why: point + " is mounted in it", Remedy: "unmount it"}
	}
	return nil
}

// namesOf returns the paths at which mounts show a path, or a part of it.
func (d *planner) namesOf(path string) []string {
	return append([]string{path}, d.files.OtherNames(path)...)
}

// anyPair reports whether something holds for any name of one list and any of another.
func anyPair(a, b []string, holds func(a, b string) bool) bool {
	return slices.ContainsFunc(a, func(a string) bool { return slices.ContainsFunc(b, func(b string) bool { return holds(a, b) }) })
}

// shows reports whether the commands see a path of the machine.
func (s Software) shows(path string) bool {
	return slices.ContainsFunc(s.Shown, func(shown string) bool { return guard.IsOrContains(shown, path) })
}

// OnMachine returns the plan as git-agency's own processes behind the walls see it: with the software of the machine.
func (p Plan) OnMachine() Plan {
	p.Software = Software{}
	return p
}
