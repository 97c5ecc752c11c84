package pathset

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// ownerError reports a file that an ordinary user cannot change through an overlay.
type ownerError struct{ path, why string }

func (e *ownerError) Error() string { return e.path + " " + e.why }

// checkOwner returns an *ownerError for a file whose owner or group the user namespace of a sandbox does not have.
func (s *scanner) checkOwner(at string, st *unix.Stat_t) error {
	if !s.checkOwners {
		return nil
	}
	if why := walls.WhyUnmapped(int(st.Uid), int(st.Gid), os.Geteuid(), os.Getegid()); why != "" {
		return &ownerError{at, why}
	}
	return nil
}

// checkOwnersBelow checks the owners of everything in a directory that is not part of the state.
func (s *scanner) checkOwnersBelow(ctx context.Context, at string, dir *beneath.Dir, name string, depth int) error {
	if !s.checkOwners {
		return nil
	}
	entries, err := s.list(ctx, at, dir, name, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		below, in := at+"/"+e.Name, filepath.Join(name, e.Name)
		var st unix.Stat_t
		if e.Kind.IsDir() {
			err = s.checkOwnersBelow(ctx, below, dir, in, depth+1)
		} else if err = dir.Lstat(in, &st); err == nil {
			err = s.checkOwner(below, &st)
		} else {
			err = s.leave(below, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
