// Package status finds out what is in a worktree: it scans the files against the index, collects untracked files, and
// makes a stat cache by which a later scan recognises the same state. It never changes the files or the index of a
// worktree; before a capture of one that is not in use, missing permissions of the owner are added.
package status

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// worktreeScan is one scan of a worktree, plus the re-check that proves it to be one state.
type worktreeScan struct {
	repo       *git.Repo
	spec       git.WorktreeSpec
	scratch    func() (git.RunOptions, error) // returns the scratch git directory, which it creates on first use
	format     object.Format
	indexMtime time.Time
	startedAt  int64
	entries    []index.Entry

	result            *scanResult
	leftOut           []LeftOut
	untrackedDirs     []string                // directories without an index entry that are not ignored
	untrackedDirStats map[string]git.FileStat // stat data of these and all directories below them, from before they were listed
	untrackedFiles    []pathStat              // files without an index entry that belong to the state
	writtenBlobs      []string                // blobs that git has written
	unsyncedBlobs     []string                // those of them that are not synced to disk yet
	listedPaths       []string                // paths that git listed in untrackedDirs
	ignoredDirs       []string                // directories without an index entry that are ignored
	cache             indexCache              // of a directory that is no worktree: see indexCache

	watch *dirWatch // inotify watch on directories in which names come and go; nil when there are none

	onUntracked   func()                 // called for paths without an index entry: starts "git check-ignore"
	ignoreProcess func() *proc.Coprocess // returns the running "git check-ignore"; nil when there is none
}

func (v *worktreeScan) newScanner() *Scanner {
	return &Scanner{
		omit: v.spec.Omit, TrustFileMode: v.repo.ConfigBool("core.filemode", true), HasSymlinks: v.repo.ConfigBool("core.symlinks", true),
		EmptyBlob: object.HashObject(v.format, "blob", nil), IndexMtime: v.indexMtime, startedAt: v.startedAt, onUntracked: v.onUntracked,
	}
}

// worktreeChanges lists the differences between the files on disk and the index.
func (v *worktreeScan) worktreeChanges(ctx context.Context) ([]object.LeafChange, error) {
	asking := v.startCheckIgnore(ctx)
	defer asking()
	v.watch = watchDirs(v.spec.Dir, v.spec.ChangingDirs)
	var err error
	if v.result, err = v.newScanner().scan(ctx, v.spec.Dir, v.entries); err != nil {
		return nil, err
	}
	if !v.result.consistent && v.startedAt != 0 && v.spec.InUse {
		// Something changed in the current clock tick. After the next tick, a single scan may be enough.
		if err := v.sleep(ctx, v.newScanner().clockTick()); err != nil {
			return nil, err
		}
		v.startedAt = fileClockNow(v.spec.Dir)
		if v.result, err = v.newScanner().scan(ctx, v.spec.Dir, v.entries); err != nil {
			return nil, err
		}
	}
	for _, name := range v.result.populatedSubmodules {
		v.leftOut = append(v.leftOut, LeftOut{name, OmitSubmodule})
	}
	if err := v.classifyUntracked(ctx); err != nil {
		return nil, err
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
	if err := v.checkSparseFiles(read); err != nil {
		return nil, err
	}
	if err := v.waitForClock(ctx, seed); err != nil {
		return nil, err
	}
	hashed, err := v.hashFiles(ctx, read, seed)
	if err != nil {
		if moved := v.checkStable(ctx); errors.As(moved, new(*StillChangingError)) {
			return nil, moved // which caused the error
		}
		for _, name := range read {
			if path := filepath.Join(v.spec.Dir, name); v.statNow(name).Mode&unix.S_IFMT == unix.S_IFREG && errors.Is(unix.Access(path, unix.R_OK), unix.EACCES) {
				return nil, &UnreadableError{Path: path}
			}
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
	return changes, nil
}

// checkSparseFiles refuses huge sparse files: git would read all of their holes.
func (v *worktreeScan) checkSparseFiles(names []string) error {
	for _, name := range names {
		fi, err := os.Lstat(filepath.Join(v.spec.Dir, name))
		if err == nil && fi.Mode().IsRegular() && git.IsSparseFile(fi) {
			return &git.SparseFileError{Path: filepath.Join(v.spec.Dir, name), Size: fi.Size()}
		}
	}
	return nil
}

// hashFiles has git read files, with the user's filters, and write them as blobs. Git gets the present index entries
// of these files, because the conversion of line endings depends on them.
func (v *worktreeScan) hashFiles(ctx context.Context, names []string, seed []int) (map[string]object.LeafChange, error) {
	hashed := map[string]object.LeafChange{}
	if len(names) == 0 {
		return hashed, nil
	}
	p, err := v.scratch()
	if err != nil {
		return nil, err
	}
	idx := filepath.Join(p.GitDir, "read")
	p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+idx)
	p.Stdin = strings.Join(names, "\x00") + "\x00"
	p.NoFsync = len(names) <= git.MaxLooseObjects // StoreTrees syncs a few blobs itself; of more, git syncs all at once
	known := index.File{Format: v.format, Count: len(seed)}
	had := map[string]uint32{}
	for _, i := range seed {
		e := v.entries[i]
		known.Body = index.AppendEntry(known.Body, index.StatWithMode(e.Mode), e.OID, uint16(min(len(e.Name), index.FlagNameLengthMask)), 0, e.Name)
		had[string(e.Name)] = e.Mode
	}
	if v.spec.IndexCache != "" {
		if err := v.loadIndexCache(idx); err != nil {
			return nil, err
		}
	} else if err := os.WriteFile(idx, known.Encode(), 0o600); err != nil {
		return nil, err
	}
	if err := v.repo.CheckCleanFilters(ctx, v.spec, p, names); err != nil {
		return nil, err
	}
	if _, err := v.repo.RunWrite(ctx, p, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(idx)
	if err != nil {
		return nil, err
	}
	x, err := index.Read(data, known.Format)
	if err != nil {
		return nil, err
	}
	for e := range x.AllEntries() {
		if e.Mode == object.ModeGitlink && had[string(e.Name)] != object.ModeGitlink { // a repository has just been created there
			return nil, &StillChangingError{Dir: v.spec.Dir, Paths: []string{string(e.Name)}}
		}
		hashed[string(e.Name)] = object.LeafChange{Mode: e.Mode, OID: slices.Clone(e.OID), Path: string(e.Name)}
		if e.Mode == object.ModeGitlink {
			continue
		}
		if v.spec.IndexCache == "" { // with a cache, the index also lists blobs of earlier scans
			v.writtenBlobs = append(v.writtenBlobs, hex.EncodeToString(e.OID))
		}
		if p.NoFsync {
			v.unsyncedBlobs = append(v.unsyncedBlobs, hex.EncodeToString(e.OID))
		}
	}
	if v.spec.IndexCache != "" {
		err = v.recordIndexCache(x, idx, names)
	}
	return hashed, err
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
