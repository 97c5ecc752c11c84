package confine

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// cloneSource clones the mount of a file or directory, before everything becomes read-only.
func (s *builder) cloneSource(path string, attr uint64) (tree int, err error) {
	opened, err := openNoSymlinks(unix.AT_FDCWD, path)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(opened)
	if tree, err = s.track(cloneMount(opened, "", 0)); err == nil {
		err = setMountAttr(tree, 0, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|attr)
	}
	return tree, err
}

// moveAside renames what a sandbox has in its home at the place of a mount point, unless it can be mounted on. Commands
// of the sandbox made it, so it may be a symbolic link to anywhere; none of them runs now.
func moveAside(home int, name string, wantDir bool) error {
	var st unix.Stat_t
	err := unix.Fstatat(home, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	kind := uint32(unix.S_IFREG)
	if wantDir {
		kind = unix.S_IFDIR
	}
	if st.Mode&unix.S_IFMT == kind {
		return nil
	}
	for n := 1; ; n++ {
		err := unix.Renameat2(home, name, home, name+".own-"+strconv.Itoa(n), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// makeLinks creates symbolic links in the private home and other private directories. Where the sandbox has something of its
// own, that stays.
func (s *builder) makeLinks(links []walls.Link) error {
	for _, link := range links {
		dir := s.mountAround(link.Path)
		if dir == nil || dir.kind != private || dir.missing {
			continue
		}
		rel := strings.TrimPrefix(link.Path, dir.path+"/")
		err := s.closeAfter(func() error { return s.makeLink(dir.fd, rel, link.Target) })
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("link %s: %w", link.Path, err)
		}
	}
	return nil
}

// mountAround returns the nearest mount around a path; nil if there is none.
func (s *builder) mountAround(path string) *mountState {
	for i := range slices.Backward(s.mounts) { // the last one that contains it is the nearest
		if guard.Contains(s.mounts[i].path, path) {
			return &s.mounts[i]
		}
	}
	return nil
}

// makeLink creates a symbolic link and the directories around it below an open directory.
func (s *builder) makeLink(dir int, rel, target string) error {
	for i, c := range rel {
		if c != '/' {
			continue
		}
		parent, err := s.track(openNoSymlinks(dir, path.Dir(rel[:i])))
		if err != nil {
			return err
		}
		if err := makeMountPoint(parent, path.Base(rel[:i]), true); err != nil {
			return err
		}
	}
	parent, err := s.track(openNoSymlinks(dir, path.Dir(rel)))
	if err != nil {
		return err
	}
	return unix.Symlinkat(target, parent, path.Base(rel))
}

// isCoveredInOverlay reports whether a hidden path in an overlay cannot be opened because the upper directory has a
// symbolic link or a file in its place, which a command of the sandbox made. That hides the original, also when it is
// removed: then the upper directory has a whiteout.
func (s *builder) isCoveredInOverlay(path string, err error) bool {
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		return false
	}
	around := s.mountAround(path)
	return around != nil && around.kind == overlaid
}
