package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// isMasked reports whether a hidden path is below a masked directory, with no other mount between them.
func (s *builder) isMasked(w *mountState) bool {
	return w.parent >= 0 && s.mounts[w.parent].kind == masked
}

// maskedPaths returns the hidden paths whose nearest mount is a masked directory.
func (s *builder) maskedPaths(parent int) (paths []string) {
	for _, w := range s.mounts {
		if w.parent == parent && w.kind == hidden && !w.missing {
			paths = append(paths, w.path)
		}
	}
	return paths
}

// makeMasks creates the upper layers of the masks in the blank file system: an empty file or directory for each hidden
// path, and the directories around it with the permissions of the originals.
func (s *builder) makeMasks() error {
	for i, w := range s.mounts {
		if w.kind != masked {
			continue
		}
		if err := unix.Mkdirat(s.blankFS, maskName(i), w.mode); err != nil {
			return w.wrapError(err)
		}
		for j := range s.mounts {
			h := &s.mounts[j]
			if h.parent != i || h.kind != hidden || h.missing {
				continue
			}
			if err := s.makeMask(i, strings.TrimPrefix(h.path, w.path+"/"), h); err != nil {
				return h.wrapError(err)
			}
		}
	}
	return nil
}

func maskName(i int) string { return "mask" + strconv.Itoa(i) }

func (s *builder) makeMask(i int, rel string, h *mountState) error {
	for end, c := range rel {
		if c != '/' {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(s.mounts[i].fd, rel[:end], &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return nil // it has just been removed
		}
		if err != nil {
			return err
		}
		if err := unix.Mkdirat(s.blankFS, maskName(i)+"/"+rel[:end], st.Mode&0o1777); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if h.text != "" {
		return writeFileAt(s.blankFS, maskName(i)+"/"+rel, h.text)
	}
	if err := makeMountPoint(s.blankFS, maskName(i)+"/"+rel, h.isDir); err != nil || !h.isDir {
		return err
	}
	// Before Linux 6.6 a tmpfs has no such attributes, and the directory in the overlay needs a mount on it.
	h.opaque = setOpaque(s.blankFS, maskName(i)+"/"+rel) == nil
	return nil
}

// setOpaque makes a directory of an overlay's upper layer hide the one below it.
func setOpaque(fs int, name string) error {
	dir, err := unix.Openat(fs, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Fsetxattr(dir, "user.overlay.opaque", []byte("y"), 0)
}

// mountMask mounts a masked directory: an overlay of the mask and the original, without a directory to write to. The
// kernel refuses that where mounts from outside lie below the original, and for some file systems; then every entry is
// mounted by itself in an empty directory, which takes longer, and hides entries that are created later.
func (s *builder) mountMask(i, target int) error {
	w := &s.mounts[i]
	upper, err := s.track(openNoSymlinks(s.blankFS, maskName(i)))
	if err != nil {
		return err
	}
	layers := fmt.Sprintf("/proc/self/fd/%d:/proc/self/fd/%d", upper, w.fd)
	m := maskedDir{builder: s, index: i, hiddenPaths: s.maskedPaths(i)}
	m.mount, err = newMount("overlay", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "userxattr", "", "lowerdir", layers)
	if errors.Is(err, unix.EINVAL) {
		m.empty = true
		m.mount, err = newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", strconv.FormatUint(uint64(w.mode|0o700), 8))
	}
	if _, err = s.track(m.mount, err); err == nil {
		err = moveMount(m.mount, target, "")
	}
	if err == nil {
		err = m.mountEntries(w.path)
	}
	if err == nil && m.empty {
		err = setMountAttr(m.mount, 0, unix.MOUNT_ATTR_RDONLY)
	}
	return err
}

// maskedDir is a masked directory in progress.
type maskedDir struct {
	*builder
	index       int // in mounts
	mount       int // descriptor of the mount on it
	empty       bool
	hiddenPaths []string
}

// mountEntries mounts the directories in dir that contain no hidden path, so that they show every change made outside:
// an overlay keeps showing a file that was replaced. If the mount is empty, it mounts or creates all other entries too.
func (m maskedDir) mountEntries(dir string) error {
	w := m.mounts[m.index]
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, w.path), "/")
	entries, err := readDirAt(w.fd, rel)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !m.empty && (!e.IsDir() || !walls.ShowsChanges(w.path, path.Join(dir, e.Name()))) {
			continue
		}
		err := m.mountEntry(path.Join(dir, e.Name()), path.Join(rel, e.Name()), e.Type())
		if err != nil && !errors.Is(err, unix.ENOENT) { // one that has just been removed is skipped
			return fmt.Errorf("%s: %w", path.Join(dir, e.Name()), err)
		}
	}
	return nil
}

func (m maskedDir) mountEntry(at, rel string, kind fs.FileMode) error {
	original := m.mounts[m.index].fd
	if m.empty && kind&fs.ModeSymlink != 0 {
		var to [unix.PathMax]byte
		n, err := unix.Readlinkat(original, rel, to[:])
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(to[:n]), m.mount, rel)
	}
	if m.empty {
		if err := makeMountPoint(m.mount, rel, kind.IsDir()); err != nil {
			return err
		}
	}
	switch {
	case m.empty && !kind.IsDir() && slices.Contains(m.hiddenPaths, at):
		return bindMount(m.blankFS, maskName(m.index)+"/"+rel, m.mount, rel, unix.AT_RECURSIVE)
	case slices.Contains(m.hiddenPaths, at), m.isMountPoint(at):
		return nil
	case kind.IsDir() && walls.IsAround(at, m.hiddenPaths):
		return m.mountEntries(at)
	}
	return bindMount(original, rel, m.mount, rel, unix.AT_RECURSIVE)
}

// isMountPoint reports whether another mount of the walls is on a path.
func (s *builder) isMountPoint(path string) bool {
	return slices.ContainsFunc(s.mounts, func(w mountState) bool { return w.path == path && !w.missing })
}

// readDirAt lists a directory below an open one.
func readDirAt(fd int, rel string) ([]os.DirEntry, error) {
	opened, err := unix.Openat(fd, path.Join(".", rel), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(opened), rel)
	defer f.Close()
	return f.ReadDir(-1)
}
