package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// HollowError is a file that says it is huge and holds next to nothing. Git would read all of it.
type HollowError struct {
	Path string
	Size int64
}

func (e *HollowError) Error() string {
	return fmt.Sprintf("%s is said to be %d bytes long and is nearly empty; git would read for ever: remove it, or have git ignore it", e.Path, e.Size)
}

// survey looks at what would be lost although git was asked to keep it all: repositories, ignored or
// not, and files where git expects a submodule. It also keeps git from ever entering a repository, with
// a configuration anybody could have written, and from waiting for ever for a pipe.
func (r *Repo) survey(ctx context.Context, s Subject, entries []stagedEntry) error {
	var nested []string
	if s.Tree != "" {
		var hollow []*HollowError
		var err error
		if nested, hollow, err = walk(s.Tree); err != nil {
			return err
		}
		for _, h := range hollow {
			_, err := r.read(ctx, place{gitDir: r.AdminDir(s.Name), tree: s.Tree}, "check-ignore", "--quiet", "--", h.Path)
			if err != nil { // it is not ignored, or nobody knows
				return h
			}
		}
		for _, e := range entries {
			if e.mode != modeGitlink {
				continue
			}
			path := filepath.Join(s.Tree, string(e.name))
			if inside, err := os.ReadDir(path); err == nil && len(inside) > 0 {
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

// Nested refuses a tree that is about to go, and that was looked at, if there is a repository where git was told not to
// look, or in the place of what tells whose tree it is: a *NestedError. All others are what was left out.
func (r *Repo) Nested(s Subject, l Looked) error {
	var nested []string
	for _, dir := range l.Ignored {
		err := filepath.WalkDir(filepath.Join(s.Tree, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // gone since it was listed
			case err != nil:
				return err
			case d.Name() != ".git":
				return nil
			}
			nested = append(nested, filepath.Dir(path))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if fi, err := os.Lstat(filepath.Join(s.Tree, ".git")); err == nil && fi.IsDir() {
		nested = append(nested, filepath.Join(s.Tree, ".git"))
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedError{Tree: s.Tree, Paths: slices.Compact(nested)}
	}
	return nil
}

// walk lists the directories below tree, not tree itself, that have a .git of any kind, and refuses
// what git could not read. What it would read for ever, if it is asked to, is listed too.
func walk(tree string) (nested []string, hollow []*HollowError, err error) {
	root := os.Geteuid() == 0 // who may read everything
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != tree:
			return nil // gone since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular():
			fi, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since it was listed
			}
			if err != nil {
				return err
			}
			if isHollow(fi) {
				hollow = append(hollow, &HollowError{Path: path, Size: fi.Size()})
			}
			if fi.Mode().Perm()&0o400 == 0 && !root { // the mode alone is asked, not the disk
				return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
			}
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
	return nested, hollow, err
}

// direct reports whether there is nothing but directories on the way to a path.
func direct(tree, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if fi, err := os.Lstat(filepath.Join(tree, dir)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// isHollow: of a file with holes git reads the holes too.
func isHollow(fi fs.FileInfo) bool {
	const large, block, mostly = 1 << 30, 512, 16
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && fi.Size() > large && st.Blocks*block < fi.Size()/mostly
}
