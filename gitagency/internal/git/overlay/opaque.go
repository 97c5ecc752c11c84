package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"golang.org/x/sys/unix"
)

// Whiteouts lists the whiteouts in the upper directory of a new overlay, by their paths.
func Whiteouts(upper string) (found []string, err error) {
	err = filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeCharDevice != 0 { // there are no other devices yet
			found = append(found, path)
		}
		return err
	})
	return found, err
}

// MakeOpaque makes the directories among some paths of an upper directory opaque. It is for directories that replaced whiteouts:
// otherwise they would show the lower files that the whiteouts hid.
func MakeOpaque(paths []string) error {
	for _, path := range paths {
		fi, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
			continue
		}
		if err != nil {
			return err
		}
		if err := unix.Setxattr(path, beneath.OverlayXattrPrefixes[0]+"opaque", []byte("y"), 0); err != nil {
			return &fs.PathError{Op: "setxattr", Path: path, Err: err}
		}
	}
	return nil
}
