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

// Raise builds what p says around this process, which must be process 1 of user, mount, pid, ipc and uts
// namespaces made for it, and of a network namespace unless the network is the host's. It needs
// CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_DAC_OVERRIDE there.
//
// When it fails the walls stand in part: nothing may be run then. Nothing of it is ever seen outside.
func Raise(p Plan) error {
	if os.Getpid() != 1 { // what follows would ruin any other mount namespace
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
	defer unix.Umask(unix.Umask(0o022)) // of the places that are made for walls
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

// Clear unmounts the layers of p, when nobody uses them any more. Namespaces that end do so too, but after
// the last process in them has been seen to end: whoever wants to use the same layers at once would have to
// wait.
func Clear(p Plan) error {
	var failed error
	for _, l := range slices.Backward(slices.SortedFunc(slices.Values(p.Layers), func(a, b Layer) int { return strings.Compare(a.Path, b.Path) })) {
		failed = errors.Join(failed, unix.Unmount(l.Path, unix.UMOUNT_NOFOLLOW))
	}
	return failed
}

// raiseBare leaves everything as it is but the network, and a /proc that shows who is there.
func raiseBare(p Plan) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return loopback(p.Network)
}

// site is where walls are being raised.
type site struct {
	walls    []raised
	volatile bool           // of layers
	blank    int            // a file system with an empty "file" and an empty "dir"
	devices  map[string]int // of the machine
	procfs   int
	open     []int // to be closed in the end
}

// raised is a wall in the making.
type raised struct {
	wall
	gone bool   // there is no such path
	dir  bool   // it is a directory
	mode uint32 // the permissions of what is there
	room bool   // others lie in it
	tree int    // what is put there
}

func (s *site) leave() {
	for _, fd := range s.open {
		_ = unix.Close(fd)
	}
}

// with has a file descriptor closed in the end.
func (s *site) with(fd int, err error) (int, error) {
	if err == nil {
		s.open = append(s.open, fd)
	}
	return fd, err
}

// detach cuts this mount namespace off: what is mounted outside from now on would appear here without
// being read-only.
func (s *site) detach() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	return nil
}

// survey finds out what there is at each path, while nothing hides anything.
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

// fetch takes hold of what stays writable, or of another file system, before the rest becomes read-only.
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
		// Reading and writing a device does not need a mount that can be written, changing its
		// permissions does: root's are those of the whole machine.
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
	// The kernel gives a new one only to those who see all of an old one.
	if s.procfs, err = s.with(mount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)); err != nil {
		return fmt.Errorf("file system for /proc: %w", err)
	}
	return nil
}

// overlay makes a layer. The kernel reads the directories as options, in which some characters mean
// something and which have a greatest length; the names of open files are without such troubles, and
// nobody can exchange what they name.
func (s *site) overlay(lower int, l Layer) (int, error) {
	upper, err := s.with(at(unix.AT_FDCWD, l.Upper))
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.Upper, err)
	}
	work, err := s.with(at(unix.AT_FDCWD, l.Work))
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.Work, err)
	}
	// By this the kernel knows a layer that was volatile, and refuses to use it again: it cannot tell
	// whether the machine failed meanwhile. Who planned it can.
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
		"index", "on", // then the kernel refuses to use one layer twice
		"lowerdir", name(lower), "upperdir", name(upper), "workdir", name(work),
	}
	if s.volatile {
		options = append(options, "volatile", "")
	}
	// Whoever had the layer before may be dead, and the kernel not done with what they left.
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		fd, err := mount("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options...)
		if !errors.Is(err, unix.EBUSY) || time.Since(began) > patienceWithLayers {
			return s.with(fd, err)
		}
	}
}

// soften lets whoever owns a layer remove it, at any time, with no more than they have: the kernel makes its
// own directories such that nobody may enter them.
func (s *site) soften(work int) {
	for _, name := range []string{"work", "work/incompat", "work/incompat/volatile", "work/incompat/volatile/dirty", "index"} {
		_ = unix.Fchmodat(work, name, 0o700, 0) // not every kernel makes each of them
	}
}

// patienceWithLayers is how long somebody else may have a layer. Who builds walls has seen to it that nobody does.
const patienceWithLayers = 5 * time.Second

// freeze makes everything read-only.
func (s *site) freeze() error {
	if err := set(unix.AT_FDCWD, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return fmt.Errorf("read-only /: %w", err)
	}
	return nil
}

// keep takes hold of what shall still be seen, now that it is read-only.
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

// dev makes a /dev of what every program may have. What hidden things look like is kept below it, where
// nobody sees it: only what is mounted somewhere can be mounted elsewhere too.
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

// What of /proc is the machine's and not a process's. Root could write much of it and read the rest,
// whatever its user namespace.
var (
	lookOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "asound", "driver", "dynamic_debug", "mtrr", "scsi", "tty"}
	unseen   = []string{"kcore", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo"}
)

// proc makes a /proc of the processes here.
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
		there, err := at(s.procfs, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if _, err = s.with(there, err); err == nil {
			err = s.cover(there, false)
		}
		if err != nil {
			return fmt.Errorf("hidden /proc/%s: %w", name, err)
		}
	}
	return nil
}

// cover puts something empty on what is open.
func (s *site) cover(there int, dir bool) error {
	blank := "file"
	if dir {
		blank = "dir"
	}
	tree, err := s.with(clone(s.blank, blank, 0))
	if err != nil {
		return err
	}
	return move(tree, there, "")
}

// place puts everything where it belongs.
func (s *site) place() error {
	for i := range s.walls {
		w := &s.walls[i]
		if w.gone {
			continue
		}
		there, err := s.spot(w)
		switch {
		case w.kind == hidden && !w.room && errors.Is(err, unix.ENOENT):
			continue // as a socket of which the listener has just ended
		case err != nil:
		case w.kind == hidden && !w.room:
			err = s.cover(there, w.dir)
		case w.kind == hidden: // read-only when all that lies in it is in place
			w.tree, err = s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755"))
		case w.kind == private:
			w.tree, err = s.with(mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", strconv.FormatUint(uint64(w.mode|0o700), 8)))
		}
		if err == nil && (w.kind != hidden || w.room) {
			err = move(w.tree, there, "")
		}
		if err != nil {
			return w.failed(err)
		}
	}
	return nil
}

// spot opens the place where a wall goes, and makes it if it is covered.
func (s *site) spot(w *raised) (int, error) {
	if w.under < 0 || !s.walls[w.under].kind.covers() {
		return s.with(at(unix.AT_FDCWD, w.path))
	}
	around := s.walls[w.under]
	rest := strings.TrimPrefix(w.path, around.path+"/")
	for i, c := range rest {
		if c == '/' {
			if err := point(around.tree, rest[:i], true); err != nil {
				return -1, err
			}
		}
	}
	if err := point(around.tree, rest, w.dir); err != nil {
		return -1, err
	}
	return s.with(at(around.tree, rest))
}

// seal makes read-only what only had to be written for things to be placed in it.
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

// fix mounts things on themselves, with everything that is mounted in them.
func (s *site) fix(fixtures []wall) error {
	for _, f := range fixtures {
		there, err := s.with(at(unix.AT_FDCWD, f.path))
		if f.kind == held && errors.Is(err, unix.ENOENT) {
			continue // it was held for something that is not there
		}
		tree := -1
		if err == nil {
			tree, err = s.with(clone(there, "", unix.AT_RECURSIVE))
		}
		if err == nil && f.kind == fixed {
			err = set(tree, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY)
		}
		if err == nil {
			err = move(tree, there, "")
		}
		if err != nil {
			return f.failed(err)
		}
	}
	return nil
}

// name gives the machine a name.
func name(host string) error {
	if host == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("hostname %s: %w", host, err)
	}
	return nil
}

// loopback brings up the only device that a network namespace has. In the host's this is not permitted.
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
