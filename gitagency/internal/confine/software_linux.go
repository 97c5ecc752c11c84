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

// otherRoot builds the root file system of the commands: a new one, in which everything of the source is mounted that need not
// give way to something of the machine. The source itself is never written, so it needs neither an overlay nor a mount point
// for what is mounted in it.
type otherRoot struct {
	source int             // descriptor of the root file system, mounted read-only
	root   int             // descriptor of the new one
	made   map[string]bool // directories of the source that the new one has of its own, with the entries mounted one by one; "" is the top
	places []placement     // what is mounted
}

// placement is something to mount in the new root.
type placement struct {
	path  string // in the root, without the first slash
	tree  int    // descriptor of the mount to attach
	isDir bool
}

// mountSoftware mounts another root file system, if the plan has one, after everything else: what it shows of the machine is
// shown as the walls show it.
func (s *builder) mountSoftware(sw walls.Software) error {
	if sw.Dir == "" {
		return nil
	}
	err := s.closeAfter(func() error {
		source, err := s.track(openNoSymlinks(unix.AT_FDCWD, sw.Mount)) // attached by mountAll
		if err != nil {
			return err
		}
		o := otherRoot{source: source, made: map[string]bool{}}
		if o.places, err = s.cloneShown(sw); err != nil {
			return err
		}
		o.places = append(o.places, s.bound...)
		// Both are attached above the source, whose descriptor stays valid: the kernel clones only what is attached.
		texts, err := s.attachNew(source)
		if err != nil {
			return err
		}
		for i, f := range sw.Files {
			tree, err := s.cloneText(texts, "text"+strconv.Itoa(i), string(f.Text))
			if err != nil {
				return fmt.Errorf("%s: %w", f.Path, err)
			}
			o.places = append(o.places, newPlacement(f.Path, tree, false))
		}
		if o.root, err = s.attachNew(texts); err != nil {
			return err
		}
		return o.build()
	})
	if err != nil {
		return fmt.Errorf("root file system %s: %w", sw.Dir, err)
	}
	return nil
}

// attachNew mounts an empty file system on another.
func (s *builder) attachNew(on int) (int, error) {
	tree, err := s.track(newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755"))
	if err != nil {
		return -1, err
	}
	return tree, moveMount(tree, on, "")
}

// cloneText creates a file and returns a mount of it, which is read-only.
func (s *builder) cloneText(texts int, name, text string) (int, error) {
	if err := writeFileAt(texts, name, text); err != nil {
		return -1, err
	}
	tree, err := s.track(cloneMount(texts, name, 0))
	if err != nil {
		return -1, err
	}
	return tree, setMountAttr(tree, 0, unix.MOUNT_ATTR_RDONLY)
}

// cloneBound clones the files of the machine that another root file system has, before anything hides them. One that was removed
// meanwhile is skipped.
func (s *builder) cloneBound(sw walls.Software) error {
	for _, b := range sw.Bound {
		tree, err := s.cloneSource(b.Source, unix.MOUNT_ATTR_RDONLY, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.Path, err)
		}
		s.bound = append(s.bound, newPlacement(b.Path, tree, false))
	}
	return nil
}

// cloneShown clones the mounts of the machine that the root shows. A path that does not exist is skipped, as by mountAll.
func (s *builder) cloneShown(sw walls.Software) (places []placement, err error) {
	for _, path := range append([]string{"/proc", "/sys", "/dev"}, sw.Shown...) {
		opened, err := openNoSymlinks(unix.AT_FDCWD, path)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		var st unix.Stat_t
		tree := -1
		if err == nil {
			defer unix.Close(opened)
			err = unix.Fstat(opened, &st)
		}
		if err == nil {
			tree, err = s.track(cloneMount(opened, "", unix.AT_RECURSIVE))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		places = append(places, newPlacement(path, tree, st.Mode&unix.S_IFMT == unix.S_IFDIR))
	}
	return places, nil
}

func newPlacement(path string, tree int, isDir bool) placement {
	return placement{strings.TrimPrefix(path, "/"), tree, isDir}
}

// build fills the new root and makes it read-only.
func (o *otherRoot) build() error {
	o.made[""] = true
	for _, p := range o.places {
		if err := o.makeWay(p); err != nil {
			return err
		}
	}
	if err := o.fill(""); err != nil {
		return err
	}
	slices.SortFunc(o.places, func(a, b placement) int { return strings.Compare(a.path, b.path) })
	for _, p := range o.places {
		if err := o.place(p); err != nil {
			return fmt.Errorf("/%s: %w", p.path, err)
		}
	}
	return setMountAttr(o.root, 0, unix.MOUNT_ATTR_RDONLY)
}

// makeWay decides which directories the new root needs of its own, because the source has no mount point for p.
func (o *otherRoot) makeWay(p placement) error {
	for dir, rest := "", p.path; ; {
		name, below, more := strings.Cut(rest, "/")
		var st unix.Stat_t
		err := unix.Fstatat(o.source, path.Join(dir, name), &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("/%s: %w", path.Join(dir, name), err)
		}
		want := uint32(unix.S_IFREG)
		if more || p.isDir {
			want = unix.S_IFDIR
		}
		if err != nil || st.Mode&unix.S_IFMT != want {
			for ; dir != "."; dir = path.Dir(dir) {
				o.made[dir] = true
				if dir == "" {
					break
				}
			}
			return nil
		}
		if !more {
			return nil
		}
		dir, rest = path.Join(dir, name), below
	}
}

// maxEntries bounds the entries that are mounted one by one.
const maxEntries = 4096

// fill mounts the entries of a directory of the source in the new root, but for those in the way of a placement.
func (o *otherRoot) fill(dir string) error {
	entries, err := o.list(dir)
	if err != nil {
		return fmt.Errorf("/%s: %w", dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case o.made[name]:
			if err = makeMountPoint(o.root, name, true); err == nil {
				err = o.fill(name)
			}
		case o.isInWay(name, e):
		case e.Type() == fs.ModeSymlink:
			err = o.copyLink(name)
		case e.IsDir() || e.Type().IsRegular():
			if err = makeMountPoint(o.root, name, e.IsDir()); err == nil {
				err = bindMount(o.source, name, o.root, name, unix.AT_RECURSIVE)
			}
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}

// list lists a directory of the source.
func (o *otherRoot) list(dir string) ([]fs.DirEntry, error) {
	fd, err := unix.Openat(o.source, path.Join(".", dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err == nil && len(entries) > maxEntries {
		err = fmt.Errorf("it has %d entries, and only %d can be mounted one by one", len(entries), maxEntries)
	}
	return entries, err
}

// isInWay reports whether an entry of the source has the name of a placement, or of a directory around one, and cannot be a
// mount point for it.
func (o *otherRoot) isInWay(name string, e fs.DirEntry) bool {
	return slices.ContainsFunc(o.places, func(p placement) bool {
		if p.path == name && !p.isDir {
			return !e.Type().IsRegular()
		}
		return !e.IsDir() && (p.path == name || strings.HasPrefix(p.path, name+"/"))
	})
}

// copyLink makes a symbolic link of the source in the new root.
func (o *otherRoot) copyLink(name string) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(o.source, name, buf)
	if err != nil {
		return err
	}
	return unix.Symlinkat(string(buf[:n]), o.root, name)
}

// place mounts a placement, on a new mount point where the source has none.
func (o *otherRoot) place(p placement) error {
	target, err := openNoSymlinks(o.root, p.path)
	if errors.Is(err, unix.ENOENT) {
		for i, c := range p.path {
			if c == '/' {
				if err := makeMountPoint(o.root, p.path[:i], true); err != nil && !errors.Is(err, unix.EROFS) {
					return err
				}
			}
		}
		if err := makeMountPoint(o.root, p.path, p.isDir); err != nil {
			return err
		}
		target, err = openNoSymlinks(o.root, p.path)
	}
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return moveMount(p.tree, target, "")
}

// unmountSoftware unmounts another root file system: the mounts in it keep the overlays in use.
func unmountSoftware(sw walls.Software) (err error) {
	if sw.Dir == "" {
		return nil
	}
	for range 3 { // the new root, the files with another content and the source are mounted on each other
		err = errors.Join(err, unix.Unmount(sw.Mount, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
	}
	return err
}
