// Package guard resolves paths and detects whether two trees overlap by any spelling: symlinks, "..", letter case,
// bind mounts. It reads and writes the markers that tell what kind of tree a directory is. It owns the one policy for
// names that others choose (CheckPath), and the one way to work in a tree that other programs write to at the same
// time: Tree and DirHandle, which never reach outside of it. On its own initiative it creates and deletes nothing but
// markers, and it must not know about invocations or git.
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

// Resolve returns the path without symlinks; the last components need not exist. It resolves component by component
// as the kernel does: "link/.." is the parent of the link's target, not of the link.
func Resolve(path string) (string, error) {
	return resolveWith(path, fileLookup{os.Lstat, os.Stat, os.Readlink})
}

// fileLookup is a set of functions that look a path up.
type fileLookup struct {
	lstat, stat func(string) (fs.FileInfo, error)
	readlink    func(string) (string, error)
}

// resolveWith is Resolve with other functions than those of the operating system.
func resolveWith(path string, files fileLookup) (string, error) {
	const most = 255 // symlinks; no kernel follows more
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
		fi, err := files.lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if slices.Contains(todo, "..") {
				return "", &fs.PathError{Op: "resolve", Path: path, Err: fs.ErrNotExist}
			}
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", err
		case !fi.IsDir() && fi.Mode()&fs.ModeSymlink == 0 && len(todo) > 0:
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ENOTDIR} // a file has no entries
		case fi.Mode()&fs.ModeSymlink == 0:
			done = next
			continue
		}
		target, err := files.readlink(next)
		if err != nil {
			return "", err
		}
		// The target of a dangling symlink is not known to be safe: nothing may be created through it.
		if _, err := files.stat(next); err != nil {
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

// ResolveFrom resolves a path relative to a directory and follows symbolic links.
func ResolveFrom(here, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = here + "/" + path // no filepath.Join: it would remove ".." before links are followed
	}
	return Resolve(path)
}

// ResolveOrEmpty resolves the symbolic links of a path; empty if that fails.
func ResolveOrEmpty(path string) string {
	path, err := Resolve(path)
	if err != nil {
		return ""
	}
	return path
}

// Relation tells how two trees overlap.
type Relation string

// The relations of a path to a tree.
const (
	Disjoint Relation = ""
	Same     Relation = "is"
	Inside   Relation = "lies inside"
	Encloses Relation = "contains"
)

// Location is a resolved path, prepared for comparison with many others.
type Location struct {
	Path    string        // resolved
	self    fs.FileInfo   // nil when the path does not exist
	parents []fs.FileInfo // the directories above it
	mounts  []mount
}

// Locate resolves a path, which need not exist, and stats the directories above it.
func Locate(path string) (Location, error) {
	resolved, err := Resolve(path)
	if err != nil {
		return Location{}, err
	}
	p := Location{Path: resolved, parents: statParents(filepath.Dir(resolved)), mounts: readMounts()}
	if fi, err := os.Stat(resolved); err == nil {
		p.self = fi
	}
	return p, nil
}

// Relation tells how the location overlaps the tree at another path. It compares names first; then the positions on
// the file systems, which detects bind mounts; then device and inode, which detects case-insensitive file systems.
func (p Location) Relation(tree string) Relation {
	other, err := Resolve(tree)
	if err != nil {
		other = filepath.Clean(tree)
	}
	if rel := relationByName(p.Path, other); rel != Disjoint {
		return rel
	}
	if rel := relationByDevice(p.mounts, p.Path, other); rel != Disjoint {
		return rel
	}
	fi, err := os.Stat(other)
	switch {
	case err != nil:
		return Disjoint // a tree that does not exist has no aliases
	case sameFile(p.self, fi):
		return Same
	case slices.ContainsFunc(p.parents, func(dir fs.FileInfo) bool { return sameFile(dir, fi) }):
		return Inside
	case p.self != nil && slices.ContainsFunc(statParents(filepath.Dir(other)), func(dir fs.FileInfo) bool { return sameFile(dir, p.self) }):
		return Encloses
	}
	return Disjoint
}

func relationByName(path, other string) Relation {
	switch {
	case other == path:
		return Same
	case Contains(other, path):
		return Inside
	case Contains(path, other):
		return Encloses
	}
	return Disjoint
}

// statParents stats a directory and all its parents, as far as they exist.
func statParents(dir string) []fs.FileInfo {
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

func sameFile(a, b fs.FileInfo) bool { return a != nil && os.SameFile(a, b) }

// Ancestors yields the path itself and every directory above it, innermost first.
func (p Location) Ancestors(yield func(string) bool) {
	for dir := p.Path; yield(dir) && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
	}
}

// Contains reports whether path lies below dir. It compares names only.
func Contains(dir, path string) bool {
	return path != dir && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// IsOrContains reports whether path is dir or lies below it. It compares names only.
func IsOrContains(dir, path string) bool { return path == dir || Contains(dir, path) }
