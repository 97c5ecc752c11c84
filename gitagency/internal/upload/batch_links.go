package upload

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// linkError returns the error for a refused target of a symbolic link.
func linkError(n *node, why string) error {
	return &guard.ConfinementError{Path: n.givenPath, Why: "is a symbolic link to " + guard.QuotePath(string(n.file.Content)) + ", which " + why}
}

// checkLinkPath follows a symbolic link through all symlinks of the batch and of the tree, and makes sure that it
// stays inside at every step.
func (b *batch) checkLinkPath(n *node) error {
	const most = 40 // symlinks; the kernel follows no more
	at, way := parentNames(n.path), strings.Split(string(n.file.Content), "/")
	for links := 0; len(way) > 0; {
		name := way[0]
		way = way[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && len(at) == 0:
			return linkError(n, "leads out of the sandbox")
		case name == "..":
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clip(at), name)
		target, isLink, err := b.linkTargetAt(strings.Join(at, "/"))
		if err != nil {
			return err
		}
		if !isLink {
			continue
		}
		if links++; links > most {
			return linkError(n, "has too many levels of symbolic links")
		}
		at = at[:len(at)-1]
		if below, inside := strings.CutPrefix(target, b.tree.Path+"/"); inside || target == b.tree.Path {
			at, target = nil, strings.TrimPrefix(below, b.tree.Path)
		} else if strings.HasPrefix(target, "/") {
			return linkError(n, "goes through a link out of the sandbox, "+guard.QuotePath(name))
		}
		way = append(strings.Split(target, "/"), way...)
	}
	if there := strings.Join(at, "/"); there != "" && pathProblem(there) != "" {
		return linkError(n, "leads to "+guard.QuotePath(there)+", which "+pathProblem(there))
	}
	return nil
}

// parentNames returns the names of the directories above a path.
func parentNames(name string) []string {
	names := strings.Split(name, "/")
	return names[:len(names)-1]
}

// linkTargetAt returns the target of the symlink that will be at a path after the put, if any. The path has no
// symlinks in its parents.
func (b *batch) linkTargetAt(at string) (target string, isLink bool, err error) {
	if n := b.root.lookup(at); n != nil && !n.isDir {
		return string(n.file.Content), n.file.Mode.Type() == fs.ModeSymlink, nil
	}
	fi, err := b.tree.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG):
		return "", false, nil
	case err != nil:
		return "", false, err
	case fi.Mode()&fs.ModeSymlink == 0:
		return "", false, nil
	}
	target, err = b.tree.Readlink(at)
	return target, true, err
}

// checkLinkTarget checks the text of a symbolic link's target: allowed names only, and ".." only at the start and
// never above the top. A ".." after a name could lead anywhere if that name became a symlink.
func checkLinkTarget(n *node) error {
	target := string(n.file.Content)
	refuse := func(why string) error { return linkError(n, why) }
	down, up := target, 0
	for {
		down = strings.TrimLeft(down, "/")
		first, rest, more := strings.Cut(down, "/")
		if first != ".." && first != "." {
			break
		}
		if first == ".." {
			up++
		}
		if down = rest; !more {
			down = "."
			break
		}
	}
	switch {
	case n.file.Open != nil:
		return refuse("has no content")
	case strings.HasPrefix(target, "/"):
		return refuse("is absolute")
	case target == "":
		return refuse("is empty")
	case up > strings.Count(n.path, "/"):
		return refuse("leads out of the sandbox")
	case len(target) > guard.MaxPathLen:
		return refuse(pathProblem(target))
	case down != "" && pathProblem(down) != "":
		return refuse(pathProblem(down))
	}
	return nil
}

// resolveDir resolves the symlinks of a directory given by a clean path.
func (b *batch) resolveDir(dir string) (string, error) {
	if dir == "." {
		return ".", nil
	}
	if real, known := b.resolved[dir]; known {
		return real, nil
	}
	parent, err := b.resolveDir(path.Dir(dir))
	if err != nil {
		return "", err
	}
	real := path.Join(parent, path.Base(dir))
	if !b.missing[parent] {
		fi, err := b.tree.Lstat(real)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.missing[real] = true
		case err != nil:
			return "", withPath("stat", dir, err)
		case fi.Mode()&fs.ModeSymlink != 0:
			b.linkDirs[real] = dir
			if real, err = b.followLink(dir, real); err != nil {
				return "", err
			}
		default:
			if err := guard.CheckIsDir(dir, fi.Mode()); err != nil {
				return "", err
			}
		}
	} else {
		b.missing[real] = true
	}
	b.resolved[dir] = real
	return real, nil
}

// followLink returns the target of a symlink of the tree, which must be a directory inside of it.
func (b *batch) followLink(dir, link string) (string, error) {
	inside, isDir, err := b.tree.ResolvePath(link)
	var confined *guard.ConfinementError
	switch {
	case errors.As(err, &confined):
		return "", &guard.ConfinementError{Path: dir, Why: confined.Why}
	case err != nil:
		return "", err
	case !isDir:
		return "", &fs.PathError{Op: "enter", Path: dir, Err: syscall.ENOTDIR}
	}
	return inside, nil
}
