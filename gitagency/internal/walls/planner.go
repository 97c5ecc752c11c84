package walls

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

// MakePlan plans the walls, or refuses with a *RefusedError. If one path of a plan is below another, the lower one
// decides for everything below it; no path occurs twice.
func MakePlan(r Request, m Machine) (Plan, error) {
	plan, _, err := makePlan(r, m)
	return plan, err
}

func makePlan(r Request, m Machine) (Plan, planner, error) {
	if err := m.checkSupported(); err != nil {
		return Plan{}, planner{}, err
	}
	network, err := planNetwork(r.Outputs)
	if err != nil {
		return Plan{}, planner{}, err
	}
	if err := r.checkPaths(); err != nil {
		return Plan{}, planner{}, err
	}
	d := planner{Request: r, files: m.Files, uid: m.UID, gid: m.GID, marks: map[string]pathMark{}, lookups: map[string]Entry{}}
	// The first step that marks a path decides; later marks of the same path are ignored.
	for _, step := range []func() error{
		d.checkGitDirOwners, d.markSandbox, d.markPrivate, d.markHidden, d.markHome, d.markOverlays, d.markWritable, d.checkLinks, d.markReadable,
		d.markSecrets, d.markFiltered, d.markTools, d.markCaches, d.markKept, d.markOtherNames,
	} {
		if err := step(); err != nil {
			return Plan{}, planner{}, err
		}
	}
	plan := Plan{
		Hostname: hostname, Network: network,
		Fixed: r.fixedPaths(), LandlockABI: min(m.LandlockABI, landlock.NewestABI),
	}
	if err := d.checkUTF8(); err != nil {
		return Plan{}, planner{}, err
	}
	d.fillPlan(&plan)
	plan.Bound = r.boundPaths()
	d.fillLinks(&plan)
	d.maskHidden(&plan)
	if plan.LandlockABI < landlock.SocketsABI {
		plan.Sockets = d.reachableSockets(plan, m.Sockets)
	}
	return plan, d, d.fillSoftware(&plan, m.Sockets)
}

// hostname is the one name that resolves on every machine.
const hostname = "localhost"

func (m Machine) checkSupported() error {
	const without = "--isolation none works without it"
	switch {
	case m.System != "linux":
		return &RefusedError{Wall: UserNamespaces, Why: m.System + " has none", Remedy: without}
	case m.Arch != "amd64" && m.Arch != "arm64":
		return &RefusedError{Wall: Seccomp, Why: "there is no filter for " + m.Arch + ", only for amd64 and arm64", Remedy: without}
	case m.LandlockABI == 0:
		return &RefusedError{Wall: Landlock, Why: cmp.Or(m.WhyNoLandlock, "this kernel does not offer it"), Remedy: without}
	case m.LandlockABI < landlock.RenameABI:
		return &RefusedError{Wall: Landlock, Why: fmt.Sprintf("this kernel, %s, has ABI version %d, and %d is required", cmp.Or(m.Kernel, "of unknown release"), m.LandlockABI, landlock.RenameABI), Remedy: without}
	case m.WhyNoSeccomp != "":
		return &RefusedError{Wall: Seccomp, Why: m.WhyNoSeccomp, Remedy: without}
	}
	return nil
}

func (r Request) checkPaths() error {
	for _, p := range []string{r.Tree, r.GitDir, r.GitFile, r.OverlayDir, r.DataDir} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("plan walls: %q is not a valid path of a sandbox", p)
		}
	}
	switch {
	case !guard.Contains(r.Tree, r.GitFile):
		return fmt.Errorf("plan walls: %s is not in %s", r.GitFile, r.Tree)
	case r.MarkerFile != "" && !guard.Contains(r.Tree, r.mailboxPath()):
		return fmt.Errorf("plan walls: %s is not in a directory of %s", r.MarkerFile, r.Tree)
	case r.MarkerFile != "" && (!filepath.IsAbs(r.Mailbox) || guard.IsOrContains(r.Tree, r.Mailbox)):
		return fmt.Errorf("plan walls: the mailbox %q is not outside of %s", r.Mailbox, r.Tree)
	case r.OwnGitDir != "" && (!filepath.IsAbs(r.OwnGitDir) || guard.IsOrContains(r.Tree, r.OwnGitDir)):
		return fmt.Errorf("plan walls: the git directory %q is not outside of %s", r.OwnGitDir, r.Tree)
	case guard.IsOrContains(r.Tree, r.OverlayDir), guard.IsOrContains(r.OverlayDir, r.Tree):
		return fmt.Errorf("plan walls: the overlay directory %s overlaps %s", r.OverlayDir, r.Tree)
	case guard.IsOrContains(r.Tree, r.GitDir), guard.IsOrContains(r.GitDir, r.Tree):
		return fmt.Errorf("plan walls: the git directory %s overlaps %s", r.GitDir, r.Tree)
	case guard.IsOrContains(r.Tree, r.DataDir):
		return fmt.Errorf("plan walls: the data directory %s is in %s", r.DataDir, r.Tree)
	case guard.IsOrContains(r.GitDir, r.DataDir), guard.IsOrContains(r.GitDir, r.OverlayDir):
		return fmt.Errorf("plan walls: the data directory %s is in the git directory %s", r.DataDir, r.GitDir)
	}
	return nil
}

// planner holds a plan in progress.
type planner struct {
	Request
	files   FileLookup
	uid     int
	gid     int
	marks   map[string]pathMark
	lookups map[string]Entry // cache of lookup

	privateHome string   // path of the private home; empty without one
	knownCaches []string // caches that are shown in a directory that is not
}

// pathMark is the planned visibility of a path.
type pathMark struct {
	visibility Visibility
	optional   bool   // not requested by the user: may be dropped
	needed     bool   // with visibility KeptVisible: visible also below something hidden
	text       string // with visibility Filtered
	cause      Cause
}

func (d *planner) markPath(path string, s Visibility, auto bool, why Cause) {
	if _, marked := d.marks[path]; !marked {
		d.marks[path] = pathMark{visibility: s, optional: auto, cause: why}
	}
}

// markPrivate marks the directories in which processes leave files for each other, sockets above all.
func (d *planner) markPrivate() error {
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/var/run", d.RuntimeDir} {
		e := d.lookup(dir)
		if e.Kind != Directory || e.Path == "/" || IsKernelDir(e.Path) || guard.IsOrContains(d.Tree, e.Path) || guard.IsOrContains(d.GitDir, e.Path) {
			continue
		}
		if dir == d.RuntimeDir && guard.IsOrContains(e.Path, d.homeDir()) {
			continue // a home directory that is also the runtime directory stays a home
		}
		d.markPath(e.Path, Private, true, Cause{ReasonTemporary, dir})
	}
	return nil
}

// markHidden marks the paths that the user hides.
func (d *planner) markHidden() error {
	for _, path := range d.Policy.Hide {
		e := d.lookup(path)
		switch {
		case e.Kind == Absent || guard.IsOrContains(d.DataDir, e.Path) && !guard.IsOrContains(d.Tree, e.Path):
			continue
		case e.Path == "/" || e.Kind == Device || IsKernelDir(e.Path):
			return &RefusedError{Key: HideKey, Path: path, Why: "no command can run without it"}
		case guard.IsOrContains(d.Tree, e.Path), guard.IsOrContains(d.GitDir, e.Path):
			return &RefusedError{Key: HideKey, Path: path, Why: "it is part of the sandbox"}
		case d.marks[e.Path].visibility == Private:
			continue
		}
		d.markPath(e.Path, Hidden, false, Cause{ReasonHide, path})
	}
	return nil
}

// markReadable marks the paths that the user wants to be visible.
func (d *planner) markReadable() error {
	for _, path := range d.Policy.Read {
		e := d.lookup(path)
		switch {
		case e.Kind == Absent || e.Path == "/" || IsKernelDir(e.Path):
			continue
		case d.marks[e.Path].visibility == Private:
			return &RefusedError{Key: ReadKey, Path: path, Why: "every sandbox has its own", Remedy: "grant a path below it"}
		case !guard.IsOrContains(d.Tree, e.Path) && d.isInDataDir(e.Path):
			return &RefusedError{Key: ReadKey, Path: path, Why: "it is in the data directory, where other sandboxes are", Remedy: "copy it elsewhere, or into the sandbox with 'git agency put'"}
		}
		d.markPath(e.Path, KeptVisible, false, Cause{ReasonRead, path})
	}
	return nil
}

// markKept marks the paths that have to stay visible below private directories.
func (d *planner) markKept() error {
	for _, path := range d.KeepVisible {
		e := d.lookup(path)
		if _, marked := d.marks[e.Path]; !marked && (e.Kind == Directory || e.Kind == File) {
			d.marks[e.Path] = pathMark{visibility: KeptVisible, optional: true, needed: d.hidesIntegration(), cause: Cause{ReasonNeeded, path}}
		}
	}
	others := append([]string{"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/run/current-system", d.Home}, d.PathDirs...)
	if !d.hidesIntegration() {
		others = append(others, d.IntegrationTrees...)
	}
	for _, path := range others {
		if e := d.lookup(path); (e.Kind == Directory || e.Kind == File) && !d.inPrivateHome(e.Path) { // there, Tools has what is needed
			d.markPath(e.Path, KeptVisible, true, Cause{ReasonNeeded, path})
		}
	}
	return nil
}

// markOtherNames marks hidden and private paths also where another mount shows them.
func (d *planner) markOtherNames() error {
	for _, path := range slices.Sorted(maps.Keys(d.marks)) {
		m := d.marks[path]
		if m.visibility != Hidden && m.visibility != Private && m.visibility != Filtered {
			continue
		}
		for _, name := range d.files.OtherNames(path) {
			e := d.lookup(name)
			if e.Path != name || e.Kind == Absent || e.Kind == Device || IsKernelDir(name) {
				continue // it cannot be reached, or is not shown inside
			}
			if m.visibility == Filtered && (guard.IsOrContains(d.GitDir, name) || guard.IsOrContains(d.Tree, name)) {
				continue // git must be able to replace its own configuration there
			}
			if needed := d.neededBelow(name); needed != "" && m.visibility == Private {
				if name != "/" { // what is needed below it stays visible, as in /tmp
					d.markPath(name, Private, true, m.cause)
				}
				continue
			} else if needed != "" {
				return &RefusedError{Wall: hiddenSecrets, Why: fmt.Sprintf("%s cannot be hidden: it is mounted at %s too, which contains %s", path, name, needed), Remedy: "unmount it, or hide a path below it"}
			}
			if _, marked := d.marks[name]; !marked {
				d.marks[name] = m
			}
		}
	}
	return nil
}

// neededBelow returns the path at or below dir without which no command can run; empty when there is none.
func (d *planner) neededBelow(dir string) string {
	for _, needed := range []string{d.Tree, d.GitDir, d.homeDir(), "/"} {
		if needed != "" && guard.IsOrContains(dir, needed) {
			return needed
		}
	}
	return ""
}

// checkUTF8 refuses paths that are not valid UTF-8: a plan is sent as JSON, which would change such a path, and the
// real one would not be hidden.
func (d *planner) checkUTF8() error {
	for path, m := range d.marks {
		switch {
		case utf8.ValidString(path):
		case m.optional && (m.visibility == KeptVisible || m.visibility == Overlaid):
			delete(d.marks, path)
		default:
			return &RefusedError{Wall: readOnlyRoot, Why: fmt.Sprintf("the path %q is not valid UTF-8", path), Remedy: "rename it"}
		}
	}
	return nil
}

// fillPlan makes the lists of the plan from the marks, without those that change nothing.
func (d *planner) fillPlan(plan *Plan) {
	plan.Private, plan.Hidden, plan.Kept, plan.Writable, plan.Overlays = []string{}, []string{}, []string{}, []string{}, []OverlayMount{}
	paths := make([]string, 0, len(d.marks))
	for path := range d.marks {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, byDepth)
	for _, path := range paths {
		m, around := d.marks[path], plan.parentVisibility(path)
		unseen := around == Hidden || around == Private
		switch m.visibility {
		case Private:
			switch {
			case path == d.privateHome:
				plan.Home = PrivateHome{Path: path, Dir: HomeDir(d.OverlayDir)}
			case !unseen:
				plan.Private = append(plan.Private, path)
			}
		case Hidden: // for the data directory even mount points in it must not be creatable
			if !unseen || path == d.DataDir || path == d.OverlayDir || around == Private && d.hasMountBelow(path) {
				plan.Hidden = append(plan.Hidden, path)
			}
		case Filtered:
			if !unseen {
				plan.Filtered = append(plan.Filtered, FilteredFile{path, []byte(m.text)})
			}
		case KeptVisible:
			if around == Private || around == Hidden && (m.needed || !m.optional) {
				plan.Kept = append(plan.Kept, path)
			}
		case Writable:
			if around != Writable {
				plan.Writable = append(plan.Writable, path)
			}
		case Overlaid:
			if around != Overlaid && (!m.optional || around != Hidden && around != Writable) || slices.Contains(d.Policy.Separate, path) {
				plan.Overlays, plan.Omitted = append(plan.Overlays, d.overlayFor(path)), append(plan.Omitted, d.omittedIn(path)...)
				plan.Kept = append(plan.Kept, d.mountsInCopy(path)...)
			}
		}
	}
}

// hasMountBelow reports whether something will be mounted below a hidden path. In a private directory its mount point
// would make the path a writable directory, which a command would take for the original.
func (d *planner) hasMountBelow(path string) bool {
	for below, m := range d.marks {
		if guard.Contains(path, below) && m.visibility != Hidden && m.visibility != Private {
			return true
		}
	}
	return false
}

// byDepth orders paths so that parents come before their children.
func byDepth(a, b string) int {
	return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), strings.Compare(a, b))
}

// overlayFor names the directories of an overlay. The name is the same for every command, and recognisable for people.
func (d *planner) overlayFor(path string) OverlayMount {
	if path == d.Tree {
		return OverlayMount{Path: path, Lowers: d.TreeLayers.Lowers, Upper: d.TreeLayers.Upper, Work: d.TreeLayers.Work}
	}
	if path != d.GitDir {
		l := OverlayOf(d.OverlayDir, path)
		if slices.Contains(d.Policy.Copied, path) {
			l.Lowers = []string{CopyOf(d.OverlayDir, path)}
		}
		return l
	}
	home := filepath.Join(d.OverlayDir, "git")
	return OverlayMount{Path: path, Upper: filepath.Join(home, "upper"), Work: filepath.Join(home, "work")}
}

// maxReadableName bounds the part of the name of a directory that another directory has in its name. The limit of a name is 255 bytes.
const maxReadableName = 200

// OverlayOf returns the overlay on a path that is neither the tree nor the git directory, given Request.OverlayDir.
func OverlayOf(overlayDir, path string) OverlayMount {
	sum := sha256.Sum256([]byte(path))
	name := strings.TrimLeft(filepath.Base(path), ".")
	if len(name) > maxReadableName {
		name = strings.ToValidUTF8(name[:maxReadableName], "")
	}
	home := filepath.Join(overlayDir, name+"-"+hex.EncodeToString(sum[:6]))
	return OverlayMount{Path: path, Upper: filepath.Join(home, "upper"), Work: filepath.Join(home, "work")}
}

// CopyOf returns the copy of a directory in Policy.Copied, given Request.OverlayDir. It is beside the upper directory.
func CopyOf(overlayDir, path string) string {
	return filepath.Join(filepath.Dir(OverlayOf(overlayDir, path).Upper), "copy")
}

func (d *planner) lookup(path string) Entry {
	if !filepath.IsAbs(path) {
		return Entry{}
	}
	e, known := d.lookups[path]
	if !known {
		e = d.files.Lookup(path)
		d.lookups[path] = e
	}
	return e
}

func (d *planner) homeDir() string {
	if e := d.lookup(d.Home); e.Kind == Directory {
		return e.Path
	}
	return ""
}

// IsKernelDir reports whether a path is in a directory that every sandbox gets anew, or that must stay as it is.
func IsKernelDir(path string) bool {
	return guard.IsOrContains("/proc", path) || guard.IsOrContains("/sys", path) || guard.IsOrContains("/dev", path)
}
