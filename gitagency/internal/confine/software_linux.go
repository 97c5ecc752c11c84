package confine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// otherRoot builds the root file system of the commands: a new one, in which every entry of the source is mounted, except where a path of
// the machine is mounted instead. All mount points are in the new one. So the source needs none, it need not be a file system over
// which an overlay can be mounted, and replacing it outside ends no mount.
type otherRoot struct {
	source int             // descriptor of the root file system, mounted read-only
	root   int             // descriptor of the new one
	made   map[string]bool // directories that the new one has of its own, with the entries of the source mounted one by one; "" is the top
	places []placement     // paths of the machine and single files, which are mounted instead of what the source has there
}

// placement is something to mount in the new root.
type placement struct {
	path  string // in the root, without the first slash
	tree  int    // descriptor of the mount to attach
	isDir bool
}

func newPlacement(path string, tree int, isDir bool) placement {
	return placement{strings.TrimPrefix(path, "/"), tree, isDir}
}

// cloneSoftware clones another root file system and the files of the machine that it has, before anything hides them. A file that was
// removed meanwhile is skipped.
func (s *builder) cloneSoftware(sw walls.Software) (err error) {
	if sw.Dir == "" {
		return nil
	}
	// Not with what is mounted in it: the planner refuses that, and so does the kernel if it was mounted since.
	if s.software, err = s.cloneSource(sw.Dir, unix.MOUNT_ATTR_RDONLY); err != nil {
		return fmt.Errorf("root file system %s: %w", sw.Dir, err)
	}
	for _, b := range sw.Bound {
		tree, err := s.cloneSource(b.Source, unix.MOUNT_ATTR_RDONLY)
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

// mountSoftware mounts another root file system, if the plan has one, after everything else: what it shows of the machine is
// shown as the walls show it.
func (s *builder) mountSoftware(sw walls.Software) error {
	if sw.Dir == "" {
		return nil
	}
	err := s.closeAfter(func() error {
		o := otherRoot{source: s.software, made: map[string]bool{}}
		shown, err := s.cloneShown(sw) // before the source is mounted, which is in a directory that is shown
		if err != nil {
			return err
		}
		target, err := s.track(openNoSymlinks(unix.AT_FDCWD, sw.Mount))
		if err != nil {
			return err
		}
		if err := moveMount(o.source, target, ""); err != nil {
			return err
		}
		// Both are attached above the source, whose descriptor stays valid: the kernel clones only what is attached.
		texts, err := s.attachNew(o.source)
		if err != nil {
			return err
		}
		o.places = append(shown, s.bound...)
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
		if err := o.build(); err != nil {
			return err
		}
		return s.coverSockets(o.root, sw)
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

// coverSockets covers the sockets in the root file system at which a process of the machine listens.
func (s *builder) coverSockets(root int, sw walls.Software) error {
	for _, socket := range sw.Sockets {
		err := s.closeAfter(func() error {
			target, err := s.track(openNoSymlinks(root, strings.TrimPrefix(socket, "/")))
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // it was removed, or something is mounted over it
				return nil
			}
			if err == nil {
				err = s.mountBlank(target, "file")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
	}
	return nil
}

// build fills the new root and makes it read-only.
func (o *otherRoot) build() error {
	o.made[""] = true
	named := slices.Clone(o.places)
	for i, p := range named {
		o.places[i].path = o.resolve(p.path)
	}
	for i := range o.places {
		p := &o.places[i]
		if o.isInside(p.path) { // a link of the image leads into what is mounted instead of the image: a directory takes its place
			p.path = named[i].path
		}
		for dir := parent(p.path); dir != ""; dir = parent(dir) {
			o.made[dir] = true
		}
	}
	slices.SortStableFunc(o.places, func(a, b placement) int { return strings.Compare(a.path, b.path) })
	if err := o.fill(""); err != nil {
		return err
	}
	for _, p := range o.places {
		if err := o.place(p); err != nil {
			return fmt.Errorf("/%s: %w", p.path, err)
		}
	}
	return setMountAttr(o.root, 0, unix.MOUNT_ATTR_RDONLY)
}

// parent returns the directory of a path in the root; "" is the top.
func parent(name string) string {
	dir, _ := path.Split(name)
	return strings.TrimSuffix(dir, "/")
}

// maxLinks bounds the symbolic links in one path, as the kernel does.
const maxLinks = 40

// resolve follows the symbolic links of the source in a path, as a program in the root does, so that a path below a directory
// that is a link leads to what is mounted. What follows something that does not exist stays as it is.
func (o *otherRoot) resolve(name string) string {
	done, todo := "", strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			done = parent(done)
			continue
		}
		at := path.Join(done, next)
		target, isLink := o.readLink(at)
		if !isLink || links == maxLinks || !o.leadsSomewhere(at) {
			done = at
			continue
		}
		links++
		if path.IsAbs(target) {
			done = ""
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done
}

// readLink returns the target of a symbolic link of the source.
func (o *otherRoot) readLink(name string) (target string, isLink bool) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(o.source, name, buf)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// leadsSomewhere reports whether a symbolic link of the source leads to something in it.
func (o *otherRoot) leadsSomewhere(name string) bool {
	fd, err := unix.Openat2(o.source, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// fill mounts the entries of a directory of the source in the new root, but for those in the place of something else. An entry that
// is removed meanwhile is skipped.
func (o *otherRoot) fill(dir string) error {
	entries, err := o.list(dir)
	if err != nil {
		return fmt.Errorf("/%s: %w", dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case o.made[name]:
			if err = makeMountPoint(o.root, name, true); err == nil && e.IsDir() {
				err = o.fill(name)
			}
		case slices.ContainsFunc(o.places, func(p placement) bool { return p.path == name }):
		case e.Type() == fs.ModeSymlink:
			if target, isLink := o.readLink(name); isLink {
				err = unix.Symlinkat(target, o.root, name)
			}
		case e.IsDir() || e.Type().IsRegular():
			err = o.bind(name, e.IsDir())
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}

// bind mounts an entry of the source at its place in the new root.
func (o *otherRoot) bind(name string, isDir bool) error {
	tree, err := cloneMount(o.source, name, 0)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := makeMountPoint(o.root, name, isDir); err != nil {
		return err
	}
	return moveMount(tree, o.root, name)
}

// list lists a directory of the source.
func (o *otherRoot) list(dir string) ([]fs.DirEntry, error) {
	fd, err := unix.Openat(o.source, path.Join(".", dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd)) // by the name, ReadDir looks up what the file system does not tell
	defer f.Close()
	entries, err := f.ReadDir(rootfs.MaxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(entries) > rootfs.MaxEntries {
		err = fmt.Errorf("it has more than %d entries, which would have to be mounted one by one", rootfs.MaxEntries)
	}
	return entries, err
}

// isInside reports whether a path is inside a placement.
func (o *otherRoot) isInside(name string) bool {
	return slices.ContainsFunc(o.places, func(p placement) bool { return guard.Contains("/"+p.path, "/"+name) })
}

// place mounts a placement on a new mount point.
func (o *otherRoot) place(p placement) error {
	for i, c := range p.path {
		if c == '/' {
			if err := makeMountPoint(o.root, p.path[:i], true); err != nil {
				return err
			}
		}
	}
	if err := makeMountPoint(o.root, p.path, p.isDir); err != nil {
		return err
	}
	return moveMount(p.tree, o.root, p.path)
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
