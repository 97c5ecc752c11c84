package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Apply builds the walls of p around this process, which must be process 1 of new user, mount, pid, ipc and uts
// namespaces, and of a network namespace unless the network is the host's. It needs CAP_SYS_ADMIN, CAP_NET_ADMIN and
// CAP_DAC_OVERRIDE there.
//
// After an error the walls are incomplete, and nothing may be run. Nothing of it is ever visible outside.
func Raise(p Plan) error {
	if os.Getpid() != 1 { // the steps below would destroy any other mount namespace
		return errors.New("walls are raised only by process 1 of namespaces made for it")
	}
	if p.Bare {
		return raiseBare(p)
	}
	walls, fixtures, err := arrange(p)
	if err != nil {
		return err
	}
	s := site{volatile: p.Volatile}
	defer s.leave()
	defer unix.Umask(unix.Umask(0o022)) // for the mount points that are created
	for _, w := range walls {
		s.walls = append(s.walls, raised{wall: w, tree: -1})
	}
	for _, step := range []func() error{
		s.detach,
		s.survey,
		s.fetch,
		s.freeze,
		s.keep,
		s.dev,
		s.proc,
		s.place,
		s.seal,
		func() error { return s.fix(fixtures) },
		func() error { return name(p.Hostname) },
		func() error { return loopback(p.Network) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// UnmountOverlays unmounts the overlays of p, when nothing uses them any more. The kernel does that at the end of the
// namespace, too, but only after the last process was reaped: the next user of the same overlays would have to wait.
func Clear(p Plan) error {
	var failed error
	for _, l := range slices.Backward(slices.SortedFunc(slices.Values(p.Layers), func(a, b Layer) int { return strings.Compare(a.Path, b.Path) })) {
		failed = errors.Join(failed, unix.Unmount(l.Path, unix.UMOUNT_NOFOLLOW))
	}
	return failed
}

// applyNetworkOnly changes nothing but the network, and mounts a /proc that shows the pid namespace.
func raiseBare(p Plan) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return loopback(p.Network)
}

// builder holds the state of walls that are being built.
type site struct {
	walls    []raised
	volatile bool           // of overlays
	blank    int            // file system with an empty "file" and an empty "dir"
	devices  map[string]int // clones of device nodes of the machine
	procfs   int
	open     []int // closed in the end
}

// mountState is a mount of the walls in progress.
type raised struct {
	wall
	gone bool   // the path does not exist
	dir  bool   // the path is a directory
	mode uint32 // permissions of the original
	room bool   // other mounts lie below it
	tree int    // descriptor of the path, then of the mount to attach
}

func (s *site) leave() {
	for _, fd := range s.open {
		_ = unix.Close(fd)
	}
}

// track records a descriptor to be closed in the end.
func (s *site) with(fd int, err error) (int, error) {
	if err == nil {
		s.open = append(s.open, fd)
	}
	return fd, err
}

// makePrivate ends mount propagation from outside: a mount made there later would appear here without being
// read-only.
func (s *site) detach() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	return nil
}

// openMountPoints opens the path of each mount, while nothing is covered yet.
func (s *site) survey() error {
	for i := range s.walls {
		w := &s.walls[i]
		fd, err := s.with(at(unix.AT_FDCWD, w.path))
		if errors.Is(err, unix.ENOENT) && w.kind <= kept {
			w.gone = true
			continue
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && (w.kind == private || w.kind == layered) {
			err = unix.ENOTDIR
		}
		if err != nil {
			return w.failed(err)
		}
		w.dir, w.mode, w.tree = st.Mode&unix.S_IFMT == unix.S_IFDIR, st.Mode&0o1777, fd
		if w.under >= 0 {
			s.walls[w.under].room = true
		}
	}
	return nil
}

func (w wall) failed(err error) error { return fmt.Errorf("%s %s: %w", w.kind, w.path, err) }

// cloneSources clones the mounts that stay writable, and creates the other file systems, before the rest becomes
// read-only.
func (s *site) fetch() (err error) {
	for i := range s.walls {
		switch w := &s.walls[i]; w.kind {
		case writable:
			if w.tree, err = s.with(clone(w.tree, "", unix.AT_RECURSIVE)); err == nil {
				err = set(w.tree, unix.AT_RECURSIVE, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
			}
			if err != nil {
				return w.failed(err)
			}
		case layered:
			if w.tree, err = s.overlay(w.tree, w.layer); err != nil {
				return fmt.Errorf("overlay on %s: %w", w.path, err)
			}
		}
	}
	s.devices = map[string]int{}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		// Using a device needs no writable mount, but changing its permissions does: root would change those of the
		// whole machine.
		fd, err := s.with(clone(unix.AT_FDCWD, "/dev/"+device, 0))
		if errors.Is(err, unix.ENOENT) {
			continue // some containers have fewer
		}
		if err == nil {
			err = set(fd, 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		}
		if err != nil {
			return fmt.Errorf("device /dev/%s: %w", device, err)
		}
		s.devices[device] = fd
	}
	// The kernel allows a new proc mount only where an old one is fully visible.
	if s.procfs, err = s.with(mount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)); err != nil {
		return fmt.Errorf("file system for /proc: %w", err)
	}
	return nil
}

// newOverlay creates an overlay. The kernel parses the directories as mount options, with special characters and a
// length limit; /proc/self/fd paths avoid both, and no other process can replace what they refer to.
func (s *site) overlay(lower int, l Layer) (int, error) {
	upper, err := s.with(at(unix.AT_FDCWD, l.Upper))
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.Upper, err)
	}
	work, err := s.with(at(unix.AT_FDCWD, l.Work))
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.Work, err)
	}
	// By these the kernel recognises an upper directory that was used by a volatile overlay, and refuses it: it cannot
	// tell whether the machine crashed meanwhile. The code that made the plan can.
	for _, mark := range []struct {
		name string
		how  int
	}{
		{"work/incompat/volatile/dirty", 0},
		{"work/incompat/volatile", unix.AT_REMOVEDIR},
		{"work/incompat", unix.AT_REMOVEDIR},
	} {
		if err := unix.Unlinkat(work, mark.name, mark.how); err != nil && !errors.Is(err, unix.ENOENT) {
			return -1, fmt.Errorf("%s/%s: %w", l.Work, mark.name, err)
		}
	}
	defer s.soften(work)
	name := func(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
	options := []string{
		"userxattr", "",
		"index", "on", // with it the kernel refuses to use an upper directory twice
		"lowerdir", name(lower), "upperdir", name(upper), "workdir", name(work),
	}
	if s.volatile {
		options = append(options, "volatile", "")
	}
	// The previous user may just have exited, and the kernel may still be releasing its overlay.
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		fd, err := mount("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options...)
		if !errors.Is(err, unix.EBUSY) || time.Since(start) > patienceWithLayers {
			return s.with(fd, err)
		}
	}
}

// chmodWorkDirs lets the owner of an overlay remove it at any time, without privileges: the kernel creates its own
// directories with mode 0.
func (s *site) soften(work int) {
	for _, name := range []string{"work", "work/incompat", "work/incompat/volatile", "work/incompat/volatile/dirty", "index"} {
		_ = unix.Fchmodat(work, name, 0o700, 0) // not every kernel creates all of them
	}
}

// overlayBusyTimeout is how long an overlay may be in use by another mount. The caller has made sure that no command
// uses it.
const patienceWithLayers = 5 * time.Second

// makeReadOnly makes all mounts read-only.
func (s *site) freeze() error {
	if err := set(unix.AT_FDCWD, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return fmt.Errorf("read-only /: %w", err)
	}
	return nil
}

// cloneKept clones the mounts that stay visible, now that they are read-only.
func (s *site) keep() (err error) {
	for i := range s.walls {
		if w := &s.walls[i]; w.kind == kept && !w.gone {
			if w.tree, err = s.with(clone(w.tree, "", unix.AT_RECURSIVE)); err != nil {
				return w.failed(err)
			}
		}
	}
	return nil
}

// mountDev mounts a minimal /dev. The blank file system for hidden paths is mounted below it, where it is covered: only
// an attached mount can be cloned.
func (s *site) dev() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("file system for /dev: %w", err)
		}
	}()
	s.blank, err = s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "64k"))
	if err != nil {
		return err
	}
	if err := errors.Join(point(s.blank, "dir", true), point(s.blank, "file", false), set(s.blank, 0, unix.MOUNT_ATTR_RDONLY), move(s.blank, unix.AT_FDCWD, "/dev")); err != nil {
		return err
	}

	dev, err := s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "64k"))
	if err != nil {
		return err
	}
	for _, link := range [][2]string{
		{"pts/ptmx", "ptmx"},
		{"/proc/self/fd", "fd"},
		{"/proc/self/fd/0", "stdin"},
		{"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"},
	} {
		if err := unix.Symlinkat(link[0], dev, link[1]); err != nil {
			return err
		}
	}
	for name := range s.devices {
		if err := point(dev, name, false); err != nil {
			return err
		}
	}
	if err := errors.Join(point(dev, "pts", true), point(dev, "shm", true), move(dev, unix.AT_FDCWD, "/dev")); err != nil {
		return err
	}
	for name, tree := range s.devices {
		if err := move(tree, dev, name); err != nil {
			return err
		}
	}
	pts, err := s.with(mount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "newinstance", "", "ptmxmode", "0666", "mode", "0620"))
	if err != nil {
		return fmt.Errorf("pts: %w", err)
	}
	shm, err := s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "1777"))
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	return errors.Join(move(pts, dev, "pts"), move(shm, dev, "shm"), set(dev, 0, unix.MOUNT_ATTR_RDONLY))
}

// Entries of /proc that concern the machine rather than a process. Root could write many of them and read the rest,
// in any user namespace.
var (
	lookOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "asound", "driver", "dynamic_debug", "mtrr", "scsi", "tty"}
	unseen   = []string{"kcore", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo"}
)

// mountProc mounts the /proc of the new pid namespace.
func (s *site) proc() error {
	if err := move(s.procfs, unix.AT_FDCWD, "/proc"); err != nil {
		return fmt.Errorf("file system for /proc: %w", err)
	}
	for _, name := range lookOnly {
		tree, err := s.with(clone(s.procfs, name, 0))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = set(tree, 0, unix.MOUNT_ATTR_RDONLY)
		}
		if err == nil {
			err = move(tree, s.procfs, name)
		}
		if err != nil {
			return fmt.Errorf("read-only /proc/%s: %w", name, err)
		}
	}
	for _, name := range unseen {
		target, err := at(s.procfs, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if _, err = s.with(target, err); err == nil {
			err = s.cover(target, false)
		}
		if err != nil {
			return fmt.Errorf("hidden /proc/%s: %w", name, err)
		}
	}
	return nil
}

// mountBlank mounts an empty file or directory on an open path.
func (s *site) cover(target int, dir bool) error {
	blank := "file"
	if dir {
		blank = "dir"
	}
	tree, err := s.with(clone(s.blank, blank, 0))
	if err != nil {
		return err
	}
	return move(tree, target, "")
}

// mountAll attaches all mounts.
func (s *site) place() error {
	for i := range s.walls {
		w := &s.walls[i]
		if w.gone {
			continue
		}
		target, err := s.spot(w)
		switch {
		case w.kind == hidden && !w.room && errors.Is(err, unix.ENOENT):
			continue // such as a socket whose listener has just ended
		case err != nil:
		case w.kind == hidden && !w.room:
			err = s.cover(target, w.dir)
		case w.kind == hidden: // made read-only once everything below it is attached
			w.tree, err = s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755"))
		case w.kind == private:
			w.tree, err = s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", strconv.FormatUint(uint64(w.mode|0o700), 8)))
		}
		if err == nil && (w.kind != hidden || w.room) {
			err = move(w.tree, target, "")
		}
		if err != nil {
			return w.failed(err)
		}
	}
	return nil
}

// openTarget opens the mount point of a mount, and creates it if its original is covered.
func (s *site) spot(w *raised) (int, error) {
	if w.under < 0 || !s.walls[w.under].kind.covers() {
		return s.with(at(unix.AT_FDCWD, w.path))
	}
	parent := s.walls[w.under]
	rel := strings.TrimPrefix(w.path, parent.path+"/")
	for i, c := range rel {
		if c == '/' {
			if err := point(parent.tree, rel[:i], true); err != nil {
				return -1, err
			}
		}
	}
	if err := point(parent.tree, rel, w.dir); err != nil {
		return -1, err
	}
	return s.with(at(parent.tree, rel))
}

// sealHidden makes hidden directories read-only, which were writable for creating mount points.
func (s *site) seal() error {
	for _, w := range s.walls {
		if w.kind == hidden && w.room {
			if err := set(w.tree, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
				return w.failed(err)
			}
		}
	}
	return nil
}

// mountFixed bind-mounts paths on themselves, recursively.
func (s *site) fix(fixtures []wall) error {
	for _, f := range fixtures {
		target, err := s.with(at(unix.AT_FDCWD, f.path))
		if f.kind == held && errors.Is(err, unix.ENOENT) {
			continue // the path it was pinned for does not exist
		}
		tree := -1
		if err == nil {
			tree, err = s.with(clone(target, "", unix.AT_RECURSIVE))
		}
		if err == nil && f.kind == fixed {
			err = set(tree, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY)
		}
		if err == nil {
			err = move(tree, target, "")
		}
		if err != nil {
			return f.failed(err)
		}
	}
	return nil
}

// setHostname sets the host name of the UTS namespace.
func name(host string) error {
	if host == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("hostname %s: %w", host, err)
	}
	return nil
}

// bringUpLoopback brings up the loopback device of a network namespace. The host's must not be touched.
func loopback(n Network) error {
	if n == HostNetwork {
		return nil
	}
	if n != NoNetwork && n != ProxiedOnly {
		return fmt.Errorf("network %q: there is no such network", n)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var lo *unix.Ifreq
		if lo, err = unix.NewIfreq("lo"); err == nil {
			lo.SetUint16(unix.IFF_UP)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
		}
	}
	if err != nil {
		return fmt.Errorf("network %s: loopback: %w", n, err)
	}
	return nil
}
