package git

import "encoding/binary"

// Closed is the same index, in which every repository inside of the worktree is marked as not to be looked
// into. To say whether one has changed, git runs a git in it, with what is configured there.
func (x Index) Closed() Index {
	size := x.format.size()
	open := false
	for e := range x.all() {
		open = open || e.mode == modeGitlink && !e.skipped
	}
	if !open {
		return x
	}
	body := make([]byte, 0, len(x.body)+8)
	for left := x.body; len(left) > 0; {
		entry := left
		var e stagedEntry
		e, left = nextStaged(left, size)
		entry = entry[:len(entry)-len(left)]
		if e.mode != modeGitlink || e.skipped {
			body = append(body, entry...)
			continue
		}
		flags, extra := binary.BigEndian.Uint16(entry[indexStat+size:]), uint16(extraSkip)
		if flags&flagExtend != 0 {
			extra |= binary.BigEndian.Uint16(entry[indexStat+size+2:])
		}
		body = appendEntry(body, entry[:indexStat], e.oid, flags, extra, e.name)
	}
	return Index{format: x.format, extended: true, count: x.count, body: body}
}
