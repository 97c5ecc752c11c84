// Package guard answers where a path really leads and whether two trees touch, by any spelling:
// symlinks, "..", letter case, bind mounts. It reads and writes the markers that say what a directory is.
// It has the one policy about names that others choose, CheckPath, and is the one way into a tree that
// others write in as well: Tree, and Folder in it, which reach nothing outside. Of itself it creates and deletes
// nothing but those markers, and it knows nothing of invocations or git.
package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Resolve says where a path really leads, of which the last components need not exist yet. It goes
// component by component as the kernel does: "link/.." is above where the link leads, not above the
// link.
func Resolve(path string) (string, error) {
	const most = 255 // links, as many as the kernel would ever follow
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		path = wd + "/" + path
	}
	done, todo, links := "/", strings.Split(path, "/"), 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		fi, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if slices.Contains(todo, "..") {
				return "", &fs.PathError{Op: "resolve", Path: path, Err: fs.ErrNotExist}
			}
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", err
		case !fi.IsDir() && fi.Mode()&fs.ModeSymlink == 0 && len(todo) > 0:
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ENOTDIR} // nobody goes on from a file
		case fi.Mode()&fs.ModeSymlink == 0:
			done = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		// A link that leads nowhere leads we do not know where: nothing may be made through it.
		if _, err := os.Stat(next); err != nil {
			return "", err
		}
		if links++; links > most {
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
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
	Path   string        // resolved
	self   fs.FileInfo   // nil when nothing is there yet
	above  []fs.FileInfo // the directories it lies in
	mounts []mount
}

// Locate resolves a path, which need not exist, and looks up the directories it lies in.
func Locate(path string) (Place, error) {
	resolved, err := Resolve(path)
	if err != nil {
		return Place{}, err
	}
	p := Place{Path: resolved, above: stats(filepath.Dir(resolved)), mounts: readMounts()}
	if fi, err := os.Stat(resolved); err == nil {
		p.self = fi
	}
	return p, nil
}

// Relation says how the place touches the tree at another path. Names are compared first; then where
// both are on their file systems, which sees through bind mounts; then the files themselves, which sees
// through file systems that do not care for letter case.
func (p Place) Relation(tree string) Relation {
	other, err := Resolve(tree)
	if err != nil {
		other = filepath.Clean(tree)
	}
	if rel := byName(p.Path, other); rel != Apart {
		return rel
	}
	if rel := byDevice(p.mounts, p.Path, other); rel != Apart {
		return rel
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

func byName(path, other string) Relation {
	switch {
	case other == path:
		return Same
	case Contains(other, path):
		return Inside
	case Contains(path, other):
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
