package core

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/archive"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// chooser decides what a section of the archive holds.
type chooser func(archive.Entry) archive.Choice

// openSection opens a directory and scans it as a section of the archive. A missing directory is no section.
func (c *TrashContent) openSection(ctx context.Context, name, dir string, whole bool, newChooser func(top *guard.DirHandle) chooser) error {
	if !store.IsDir(dir) {
		return nil
	}
	tree, err := guard.OpenOwnTree(dir)
	if err != nil {
		return err
	}
	c.opened = append(c.opened, tree.Close)
	top, err := tree.OpenTop()
	if err != nil {
		return err
	}
	c.opened = append(c.opened, top.Close)
	files, err := archive.Scan(ctx, top, newChooser(top))
	if err == nil && (whole || len(files) > 0) {
		c.sections = append(c.sections, archive.Section{Name: name, Top: top, Files: files, Whole: whole})
	}
	return err
}

// keepUnless leaves an entry out under a condition, and else keeps all of it.
func keepUnless(leaveOut bool) archive.Choice {
	if leaveOut {
		return archive.Skip
	}
	return archive.KeepAll
}

const specialFile = fs.ModeNamedPipe | fs.ModeSocket | fs.ModeDevice | fs.ModeIrregular

// hasOwnGitFile reports whether the .git of a tree is the file that git wrote there, or is missing. The entry that it
// names may be gone, or in a repository that was moved. The git directory of a clone counts too: its commits are imported.
func hasOwnGitFile(top *guard.DirHandle, s git.WorktreeSpec) bool {
	if store.IsDir(store.CloneOf(s.Dir)) {
		return true
	}
	content, err := readSmall(top, ".git")
	dir, isLink := strings.CutPrefix(strings.TrimSuffix(string(content), "\n"), "gitdir: ")
	if err != nil || !isLink {
		return errors.Is(err, fs.ErrNotExist)
	}
	return filepath.Base(dir) == s.Name && filepath.Base(filepath.Dir(dir)) == "worktrees"
}

// readSmall reads a regular file of at most 1 MiB.
func readSmall(dir *guard.DirHandle, name string) ([]byte, error) {
	const most = 1 << 20
	file, err := dir.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(content) > most {
		err = &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	return content, err
}

// outsideGit leaves out the marker of a tree, keeps its .git if that is not the file that git wrote, and has choose decide
// about everything else.
func outsideGit(top *guard.DirHandle, s git.WorktreeSpec, choose chooser) chooser {
	ownGit := hasOwnGitFile(top, s)
	return func(e archive.Entry) archive.Choice {
		switch e.Path {
		case guard.AgencyDir:
			return archive.Skip
		case ".git":
			return keepUnless(ownGit)
		}
		if s.Overlay != nil && e.Mode&fs.ModeCharDevice != 0 {
			return archive.Skip // a whiteout: commands cannot create devices
		}
		return choose(e)
	}
}

// openIgnoreRules opens the ignore rules of a tree, and returns a function that reports whether an entry is ignored. Nothing
// is ignored by rules that cannot be read or exceed their limit, nor is a path that is longer than git can open: the archive
// keeps too much rather than too little.
func (c *TrashContent) openIgnoreRules(repo *git.Repo, s git.WorktreeSpec) func(archive.Entry) bool {
	rules, err := status.OpenIgnoreRules(repo, s, s.Dir)
	if err != nil {
		return func(archive.Entry) bool { return false }
	}
	c.opened = append(c.opened, rules.Close)
	return func(e archive.Entry) bool {
		if len(e.Path) > unix.PathMax {
			return false
		}
		ignored, err := rules.IsIgnored(e.Path, e.Mode.IsDir())
		return ignored && err == nil
	}
}

// archiveSpecialFiles archives the special files of a tree of which the commit holds everything else. Ignored files are not
// kept, so that it does not list ignored directories. If the capture found none, it looks only for a foreign .git at the top.
func (c *TrashContent) archiveSpecialFiles(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) error {
	return c.openSection(ctx, archivedTree, s.WriteDir(), false, func(top *guard.DirHandle) chooser {
		ignored := c.openIgnoreRules(repo, s)
		return outsideGit(top, s, func(e archive.Entry) archive.Choice {
			switch {
			case e.Mode.IsDir() && !c.NoSpecialFiles && !ignored(e):
				return archive.Enter
			case e.Mode&specialFile != 0:
				return keepUnless(ignored(e))
			}
			return archive.Skip
		})
	})
}

// archiveRepositories archives the parts of a tree that a capture leaves out: repositories, ignored or not, files in the
// place of submodules, and special files that are not ignored.
func (c *TrashContent) archiveRepositories(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) error {
	submodules, err := listSubmodules(ctx, repo, c.Commit)
	if err != nil {
		return err
	}
	err = c.openSection(ctx, archivedTree, s.WriteDir(), false, func(top *guard.DirHandle) chooser {
		ignored := c.openIgnoreRules(repo, s)
		return outsideGit(top, s, func(e archive.Entry) archive.Choice {
			switch {
			case s.KeptSubmodules[e.Path] != "":
				return archive.Skip
			case submodules.has(e.Path) || e.HasGit():
				return archive.KeepAll
			case e.Mode&specialFile != 0:
				return keepUnless(ignored(e))
			case e.Mode.IsDir():
				return archive.Enter
			}
			return archive.Skip
		})
	})
	if err != nil {
		return err
	}
	return c.archiveModules(ctx, repo, s)
}

// archiveModules archives the repositories of submodules, which git keeps in its entry for the worktree.
func (c *TrashContent) archiveModules(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) error {
	kept := slices.Collect(maps.Values(s.KeptSubmodules))
	modules := cmp.Or(s.ModulesDir, filepath.Join(repo.AdminDir(s.Name), "modules"))
	return c.openSection(ctx, archivedModules, modules, false, func(*guard.DirHandle) chooser {
		return func(e archive.Entry) archive.Choice {
			if slices.ContainsFunc(kept, func(name string) bool { return strings.HasPrefix(name, e.Path+"/") }) {
				return archive.Enter
			}
			return keepUnless(slices.Contains(kept, e.Path))
		}
	})
}

// archiveAll archives the whole tree without ignored files, and git's entry for it.
func (c *TrashContent) archiveAll(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) error {
	tracked, err := listTracked(ctx, repo, c.Commit)
	if err != nil {
		return err
	}
	// An archive that extends an earlier capture, or the files below an overlay, adds to them.
	err = c.openSection(ctx, archivedTree, s.WriteDir(), s.Onto == "" && s.Overlay == nil, func(top *guard.DirHandle) chooser {
		ignored := c.openIgnoreRules(repo, s)
		return outsideGit(top, s, func(e archive.Entry) archive.Choice {
			switch {
			case e.HasGit():
				return archive.KeepAll
			case tracked.has(e.Path) || !ignored(e):
				return archive.Keep
			case e.Mode.IsDir():
				return archive.Enter // there may be repositories and tracked files in it
			}
			return archive.Skip
		})
	})
	if err != nil {
		return err
	}
	err = c.openSection(ctx, archivedGitDir, repo.AdminDir(s.Name), false, func(*guard.DirHandle) chooser {
		return func(e archive.Entry) archive.Choice { return keepUnless(e.Path == "modules") }
	})
	if err != nil {
		return err
	}
	s.KeptSubmodules = nil // their files are in the archive, and useless without their repositories
	return c.archiveModules(ctx, repo, s)
}

// pathSet is a set of paths of a commit.
type pathSet struct {
	paths map[string]bool
	all   bool // the paths are unknown, so that the set has every path
}

func (s pathSet) has(path string) bool { return s.all || s.paths[path] }

// listSubmodules lists the paths of the submodules of a commit.
func listSubmodules(ctx context.Context, repo *git.Repo, commit string) (pathSet, error) {
	return listPaths(ctx, repo, commit, func(mode string) bool { return mode == object.ModeGitlinkText })
}

// listTracked lists the paths of the files of a commit.
func listTracked(ctx context.Context, repo *git.Repo, commit string) (pathSet, error) {
	return listPaths(ctx, repo, commit, func(string) bool { return true })
}

// listPaths lists the paths of a commit whose mode is wanted; of no commit, none. An agent can commit a tree with more
// files than git can list within the limits, by naming a subtree several times: then the set has every path.
func listPaths(ctx context.Context, repo *git.Repo, commit string, isWanted func(mode string) bool) (pathSet, error) {
	set := pathSet{paths: map[string]bool{}}
	if commit == "" {
		return set, nil
	}
	out, err := repo.RunRead(ctx, git.RunOptions{Reading: repo.ReadingOf("listing the files of " + commit)}, "ls-tree", "-r", "-z", commit)
	if fault.Is[*fault.ReadLimitError](err) {
		return pathSet{all: true}, nil
	}
	for line := range strings.SplitSeq(string(out), "\x00") {
		fields, path, ok := strings.Cut(line, "\t")
		if mode, _, _ := strings.Cut(fields, " "); ok && isWanted(mode) {
			set.paths[path] = true
		}
	}
	return set, err
}
