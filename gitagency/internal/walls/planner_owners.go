package walls

import (
	"fmt"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// checkGitDirOwners refuses a git directory in which git could not create files behind the walls. The user namespace of
// an ordinary user has that user and its primary group only, and the kernel copies no directory with another owner or
// group to the upper directory of an overlay: git would fail with EOVERFLOW.
func (d *planner) checkGitDirOwners() error {
	if d.uid == 0 || d.OwnGitDir != "" { // root maps all ids; a git directory of the sandbox's own needs no overlay
		return nil
	}
	for _, name := range []string{"objects", "refs", "refs/heads", "logs", "logs/refs/heads"} {
		e := d.lookup(filepath.Join(d.GitDir, name))
		if !guard.IsOrContains(d.GitDir, e.Path) {
			continue // a symbolic link to a directory that no overlay covers
		}
		if err := d.checkOwner(e); err != nil {
			return err
		}
		// With core.sharedRepository, which sets the set-group-id bit, other users create directories here.
		if e.Kind == Directory && e.SetGID && filepath.Dir(name) == "." {
			if err := d.checkOwnersBelow(e.Path, name == "objects"); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOwnersBelow checks the directories in a directory, and those below them unless it is the object store, in which
// directories of directories are rare.
func (d *planner) checkOwnersBelow(dir string, objects bool) error {
	for _, e := range d.files.Subdirs(dir) {
		err := d.checkOwner(e)
		if err == nil && !objects {
			err = d.checkOwnersBelow(e.Path, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *planner) checkOwner(e Entry) error {
	why := d.whyUnmapped(e)
	if why == "" {
		return nil
	}
	remedy := "work in a clone of your own"
	if e.Owner == d.uid {
		remedy = fmt.Sprintf("run chgrp -R %s %s, or %s", groupName(d.gid), d.GitDir, remedy)
	}
	return &RefusedError{Wall: gitLayer, Why: e.Path + " " + why, Remedy: remedy}
}

// whyUnmapped returns the reason why the user namespace has no id for the owner or the group of a directory, or "".
func (d *planner) whyUnmapped(e Entry) string {
	if e.Kind != Directory {
		return ""
	}
	return WhyUnmapped(e.Owner, e.Group, d.uid, d.gid)
}

// WhyUnmapped returns the reason why the user namespace of the user uid, whose primary group is gid, has no id for the owner or the
// group of a file, so that the kernel does not copy the file to the upper directory of an overlay; empty if it has both.
func WhyUnmapped(owner, group, uid, gid int) string {
	switch {
	case uid == 0:
		return ""
	case owner != uid:
		return "belongs to another user, whose files cannot be changed through an overlay"
	case group != gid:
		return fmt.Sprintf("belongs to the group %s, and behind walls only your primary group, %s, can be used", groupName(group), groupName(gid))
	}
	return ""
}

// groupName returns the name of a group, or its number if it has none.
func groupName(gid int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		return g.Name
	}
	return strconv.Itoa(gid)
}
