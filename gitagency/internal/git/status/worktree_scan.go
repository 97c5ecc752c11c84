// Package status finds out what is in a worktree: it scans the files against the index, collects untracked files, and
// makes a stat cache by which a later scan recognises the same state. It never changes the files or the index of a
// worktree; before a capture of one that is not in use, missing permissions of the owner are added.
package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// worktreeScan is one scan of a worktree, plus the re-check that proves it to be one state.
type worktreeScan struct {
	repo       *git.Repo
	spec       git.WorktreeSpec
	head       string                         // commit of the worktree
	scratch    func() (git.RunOptions, error) // returns the scratch git directory, which it creates on first use
	format     object.Format
	indexMtime time.Time
	startedAt  int64
	entries    []index.Entry
	lowerFiles func() ([]index.Entry, error) // of an overlay: see readLowerFiles

	result            *scanResult
	leftOut           []LeftOut
	untrackedDirStats map[string]git.FileStat // stat data of the directories without an index entry that are not ignored, from before they were listed
	untrackedFiles    []pathStat              // files without an index entry that belong to the state
	blobs             map[string]object.Raw   // blobs that are not written yet, by id
	writtenBlobs      []string                // blobs that were taken over from git, because they do not fit into memory
	unsyncedBlobs     []string                // those of them that are not synced to disk yet
	ignoredDirs       []string                // directories without an index entry that are ignored
	cache             indexCache              // of a directory that is no worktree: see indexCache

	watch *dirWatch // inotify watch on directories in which names come and go; nil when there are none

	tree        *beneath.Dir    // the worktree
	ignoreRules *IgnoreRules    // nil until the first untracked path
	attributes  map[string]bool // whether attributes may apply to the files in a directory: see mayConvert
}

func (v *worktreeScan) newScanner() *Scanner {
	return &Scanner{
		omit: v.spec.Omit, TrustFileMode: v.repo.ConfigBool("core.filemode", true), HasSymlinks: v.repo.ConfigBool("core.symlinks", true),
		EmptyBlob: object.HashObject(v.format, "blob", nil), IndexMtime: v.indexMtime, startedAt: v.startedAt,
	}
}

// worktreeChanges lists the differences between the files on disk and the index.
func (v *worktreeScan) worktreeChanges(ctx context.Context) ([]object.LeafChange, error) {
	v.watch = watchDirs(v.spec.WriteDir(), v.spec.ChangingDirs)
	var err error
	if v.result, err = v.scanFiles(ctx); err != nil {
		return nil, err
	}
	if !v.result.consistent && v.startedAt != 0 && v.spec.InUse {
		// Something changed in the current clock tick. After the next tick, a single scan may be enough.
		if err := v.sleep(ctx, v.newScanner().clockTick()); err != nil {
			return nil, err
		}
		v.startedAt = fileClockNow(v.spec.WriteDir())
		if v.result, err = v.scanFiles(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range v.result.populatedSubmodules {
		if v.spec.KeptSubmodules[name] == "" {
			v.leftOut = append(v.leftOut, LeftOut{name, OmitSubmodule})
		}
	}
	if err := v.knownIgnoreVerdict(); err != nil {
		return nil, err
	}
	if err := v.classifyUntracked(ctx); err != nil {
		return nil, v.rememberIgnoreVerdict(err)
	}
	read, seed := []string{}, []int{}
	var changes []object.LeafChange
	for i, f := range v.result.statuses {
		switch {
		case f == entryModified:
			read, seed = append(read, string(v.entries[i].Name)), append(seed, i)
		case f == entryMissing && v.spec.Onto == "":
			changes = append(changes, object.LeafChange{Path: string(v.entries[i].Name)})
		}
	}
	for _, f := range v.untrackedFiles {
		read = append(read, f.name)
	}
	if err := v.waitForClock(ctx, seed); err != nil {
		return nil, err
	}
	hashed, err := v.hashFiles(ctx, read, seed)
	if err != nil {
		if moved := v.checkStable(ctx); errors.As(moved, new(*StillChangingError)) {
			return nil, moved // which caused the error
		}
		return nil, err
	}
	for _, name := range read {
		l, there := hashed[name]
		if !there {
			if v.statNow(name) != (git.FileStat{}) {
				if moved := v.checkStable(ctx); errors.As(moved, new(*StillChangingError)) {
					return nil, moved // the file has come back
				}
				return nil, &RejectedNameError{Path: filepath.Join(v.spec.Dir, name)}
			}
			l = object.LeafChange{Path: name} // gone meanwhile, which checkStable finds too
		}
		changes = append(changes, l)
	}
	v.dropVerdicts()
	return changes, nil
}

// UnreadableError reports a file that this process has no permission to read.
type UnreadableError struct{ Path string }

func (e *UnreadableError) Error() string { return e.Path + " cannot be read" }

func (e *UnreadableError) Unwrap() error { return fs.ErrPermission }

// RejectedNameError reports a file that git does not add because of its name. Git skips such a file without an error.
type RejectedNameError struct{ Path string }

func (e *RejectedNameError) Error() string {
	return fmt.Sprintf("git cannot add a file named %s; remove or rename it", e.Path)
}
