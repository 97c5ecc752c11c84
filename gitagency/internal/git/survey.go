package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NestedError names repositories inside a tree. Git would keep only the id of their current commit, if
// anything; everything else in them would be lost with the tree.
type NestedError struct {
	Tree  string
	Paths []string
}

func (e *NestedError) Error() string {
	return fmt.Sprintf("%s holds repositories of its own, which no commit can keep: %s", e.Tree, strings.Join(e.Paths, ", "))
}

// WaitsForeverError is something that is no file where git would read one.
type WaitsForeverError struct{ Path string }

func (e *WaitsForeverError) Error() string {
	return e.Path + " is not a file, and git would wait for it for ever; remove it first"
}

// survey looks at what would be lost although git was asked to keep it all: repositories, ignored or
// not, and files where git expects a submodule. It also keeps git from ever entering a repository, with
// a configuration anybody could have written, and from waiting for ever for a pipe.
func (r *Repo) survey(s Snapshot, entries []indexEntry) error {
	var nested []string
	if s.Tree != "" {
		var err error
		if nested, err = walk(s.Tree); err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(s.Tree, e.path)
			if inside, err := os.ReadDir(path); e.mode == gitlink && err == nil && len(inside) > 0 {
				nested = append(nested, path)
			}
		}
		if fi, err := os.Lstat(filepath.Join(s.Tree, ".git")); err == nil && fi.IsDir() {
			nested = append(nested, filepath.Join(s.Tree, ".git"))
		}
	}
	// The repositories of submodules that were checked out there, and perhaps are no more.
	modules := filepath.Join(r.AdminDir(s.Name), "modules")
	if inside, err := os.ReadDir(modules); err == nil && len(inside) > 0 {
		nested = append(nested, modules)
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedError{Tree: s.Tree, Paths: slices.Compact(nested)}
	}
	return nil
}

// walk lists the directories below tree, not tree itself, that have a .git of any kind, and refuses
// what git could not read.
func walk(tree string) (nested []string, err error) {
	root := os.Geteuid() == 0 // who may read everything
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != tree:
			return nil // gone since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular() && !root:
			return readable(path, d)
		case d.Type().IsRegular():
			return nil
		case !d.IsDir():
			if strings.HasPrefix(d.Name(), ".git") && d.Type()&fs.ModeSymlink == 0 {
				return &WaitsForeverError{Path: path}
			}
			return nil
		case path == tree:
			return nil
		}
		if _, err := os.Lstat(filepath.Join(path, ".git")); err != nil {
			return nil
		}
		nested = append(nested, path)
		return fs.SkipDir
	})
	return nested, err
}

// readable reports a file that its owner may not read. The mode alone is asked, not the disk.
func readable(path string, d fs.DirEntry) error {
	fi, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	if err != nil || fi.Mode().Perm()&0o400 != 0 {
		return err
	}
	return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
}
