package gittest

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// DiskState maps every path below the given ones, themselves included, to its mode and content; of a symlink to its
// mode and target.
func DiskState(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			state := fi.Mode().String()
			switch {
			case fi.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				state += " " + string(data)
			case fi.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				state += " -> " + target
			}
			found[path] = state
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// RequireSame fails the test for every key whose value differs between the maps, or that only one of them has. what
// begins the messages.
func RequireSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(got))
	for k := range want {
		if _, have := got[k]; !have {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		g, haveG := got[k]
		w, haveW := want[k]
		switch {
		case !haveG:
			t.Errorf("%s: %q is missing, want %q", what, k, w)
		case !haveW:
			t.Errorf("%s: %q should not exist: %q", what, k, g)
		case g != w:
			t.Errorf("%s: %q is %q, want %q", what, k, g, w)
		}
	}
}

// Exists reports whether there is a file, directory or symlink, even a dangling one, at path.
func Exists(path string) bool { _, err := os.Lstat(path); return err == nil }
