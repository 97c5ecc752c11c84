package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"golang.org/x/sys/unix"
)

// CloneDefect names the part that is missing of a sandbox that its record calls a clone; empty if none is.
func CloneDefect(r *core.Repository, id string, prims store.Primitives) string {
	if !r.IsClone(id) {
		return "the directory " + r.Store.CloneDir(r.ID, id) + " is missing"
	}
	for _, dir := range cloneGitDirs(r, id, prims) {
		if !guard.IsAccessible(dir) {
			return "the git directory " + dir + " cannot be read: its owner has no permission"
		}
		if !isGitDir(dir) {
			return "the git directory " + dir + " is missing or not complete"
		}
		if lost := lostAlternate(r, dir); lost != "" {
			return "the git directory " + dir + " borrows objects from " + lost + ", which does not exist"
		}
	}
	return ""
}

// cloneGitDirs lists the git directories of a clone.
func cloneGitDirs(r *core.Repository, id string, prims store.Primitives) []string {
	dirs := []string{r.CloneGitDir(id)}
	if prims.Isolation == settings.IsolationOS {
		dirs = append(dirs, r.InnerCloneDir(id))
	}
	return dirs
}

// isGitDir reports whether a directory has the files without which git does not take it for a git directory. An agent may have written
// it, so no symbolic link in it is followed.
func isGitDir(dir string) bool {
	if !store.IsDir(dir) || !store.IsDir(filepath.Join(dir, "objects")) || !store.IsDir(filepath.Join(dir, "refs")) {
		return false
	}
	head, err := overlay.ReadUpperFile(dir, "HEAD", 1<<10)
	return err == nil && head.Found
}

// lostAlternate returns an object directory that a git directory borrows from and that does not exist; empty if there is none, or if it
// borrows from the repository.
func lostAlternate(r *core.Repository, dir string) (lost string) {
	file, err := overlay.ReadUpperFile(dir, "objects/info/alternates", 1<<16)
	if err != nil {
		return ""
	}
	objects, err := filepath.EvalSymlinks(filepath.Join(r.CommonDir, "objects"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(file.Data)) {
		switch path := strings.TrimSpace(line); {
		case path == objects:
			return ""
		case filepath.IsAbs(path) && !store.IsDir(path):
			lost = path
		}
	}
	return lost
}

// RepairClone makes the directories of a clone that CloneDefect finds missing again, from the branch and the index that the repository has
// of it. The caller holds the repository lock. A damaged git directory, or a file in its place, is kept beside the tree.
func RepairClone(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) error {
	id, prims := entry.ID, settings.FillLegacyPrimitives(entry.Record.Primitives)
	if !r.IsClone(id) {
		if err := durable.Mkdir(r.Store.CloneDir(r.ID, id), 0o700); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(Of(r, id).setupLockDir(), 0o700); err != nil {
		return err
	}
	for _, dir := range cloneGitDirs(r, id, prims) {
		if err := guard.RestoreOwnAccess(dir); err != nil { // a command may have removed it
			return err
		}
		if isGitDir(dir) {
			continue // it may have commits that are not imported
		}
		if err := remakeCloneGitDir(ctx, r, repo, entry, dir); err != nil {
			return err
		}
		if err := handoff.NewOf(r, id, dir).RecordRestored(ctx); err != nil {
			return err
		}
	}
	return handoff.RepointAlternates(r, id)
}

// remakeCloneGitDir makes a git directory of a clone that is missing.
func remakeCloneGitDir(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], dir string) (err error) {
	if err := setAsideCloneGitDir(r, entry.ID, dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	source, err := clone.FindSourceOrDefault(ctx, repo, entry.Record.CloneSource)
	if err != nil {
		return err
	}
	tip, err := repo.Tip(ctx, core.SandboxRef(entry.ID))
	if err == nil && tip == "" {
		err = fmt.Errorf("branch %s does not exist", core.ShortBranch(core.SandboxRef(entry.ID)))
	}
	if err != nil {
		return err
	}
	made, err := os.MkdirTemp(r.Store.CloneDir(r.ID, entry.ID), "made-*") // renamed when it is complete
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(made)) }()
	if err := clone.Make(ctx, repo, clone.Request{
		Dir: filepath.Join(made, "git"), Branch: core.SandboxRef(entry.ID), Tip: tip, Admin: repo.AdminDir(entry.ID), Source: source, Without: []string{core.SandboxHeads},
	}); err != nil {
		return err
	}
	if err := durable.Sync(clone.Files(filepath.Join(made, "git"), core.SandboxRef(entry.ID))...); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(made, "git"), dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// setAsideCloneGitDir moves a damaged git directory of a clone, or a file in its place, to a directory beside the tree. An empty directory,
// on which another one was mounted, is removed.
func setAsideCloneGitDir(r *core.Repository, id, dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	aside, err := os.MkdirTemp(r.Store.CloneDir(r.ID, id), "replaced-*")
	if err != nil {
		return err
	}
	aside = filepath.Join(aside, "git")
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	r.Warn("%s is not a complete git directory; it was moved to %s, where it stays until the sandbox ends", dir, aside)
	return nil
}
