package confine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// newOverlay creates an overlay. The kernel parses the directories as mount options, with special characters and a
// length limit; /proc/self/fd paths avoid both, and no other process can replace what they refer to.
func (s *builder) newOverlay(lower int, l walls.OverlayMount) (int, error) {
	upper, err := s.track(openNoSymlinks(unix.AT_FDCWD, l.Upper))
	if err != nil {
		return -1, fmt.Errorf("%s: %w", l.Upper, err)
	}
	work, err := s.track(openNoSymlinks(unix.AT_FDCWD, l.Work))
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
	defer s.chmodWorkDirs(work)
	name := func(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
	lowers := []string{name(lower)}
	for i, path := range l.Lowers {
		fd, err := s.track(openNoSymlinks(unix.AT_FDCWD, path))
		if err != nil {
			return -1, fmt.Errorf("%s: %w", path, err)
		}
		lowers = append(lowers[:i], name(fd))
	}
	options := []string{
		"userxattr", "",
		"index", "on", // with it the kernel refuses to use an upper directory twice
		"lowerdir", strings.Join(lowers, ":"), "upperdir", name(upper), "workdir", name(work),
	}
	if s.volatile {
		options = append(options, "volatile", "")
	}
	// The previous user may just have exited, and the kernel may still be releasing its overlay.
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		fd, err := newMount("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, options...)
		if !errors.Is(err, unix.EBUSY) || time.Since(start) > overlayBusyTimeout {
			return s.track(fd, err)
		}
	}
}

// chmodWorkDirs lets the owner of an overlay remove it at any time, without privileges: the kernel creates its own
// directories with mode 0.
func (s *builder) chmodWorkDirs(work int) {
	for _, name := range []string{"work", "work/incompat", "work/incompat/volatile", "work/incompat/volatile/dirty", "index"} {
		_ = unix.Fchmodat(work, name, 0o700, 0) // not every kernel creates all of them
	}
}

// overlayBusyTimeout is how long an overlay may be in use by another mount. The caller has made sure that no command
// uses it.
const overlayBusyTimeout = 5 * time.Second

// mountDev mounts a minimal /dev. The blank file system for hidden paths is mounted below it, where it is covered: only
// an attached mount can be cloned.
func (s *builder) mountDev() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("file system for /dev: %w", err)
		}
	}()
	s.blankFS, err = s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755"))
	if err != nil {
		return err
	}
	if err := errors.Join(makeMountPoint(s.blankFS, "dir", true), makeMountPoint(s.blankFS, "file", false), s.makeTexts(), s.makeMasks(), setMountAttr(s.blankFS, 0, unix.MOUNT_ATTR_RDONLY), moveMount(s.blankFS, unix.AT_FDCWD, "/dev")); err != nil {
		return err
	}

	dev, err := s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "64k"))
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
		if err := makeMountPoint(dev, name, false); err != nil {
			return err
		}
	}
	if err := errors.Join(makeMountPoint(dev, "pts", true), makeMountPoint(dev, "shm", true), moveMount(dev, unix.AT_FDCWD, "/dev")); err != nil {
		return err
	}
	for name, tree := range s.devices {
		if err := moveMount(tree, dev, name); err != nil {
			return err
		}
	}
	pts, err := s.track(newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "newinstance", "", "ptmxmode", "0666", "mode", "0620"))
	if err != nil {
		return fmt.Errorf("pts: %w", err)
	}
	shm, err := s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "1777"))
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	return errors.Join(moveMount(pts, dev, "pts"), moveMount(shm, dev, "shm"), setMountAttr(dev, 0, unix.MOUNT_ATTR_RDONLY))
}

// Entries of /proc that concern the machine rather than a process. Root could write many of them and read the rest,
// in any user namespace.
var (
	procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "asound", "driver", "dynamic_debug", "mtrr", "scsi", "tty"}
	procHidden   = []string{"kcore", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo"}
)

// mountProc mounts the /proc of the new pid namespace.
func (s *builder) mountProc() error {
	if err := moveMount(s.procfs, unix.AT_FDCWD, "/proc"); err != nil {
		return fmt.Errorf("file system for /proc: %w", err)
	}
	for _, name := range procReadOnly {
		err := s.closeAfter(func() error {
			tree, err := s.track(cloneMount(s.procfs, name, 0))
			if err == nil {
				err = setMountAttr(tree, 0, unix.MOUNT_ATTR_RDONLY)
			}
			if err == nil {
				err = moveMount(tree, s.procfs, name)
			}
			return err
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("read-only /proc/%s: %w", name, err)
		}
	}
	for _, name := range procHidden {
		err := s.closeAfter(func() error {
			target, err := s.track(openNoSymlinks(s.procfs, name))
			if err == nil {
				err = s.mountBlank(target, "file")
			}
			return err
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hidden /proc/%s: %w", name, err)
		}
	}
	return nil
}

// blankFor returns the name of the file or directory in the blank file system that covers a hidden path.
func (s *builder) blankFor(i int) string {
	switch w := s.mounts[i]; {
	case w.isDir:
		return "dir"
	case w.text != "":
		return "text" + strconv.Itoa(i)
	}
	return "file"
}

// makeTexts creates the files of the blank file system that are not empty.
func (s *builder) makeTexts() error {
	for i, w := range s.mounts {
		if name := s.blankFor(i); w.text != "" && !s.isMasked(&w) {
			if err := writeFileAt(s.blankFS, name, w.text); err != nil {
				return w.wrapError(err)
			}
		}
	}
	return nil
}

// writeFileAt creates a file with a content.
func writeFileAt(dir int, name, text string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// mountBlank mounts a file or directory of the blank file system on an open path.
func (s *builder) mountBlank(target int, blank string) error {
	tree, err := s.track(cloneMount(s.blankFS, blank, 0))
	if err != nil {
		return err
	}
	return moveMount(tree, target, "")
}
