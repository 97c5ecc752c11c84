package git

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
)

// Closed is the same index, in which every repository inside of the worktree is marked as not to be looked
// into. To say whether one has changed, git runs a git in it, with what is configured there.
func (x Index) Closed() Index {
	return x.nested(func(stagedEntry) (closed bool) { return true })
}

// OpenedLike is the same index, in which every repository inside of the worktree can be looked into that
// can in another one.
func (x Index) OpenedLike(other Index) Index {
	open := map[string]bool{}
	for e := range other.all() {
		if e.mode == modeGitlink && !e.skipped {
			open[string(e.name)] = true
		}
	}
	return x.nested(func(e stagedEntry) (closed bool) { return e.skipped && !open[string(e.name)] })
}

// AnyClosed reports whether a repository inside of the worktree is marked as not to be looked into.
func (x Index) AnyClosed() bool { return x.anyNested(func(e stagedEntry) bool { return e.skipped }) }

// AnyOpen reports whether a repository inside of the worktree is not.
func (x Index) AnyOpen() bool { return x.anyNested(func(e stagedEntry) bool { return !e.skipped }) }

func (x Index) anyNested(is func(stagedEntry) bool) bool {
	for e := range x.all() {
		if e.mode == modeGitlink && is(e) {
			return true
		}
	}
	return false
}

// nested marks every repository inside of the worktree, or takes the mark away.
func (x Index) nested(closed func(stagedEntry) bool) Index {
	if !x.anyNested(func(e stagedEntry) bool { return closed(e) != e.skipped }) {
		return x
	}
	size := x.format.size()
	body := make([]byte, 0, len(x.body)+8)
	for left := x.body; len(left) > 0; {
		entry := left
		var e stagedEntry
		e, left = nextStaged(left, size)
		entry = entry[:len(entry)-len(left)]
		if e.mode != modeGitlink || e.skipped == closed(e) {
			body = append(body, entry...)
			continue
		}
		flags, extra := binary.BigEndian.Uint16(entry[indexStat+size:]), uint16(0)
		if flags&flagExtend != 0 {
			extra = binary.BigEndian.Uint16(entry[indexStat+size+2:])
		}
		body = appendEntry(body, entry[:indexStat], e.oid, flags, extra^extraSkip, e.name)
	}
	return Index{format: x.format, extended: true, count: x.count, body: body}
}

// CloseIndex closes the index of a linked worktree, and returns what it was before. The error is a
// *LockedError when a git is at work there.
func (r *Repo) CloseIndex(name string, format ObjectFormat) (was Index, err error) {
	d, err := r.DraftIndex(name)
	if err != nil {
		return was, err
	}
	defer func() { err = errors.Join(err, d.Drop()) }()
	if err := d.Lock(); err != nil {
		return was, err
	}
	path := filepath.Join(r.AdminDir(name), "index")
	fi, err := os.Lstat(path)
	if err != nil {
		return was, err
	}
	data, err := os.ReadFile(path)
	if err == nil {
		was, err = ReadIndex(data, format)
	}
	if err == nil {
		err = d.Write(was.Closed(), fi.ModTime())
	}
	if err == nil {
		err = d.Publish()
	}
	return was, err
}
