package confine

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// openNoSymlinks opens a path without following symbolic links: a plan contains none, so a symlink was created
// after planning.
func openNoSymlinks(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ELOOP):
			return -1, fmt.Errorf("a symbolic link in the path: %w", err)
		default:
			return fd, err
		}
	}
}

// openInRoot opens a path, whose directories may be symbolic links. The caller has another root file system as its root, whose image has
// made them: commands cannot change them, and none leads out of the root.
func openInRoot(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// newMount creates a file system, with options in pairs, and a mount of it that is not attached yet.
func newMount(kind string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", kind, err)
	}
	defer unix.Close(fs)
	for i := 0; i < len(options); i += 2 {
		key, value := options[i], options[i+1]
		if value == "" {
			err = unix.FsconfigSetFlag(fs, key)
		} else {
			err = unix.FsconfigSetString(fs, key, value)
		}
		if err != nil {
			return -1, fmt.Errorf("%s with %s: %w", kind, key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
}

// cloneMount creates a detached copy of the mount at a path.
func cloneMount(dir int, name string, how uint) (int, error) {
	if name == "" {
		how |= unix.AT_EMPTY_PATH
	}
	return unix.OpenTree(dir, name, how|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
}

// setMountAttr adds restrictions to a mount, and with AT_RECURSIVE to those below it. AT_FDCWD means /.
func setMountAttr(tree int, how uint, attr uint64) error {
	name := ""
	if tree == unix.AT_FDCWD {
		name = "/"
	} else {
		how |= unix.AT_EMPTY_PATH
	}
	return unix.MountSetattr(tree, name, how, &unix.MountAttr{Attr_set: attr})
}

// moveMount attaches a mount.
func moveMount(tree, dir int, name string) error {
	how := unix.MOVE_MOUNT_F_EMPTY_PATH
	if name == "" {
		how |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	return unix.MoveMount(tree, "", dir, name, how)
}

// bindMount mounts a file or directory below an open one at another place.
func bindMount(from int, name string, to int, target string, how uint) error {
	tree, err := cloneMount(from, name, how)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return moveMount(tree, to, target)
}

// makeMountPoint creates a file or directory to mount on.
func makeMountPoint(fs int, name string, dir bool) error {
	var err error
	if dir {
		err = unix.Mkdirat(fs, name, 0o755)
	} else {
		err = unix.Mknodat(fs, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("mount point for %s: %w", path.Base(name), err)
	}
	return nil
}
