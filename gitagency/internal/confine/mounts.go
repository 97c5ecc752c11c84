package confine

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// mountSpec is one mount of a plan.
type mountSpec struct {
	kind    mountKind
	path    string
	overlay *walls.OverlayMount // with kind overlaid
	text    string              // content of a hidden file; mostly empty
	source  string              // with kind private: directory with the content, which is kept; empty for a new file system. With kind bound: what is mounted
	rdonly  bool                // with kind bound: read-only
	parent  int                 // index of the nearest mount around it; -1: none
}

type mountKind int

const (
	private mountKind = iota
	hidden
	kept
	writable
	overlaid
	masked
	bound  // another file or directory
	pinned // a directory bind-mounted on itself, so that it cannot be moved
	fixed  // pinned, and read-only
)

var mountKindNames = [...]string{"private", "hidden", "kept", "writable", "layered", "masked", "bound", "held", "fixed"}

func (k mountKind) String() string { return mountKindNames[k] }

// hidesContent reports whether a mount covers the original content, so that mounts below it need new mount points.
func (k mountKind) hidesContent() bool { return k == private || k == hidden || k == bound }

// orderMounts returns the mounts of a plan in the order in which they are attached, parents first, and then the fixed
// paths.
func orderMounts(p walls.Plan) (mounts, fixtures []mountSpec, err error) {
	add := func(k mountKind, paths []string) {
		for _, path := range paths {
			mounts = append(mounts, mountSpec{kind: k, path: path})
		}
	}
	add(private, p.Private)
	if p.Home.Path != "" {
		mounts = append(mounts, mountSpec{kind: private, path: p.Home.Path, source: p.Home.Dir})
		if err := checkPath(p.Home.Dir); err != nil {
			return nil, nil, fmt.Errorf("content of %s: %w", p.Home.Path, err)
		}
	}
	add(hidden, p.Hidden)
	add(hidden, p.Sockets)
	for _, f := range p.Filtered {
		mounts = append(mounts, mountSpec{kind: hidden, path: f.Path, text: string(f.Text)})
	}
	add(masked, p.Masked)
	add(kept, p.Kept)
	add(writable, p.Writable)
	for _, l := range p.Overlays {
		mounts = append(mounts, mountSpec{kind: overlaid, path: l.Path, overlay: &l})
		for _, path := range append([]string{l.Upper, l.Work}, l.Lowers...) {
			if err := checkPath(path); err != nil {
				return nil, nil, fmt.Errorf("overlay on %s: %w", l.Path, err)
			}
		}
	}
	for _, b := range p.Bound {
		mounts = append(mounts, mountSpec{kind: bound, path: b.Path, source: b.Source, rdonly: b.ReadOnly})
		if err := checkPath(b.Source); err != nil {
			return nil, nil, fmt.Errorf("mounted at %s: %w", b.Path, err)
		}
	}
	if sw := p.Software; sw.Dir != "" {
		mounts = append(mounts, mountSpec{kind: kept, path: sw.Mount}) // an empty directory, on which mountSoftware mounts
		if err := checkPath(sw.Dir); err != nil {
			return nil, nil, fmt.Errorf("root file system: %w", err)
		}
	}
	sort.SliceStable(mounts, func(i, j int) bool { return byPath(mounts[i], mounts[j]) < 0 })
	mounts = slices.Compact(mounts)

	var ancestors []int // indices of the mounts around this one, from the outermost
	arranged := mounts[:0]
	for _, w := range mounts {
		if err := checkPath(w.path); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", w.kind, err)
		}
		for len(ancestors) > 0 && !guard.IsOrContains(arranged[ancestors[len(ancestors)-1]].path, w.path) {
			ancestors = ancestors[:len(ancestors)-1]
		}
		w.parent = -1
		if len(ancestors) > 0 {
			w.parent = ancestors[len(ancestors)-1]
			switch outer := arranged[w.parent]; {
			case outer.path == w.path:
				return nil, nil, fmt.Errorf("%s cannot be both %s and %s", w.path, outer.kind, w.kind)
			case outer.kind == hidden && w.kind == hidden:
				continue // its parent hides it already
			}
		}
		ancestors = append(ancestors, len(arranged))
		arranged = append(arranged, w)
	}
	fixtures, err = planFixed(arranged, p.Fixed)
	return arranged, fixtures, err
}

// planFixed returns the fixed paths, and the directories to be pinned so that mounts stay where they are. A mount point
// can be neither moved nor removed, but its parent directory can be renamed and replaced: where that is possible, every
// directory up to the next mount is made a mount point, too.
func planFixed(mounts []mountSpec, fix []string) (fixtures []mountSpec, err error) {
	pin := func(p string, outer mountSpec) {
		if outer.kind == hidden || outer.kind == kept || outer.kind == masked || p == outer.path {
			return
		}
		for dir := path.Dir(p); dir != outer.path; dir = path.Dir(dir) {
			fixtures = append(fixtures, mountSpec{kind: pinned, path: dir, parent: -1})
		}
	}
	for _, w := range mounts {
		if w.parent >= 0 {
			pin(w.path, mounts[w.parent])
		}
	}
	for _, f := range fix {
		if err := checkPath(f); err != nil {
			return nil, fmt.Errorf("fixed path: %w", err)
		}
		fixtures = append(fixtures, mountSpec{kind: fixed, path: f, parent: -1})
		for _, w := range slices.Backward(mounts) { // the last one that contains it is the nearest
			if guard.IsOrContains(w.path, f) {
				pin(f, w)
				break
			}
		}
	}
	sort.SliceStable(fixtures, func(i, j int) bool { return byPath(fixtures[i], fixtures[j]) < 0 })
	return slices.Compact(fixtures), nil
}

// byPath compares by path, directories before their content, and then by kind.
func byPath(a, b mountSpec) int {
	return cmp.Or(slices.Compare(strings.Split(a.path, "/"), strings.Split(b.path, "/")), cmp.Compare(a.kind, b.kind))
}

// checkPath refuses paths that no mount can be planned on.
func checkPath(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0):
		return fmt.Errorf("%q is not a plain absolute path", p)
	case p == "/" || p == "/dev" || guard.IsOrContains("/proc", p):
		return fmt.Errorf("%s must not be changed by a plan", p)
	}
	return nil
}
