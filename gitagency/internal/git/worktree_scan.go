package git

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

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// worktreeScan is one scan of a worktree, plus the re-check that proves it to be one state.
type worktreeScan struct {
	repo       *Repo
	spec       WorktreeSpec
	scratch    func() (runOptions, error) // returns the scratch git directory, which it creates on first use
	format     ObjectFormat
	indexMtime time.Time
	startedAt  int64
	entries    []indexEntry

	result            *scanResult
	leftOut           []LeftOut
	untrackedDirs     []string            // directories without an index entry that are not ignored
	untrackedDirStats map[string]fileStat // stat data of these and all directories below them, from before they were listed
	untrackedFiles    []pathStat          // files without an index entry that belong to the state
	writtenBlobs      []string            // blobs that git has written
	unsyncedBlobs     []string            // those of them that are not synced to disk yet
	listedPaths       []string            // paths that git listed in untrackedDirs
	ignoredDirs       []string            // directories without an index entry that are ignored
	cache             indexCache          // of a directory that is no worktree: see indexCache

	watch *dirWatch // inotify watch on directories in which names come and go; nil when there are none

	onUntracked   func()                 // called for paths without an index entry: starts "git check-ignore"
	ignoreProcess func() *proc.Coprocess // returns the running "git check-ignore"; nil when there is none
}

func (v *worktreeScan) newScanner() *scanner {
	return &scanner{
		omit: v.spec.Omit, trustFileMode: v.repo.configBool("core.filemode", true), hasSymlinks: v.repo.configBool("core.symlinks", true),
		emptyBlob: hashObject(v.format, "blob", nil), indexMtime: v.indexMtime, startedAt: v.startedAt, onUntracked: v.onUntracked,
	}
}

// worktreeChanges lists the differences between the files on disk and the index.
func (v *worktreeScan) worktreeChanges(ctx context.Context) ([]leafChange, error) {
	asking := v.startCheckIgnore(ctx)
	defer asking()
	v.watch = watchDirs(v.spec.Dir, v.spec.changingDirs)
	var err error
	if v.result, err = v.newScanner().scan(ctx, v.spec.Dir, v.entries); err != nil {
		return nil, err
	}
	if !v.result.consistent && v.startedAt != 0 && v.spec.inUse {
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
	var changes []leafChange
	for i, f := range v.result.statuses {
		switch {
		case f == entryModified:
			read, seed = append(read, string(v.entries[i].name)), append(seed, i)
		case f == entryMissing && v.spec.Onto == "":
			changes = append(changes, leafChange{path: string(v.entries[i].name)})
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
			if path := filepath.Join(v.spec.Dir, name); v.statNow(name).mode&unix.S_IFMT == unix.S_IFREG && errors.Is(unix.Access(path, unix.R_OK), unix.EACCES) {
				return nil, &UnreadableError{Path: path}
			}
		}
		return nil, err
	}
	for _, name := range read {
		l, there := hashed[name]
		if !there {
			if v.statNow(name) != (fileStat{}) {
				if moved := v.checkStable(ctx); errors.As(moved, new(*StillChangingError)) {
					return nil, moved // the file has come back
				}
				return nil, &RejectedNameError{Path: filepath.Join(v.spec.Dir, name)}
			}
			l = leafChange{path: name} // gone meanwhile, which checkStable finds too
		}
		changes = append(changes, l)
	}
	return changes, nil
}

// checkSparseFiles refuses huge sparse files: git would read all of their holes.
func (v *worktreeScan) checkSparseFiles(names []string) error {
	for _, name := range names {
		fi, err := os.Lstat(filepath.Join(v.spec.Dir, name))
		if err == nil && fi.Mode().IsRegular() && isSparseFile(fi) {
			return &SparseFileError{Path: filepath.Join(v.spec.Dir, name), Size: fi.Size()}
		}
	}
	return nil
}

// hashFiles has git read files, with the user's filters, and write them as blobs. Git gets the present index entries
// of these files, because the conversion of line endings depends on them.
func (v *worktreeScan) hashFiles(ctx context.Context, names []string, seed []int) (map[string]leafChange, error) {
	hashed := map[string]leafChange{}
	if len(names) == 0 {
		return hashed, nil
	}
	p, err := v.scratch()
	if err != nil {
		return nil, err
	}
	index := filepath.Join(p.gitDir, "read")
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+index)
	p.stdin = strings.Join(names, "\x00") + "\x00"
	p.noFsync = len(names) <= maxLooseObjects // storeTrees syncs a few blobs itself; of more, git syncs all at once
	known := Index{format: v.format, count: len(seed)}
	had := map[string]uint32{}
	for _, i := range seed {
		e := v.entries[i]
		known.body = appendEntry(known.body, statWithMode(e.mode), e.oid, uint16(min(len(e.name), flagNameLengthMask)), 0, e.name)
		had[string(e.name)] = e.mode
	}
	if v.spec.IndexCache != "" {
		if err := v.loadIndexCache(index); err != nil {
			return nil, err
		}
	} else if err := os.WriteFile(index, known.Encode(), 0o600); err != nil {
		return nil, err
	}
	if err := v.repo.checkCleanFilters(ctx, v.spec, p, names); err != nil {
		return nil, err
	}
	if _, err := v.repo.runWrite(ctx, p, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	x, err := ReadIndex(data, known.format)
	if err != nil {
		return nil, err
	}
	for e := range x.allEntries() {
		if e.mode == modeGitlink && had[string(e.name)] != modeGitlink { // a repository has just been created there
			return nil, &StillChangingError{Dir: v.spec.Dir, Paths: []string{string(e.name)}}
		}
		hashed[string(e.name)] = leafChange{mode: e.mode, oid: slices.Clone(e.oid), path: string(e.name)}
		if e.mode == modeGitlink {
			continue
		}
		if v.spec.IndexCache == "" { // with a cache, the index also lists blobs of earlier scans
			v.writtenBlobs = append(v.writtenBlobs, hex.EncodeToString(e.oid))
		}
		if p.noFsync {
			v.unsyncedBlobs = append(v.unsyncedBlobs, hex.EncodeToString(e.oid))
		}
	}
	if v.spec.IndexCache != "" {
		err = v.recordIndexCache(x, index, names)
	}
	return hashed, err
}

// statWithMode returns the stat data of an index entry whose file git has not looked at yet: only the mode is set.
func statWithMode(mode uint32) []byte {
	stat := make([]byte, statSize)
	stat[modeOffset], stat[modeOffset+1], stat[modeOffset+2], stat[modeOffset+3] = byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode)
	return stat
}

// UnreadableError reports a file that not even its owner has permission to read.
type UnreadableError struct{ Path string }

func (e *UnreadableError) Error() string { return e.Path + " cannot be read" }

func (e *UnreadableError) Unwrap() error { return fs.ErrPermission }

// RejectedNameError reports a file that git does not add because of its name. Git skips such a file without an error.
type RejectedNameError struct{ Path string }

func (e *RejectedNameError) Error() string {
	return fmt.Sprintf("git takes no file like %s; remove it, or call it something else", e.Path)
}
