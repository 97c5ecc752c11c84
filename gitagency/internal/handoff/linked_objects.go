package handoff

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// ObjectsOutside lists the directories outside of the git directory from which git reads objects: alternates, and the
// targets of symbolic links in the place of an object directory or of its pack directory. They must be visible behind the
// walls.
func ObjectsOutside(r *core.Repository) []string {
	outside := r.Git.Alternates()
	for _, objects := range slices.Concat([]string{objectDir(r)}, outside) {
		for _, dir := range []string{objects, filepath.Join(objects, "pack")} {
			if target := linkTarget(dir); target != "" {
				outside = append(outside, target)
			}
		}
	}
	return outside
}

// BorrowLinkedObjects has git behind the walls borrow the objects of a repository whose object directory is a symbolic
// link, as from an alternate: through the link it could write nothing. The upper directory then has an object directory of
// its own. It must not be mounted.
func BorrowLinkedObjects(r *core.Repository, upper string) error {
	const info, name = "objects/info", "alternates"
	target := linkTarget(objectDir(r))
	if target == "" {
		return nil
	}
	had, err := overlay.ReadUpperFile(upper, info+"/"+name, 1<<20)
	if err != nil || slices.Contains(strings.Split(string(had.Data), "\n"), git.QuoteAlternate(target)) {
		return err
	}
	root, err := os.OpenRoot(upper) // it may contain symbolic links of the sandbox
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return overlay.ReplaceUpperFile(upper, info, name, append(had.Data, git.QuoteAlternate(target)+"\n"...))
}

// RepointAlternates has the git directories of a sandbox that is a clone borrow the objects of the repository again, which was moved. It
// removes the absolute paths of directories that do not exist, as the former one.
func RepointAlternates(r *core.Repository, id string) error {
	const info, name = "objects/info", "alternates"
	if !r.IsClone(id) {
		return nil
	}
	objects, err := filepath.EvalSymlinks(objectDir(r))
	if err != nil {
		return err
	}
	for _, dir := range r.OwnGitDirs(id) {
		had, err := overlay.ReadUpperFile(dir, info+"/"+name, 1<<20)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSuffix(string(had.Data), "\n"), "\n")
		if len(had.Data) == 0 || slices.Contains(lines, objects) { // without the file it has hard links
			continue
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return filepath.IsAbs(line) && !durable.IsDir(line) })
		if err := overlay.ReplaceUpperFile(dir, info, name, []byte(strings.Join(append([]string{objects}, lines...), "\n")+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// RepointOrigin has the remote "origin" of a sandbox that is a clone name the repository again, which was moved, if it still names a former path of it.
// The configuration, which an agent may have written, is read as data, and otherwise left as it is.
func RepointOrigin(r *core.Repository, id string, isFormer func(path string) bool) error {
	const name, maxSize = "config", 1 << 20
	if !r.IsClone(id) {
		return nil
	}
	for _, dir := range r.OwnGitDirs(id) {
		had, err := overlay.ReadUpperFile(dir, name, maxSize)
		if err != nil {
			return err
		}
		now, err := config.ReplaceValues(string(had.Data), "remote.origin.url", func(url string) string {
			if isFormer(url) {
				return r.CommonDir
			}
			return url
		})
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		if now == string(had.Data) {
			continue
		}
		if err := overlay.ReplaceUpperFile(dir, ".", name, []byte(now)); err != nil {
			return err
		}
	}
	return nil
}

func objectDir(r *core.Repository) string { return filepath.Join(r.CommonDir, "objects") }

// linkTarget returns the directory that a symbolic link leads to; empty if it is no link, or leads nowhere.
func linkTarget(path string) string {
	if _, err := os.Readlink(path); err != nil {
		return ""
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // git reports it
	}
	return target
}
