package pathset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// LeftOut is a path that a state does not hold although it exists, or was changed.
type LeftOut struct {
	Path   string // "<n>/<path>"
	Reason string // one of the reasons below
}

// Reasons why a path is left out.
const (
	LeftOutGit        = "git"        // part of a git directory, with a name that some file system takes for one, or with one of ours
	LeftOutSpecial    = "special"    // neither a file, a symbolic link nor a directory
	LeftOutUnreadable = "unreadable" // the user may not read it
	LeftOutDeep       = "deep"       // a directory in too many others
	LeftOutUnknown    = "unknown"    // removed, but the state at the start did not hold it
)

// WhyNotKept explains a reason why changed content is left out of snapshots; it is empty if there is none.
func WhyNotKept(reason string) string {
	switch reason {
	case LeftOutGit:
		return "it belongs to a git directory"
	case LeftOutSpecial:
		return "it is neither a file nor a symbolic link"
	case LeftOutUnreadable:
		return "it cannot be read"
	case LeftOutDeep:
		return fmt.Sprintf("there are more than %d directories in each other", maxDepth)
	}
	return ""
}

// StagingPrefix begins the names of the directories to which a landing writes new files. They are part of no state.
const StagingPrefix = ".git-agency-landing-"

// isReserved reports whether a name is that of a git directory, a marker directory or a staging directory.
func isReserved(name string) bool {
	return guard.IsReservedName(name) || strings.HasPrefix(name, StagingPrefix)
}

const (
	maxDepth   = 1_000     // of directories in each other
	maxEntries = 5_000_000 // names in all directories together
)

// scanner reads the files of a directory into a Tree.
type scanner struct {
	blobs   *blobWriter
	tree    Tree
	leftOut []LeftOut
	entries int

	checkOwners bool                   // an overlay will be mounted on the directory: see ownerError
	omit        func(path string) bool // paths in the directory that are not part of the state; may be nil
}

// scanDirectory reads all files of the directory n. It follows no symbolic link.
func (s *scanner) scanDirectory(ctx context.Context, n int, dir *beneath.Dir) error {
	return s.scan(ctx, strconv.Itoa(n), dir, ".", 0)
}

// scan reads the directory called name, whose path in the tree is at.
func (s *scanner) scan(ctx context.Context, at string, dir *beneath.Dir, name string, depth int) error {
	entries, err := s.list(ctx, at, dir, name, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		below, in := at+"/"+e.Name, path.Join(name, e.Name)
		switch {
		case s.omit != nil && s.omit(in):
		case isReserved(e.Name):
			s.leftOut = append(s.leftOut, LeftOut{below, LeftOutGit})
			err = s.checkOwnersBelow(ctx, below, dir, in, depth+1)
		case e.Kind.IsDir():
			err = s.scan(ctx, below, dir, in, depth+1)
		default:
			err = s.addLeaf(ctx, below, dir, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the entries of a directory, none if it is left out. It checks its owner, and counts the entries.
func (s *scanner) list(ctx context.Context, at string, dir *beneath.Dir, name string, depth int) ([]beneath.Entry, error) {
	entries, st, err := dir.ReadDir(name)
	if err != nil {
		return nil, s.leave(at, err)
	}
	return entries, errors.Join(s.count(ctx, at, len(entries), depth), s.checkOwner(at, &st))
}

// addLeaf adds a file or symbolic link.
func (s *scanner) addLeaf(ctx context.Context, at string, dir *beneath.Dir, name string) error {
	leaf, ok, err := s.blobs.addLeaf(ctx, dir, name, func(st *unix.Stat_t) error { return s.checkOwner(at, st) })
	switch {
	case err != nil:
		return s.leave(at, err)
	case ok:
		s.tree[at] = leaf
	default:
		s.leftOut = append(s.leftOut, LeftOut{at, LeftOutSpecial})
	}
	return nil
}

// leave leaves out a path that the user may not read, or that became something else meanwhile. Other errors are returned.
func (s *scanner) leave(at string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		s.leftOut = append(s.leftOut, LeftOut{at, LeftOutUnreadable})
		return nil
	case beneath.IsGone(err):
		return nil
	case errors.As(err, new(*beneath.NotRegularError)):
		s.leftOut = append(s.leftOut, LeftOut{at, LeftOutSpecial})
		return nil
	}
	return err
}

// count bounds the number of files that are read: an agent may have made any number.
func (s *scanner) count(ctx context.Context, at string, names, depth int) error {
	s.entries += names
	switch {
	case s.entries > maxEntries:
		return fmt.Errorf("there are more than %d files", maxEntries)
	case depth > maxDepth:
		return fmt.Errorf("%s is too deep: there are more than %d directories in each other", at, maxDepth)
	}
	return context.Cause(ctx)
}

// ScanOriginals reads some paths of the directories as they are now, and all files below those that are directories. A path below
// something that is no directory is missing, and that is in the result. blobs are written to repo.
func ScanOriginals(ctx context.Context, repo *git.Repo, dirs []*beneath.Dir, paths []string) (Tree, []LeftOut, error) {
	s := &scanner{blobs: newBlobWriter(repo), tree: Tree{}}
	for _, p := range paths {
		n, in, err := split(p)
		if err == nil && n >= len(dirs) {
			err = fmt.Errorf("%q is in none of the directories", p)
		}
		if err == nil {
			err = s.scanPath(ctx, n, dirs[n], in)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return s.tree, s.leftOut, s.blobs.flush(ctx)
}

// scanPath reads one path of the directory n, or the parent of it that is no directory.
func (s *scanner) scanPath(ctx context.Context, n int, dir *beneath.Dir, name string) error {
	for end := 0; end <= len(name); {
		if next := strings.IndexByte(name[min(end, len(name)):], '/'); next >= 0 {
			end += next
		} else {
			end = len(name)
		}
		part := name[:end]
		at := strconv.Itoa(n) + "/" + part
		kind, err := dir.Kind(part)
		switch {
		case err != nil && beneath.IsGone(err):
			return nil
		case err != nil:
			return err
		case !kind.IsDir():
			return s.addLeaf(ctx, at, dir, part)
		case end == len(name):
			return s.scan(ctx, at, dir, part, 0)
		}
		end++
	}
	return nil
}

// removeDirectory removes the files of the directory n from the state.
func (s *scanner) removeDirectory(n int) {
	for p := range s.tree {
		if strings.HasPrefix(p, strconv.Itoa(n)+"/") {
			delete(s.tree, p)
		}
	}
}

// ReadLeaf returns the file or symbolic link at a path below a directory, without writing a blob. ok is false if there is none.
func ReadLeaf(ctx context.Context, dir *beneath.Dir, name string) (leaf Leaf, ok bool, err error) {
	return newBlobWriter(nil).addLeaf(ctx, dir, name, nil)
}
