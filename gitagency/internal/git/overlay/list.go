package overlay

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"golang.org/x/sys/unix"
)

// ListUpperFiles lists the paths of all files below a directory in the upper directory, without whiteouts. It is ErrLimitExceeded if
// there are more than most, or if they are too deep.
func ListUpperFiles(upper, dir string, most int) ([]string, error) {
	var found []string
	todo := []string{filepath.Clean(dir)}
	for depth := 0; len(todo) > 0; depth++ {
		if depth > maxUpperDepth {
			return nil, ErrLimitExceeded
		}
		var below []string
		for _, dir := range todo {
			files, dirs, err := listUpperDir(upper, dir)
			if err != nil {
				return nil, err
			}
			found, below = append(found, files...), append(below, dirs...)
			if len(found)+len(below) > most {
				return nil, ErrLimitExceeded
			}
		}
		todo = below
	}
	slices.Sort(found)
	return found, nil
}

// listUpperDir lists the paths of the files and subdirectories of a directory; none if that does not exist.
func listUpperDir(upper, dir string) (files, dirs []string, err error) {
	fail := func(err error) ([]string, []string, error) {
		if err == unix.ENOENT || err == unix.ENOTDIR { // also a whiteout, or a symbolic link, in which git finds no refs of its own
			return nil, nil, nil
		}
		return nil, nil, &fs.PathError{Op: "open", Path: filepath.Join(upper, dir), Err: err}
	}
	at, err := openUpperDir(upper, dir)
	if err != nil {
		return fail(err)
	}
	open := os.NewFile(uintptr(at), dir)
	defer open.Close()
	names, err := open.Readdirnames(-1)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fail(err)
		}
		switch path := filepath.Join(dir, name); {
		case beneath.IsWhiteout(&st):
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			dirs = append(dirs, path)
		default:
			files = append(files, path)
		}
	}
	return files, dirs, nil
}

// openUpperDir opens a directory in the upper directory, without following any symlink.
func openUpperDir(upper, dir string) (int, error) {
	at, err := OpenDirAt(unix.AT_FDCWD, upper)
	for _, part := range strings.Split(dir, "/") {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = OpenDirAt(at, part)
		unix.Close(at)
		at = next
	}
	return at, err
}
