package git

import (
	"errors"
	"os"
	"path/filepath"
)

// WithSubmodulesSkipped returns the index with every submodule marked skip-worktree. Without the mark, git runs a git inside
// the submodule, with the settings there, to find out whether it has changed.
func (x Index) WithSubmodulesSkipped() Index {
	return x.setSubmodulesSkipped(func(indexEntry) (skip bool) { return true })
}

// WithSubmodulesLike returns the index with the skip-worktree mark removed from the submodules that have none in another
// index.
func (x Index) WithSubmodulesLike(other Index) Index {
	unskipped := map[string]bool{}
	for e := range other.allEntries() {
		if e.mode == modeGitlink && !e.skipWorktree {
			unskipped[string(e.name)] = true
		}
	}
	return x.setSubmodulesSkipped(func(e indexEntry) (skip bool) { return e.skipWorktree && !unskipped[string(e.name)] })
}

// AnySubmoduleSkipped reports whether a submodule is marked skip-worktree.
func (x Index) AnySubmoduleSkipped() bool {
	return x.anySubmodule(func(e indexEntry) bool { return e.skipWorktree })
}

// AnySubmoduleUnskipped reports whether a submodule is not marked skip-worktree.
func (x Index) AnySubmoduleUnskipped() bool {
	return x.anySubmodule(func(e indexEntry) bool { return !e.skipWorktree })
}

// anySubmodule reports whether a condition holds for an entry of a submodule.
func (x Index) anySubmodule(is func(indexEntry) bool) bool {
	for e := range x.allEntries() {
		if e.mode == modeGitlink && is(e) {
			return true
		}
	}
	return false
}

// setSubmodulesSkipped returns the index with the skip-worktree mark of every submodule as skip says.
func (x Index) setSubmodulesSkipped(skip func(indexEntry) bool) Index {
	if !x.anySubmodule(func(e indexEntry) bool { return skip(e) != e.skipWorktree }) {
		return x
	}
	size := x.format.idSize()
	body := make([]byte, 0, len(x.body)+8)
	for left := x.body; len(left) > 0; {
		entry := left
		var e indexEntry
		e, left = nextIndexEntry(left, size)
		entry = entry[:len(entry)-len(left)]
		if e.mode != modeGitlink || e.skipWorktree == skip(e) {
			body = append(body, entry...)
			continue
		}
		body = appendEntry(body, e.stat, e.oid, e.flags, e.extendedFlags^extendedSkipWorktree, e.name)
	}
	return Index{format: x.format, extended: true, count: x.count, body: body}
}

// SkipSubmodulesInIndex marks every submodule skip-worktree in the index of a linked worktree, and returns the index before.
// The error is a *LockedError when a git has locked the index.
func (r *Repo) SkipSubmodulesInIndex(name string, format ObjectFormat) (was Index, err error) {
	d, err := r.NewIndexDraft(name)
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
		err = d.Write(was.WithSubmodulesSkipped(), fi.ModTime())
	}
	if err == nil {
		err = d.Publish()
	}
	return was, err
}
