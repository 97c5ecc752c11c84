package status

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"golang.org/x/sys/unix"
)

// staging is a private work tree with copies of files, on which git runs instead of on the files of an agent. It also has
// copies of the attribute files that apply to them. None of these adds a pattern that is slow for git, see
// fsck.CheckAttributes.
type staging struct {
	root  *os.Root
	repo  *git.Repo
	head  string          // commit whose patterns are allowed
	dirs  map[string]bool // directories whose attribute files were copied
	rules []pathStat      // the attribute files
}

func newStaging(dir string, r *git.Repo, head string) (*staging, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &staging{root: root, repo: r, head: head, dirs: map[string]bool{}}, nil
}

func (s *staging) close() error { return s.root.Close() }

// addAttributes copies the .gitattributes of a directory and of its parents. As in git, a symlink counts as none.
func (s *staging) addAttributes(ctx context.Context, tree *beneath.Dir, dir string) error {
	if s.dirs[dir] {
		return nil
	}
	s.dirs[dir] = true
	if dir != "." {
		if err := s.addAttributes(ctx, tree, path.Dir(dir)); err != nil {
			return err
		}
	}
	name := path.Join(dir, index.AttributesFile)
	f, st, err := tree.OpenFile(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	return s.addFile(ctx, name, f, &st)
}

// addFile copies an open file. A file that exists was copied before.
func (s *staging) addFile(ctx context.Context, name string, f *os.File, st *unix.Stat_t) error {
	to, err := s.create(name, st)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if isAttributesFile(name) {
		err = s.copyAttributes(ctx, to, name, f, st)
	} else if _, err = io.CopyN(to, f, st.Size); errors.Is(err, io.EOF) { // it was truncated meanwhile
		err = nil
	}
	return errors.Join(err, to.Close())
}

// copyAttributes copies an attribute file whose patterns are not too slow.
func (s *staging) copyAttributes(ctx context.Context, to io.Writer, name string, f *os.File, st *unix.Stat_t) error {
	content, err := readAttributes(s.repo, f, st.Size)
	if err != nil {
		return err
	}
	if err := fsck.CheckAttributes(ctx, s.repo, fsck.NewRuleFile(name, content, s.head)); err != nil {
		return err
	}
	s.rules = append(s.rules, pathStat{name, git.FileStatOf(st)})
	_, err = to.Write(content)
	return err
}

// create creates a file, which must not exist, and its directories.
func (s *staging) create(name string, st *unix.Stat_t) (*os.File, error) {
	if dir := path.Dir(name); dir != "." {
		if err := s.root.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	perm := fs.FileMode(0o600)
	if st.Mode&unix.S_IXUSR != 0 {
		perm = 0o700
	}
	return s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}
