package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Apply builds the walls of p around this process, which must be process 1 of new user, mount, pid, ipc and uts
// namespaces, and of a network namespace unless the network is the host's. It needs CAP_SYS_ADMIN, CAP_NET_ADMIN and
// CAP_DAC_OVERRIDE there.
//
// After an error the walls are incomplete, and nothing may be run. Nothing of it is ever visible outside.
func Apply(p walls.Plan) error {
	if os.Getpid() != 1 { // the steps below would destroy any other mount namespace
		return errors.New("walls can be built only by process 1 of new namespaces")
	}
	if p.NetworkOnly {
		return applyNetworkOnly(p)
	}
	mounts, fixtures, err := orderMounts(p)
	if err != nil {
		return err
	}
	s := builder{volatile: p.Volatile, made: map[string]bool{}}
	defer s.closeFDs()
	defer unix.Umask(unix.Umask(0o022)) // for the mount points that are created
	for _, w := range mounts {
		s.mounts = append(s.mounts, mountState{mountSpec: w, fd: -1})
	}
	for _, step := range []func() error{
		s.makePrivate,
		s.openMountPoints,
		s.cloneSources,
		func() error { return s.cloneSoftware(p.Software) },
		s.makeReadOnly,
		s.cloneKept,
		s.mountDev,
		s.mountProc,
		s.mountAll,
		func() error { return s.makeLinks(p.Links) },
		s.sealHidden,
		func() error { return s.mountFixed(fixtures) },
		func() error { return s.mountSoftware(p.Software) },
		func() error { return setHostname(p.Hostname) },
		func() error { return bringUpLoopback(p.Network) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// UnmountOverlays unmounts the overlays of p, when nothing uses them any more. The kernel does that at the end of the
// namespace, too, but only after the last process was reaped: the next user of the same overlays would have to wait.
func UnmountOverlays(p walls.Plan) error {
	failed := unmountSoftware(p.Software)
	overlays := slices.Clone(p.Overlays)
	sort.Slice(overlays, func(i, j int) bool { return overlays[i].Path > overlays[j].Path }) // inner ones first
	for _, l := range overlays {
		how := unix.UMOUNT_NOFOLLOW
		if len(l.Lowers) > 0 {
			how |= unix.MNT_DETACH // with the files that are mounted in it, such as the marker of a sandbox
		}
		failed = errors.Join(failed, unix.Unmount(l.Path, how))
	}
	return failed
}

// applyNetworkOnly changes nothing but the network, and mounts a /proc that shows the pid namespace.
func applyNetworkOnly(p walls.Plan) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return bringUpLoopback(p.Network)
}

// builder holds the state of walls that are being built.
type builder struct {
	mounts   []mountState
	volatile bool           // of overlays
	blankFS  int            // file system with an empty "file" and an empty "dir"
	devices  map[string]int // clones of device nodes of the machine
	procfs   int
	made     map[string]bool // directories around mount points that were created, and pinned where that is necessary
	software int             // clone of another root file system
	bound    []placement     // files of the machine for it
	openFDs  []int           // closed in the end
}

// mountState is a mount of the walls in progress.
type mountState struct {
	mountSpec
	missing     bool   // the path does not exist
	isDir       bool   // the path is a directory
	mode        uint32 // permissions of the original
	hasChildren bool   // other mounts lie below it
	opaque      bool   // with kind hidden: a mask hides the directory without a mount on it
	fd          int    // descriptor of the path, then of the mount to attach
}

func (s *builder) closeFDs() {
	for _, fd := range s.openFDs {
		_ = unix.Close(fd)
	}
}

// track records a descriptor to be closed in the end.
func (s *builder) track(fd int, err error) (int, error) {
	if err == nil {
		s.openFDs = append(s.openFDs, fd)
	}
	return fd, err
}

// closeAfter closes the descriptors that do tracks once it has returned: walls have more mounts than some limits allow
// open files.
func (s *builder) closeAfter(do func() error) error {
	before := len(s.openFDs)
	err := do()
	for len(s.openFDs) > before {
		s.closeLast()
	}
	return err
}

// closeLast closes the descriptor that was tracked last.
func (s *builder) closeLast() {
	last := len(s.openFDs) - 1
	_ = unix.Close(s.openFDs[last])
	s.openFDs = s.openFDs[:last]
}

// makePrivate ends mount propagation from outside: a mount made there later would appear here without being
// read-only.
func (s *builder) makePrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	return nil
}

// openMountPoints opens the path of each mount, while nothing is covered yet.
func (s *builder) openMountPoints() error {
	for i := range s.mounts {
		w := &s.mounts[i]
		fd, err := s.track(openNoSymlinks(unix.AT_FDCWD, w.path))
		if errors.Is(err, unix.ENOENT) && w.kind <= kept {
			w.missing = true
			continue
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && (w.kind == private || w.kind == overlaid || w.kind == masked) {
			err = unix.ENOTDIR
		}
		if err != nil {
			return w.wrapError(err)
		}
		w.isDir, w.mode, w.fd = st.Mode&unix.S_IFMT == unix.S_IFDIR, st.Mode&0o1777, fd
		if w.kind == hidden || w.kind == private || w.kind == bound { // nothing is cloned from it
			s.closeLast()
			w.fd = -1
		}
		if w.parent >= 0 {
			s.mounts[w.parent].hasChildren = true
		}
	}
	return nil
}

func (w mountSpec) wrapError(err error) error { return fmt.Errorf("%s %s: %w", w.kind, w.path, err) }

// cloneSources clones the mounts that stay writable, and creates the other file systems, before the rest becomes
// read-only.
func (s *builder) cloneSources() (err error) {
	for i := range s.mounts {
		switch w := &s.mounts[i]; w.kind {
		case writable:
			if w.fd, err = s.track(cloneMount(w.fd, "", unix.AT_RECURSIVE)); err == nil {
				err = setMountAttr(w.fd, unix.AT_RECURSIVE, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
			}
			if err != nil {
				return w.wrapError(err)
			}
		case private:
			if w.source == "" || w.missing {
				continue
			}
			if w.fd, err = s.cloneSource(w.source, 0); err != nil {
				return fmt.Errorf("content of %s: %w", w.path, err)
			}
		case bound:
			var attr uint64
			if w.rdonly {
				attr = unix.MOUNT_ATTR_RDONLY
			}
			if w.fd, err = s.cloneSource(w.source, attr); err != nil {
				return w.wrapError(err)
			}
		case overlaid:
			if w.fd, err = s.newOverlay(w.fd, *w.overlay); err != nil {
				return fmt.Errorf("overlay on %s: %w", w.path, err)
			}
		}
	}
	s.devices = map[string]int{}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		// Using a device needs no writable mount, but changing its permissions does: root would change those of the
		// whole machine.
		fd, err := s.track(cloneMount(unix.AT_FDCWD, "/dev/"+device, 0))
		if errors.Is(err, unix.ENOENT) {
			continue // some containers have fewer
		}
		if err == nil {
			err = setMountAttr(fd, 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		}
		if err != nil {
			return fmt.Errorf("device /dev/%s: %w", device, err)
		}
		s.devices[device] = fd
	}
	// The kernel allows a new proc mount only where an old one is fully visible.
	if s.procfs, err = s.track(newMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)); err != nil {
		return fmt.Errorf("file system for /proc: %w", err)
	}
	return nil
}

// makeReadOnly makes all mounts read-only.
func (s *builder) makeReadOnly() error {
	if err := setMountAttr(unix.AT_FDCWD, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return fmt.Errorf("read-only /: %w", err)
	}
	return nil
}

// cloneKept clones the mounts that stay visible, now that they are read-only.
func (s *builder) cloneKept() (err error) {
	for i := range s.mounts {
		if w := &s.mounts[i]; w.kind == kept && !w.missing {
			if w.fd, err = s.track(cloneMount(w.fd, "", unix.AT_RECURSIVE)); err != nil {
				return w.wrapError(err)
			}
		}
	}
	return nil
}

// mountAll attaches all mounts.
func (s *builder) mountAll() error {
	for i := range s.mounts {
		w := &s.mounts[i]
		if w.missing {
			continue
		}
		var err error
		switch {
		case w.kind == hidden && w.hasChildren: // made read-only once everything below it is attached
			w.fd, err = s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755"))
		case w.kind == private && w.source == "":
			w.fd, err = s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", strconv.FormatUint(uint64(w.mode|0o700), 8)))
		}
		if err == nil {
			err = s.closeAfter(func() error { return s.attach(i) })
		}
		if err != nil {
			return w.wrapError(err)
		}
	}
	return nil
}

// attach attaches one mount, or an empty file or directory for a hidden path.
func (s *builder) attach(i int) error {
	w := &s.mounts[i]
	isBlank := w.kind == hidden && !w.hasChildren
	if isBlank && s.isMasked(w) && (!w.isDir || w.opaque) {
		return nil // the overlay shows an empty file or directory
	}
	target, err := s.openTarget(w)
	switch {
	case isBlank && errors.Is(err, unix.ENOENT):
		return nil // such as a socket whose listener has just ended
	case isBlank && s.isCoveredInOverlay(w.path, err):
		return nil
	case err != nil:
		return err
	case isBlank:
		return s.mountBlank(target, s.blankFor(i))
	case w.kind == masked:
		return s.mountMask(i, target)
	}
	return moveMount(w.fd, target, "")
}

// openTarget opens the mount point of a mount, and creates it if its original is covered.
func (s *builder) openTarget(w *mountState) (int, error) {
	if w.parent < 0 || !s.mounts[w.parent].kind.hidesContent() {
		return s.track(openNoSymlinks(unix.AT_FDCWD, w.path))
	}
	parent := s.mounts[w.parent]
	rel := strings.TrimPrefix(w.path, parent.path+"/")
	for i, c := range rel {
		if c == '/' {
			if err := s.makeDirAround(parent, rel[:i]); err != nil {
				return -1, err
			}
		}
	}
	if parent.source != "" {
		if err := moveAside(parent.fd, rel, w.isDir); err != nil {
			return -1, err
		}
	}
	if err := makeMountPoint(parent.fd, rel, w.isDir); err != nil {
		return -1, err
	}
	return s.track(openNoSymlinks(parent.fd, rel))
}

// makeDirAround creates a directory around mount points. A private directory is writable, so it is pinned there at once:
// later, a bind mount would have to repeat all mounts below it.
func (s *builder) makeDirAround(parent mountState, rel string) error {
	path := parent.path + "/" + rel
	if s.made[path] {
		return nil
	}
	s.made[path] = true
	if parent.source != "" {
		if err := moveAside(parent.fd, rel, true); err != nil {
			return err
		}
	}
	if err := makeMountPoint(parent.fd, rel, true); err != nil || parent.kind != private {
		return err
	}
	return bindMount(parent.fd, rel, parent.fd, rel, 0)
}

// sealHidden makes hidden directories read-only, which were writable for creating mount points.
func (s *builder) sealHidden() error {
	for _, w := range s.mounts {
		if w.kind == hidden && w.hasChildren {
			if err := setMountAttr(w.fd, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
				return w.wrapError(err)
			}
		}
	}
	return nil
}

// mountFixed bind-mounts paths on themselves, recursively.
func (s *builder) mountFixed(fixtures []mountSpec) error {
	for _, f := range fixtures {
		if f.kind == pinned && s.made[f.path] {
			continue
		}
		err := s.closeAfter(func() error {
			target, err := s.track(openNoSymlinks(unix.AT_FDCWD, f.path))
			if f.kind == pinned && (errors.Is(err, unix.ENOENT) || s.isCoveredInOverlay(f.path, err)) {
				return nil // the path it was pinned for does not exist
			}
			tree := -1
			if err == nil {
				tree, err = s.track(cloneMount(target, "", unix.AT_RECURSIVE))
			}
			if err == nil && f.kind == fixed {
				err = setMountAttr(tree, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY)
			}
			if err == nil {
				err = moveMount(tree, target, "")
			}
			return err
		})
		if err != nil {
			return f.wrapError(err)
		}
	}
	return nil
}
