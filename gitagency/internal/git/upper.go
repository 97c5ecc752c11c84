package git

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"golang.org/x/sys/unix"
)

// RepointUpperEntry writes the path of a moved worktree, as its real entry records it, into the copy of the entry in
// the upper directory: git prunes an entry whose worktree does not exist. The overlay must not be mounted.
func (r *Repo) RepointUpperEntry(upper, name string) error {
	entry := filepath.Join("worktrees", name)
	tree := r.RegisteredTree(name)
	had, err := overlay.ReadUpperFile(upper, filepath.Join(entry, "gitdir"), 1<<16)
	if err != nil || !had.Found || tree == "" || treeFromGitdir(r.AdminDir(name), had.Data) == tree {
		return nil // an invalid entry is reported when it is imported
	}
	return replaceUpperFile(upper, entry, "gitdir", []byte(filepath.Join(tree, ".git")+"\n"))
}

// replaceUpperFile replaces a file in a directory of the upper directory, without following symlinks.
func replaceUpperFile(upper, in, name string, data []byte) (err error) {
	dir, err := overlay.OpenDirAt(unix.AT_FDCWD, upper)
	if err != nil {
		return &fs.PathError{Op: "open", Path: upper, Err: err}
	}
	defer func() { unix.Close(dir) }()
	for part := range strings.SplitSeq(in, "/") {
		next, err := overlay.OpenDirAt(dir, part)
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(upper, in), Err: err}
		}
		unix.Close(dir)
		dir = next
	}
	fresh := name + "." + rand.Text()
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &fs.PathError{Op: "create", Path: filepath.Join(upper, in, fresh), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(upper, in, fresh))
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(dir, fresh, dir, name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, fresh, 0))
	}
	return nil
}
