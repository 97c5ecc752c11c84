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
type view struct {
	r       *Repo
	s       Subject
	bench   func() (place, error) // returns the scratch git directory, which it creates on first use
	format  ObjectFormat
	young   time.Time
	began   int64
	entries []stagedEntry

	first   *sight
	leftOut []LeftOut
	dirs    []string         // directories without an index entry that are not ignored
	around  map[string]stamp // stat data of these and all directories below them, from before they were listed
	stray   []found          // files without an index entry that belong to the state
	hashed  []string         // blobs that git has written
	written []string         // those of them that are not synced to disk yet
	listed  []string         // paths that git listed in untrackedDirs
	passed  []string         // directories without an index entry that are ignored
	known   memory           // of a directory that is no worktree: see indexCache

	watch *watch // inotify watch on directories in which names come and go; nil when there are none

	noticed func()                    // called for paths without an index entry: starts "git check-ignore"
	told    func() *proc.Conversation // returns the running "git check-ignore"; nil when there is none
}

func (v *view) scanner() *scanner {
	return &scanner{
		omit: v.s.Omit, modes: v.r.boolean("core.filemode", true), symlinks: v.r.boolean("core.symlinks", true),
		empty: nameObject(v.format, "blob", nil), young: v.young, began: v.began, noticed: v.noticed,
	}
}

// worktreeChanges lists the differences between the files on disk and the index.
func (v *view) changes(ctx context.Context) ([]leaf, error) {
	asking := v.prepareToAsk(ctx)
	defer asking()
	v.watch = watchDirs(v.s.Tree, v.s.unsure)
	var err error
	if v.first, err = v.scanner().scan(ctx, v.s.Tree, v.entries); err != nil {
		return nil, err
	}
	if !v.first.whole && v.began != 0 && v.s.asIs {
		// Something changed in the current clock tick. After the next tick, a single scan may be enough.
		if err := v.pause(ctx, v.scanner().tick()); err != nil {
			return nil, err
		}
		v.began = stampClock(v.s.Tree)
		if v.first, err = v.scanner().scan(ctx, v.s.Tree, v.entries); err != nil {
			return nil, err
		}
	}
	for _, name := range v.first.opened {
		v.leftOut = append(v.leftOut, LeftOut{name, Submodule})
	}
	if err := v.strays(ctx); err != nil {
		return nil, err
	}
	read, seed := []string{}, []int{}
	var changes []leaf
	for i, f := range v.first.fates {
		switch {
		case f == changed:
			read, seed = append(read, string(v.entries[i].name)), append(seed, i)
		case f == absent && v.s.Onto == "":
			changes = append(changes, leaf{path: string(v.entries[i].name)})
		}
	}
	for _, f := range v.stray {
		read = append(read, f.name)
	}
	if err := v.hollow(read); err != nil {
		return nil, err
	}
	if err := v.rest(ctx, seed); err != nil {
		return nil, err
	}
	hashed, err := v.hash(ctx, read, seed)
	if err != nil {
		if moved := v.again(ctx); errors.As(moved, new(*UnsettledError)) {
			return nil, moved // which caused the error
		}
		for _, name := range read {
			if path := filepath.Join(v.s.Tree, name); v.stampNow(name).mode&unix.S_IFMT == unix.S_IFREG && errors.Is(unix.Access(path, unix.R_OK), unix.EACCES) {
				return nil, &UnreadableError{Path: path}
			}
		}
		return nil, err
	}
	for _, name := range read {
		l, there := hashed[name]
		if !there {
			if v.stampNow(name) != (stamp{}) {
				if moved := v.again(ctx); errors.As(moved, new(*UnsettledError)) {
					return nil, moved // the file has come back
				}
				return nil, &UntakenError{Path: filepath.Join(v.s.Tree, name)}
			}
			l = leaf{path: name} // gone meanwhile, which checkStable finds too
		}
		changes = append(changes, l)
	}
	return changes, nil
}

// checkSparseFiles refuses huge sparse files: git would read all of their holes.
func (v *view) hollow(names []string) error {
	for _, name := range names {
		fi, err := os.Lstat(filepath.Join(v.s.Tree, name))
		if err == nil && fi.Mode().IsRegular() && isHollow(fi) {
			return &HollowError{Path: filepath.Join(v.s.Tree, name), Size: fi.Size()}
		}
	}
	return nil
}

// hashFiles has git read files, with the user's filters, and write them as blobs. Git gets the present index entries
// of these files, because the conversion of line endings depends on them.
func (v *view) hash(ctx context.Context, names []string, seed []int) (map[string]leaf, error) {
	hashed := map[string]leaf{}
	if len(names) == 0 {
		return hashed, nil
	}
	p, err := v.bench()
	if err != nil {
		return nil, err
	}
	index := filepath.Join(p.gitDir, "read")
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+index)
	p.stdin = strings.Join(names, "\x00") + "\x00"
	p.lightly = len(names) <= few // storeTrees syncs a few blobs itself; of more, git syncs all at once
	known := Index{format: v.format, count: len(seed)}
	had := map[string]uint32{}
	for _, i := range seed {
		e := v.entries[i]
		known.body = appendEntry(known.body, unread(e.mode), e.oid, uint16(min(len(e.name), flagLength)), 0, e.name)
		had[string(e.name)] = e.mode
	}
	if v.s.Memory != "" {
		if err := v.recall(index); err != nil {
			return nil, err
		}
	} else if err := os.WriteFile(index, known.Encode(), 0o600); err != nil {
		return nil, err
	}
	if err := v.r.mayRead(ctx, v.s, p, names); err != nil {
		return nil, err
	}
	if _, err := v.r.change(ctx, p, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
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
	for e := range x.all() {
		if e.mode == modeGitlink && had[string(e.name)] != modeGitlink { // a repository has just been created there
			return nil, &UnsettledError{Tree: v.s.Tree, Paths: []string{string(e.name)}}
		}
		hashed[string(e.name)] = leaf{mode: e.mode, oid: slices.Clone(e.oid), path: string(e.name)}
		if e.mode == modeGitlink {
			continue
		}
		if v.s.Memory == "" { // with a cache, the index also lists blobs of earlier scans
			v.hashed = append(v.hashed, hex.EncodeToString(e.oid))
		}
		if p.lightly {
			v.written = append(v.written, hex.EncodeToString(e.oid))
		}
	}
	if v.s.Memory != "" {
		err = v.note(x, index, names)
	}
	return hashed, err
}

// statWithMode returns the stat data of an index entry whose file git has not looked at yet: only the mode is set.
func unread(mode uint32) []byte {
	stat := make([]byte, indexStat)
	stat[indexMode], stat[indexMode+1], stat[indexMode+2], stat[indexMode+3] = byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode)
	return stat
}

// UnreadableError reports a file that not even its owner has permission to read.
type UnreadableError struct{ Path string }

func (e *UnreadableError) Error() string { return e.Path + " cannot be read" }

func (e *UnreadableError) Unwrap() error { return fs.ErrPermission }

// RejectedNameError reports a file that git does not add because of its name. Git skips such a file without an error.
type UntakenError struct{ Path string }

func (e *UntakenError) Error() string {
	return fmt.Sprintf("git takes no file like %s; remove it, or call it something else", e.Path)
}
