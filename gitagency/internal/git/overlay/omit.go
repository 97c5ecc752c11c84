package overlay

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Omit hides those of the paths that are entries of lower, the lower directory of an overlay, with whiteouts in its upper
// directory. A directory of that name in the upper directory becomes opaque. A file beside the upper directory records the
// names; the whiteouts of names that it has and the paths have no longer are removed. The overlay must not be mounted.
func Omit(upper, lower string, paths []string) error {
	var names []string
	for _, path := range paths {
		if filepath.Dir(path) == lower {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	before, err := readOmitted(upper)
	if err != nil || len(names)+len(before) == 0 {
		return err
	}
	both := slices.Concat(names, before)
	slices.Sort(both)
	if both = slices.Compact(both); !slices.Equal(both, before) { // first, so that a kill leaves no whiteout without a record
		if err := recordOmitted(upper, both); err != nil {
			return err
		}
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
	for _, name := range before {
		if _, omitted := slices.BinarySearch(names, name); !omitted && kinds[name]&fs.ModeCharDevice != 0 {
			failed = append(failed, durable.RemoveIfExists(filepath.Join(upper, name)))
		}
	}
	if err := errors.Join(failed...); err != nil || slices.Equal(both, names) {
		return err
	}
	return recordOmitted(upper, names)
}

// Omitted returns the paths in lower that Omit hides in the overlay with an upper directory.
func Omitted(upper, lower string) ([]string, error) {
	names, err := readOmitted(upper)
	for i, name := range names {
		names[i] = filepath.Join(lower, name)
	}
	return names, err
}

// omittedRecord returns the path of the file with the names that Omit hides, which end with NUL. Commands of the sandbox
// cannot change it.
func omittedRecord(upper string) string { return filepath.Join(filepath.Dir(upper), "omitted") }

// maxOmittedRecord bounds the record: a directory with more names is not worth listing.
const maxOmittedRecord = 64 << 20

func readOmitted(upper string) ([]string, error) {
	text, err := durable.ReadFile(omittedRecord(upper), maxOmittedRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(text) == 0 {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00"), nil
}

func recordOmitted(upper string, names []string) error {
	var text []byte
	for _, name := range names {
		text = append(append(text, name...), 0)
	}
	return durable.WriteFile(omittedRecord(upper), text, 0o600)
}
