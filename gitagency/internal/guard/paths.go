// Package guard answers where a path really leads and whether two trees touch, by any spelling:
// symlinks, "..", letter case, bind mounts. It also reads and writes the markers that say what a
// directory is. It never creates, moves or deletes anything but those markers, and knows nothing of
// invocations or git.
package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve follows every symlink of a path, of which the last components need not exist yet.
func Resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		resolved, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		// A dangling symlink exists and leads we do not know where: nothing may be made through it.
		if fi, lerr := os.Lstat(dir); lerr == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return "", err
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// Relation says how two trees touch.
type Relation string

// The relations of a path to a tree.
const (
	Apart  Relation = ""
	Same   Relation = "is"
	Inside Relation = "lies inside"
	Around Relation = "contains"
)

// Place is a path prepared for comparing it with many others.
type Place struct {
	Path  string        // resolved
	self  fs.FileInfo   // nil when nothing is there yet
	above []fs.FileInfo // the directories it lies in
}

// Locate resolves a path, which need not exist, and looks up the directories it lies in.
func Locate(path string) (Place, error) {
	resolved, err := Resolve(path)
	if err != nil {
		return Place{}, err
	}
	p := Place{Path: resolved, above: stats(filepath.Dir(resolved))}
	if fi, err := os.Stat(resolved); err == nil {
		p.self = fi
	}
	return p, nil
}

// Relation says how the place touches the tree at another path. Names are compared first; then the
// files themselves, which sees through case-insensitive file systems and bind mounts.
func (p Place) Relation(tree string) Relation {
	other, err := Resolve(tree)
	if err != nil {
		other = filepath.Clean(tree)
	}
	switch {
	case other == p.Path:
		return Same
	case Contains(other, p.Path):
		return Inside
	case Contains(p.Path, other):
		return Around
	}
	fi, err := os.Stat(other)
	switch {
	case err != nil:
		return Apart // a tree that is not there has no other names
	case same(p.self, fi):
		return Same
	case slices.ContainsFunc(p.above, func(dir fs.FileInfo) bool { return same(dir, fi) }):
		return Inside
	case p.self != nil && slices.ContainsFunc(stats(filepath.Dir(other)), func(dir fs.FileInfo) bool { return same(dir, p.self) }):
		return Around
	}
	return Apart
}

// stats looks up a directory and everything above it, as far as it exists.
func stats(dir string) []fs.FileInfo {
	var found []fs.FileInfo
	for ; ; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil {
			found = append(found, fi)
		}
		if dir == filepath.Dir(dir) {
			return found
		}
	}
}

func same(a, b fs.FileInfo) bool { return a != nil && os.SameFile(a, b) }

// Ancestors yields the place itself and every directory it lies in, innermost first.
func (p Place) Ancestors(yield func(string) bool) {
	for dir := p.Path; yield(dir) && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
	}
}

// Contains reports whether path lies below dir, by name.
func Contains(dir, path string) bool {
	return path != dir && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
