package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Omit hides those of the paths that are entries of lower, the lower directory of an overlay, with whiteouts in its upper
// directory. A directory of that name in the upper directory becomes opaque. The overlay must not be mounted.
func Omit(upper, lower string, paths []string) error {
	var names []string
	for _, path := range paths {
		if filepath.Dir(path) == lower {
			names = append(names, filepath.Base(path))
		}
	}
	if len(names) == 0 {
		return nil
	}
	entries, err := os.ReadDir(upper)
	if err != nil {
		return err
	}
	kinds := make(map[string]fs.FileMode, len(entries))
	for _, e := range entries {
		kinds[e.Name()] = e.Type() | fs.ModeIrregular // not zero
	}
	var failed []error
	for _, name := range names {
		path := filepath.Join(upper, name)
		switch kind := kinds[name]; {
		case kind == 0:
			err = unix.Mknod(path, unix.S_IFCHR, 0)
		case kind.IsDir():
			err = unix.Lsetxattr(path, "user.overlay.opaque", []byte("y"), 0)
		default:
			err = nil // a whiteout, or a file of the sandbox
		}
		if err != nil {
			failed = append(failed, &fs.PathError{Op: "hide", Path: path, Err: err})
		}
	}
	return errors.Join(failed...)
}
