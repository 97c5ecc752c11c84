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

// NestedRepositoryError reports repositories inside a worktree. Git would keep at most the id of their current
// commit; everything else in them would be lost with the worktree.
type NestedRepositoryError struct {
	Dir   string
	Paths []string
}

func (e *NestedRepositoryError) Error() string {
	return fmt.Sprintf("%s holds repositories of its own, which no commit can keep: %s", e.Dir, strings.Join(e.Paths, ", "))
}

// SpecialFileError reports a FIFO, socket or device where git would read a file, and block.
type SpecialFileError struct{ Path string }

func (e *SpecialFileError) Error() string {
	return e.Path + " is not a file, and git would wait for it for ever; remove it first"
}

// SparseFileError reports a huge sparse file, of which git would read all the holes.
type SparseFileError struct {
	Path string
	Size int64
}

func (e *SparseFileError) Error() string {
	return fmt.Sprintf("%s is said to be %d bytes long and is nearly empty; git would read for ever: remove it, or have git ignore it", e.Path, e.Size)
}

// checkCapturable refuses a worktree with contents that no capture would hold: repositories, ignored or not, and
// files in the place of a submodule. It also keeps git from entering a nested repository, whose configuration is not
// trusted, and from blocking on a FIFO.
func (r *Repo) checkCapturable(ctx context.Context, s WorktreeSpec, entries []indexEntry) error {
	var nested []string
	if s.Dir != "" {
		var hollow []*SparseFileError
		var err error
		if nested, hollow, err = walkWorktree(s.Dir); err != nil {
			return err
		}
		for _, h := range hollow {
			_, err := r.runRead(ctx, runOptions{gitDir: r.AdminDir(s.Name), workTree: s.Dir}, "check-ignore", "--quiet", "--", h.Path)
			if err != nil { // not ignored, or git could not tell
				return h
			}
		}
		for _, e := range entries {
			if e.mode != modeGitlink {
				continue
			}
			path := filepath.Join(s.Dir, string(e.name))
			if inside, err := os.ReadDir(path); err == nil && len(inside) > 0 {
				nested = append(nested, path)
			}
		}
		if fi, err := os.Lstat(filepath.Join(s.Dir, ".git")); err == nil && fi.IsDir() {
			nested = append(nested, filepath.Join(s.Dir, ".git"))
		}
	}
	// Repositories of submodules that are, or were, checked out there.
	modules := filepath.Join(r.AdminDir(s.Name), "modules")
	if inside, err := os.ReadDir(modules); err == nil && len(inside) > 0 {
		nested = append(nested, modules)
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}

// CheckNested refuses the removal of a scanned worktree that has a repository in an ignored directory, or a .git
// directory in place of its .git file: a *NestedRepositoryError. The scan reports all other repositories as left out.
func (r *Repo) CheckNested(s WorktreeSpec, l Report) error {
	var nested []string
	for _, dir := range l.IgnoredDirs {
		err := filepath.WalkDir(filepath.Join(s.Dir, dir), func(path string, d fs.DirEntry, err error) error {
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
	if fi, err := os.Lstat(filepath.Join(s.Dir, ".git")); err == nil && fi.IsDir() {
		nested = append(nested, filepath.Join(s.Dir, ".git"))
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}

// walkWorktree lists the directories below tree, not tree itself, that contain a .git of any kind, and the huge
// sparse files. It fails on files that git could not read, and on special files that git would open.
func walkWorktree(tree string) (nested []string, hollow []*SparseFileError, err error) {
	root := os.Geteuid() == 0 // root may read everything
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
			if isSparseFile(fi) {
				hollow = append(hollow, &SparseFileError{Path: path, Size: fi.Size()})
			}
			if fi.Mode().Perm()&0o400 == 0 && !root { // checked by mode, without opening the file
				return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
			}
			return nil
		case !d.IsDir():
			if strings.HasPrefix(d.Name(), ".git") && d.Type()&fs.ModeSymlink == 0 {
				return &SpecialFileError{Path: path}
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

// parentsAreDirs reports whether every parent of a path is a directory, and none a symlink.
func parentsAreDirs(tree, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if fi, err := os.Lstat(filepath.Join(tree, dir)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// isSparseFile reports whether a file is larger than 1 GiB with less than a sixteenth of it allocated. Git reads the
// holes too.
func isSparseFile(fi fs.FileInfo) bool {
	const large, block, mostly = 1 << 30, 512, 16
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && fi.Size() > large && st.Blocks*block < fi.Size()/mostly
}
