package index

import "github.com/git-agency/git-agency/gitagency/internal/git/object"

// WithSubmodulesSkipped returns the index with every submodule marked skip-worktree. Without the mark, git runs a git inside
// the submodule, with the settings there, to find out whether it has changed.
func (x File) WithSubmodulesSkipped() File {
	return x.setSubmodulesSkipped(func(Entry) (skip bool) { return true })
}

// WithSubmodulesUnskippedLike returns the index with the skip-worktree mark removed from the submodules that have none in another
// index.
func (x File) WithSubmodulesUnskippedLike(other File) File {
	unskipped := map[string]bool{}
	for e := range other.AllEntries() {
		if e.Mode == object.ModeGitlink && !e.SkipWorktree {
			unskipped[string(e.Name)] = true
		}
	}
	return x.setSubmodulesSkipped(func(e Entry) (skip bool) { return e.SkipWorktree && !unskipped[string(e.Name)] })
}

// AnySubmoduleSkipped reports whether a submodule is marked skip-worktree.
func (x File) AnySubmoduleSkipped() bool {
	return x.anySubmodule(func(e Entry) bool { return e.SkipWorktree })
}

// AnySubmoduleUnskipped reports whether a submodule is not marked skip-worktree.
func (x File) AnySubmoduleUnskipped() bool {
	return x.anySubmodule(func(e Entry) bool { return !e.SkipWorktree })
}

// anySubmodule reports whether a condition holds for an entry of a submodule.
func (x File) anySubmodule(is func(Entry) bool) bool {
	for e := range x.AllEntries() {
		if e.Mode == object.ModeGitlink && is(e) {
			return true
		}
	}
	return false
}

// setSubmodulesSkipped returns the index with the skip-worktree mark of every submodule as skip says.
func (x File) setSubmodulesSkipped(skip func(Entry) bool) File {
	if !x.anySubmodule(func(e Entry) bool { return skip(e) != e.SkipWorktree }) {
		return x
	}
	size := x.Format.IDSize()
	body := make([]byte, 0, len(x.Body)+8)
	for left := x.Body; len(left) > 0; {
		entry := left
		var e Entry
		e, left = NextEntry(left, size)
		entry = entry[:len(entry)-len(left)]
		if e.Mode != object.ModeGitlink || e.SkipWorktree == skip(e) {
			body = append(body, entry...)
			continue
		}
		body = AppendEntry(body, e.Stat, e.OID, e.flags, e.extendedFlags^extendedSkipWorktree, e.Name)
	}
	return File{Format: x.Format, Extended: true, Count: x.Count, Body: body}
}
