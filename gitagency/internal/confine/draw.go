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

// Draw plans the walls, or refuses them with a *RefusedError. Of two paths in the plan of which one lies
// below the other, the lower one counts for all that is below it; no path is there twice.
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
	// What comes first is what a path is; later ones of the same path do not count.
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

// hostname is the one name that every machine can look up.
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

// DrawBare plans walls for the network alone. The rest of what they are made of is what they need.
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

// fixed is what would make the sandbox another one.
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

// holds reports whether a path is a directory or lies below it.
func holds(dir, path string) bool { return dir == path || guard.Contains(dir, path) }

// drawing is a plan in the making.
type drawing struct {
	Request
	files Files
	uid   int
	marks map[string]mark
	known map[string]Entry // what was looked up
}

// mark is what becomes of a path.
type mark struct {
	sight Sight
	auto  bool // nobody asked for it: it may be left out
}

func (d *drawing) mark(path string, s Sight, auto bool) {
	if _, marked := d.marks[path]; !marked {
		d.marks[path] = mark{s, auto}
	}
}

// own marks what every sandbox is made of.
func (d *drawing) own() error {
	d.mark(d.Tree, Writable, false)
	d.mark(d.GitDir, Layered, false)
	d.mark(d.DataDir, Hidden, false)
	if !holds(d.DataDir, d.Layers) { // who can write there writes to the lower side of everything
		d.mark(d.Layers, Hidden, false)
	}
	// Somebody may have mounted what is to be protected into the sandbox.
	for _, point := range d.files.Mounts(d.Tree) {
		if other, rel := d.touches(point, append([]string{d.GitDir}, d.Integration...)); rel != guard.Apart {
			return &RefusedError{Wall: readOnlyRoot, Why: fmt.Sprintf("%s, which is mounted in the sandbox, %s %s", point, rel, other), Remedy: "unmount it"}
		}
	}
	return nil
}

// private marks the places where everybody leaves things for everybody else, sockets above all.
func (d *drawing) private() error {
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/var/run", d.RuntimeDir} {
		e := d.look(dir)
		if e.Kind != Directory || e.Path == "/" || kernels(e.Path) || holds(d.Tree, e.Path) || holds(d.GitDir, e.Path) {
			continue
		}
		if dir == d.RuntimeDir && holds(e.Path, d.home()) {
			continue // a home in which everything is left, is still a home
		}
		d.mark(e.Path, Private, true)
	}
	return nil
}

// hide marks what the user does not want to be seen.
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

// read marks what the user wants to be seen.
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

// secrets marks what nobody wants to be seen, and the sockets of those who act for the user when asked.
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
		// Others appear beside it: it is the directory that has to go, unless there is more in it.
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
		return nil // as who has no history links it to /dev/null
	}
	for _, needed := range []string{d.Tree, d.GitDir, d.home()} {
		if needed != "" && holds(e.Path, needed) {
			return &RefusedError{Wall: hiddenSecrets, Why: fmt.Sprintf("%s leads to %s, which cannot be hidden", path, e.Path), Remedy: "make it a file or directory of its own"}
		}
	}
	if !holds(d.Tree, e.Path) && !holds(d.GitDir, e.Path) { // a repository may well have a file of that name
		d.mark(e.Path, Hidden, true)
	}
	return nil
}

// common reports whether a directory holds more than the sockets in it.
func (d *drawing) common(dir string) bool {
	if strings.Count(dir, "/") < 3 { // as /var/lib
		return true
	}
	for _, place := range slices.Concat([]string{d.home(), d.Tree, d.GitDir}, d.Integration, d.Path, d.Keep) {
		if place != "" && (holds(dir, place) || holds(dir, d.look(place).Path)) {
			return true
		}
	}
	return holds(d.Tree, dir) || holds(d.GitDir, dir)
}

// caches marks what tools keep for the next time.
func (d *drawing) caches() error {
	protected := append([]string{d.GitDir, d.DataDir, d.Layers, d.Tree}, d.Integration...)
	for _, path := range d.Policy.Caches {
		e := d.look(path)
		if e.Kind != Directory || e.Path == "/" || d.home() != "" && holds(e.Path, d.home()) || kernels(e.Path) {
			continue
		}
		// By name is enough: a layer changes nothing below it, whatever other names that has.
		touching := func(place string) bool { return holds(place, e.Path) || holds(e.Path, place) }
		if !slices.ContainsFunc(protected, touching) && d.unlayerable(e) == "" {
			d.mark(e.Path, Layered, true)
		}
	}
	return nil
}

// keep marks what has to be seen also where it lies below something private.
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

// text refuses paths that cannot be written down: a plan is sent as text, and what is hidden under a garbled
// name is not hidden.
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

// fill makes lists of the marks, without those that change nothing where they are.
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
		case Hidden: // of the data directory not even a name can be made
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

// byDepth orders paths so that what lies below comes after what is above.
func byDepth(a, b string) int {
	return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), strings.Compare(a, b))
}

// sockets finds those that could be spoken to. In a layer a socket is another, at which nobody listens; where
// something can be written they may be the sandbox's own; and one that was named to be seen is to be spoken to.
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

// layer names where a layer is kept. The name is the same at every command, and tells people what it is of.
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

// kernels are the directories that are made anew in every sandbox, or have to be as they are.
func kernels(path string) bool {
	return holds("/proc", path) || holds("/sys", path) || holds("/dev", path)
}
