package index

import (
	"bytes"
	"slices"
)

// WithStatFrom returns the index with the stat data and the marks of a trusted index of the same worktree. Any process
// may have written the stat data of x, and could make git take a changed file for unchanged. So an entry keeps them only
// if the trusted index has the same entry; otherwise git has to read the file. The marks assume-unchanged and
// skip-worktree, by which git does not look at a file either, are kept where the trusted index has them, and skip-worktree
// also where keepSkip says so: it is legitimate for a file that is not on disk. It changes x.Body and may return it, since a
// copy of a large index takes longer than all comparisons.
func (x File) WithStatFrom(trusted File, keepSkip func(name string) bool) File {
	size := x.Format.IDSize()
	if trusted.Format != x.Format {
		trusted = File{Format: x.Format}
	}
	y := File{Format: x.Format, Count: x.Count}
	copied := 0 // bytes of x.Body that are in y.Body, or replaced there
	left, was := trusted.Body, Entry{}
	for now := x.Body; len(now) > 0; {
		at := now
		var e Entry
		e, now = NextEntry(now, size)
		flags, extra, stat := e.flags, e.extendedFlags, e.Stat
		if n := len(at) - len(now); len(left) >= n && bytes.Equal(at[:n], left[:n]) {
			left = left[n:]
			y.Extended = y.Extended || extra != 0
			continue
		}
		for len(left) > 0 && entryBefore(was, e) {
			was, left = NextEntry(left, size)
		}
		var known Entry
		if bytes.Equal(was.Name, e.Name) && was.Stage == e.Stage {
			known = was
		}
		sameFile := bytes.Equal(known.OID, e.OID) && bytes.Equal(known.Stat, stat)
		if !sameFile {
			stat = StatWithMode(e.Mode)
		}
		flags &^= flagAssumeUnchanged &^ known.flags
		if e.SkipWorktree && !known.SkipWorktree && !keepSkip(string(e.Name)) {
			extra &^= extendedSkipWorktree
		}
		y.Extended = y.Extended || extra != 0
		if sameFile && flags == e.flags && extra == e.extendedFlags {
			continue
		}
		if (extra == 0) == (e.extendedFlags == 0) { // of the same length
			AppendEntry(x.Body[:len(x.Body)-len(at)], stat, slices.Clone(e.OID), flags, extra, slices.Clone(e.Name))
			x.sum = nil // it was that of the file
			continue
		}
		if y.Body == nil {
			y.Body = make([]byte, 0, len(x.Body))
		}
		y.Body = append(y.Body, x.Body[copied:len(x.Body)-len(at)]...)
		y.Body = AppendEntry(y.Body, stat, e.OID, flags, extra, e.Name)
		copied = len(x.Body) - len(now)
	}
	if copied == 0 {
		x.Extended = y.Extended
		return x
	}
	y.Body = append(y.Body, x.Body[copied:]...)
	return y
}
