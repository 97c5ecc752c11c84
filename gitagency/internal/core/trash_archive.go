package core

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/archive"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// TrashOptions says what happens to content of a tree that no commit can hold. The zero value refuses it.
type TrashOptions struct {
	Archive bool      // keep it in an archive
	Force   bool      // with Archive: leave out what the archive cannot hold
	Lost    *[]string // with Force: the files that were left out, with the reasons, are added to it; required with Force

	Late bool // the capture adds to an earlier one, whose archive, if there is one, stays

	Dirs []ArchivedDir // directories besides the tree that always go to the archive
}

// ArchivedDir is a directory besides the tree that goes to an archive.
type ArchivedDir struct {
	Section string   // of the archive
	Dir     string   // path
	Parts   []string // paths in it, which go to the archive with all below them; none for all of it
}

// choose is the chooser of the entries that go to the archive.
func (d ArchivedDir) choose(e archive.Entry) archive.Choice {
	if len(d.Parts) == 0 {
		return archive.KeepAll
	}
	choice := archive.Skip
	for _, part := range d.Parts {
		switch {
		case e.Path == part:
			return archive.KeepAll
		case strings.HasPrefix(part, e.Path+"/"):
			choice = archive.Keep // a parent, with its permissions
		}
	}
	return choice
}

// GitDirsToArchive returns the directories of OwnGitDirs with their sections of the archive, for git state of which some was refused.
func (r *Repository) GitDirsToArchive(id string) (dirs []ArchivedDir) {
	for _, dir := range r.OwnGitDirs(id) {
		section := archivedLayer
		if dir == r.CloneGitDir(id) && dir != r.UpperDir(id) {
			section = archivedClone
		}
		dirs = append(dirs, ArchivedDir{Section: section, Dir: dir})
	}
	return dirs
}

// Lose adds something to the list of what was left out, with the reason, unless it is there already: a late change makes
// discard read the tree again, and the reason may then differ.
func (o TrashOptions) Lose(what, why string) {
	if !slices.ContainsFunc(*o.Lost, func(lost string) bool { return strings.HasPrefix(lost, what+": ") }) {
		*o.Lost = append(*o.Lost, what+": "+why)
	}
}

// hasLosses reports whether files were left out.
func (o TrashOptions) hasLosses() bool { return o.Lost != nil && len(*o.Lost) > 0 }

// Sections of an archive in the trash.
const (
	archivedTree    = "tree"    // the tree of the sandbox
	archivedModules = "modules" // repositories of the submodules that were checked out in it
	archivedGitDir  = "git"     // git's worktree entry, where git could not read it
	archivedLayer   = "walls"   // git state behind the walls, or git directory of a clone, where some of it was refused
	archivedClone   = "clone"   // the git directory in the tree of a clone with walls, likewise
)

// TrashContent is the content of a tree that is about to be removed: a commit, and files that the commit does not hold.
// It has to be closed.
type TrashContent struct {
	snapshot.CaptureResult
	sections []archive.Section
	opened   []func() error
}

// Close closes the directories that the archive is read from.
func (c *TrashContent) Close() {
	for _, closeDir := range c.opened {
		_ = closeDir()
	}
}

// CaptureForTrash captures the content of a tree that is about to be removed. With an archive, a tree that git refuses
// is captured as far as git can:
//
//  1. all of it, which is what CaptureTree does; special files that are not ignored go to the archive;
//  2. all but repositories in it, which go to the archive;
//  3. the index, or if git cannot read that either, the commits alone; then the archive gets the whole tree.
//
// Ignored files are not kept, unless the rules cannot be read.
func (r *Repository) CaptureForTrash(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, o TrashOptions) (TrashContent, error) {
	c, err := r.captureForTrash(ctx, repo, s, o)
	if err == nil {
		if err = c.openDirs(ctx, o.Dirs); err != nil {
			c.Close()
		}
	}
	return c, err
}

// openDirs adds directories to the archive.
func (c *TrashContent) openDirs(ctx context.Context, dirs []ArchivedDir) error {
	for _, d := range dirs {
		if err := c.openSection(ctx, d.Section, d.Dir, false, func(*guard.DirHandle) chooser { return d.choose }); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) captureForTrash(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, o TrashOptions) (c TrashContent, err error) {
	s, err = r.PrepareCapture(s)
	if err != nil {
		return c, err
	}
	s.CheckRules = o.Archive // git fsck must not fail because of the trash
	if s, err = r.WithKeptSubmodules(ctx, repo, s); err != nil {
		return c, err
	}
	if c.CaptureResult, err = snapshot.Capture(ctx, repo, s); !o.Archive || err != nil && !IsContentError(ctx, err) {
		return c, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err == nil {
		others, err := r.otherModules(repo, s)
		if err != nil {
			return c, err
		}
		leftOut := c.archiveSpecialFiles
		if len(others) > 0 { // with the files that the commit has, so that restore has both
			leftOut = c.archiveRepositories
		}
		err = r.archiveRest(ctx, repo, s, o, &c, leftOut)
		return c, err
	}
	partly := s
	partly.InUse = true // leaves out repositories instead of refusing them
	if c.CaptureResult, err = snapshot.Capture(ctx, repo, partly); err == nil {
		err = r.archiveRest(ctx, repo, s, o, &c, c.archiveRepositories)
		return c, err
	} else if !IsContentError(ctx, err) {
		return c, err
	}
	partly.CheckRules = false // only the archive could keep a refused index, and restore would not bring it back
	if c.CaptureResult, err = snapshot.CaptureIndex(ctx, repo, partly); err != nil && IsContentError(ctx, err) {
		c.CaptureResult, err = captureHistory(ctx, repo, s)
	}
	if err == nil {
		c.CaptureResult, err = withoutRemoved(ctx, repo, s, c.CaptureResult)
	}
	if err != nil {
		return c, err
	}
	err = c.archiveAll(ctx, repo, s)
	return c, err
}

// archiveRest archives what the commit of a capture leaves out. An archive that holds an earlier state of the whole tree
// takes the place of the commit, so it gets everything.
func (r *Repository) archiveRest(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, o TrashOptions, c *TrashContent, leftOut func(context.Context, *git.Repo, git.WorktreeSpec) error) error {
	if o.Late {
		sections, err := archive.Sections(ctx, r.Store.TrashArchivePath(r.ID, s.Name))
		if err != nil && !fault.Is[*archive.InvalidError](err) {
			return err
		}
		if sections[archivedTree] {
			leftOut = c.archiveAll
		}
	}
	return leftOut(ctx, repo, s)
}

// CheckTrash returns the error that CaptureForTrash, or writing the archive, would return because of the content. It
// writes nothing.
func (r *Repository) CheckTrash(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, o TrashOptions) error {
	s, err := r.WithKeptSubmodules(ctx, repo, s)
	if err != nil {
		return err
	}
	_, err = r.CaptureDryRun(ctx, repo, s)
	if !o.Archive || !IsContentError(ctx, err) {
		return err
	}
	if o.Force {
		return nil
	}
	if s, err = r.PrepareCapture(s); err != nil {
		return err
	}
	var c TrashContent
	defer c.Close()
	partly := s
	partly.InUse = true
	got, err := snapshot.DryRunCapture(ctx, repo, partly)
	switch {
	case err == nil:
		c.Commit = got.BranchTip // its submodules; the captured commit does not exist
		err = c.archiveRepositories(ctx, repo, s)
	case IsContentError(ctx, err):
		err = c.archiveAll(ctx, repo, s)
	}
	if err != nil {
		return err
	}
	limit, err := r.Settings.TrashLimit()
	if err != nil {
		return err
	}
	return archive.Check(c.sections, archive.Options{Limit: limit})
}

// IsContentError reports whether a capture failed because of what is in the tree, or in git's entry for it. Everything
// counts as such but the end of the context, locks, and failures of this machine.
func IsContentError(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, errno := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN,
	} {
		if errors.Is(err, errno) {
			return false
		}
	}
	return !fault.Is[*fault.LockTimeoutError](err) && !fault.Is[*fault.UnsafePathError](err) && !fault.Is[*fault.CannotRunError](err)
}

// captureHistory captures the commits of a worktree whose index git cannot read.
func captureHistory(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (snapshot.CaptureResult, error) {
	found, err := repo.Lookup(ctx, s.Branch+"^{commit}", s.Base+"^{commit}")
	if err != nil {
		return snapshot.CaptureResult{}, err
	}
	branch := found[0].OID
	tips := []string{branch}
	if head, ok := repo.HeadFromFiles(s); ok {
		tips = append(tips, head)
	}
	first := cmp.Or(s.Onto, branch, found[1].OID)
	tree, err := repo.Lookup(ctx, first+"^{tree}")
	if first == "" || err != nil || tree[0].Missing() {
		return snapshot.CaptureResult{Commit: first, BranchTip: branch}, err
	}
	parents, err := repo.CapturedParents(ctx, s, first, tree[0].OID, tips...)
	if err != nil || len(parents) == 1 {
		return snapshot.CaptureResult{Commit: first, BranchTip: branch}, err
	}
	commit, err := repo.CommitTree(ctx, s, tree[0].OID, parents, s.Message)
	return snapshot.CaptureResult{Commit: commit, BranchTip: branch, Dirty: true}, err
}

// WriteTrashArchive adds the files of a captured tree that its commit does not hold to the archive of an id, durably.
// beforeChange, which may be nil, is called before the archive changes.
func (r *Repository) WriteTrashArchive(ctx context.Context, id string, c TrashContent, o TrashOptions, beforeChange func() error) error {
	if len(c.sections) == 0 {
		return nil
	}
	limit, err := r.Settings.TrashLimit()
	if err != nil {
		return err
	}
	if err := r.Store.EnsureTrashDir(r.ID); err != nil {
		return err
	}
	if err := durable.RemoveTemps(r.Store.TrashDir(r.ID)); err != nil { // of a killed process; the caller holds the repository lock
		return err
	}
	result, err := archive.Write(ctx, r.Store.TrashArchivePath(r.ID, id), c.sections, archive.Options{Limit: limit, Force: o.Force, BeforeChange: beforeChange})
	if err != nil {
		_ = os.Remove(r.Store.TrashDir(r.ID)) // fails when not empty
		return err
	}
	for _, lost := range result.Lost {
		o.Lose(guard.QuotePath(lost.Path), lost.Why)
	}
	return nil
}

// ArchiveDirs adds directories to the archive of an id, durably.
func (r *Repository) ArchiveDirs(ctx context.Context, id string, dirs []ArchivedDir) error {
	var c TrashContent
	defer c.Close()
	if err := c.openDirs(ctx, dirs); err != nil {
		return err
	}
	return r.WriteTrashArchive(ctx, id, c, TrashOptions{}, nil)
}

// CoversTrashArchive reports whether a captured tree still has every file of the archive of an id. It has none of an
// archive that cannot be read.
func (r *Repository) CoversTrashArchive(ctx context.Context, id string, c TrashContent) (bool, error) {
	covers, err := archive.Covers(ctx, c.sections, r.Store.TrashArchivePath(r.ID, id))
	if fault.Is[*archive.InvalidError](err) {
		return false, nil
	}
	return covers, err
}

// KeepOrphanArchive points the trash ref of an id at a commit without files, so that prune finds the archive of that id and
// removes it when it expires. It removes an archive that no program can read.
func (r *Repository) KeepOrphanArchive(ctx context.Context, repo *git.Repo, id string) error {
	sections, err := archive.Sections(ctx, r.Store.TrashArchivePath(r.ID, id))
	if fault.Is[*archive.InvalidError](err) || err == nil && len(sections) == 0 {
		return r.Store.RemoveTrashArchive(r.ID, id)
	}
	if err != nil {
		return err
	}
	tree, err := repo.RunWrite(ctx, git.RunOptions{}, "mktree")
	if err != nil {
		return err
	}
	commit, err := repo.CommitTree(ctx, git.WorktreeSpec{Author: ToolIdentity}, strings.TrimSpace(string(tree)), nil,
		"agency: archive of sandbox "+id+", of which no commit is left")
	if err != nil {
		return err
	}
	return r.KeepCommit(ctx, &undo.Tx{}, repo, TrashRef(id), commit)
}

// HasTrashArchive reports whether there is an archive of an id.
func (r *Repository) HasTrashArchive(id string) bool {
	_, there := store.FirstExisting(r.Store.TrashArchivePath(r.ID, id))
	return there
}
