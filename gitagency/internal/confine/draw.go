package confine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// MakePlan plans the walls, or refuses with a *RefusedError. If one path of a plan is below another, the lower one
// decides for everything below it; no path occurs twice.
func Draw(r Request, m Machine) (Plan, error) {
	if err := m.check(); err != nil {
		return Plan{}, err
	}
	network, err := drawNetwork(r.Outputs)
	if err != nil {
		return Plan{}, err
	}
	if err := r.check(); err != nil {
		return Plan{}, err
	}
	d := drawing{Request: r, files: m.Files, uid: m.UID, marks: map[string]mark{}, known: map[string]Entry{}}
	// The first step that marks a path decides; later marks of the same path are ignored.
	for _, step := range []func() error{d.own, d.private, d.hide, d.layers, d.write, d.read, d.secrets, d.caches, d.keep} {
		if err := step(); err != nil {
			return Plan{}, err
		}
	}
	plan := Plan{
		Hostname: hostname, Network: network,
		Fixed: r.fixed(), LandlockABI: min(m.LandlockABI, NewestABI),
	}
	if err := d.text(); err != nil {
		return Plan{}, err
	}
	d.fill(&plan)
	if plan.LandlockABI < socketsABI {
		plan.Sockets = d.sockets(plan, m.Sockets)
	}
	return plan, nil
}

// hostname is the one name that resolves on every machine.
const hostname = "localhost"

func (m Machine) check() error {
	const without = "--isolation none does without"
	switch {
	case m.System != "linux":
		return &RefusedError{Wall: UserNamespaces, Why: m.System + " has none", Remedy: without}
	case m.Arch != "amd64" && m.Arch != "arm64":
		return &RefusedError{Wall: Seccomp, Why: "there is no filter for " + m.Arch + ", only for amd64 and arm64", Remedy: without}
	case m.LandlockABI == 0:
		return &RefusedError{Wall: Landlock, Why: cmp.Or(m.NoLandlock, "this kernel does not offer it"), Remedy: without}
	case m.LandlockABI < OldestABI:
		return &RefusedError{Wall: Landlock, Why: fmt.Sprintf("this kernel, %s, has version %d of it, and %d is needed", cmp.Or(m.Kernel, "of unknown release"), m.LandlockABI, OldestABI), Remedy: without}
	case m.NoSeccomp != "":
		return &RefusedError{Wall: Seccomp, Why: m.NoSeccomp, Remedy: without}
	}
	return nil
}

// MakeNetworkPlan plans walls for the network alone.
func DrawBare(outputs string) (Plan, error) {
	network, err := drawNetwork(outputs)
	return Plan{Network: network, Bare: true}, err
}

func drawNetwork(outputs string) (Network, error) {
	hosts, some := strings.CutPrefix(outputs, "hosts:")
	switch {
	case outputs == "open":
		return HostNetwork, nil
	case outputs == "none":
		return NoNetwork, nil
	case some && hosts != "":
		return ProxiedOnly, nil
	}
	return "", &RefusedError{Wall: "network", Why: fmt.Sprintf("outputs %q mean nothing", outputs), Remedy: "want open, none or hosts:…"}
}

// fixedPaths returns the paths that identify the sandbox, which its commands must not change.
func (r Request) fixed() []string {
	if r.Markers == "" {
		return []string{r.GitFile}
	}
	return []string{r.GitFile, r.Markers}
}

func (r Request) check() error {
	for _, p := range []string{r.Tree, r.GitDir, r.GitFile, r.Layers, r.DataDir} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("draw walls: %q is no place for a sandbox", p)
		}
	}
	switch {
	case !guard.Contains(r.Tree, r.GitFile):
		return fmt.Errorf("draw walls: %s is not in %s", r.GitFile, r.Tree)
	case r.Markers != "" && !guard.Contains(r.Tree, r.Markers):
		return fmt.Errorf("draw walls: %s is not in %s", r.Markers, r.Tree)
	case holds(r.Tree, r.Layers), holds(r.Layers, r.Tree):
		return fmt.Errorf("draw walls: layers in %s would touch %s", r.Layers, r.Tree)
	case holds(r.Tree, r.GitDir), holds(r.GitDir, r.Tree):
		return fmt.Errorf("draw walls: the git directory %s touches %s", r.GitDir, r.Tree)
	case holds(r.Tree, r.DataDir):
		return fmt.Errorf("draw walls: the data directory %s is in %s", r.DataDir, r.Tree)
	case holds(r.GitDir, r.DataDir), holds(r.GitDir, r.Layers):
		return fmt.Errorf("draw walls: the data directory %s is in the git directory %s", r.DataDir, r.GitDir)
	}
	return nil
}

// contains reports whether path is dir or below it.
func holds(dir, path string) bool { return dir == path || guard.Contains(dir, path) }

// planner holds a plan in progress.
type drawing struct {
	Request
	files Files
	uid   int
	marks map[string]mark
	known map[string]Entry // cache of lookup
}

// pathMark is the planned visibility of a path.
type mark struct {
	sight Sight
	auto  bool // not requested by the user: may be dropped
}

func (d *drawing) mark(path string, s Sight, auto bool) {
	if _, marked := d.marks[path]; !marked {
		d.marks[path] = mark{s, auto}
	}
}

// markSandbox marks the paths that every sandbox consists of.
func (d *drawing) own() error {
	d.mark(d.Tree, Writable, false)
	d.mark(d.GitDir, Layered, false)
	d.mark(d.DataDir, Hidden, false)
	if !holds(d.DataDir, d.Layers) { // a process that could write there would change the upper directories of all overlays
		d.mark(d.Layers, Hidden, false)
	}
	// A protected directory may be mounted inside the sandbox's tree.
	for _, point := range d.files.Mounts(d.Tree) {
		if other, rel := d.touches(point, append([]string{d.GitDir}, d.Integration...)); rel != guard.Apart {
			return &RefusedError{Wall: readOnlyRoot, Why: fmt.Sprintf("%s, which is mounted in the sandbox, %s %s", point, rel, other), Remedy: "unmount it"}
		}
	}
	return nil
}

// markPrivate marks the directories in which processes leave files for each other, sockets above all.
func (d *drawing) private() error {
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/var/run", d.RuntimeDir} {
		e := d.look(dir)
		if e.Kind != Directory || e.Path == "/" || kernels(e.Path) || holds(d.Tree, e.Path) || holds(d.GitDir, e.Path) {
			continue
		}
		if dir == d.RuntimeDir && holds(e.Path, d.home()) {
			continue // a home directory that is also the runtime directory stays a home
		}
		d.mark(e.Path, Private, true)
	}
	return nil
}

// markHidden marks the paths that the user hides.
func (d *drawing) hide() error {
	for _, path := range d.Policy.Hide {
		e := d.look(path)
		switch {
		case e.Kind == Absent || holds(d.DataDir, e.Path) && !holds(d.Tree, e.Path):
			continue
		case e.Path == "/" || e.Kind == Device || kernels(e.Path):
			return &RefusedError{Key: HideKey, Path: path, Why: "nothing works without it"}
		case holds(d.Tree, e.Path), holds(d.GitDir, e.Path):
			return &RefusedError{Key: HideKey, Path: path, Why: "it is part of the sandbox"}
		case d.marks[e.Path].sight == Private:
			continue
		}
		d.mark(e.Path, Hidden, false)
	}
	return nil
}

// markReadable marks the paths that the user wants to be visible.
func (d *drawing) read() error {
	for _, path := range d.Policy.Read {
		e := d.look(path)
		switch {
		case e.Kind == Absent || e.Path == "/" || kernels(e.Path):
			continue
		case d.marks[e.Path].sight == Private:
			return &RefusedError{Key: ReadKey, Path: path, Why: "every sandbox has one of its own", Remedy: "grant something below it"}
		case holds(d.DataDir, e.Path) && !holds(d.Tree, e.Path), holds(d.Layers, e.Path):
			return &RefusedError{Key: ReadKey, Path: path, Why: "it is in the data directory, where other sandboxes are", Remedy: "copy it elsewhere, or into the sandbox with 'git agency put'"}
		}
		d.mark(e.Path, KeptSight, false)
	}
	return nil
}

// markSecrets marks the paths hidden by default, and the sockets of agents (ssh-agent and the like) that act for the
// user.
func (d *drawing) secrets() error {
	for _, path := range d.Policy.Secrets {
		if err := d.secret(path); err != nil {
			return err
		}
	}
	for _, path := range d.AgentSockets {
		e := d.look(path)
		dir := e
		if e.Kind != Directory {
			dir = d.look(filepath.Dir(path))
		}
		// More sockets may appear beside it: hide the whole directory, unless it holds other things.
		switch {
		case kernels(e.Path) || kernels(dir.Path):
		case dir.Kind == Directory && !d.common(dir.Path):
			d.mark(dir.Path, Hidden, true)
		case e.Kind == Socket || e.Kind == File:
			d.mark(e.Path, Hidden, true)
		}
	}
	return nil
}

func (d *drawing) secret(path string) error {
	e := d.look(path)
	if e.Kind == Absent || e.Kind == Device || kernels(e.Path) {
		return nil // a disabled shell history is often a symlink to /dev/null
	}
	for _, needed := range []string{d.Tree, d.GitDir, d.home()} {
		if needed != "" && holds(e.Path, needed) {
			return &RefusedError{Wall: hiddenSecrets, Why: fmt.Sprintf("%s leads to %s, which cannot be hidden", path, e.Path), Remedy: "make it a file or directory of its own"}
		}
	}
	if !holds(d.Tree, e.Path) && !holds(d.GitDir, e.Path) { // a repository may contain a file of that name
		d.mark(e.Path, Hidden, true)
	}
	return nil
}

// isShared reports whether a directory holds more than sockets.
func (d *drawing) common(dir string) bool {
	if strings.Count(dir, "/") < 3 { // such as /var/lib
		return true
	}
	for _, place := range slices.Concat([]string{d.home(), d.Tree, d.GitDir}, d.Integration, d.Path, d.Keep) {
		if place != "" && (holds(dir, place) || holds(dir, d.look(place).Path)) {
			return true
		}
	}
	return holds(d.Tree, dir) || holds(d.GitDir, dir)
}

// markCaches marks the caches of tools.
func (d *drawing) caches() error {
	protected := append([]string{d.GitDir, d.DataDir, d.Layers, d.Tree}, d.Integration...)
	for _, path := range d.Policy.Caches {
		e := d.look(path)
		if e.Kind != Directory || e.Path == "/" || d.home() != "" && holds(e.Path, d.home()) || kernels(e.Path) {
			continue
		}
		// Comparing names is enough: an overlay changes nothing in its lower directory, whatever other names that has.
		touching := func(place string) bool { return holds(place, e.Path) || holds(e.Path, place) }
		if !slices.ContainsFunc(protected, touching) && d.unlayerable(e) == "" {
			d.mark(e.Path, Layered, true)
		}
	}
	return nil
}

// markKept marks the paths that have to stay visible below private directories.
func (d *drawing) keep() error {
	needed := slices.Concat(d.Integration, []string{d.Home}, d.Path, d.Keep,
		[]string{"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/run/current-system"})
	for _, path := range needed {
		if e := d.look(path); e.Kind == Directory || e.Kind == File {
			d.mark(e.Path, KeptSight, true)
		}
	}
	return nil
}

// checkUTF8 refuses paths that are not valid UTF-8: a plan is sent as JSON, which would change such a path, and the
// real one would not be hidden.
func (d *drawing) text() error {
	for path, m := range d.marks {
		switch {
		case utf8.ValidString(path):
		case m.auto && (m.sight == KeptSight || m.sight == Layered):
			delete(d.marks, path)
		default:
			return &RefusedError{Wall: readOnlyRoot, Why: fmt.Sprintf("the path %q is not valid UTF-8", path), Remedy: "give it another name"}
		}
	}
	return nil
}

// fillPlan makes the lists of the plan from the marks, without those that change nothing.
func (d *drawing) fill(plan *Plan) {
	plan.Private, plan.Hidden, plan.Kept, plan.Writable, plan.Layers = []string{}, []string{}, []string{}, []string{}, []Layer{}
	paths := make([]string, 0, len(d.marks))
	for path := range d.marks {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, byDepth)
	for _, path := range paths {
		m, around := d.marks[path], plan.around(path)
		unseen := around == Hidden || around == Private
		switch m.sight {
		case Private:
			if !unseen {
				plan.Private = append(plan.Private, path)
			}
		case Hidden: // for the data directory even mount points in it must not be creatable
			if !unseen || path == d.DataDir || path == d.Layers {
				plan.Hidden = append(plan.Hidden, path)
			}
		case KeptSight:
			if around == Private || around == Hidden && !m.auto {
				plan.Kept = append(plan.Kept, path)
			}
		case Writable:
			if around != Writable {
				plan.Writable = append(plan.Writable, path)
			}
		case Layered:
			if around != Layered && (!m.auto || around != Hidden && around != Writable) {
				plan.Layers = append(plan.Layers, d.layer(path))
			}
		}
	}
}

// byDepth orders paths so that parents come before their children.
func byDepth(a, b string) int {
	return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), strings.Compare(a, b))
}

// reachableSockets finds the sockets that commands could connect to. A socket in an overlay is another inode, on which
// no process listens; sockets in writable directories may belong to the sandbox; and a socket that the user made
// visible is meant to be used.
func (d *drawing) sockets(plan Plan, listening []string) []string {
	var found []string
	seen := func(path string) bool {
		s := plan.At(path)
		return (s == Seen || s == KeptSight) && !kernels(path)
	}
	for _, path := range listening {
		if !filepath.IsAbs(path) || !seen(filepath.Clean(path)) {
			continue
		}
		e := d.look(path)
		if e.Kind == Socket && seen(e.Path) && !slices.Contains(plan.Kept, e.Path) && d.marks[e.Path].sight != KeptSight && utf8.ValidString(e.Path) {
			found = append(found, e.Path)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// overlayFor names the directories of an overlay. The name is the same for every command, and recognisable for people.
func (d *drawing) layer(path string) Layer {
	home := filepath.Join(d.Layers, "git")
	if path != d.GitDir {
		sum := sha256.Sum256([]byte(path))
		home = filepath.Join(d.Layers, strings.TrimLeft(filepath.Base(path), ".")+"-"+hex.EncodeToString(sum[:6]))
	}
	return Layer{Path: path, Upper: filepath.Join(home, "upper"), Work: filepath.Join(home, "work")}
}

func (d *drawing) look(path string) Entry {
	if !filepath.IsAbs(path) {
		return Entry{}
	}
	e, known := d.known[path]
	if !known {
		e = d.files.Look(path)
		d.known[path] = e
	}
	return e
}

func (d *drawing) home() string {
	if e := d.look(d.Home); e.Kind == Directory {
		return e.Path
	}
	return ""
}

// isKernelDir reports whether a path is in a directory that every sandbox gets anew, or that must stay as it is.
func kernels(path string) bool {
	return holds("/proc", path) || holds("/sys", path) || holds("/dev", path)
}
