package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"golang.org/x/sys/unix"
)

// walkReadable walks a directory in which an agent may have removed the owner's permissions, which git would skip silently. It
// restores them, except in a dry run, in which it returns the error. Of an overlay it walks the upper directory only.
func walkReadable(r *git.Repo, s git.WorktreeSpec) (worktreeWalk, error) {
	w, err := walkWorktree(s)
	if !errors.Is(err, fs.ErrPermission) || r.IsDryRun() {
		return w, err
	}
	if err := durable.RestoreOwnerPermissions(s.WriteDir()); err != nil {
		return w, err
	}
	return walkWorktree(s)
}

// walkWorktree finds the directories below a worktree, not the worktree itself, that contain a .git of any kind, and the huge
// sparse files. It fails on files that git could not read, and on special files that git would open.
func walkWorktree(s git.WorktreeSpec) (w worktreeWalk, err error) {
	w.isRoot = os.Geteuid() == 0
	if w.dir, err = openWriteDir(s); err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, w.dir.Close()) }()
	return w, w.walk(".")
}

// worktreeWalk is one walkWorktree.
type worktreeWalk struct {
	dir    *beneath.Dir // closed after the walk
	isRoot bool         // root may read everything
	nested []string
	hollow []*SparseFileError
}

func (w *worktreeWalk) walk(dir string) error {
	entries, _, err := w.dir.ReadDir(dir)
	if err != nil && !(beneath.IsGone(err) && dir != ".") { // gone since it was listed
		return err
	}
	isGit := func(e beneath.Entry) bool { return e.Name == ".git" }
	if dir != "." && slices.ContainsFunc(entries, isGit) {
		w.nested = append(w.nested, w.dir.Join(dir))
		return nil
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		switch {
		case e.Kind.IsDir():
			err = w.walk(name)
		case e.Kind.IsRegular():
			err = w.visitFile(name)
		case strings.HasPrefix(e.Name, ".git") && e.Kind&fs.ModeSymlink == 0:
			err = &git.SpecialFileError{Path: w.dir.Join(name)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// visitFile looks at a file without opening it.
func (w *worktreeWalk) visitFile(name string) error {
	var st unix.Stat_t
	if err := w.dir.Lstat(name, &st); err != nil {
		if beneath.IsGone(err) {
			return nil // gone since it was listed
		}
		return err
	}
	if isSparseFile(&st) {
		w.hollow = append(w.hollow, &SparseFileError{Path: w.dir.Join(name), Size: st.Size})
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&unix.S_IRUSR == 0 && !w.isRoot {
		return &fs.PathError{Op: "read", Path: w.dir.Join(name), Err: fs.ErrPermission}
	}
	return nil
}

// SparseFileError reports a huge sparse file, of which git would read all the holes.
type SparseFileError struct {
	Path string
	Size int64
}

func (e *SparseFileError) Error() string {
	return fmt.Sprintf("%s is a sparse file of %d bytes, which git would take too long to read; remove it, or have git ignore it", e.Path, e.Size)
}

// isSparseFile reports whether a file is larger than 1 GiB with less than a sixteenth of it allocated. Git reads the
// holes too.
func isSparseFile(st *unix.Stat_t) bool {
	const large, block, mostly = 1 << 30, 512, 16
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size > large && st.Blocks*block < st.Size/mostly
}
