package status

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"golang.org/x/sys/unix"
)

// staging is a private work tree with copies of files, on which git runs instead of on the files of an agent. It also has
// copies of the attribute files that apply to them.
type staging struct {
	root  *os.Root
	dirs  map[string]bool // directories whose attribute files were copied
	rules []pathStat      // the attribute files
}

func newStaging(dir string) (*staging, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &staging{root: root, dirs: map[string]bool{}}, nil
}

func (s *staging) close() error { return s.root.Close() }

// addAttributes copies the .gitattributes of a directory and of its parents. As in git, a symlink counts as none.
func (s *staging) addAttributes(tree *beneath.Dir, dir string, limits readlimit.Limits) error {
	if s.dirs[dir] {
		return nil
	}
	s.dirs[dir] = true
	if dir != "." {
		if err := s.addAttributes(tree, path.Dir(dir), limits); err != nil {
			return err
		}
	}
	name := path.Join(dir, ".gitattributes")
	f, st, err := tree.OpenFile(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := limits.CheckSize(f.Name(), readlimit.Output, st.Size); err != nil {
		return err
	}
	s.rules = append(s.rules, pathStat{name, git.FileStatOf(&st)})
	return s.addFile(name, f, &st)
}

// addFile copies an open file. A file that exists was copied before.
func (s *staging) addFile(name string, f *os.File, st *unix.Stat_t) error {
	if dir := path.Dir(name); dir != "." {
		if err := s.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	perm := fs.FileMode(0o600)
	if st.Mode&unix.S_IXUSR != 0 {
		perm = 0o700
	}
	to, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = io.CopyN(to, f, st.Size)
	if errors.Is(err, io.EOF) { // it was truncated meanwhile
		err = nil
	}
	return errors.Join(err, to.Close())
}
