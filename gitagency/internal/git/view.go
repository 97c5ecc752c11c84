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

// view is a tree that is looked at once, and once more.
type view struct {
	r       *Repo
	s       Subject
	bench   func() (place, error) // where git works, if it has to
	format  ObjectFormat
	young   time.Time
	began   int64
	entries []stagedEntry

	first   *sight
	leftOut []LeftOut
	dirs    []string         // directories without an entry that are not ignored
	around  map[string]stamp // these, and all directories in them, before they were listed
	stray   []found          // files without an entry that belong to the state
	hashed  []string         // objects that git has written
	written []string         // those of them that are not sure to last yet
	listed  []string         // what git found in dirs
	passed  []string         // directories without an entry that are ignored
	known   memory           // of a directory that is no worktree

	watch *watch // of directories in which things come and go; nil when there are none

	noticed func()                    // something has no entry: what is ignored will be asked
	told    func() *proc.Conversation // a git that says what is ignored; nil when none is waiting
}

func (v *view) scanner() *scanner {
	return &scanner{
		omit: v.s.Omit, modes: v.r.boolean("core.filemode", true), symlinks: v.r.boolean("core.symlinks", true),
		empty: nameObject(v.format, "blob", nil), young: v.young, began: v.began, noticed: v.noticed,
	}
}

// changes is what distinguishes the tree from the index.
func (v *view) changes(ctx context.Context) ([]leaf, error) {
	asking := v.prepareToAsk(ctx)
	defer asking()
	v.watch = watchDirs(v.s.Tree, v.s.unsure)
	var err error
	if v.first, err = v.scanner().scan(ctx, v.s.Tree, v.entries); err != nil {
		return nil, err
	}
	if !v.first.whole && v.began != 0 && v.s.asIs {
		// Something has changed just now. When the clock has moved on, one look may be enough.
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
			return nil, moved // which is why
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
					return nil, moved // it has come back
				}
				return nil, &UntakenError{Path: filepath.Join(v.s.Tree, name)}
			}
			l = leaf{path: name} // gone meanwhile, which the second look sees too
		}
		changes = append(changes, l)
	}
	return changes, nil
}

// hollow refuses files that git would read for ever.
func (v *view) hollow(names []string) error {
	for _, name := range names {
		fi, err := os.Lstat(filepath.Join(v.s.Tree, name))
		if err == nil && fi.Mode().IsRegular() && isHollow(fi) {
			return &HollowError{Path: filepath.Join(v.s.Tree, name), Size: fi.Size()}
		}
	}
	return nil
}

// hash has git read files, with the filters that the user has, and write them. What the index had of them is
// given along: it counts for how line endings are converted.
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
	p.lightly = len(names) <= few // of more, git makes sure of all at once
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
		if e.mode == modeGitlink && had[string(e.name)] != modeGitlink { // somebody has just put a repository there
			return nil, &UnsettledError{Tree: v.s.Tree, Paths: []string{string(e.name)}}
		}
		hashed[string(e.name)] = leaf{mode: e.mode, oid: slices.Clone(e.oid), path: string(e.name)}
		if e.mode == modeGitlink {
			continue
		}
		if v.s.Memory == "" { // else they are those of all that is remembered
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

// unread is what an index says of a file that git has not looked at yet.
func unread(mode uint32) []byte {
	stat := make([]byte, indexStat)
	stat[indexMode], stat[indexMode+1], stat[indexMode+2], stat[indexMode+3] = byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode)
	return stat
}

// UnreadableError is a file that nobody may read, its owner included.
type UnreadableError struct{ Path string }

func (e *UnreadableError) Error() string { return e.Path + " cannot be read" }

func (e *UnreadableError) Unwrap() error { return fs.ErrPermission }

// UntakenError is a file that git does not take, for what it is called: it passes over it without an error.
type UntakenError struct{ Path string }

func (e *UntakenError) Error() string {
	return fmt.Sprintf("git takes no file like %s; remove it, or call it something else", e.Path)
}
