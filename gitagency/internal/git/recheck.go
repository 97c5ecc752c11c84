package git

import (
	"bytes"
	"context"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// recheck looks at a tree a second time, and says which entries are not what they were, and which names without an
// entry are new. A directory that has not changed need not be listed again, where its times would tell.
func (sc *scanner) recheck(ctx context.Context, first *sight) (moved, fresh []string, err error) {
	sc.sight, sc.again = first, true
	lookers, err := sc.send(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lookers {
		moved, fresh = append(moved, l.moved...), append(fresh, l.fresh...)
	}
	slices.Sort(moved)
	slices.Sort(fresh)
	return moved, fresh, nil
}

// revisit looks at a directory again.
func (l *looker) revisit(v *visit) error {
	dir, stamp, err := v.open()
	if err != nil {
		return err
	}
	if dir == nil {
		v.below = nil
		l.moved = append(l.moved, v.path)
		return nil
	}
	defer dir.drop()
	relisted := stamp != v.stamp || v.young
	if relisted {
		if err := l.list(dir.fd, v.path); err != nil {
			return err
		}
		l.newNames(v)
	}
	next := 0 // of the directories below
	for i := v.lo; i < v.hi; {
		if next < len(v.below) && i == v.below[next].lo {
			i = v.below[next].hi
			next++
			continue
		}
		l.reentry(dir.fd, v, i, relisted)
		i++
	}
	dir.lend(v.below)
	return nil
}

// reentry looks at an entry again.
func (l *looker) reentry(fd int, v *visit, i int, relisted bool) {
	e := &l.sight.entries[i]
	rest := e.name[len(v.path):]
	switch l.sight.fates[i] {
	case absent, kept:
		if !relisted {
			return
		}
		first, _, below := bytes.Cut(rest, []byte{'/'})
		switch n := l.named(string(first)); {
		case n == nil && l.sight.fates[i] == kept && !e.skipped: // a submodule that has gone
			l.moved = append(l.moved, string(e.name))
		case n != nil && (!below && (n.kind.IsRegular() || n.kind&fs.ModeSymlink != 0) || below && n.kind.IsDir()):
			l.moved = append(l.moved, string(e.name)) // it was not there, and now it is
		}
	default:
		var st unix.Stat_t
		if err := unix.Fstatat(fd, string(rest), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || stampOf(&st) != l.sight.stamps[i] {
			l.moved = append(l.moved, string(e.name))
		}
	}
}

// newNames gathers the names in a directory that are nobody's and were not there when it was looked at first.
func (l *looker) newNames(v *visit) {
	for _, n := range l.names {
		full := v.path + n.text
		switch {
		case n.kind.IsDir():
			full += "/"
		case !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0:
			continue
		}
		_, before := slices.BinarySearchFunc(l.sight.loose, full, func(f found, full string) int { return strings.Compare(f.name, full) })
		if !before && !l.hasEntry(v, full) {
			l.fresh = append(l.fresh, full)
		}
	}
}

// hasEntry reports whether an entry stands for a name in a directory: its own, one below it, or that of a submodule.
func (l *looker) hasEntry(v *visit, full string) bool {
	entries := l.sight.entries[v.lo:v.hi]
	find := func(name string) (at int, there bool) {
		return slices.BinarySearchFunc(entries, name, func(e stagedEntry, name string) int { return strings.Compare(string(e.name), name) })
	}
	at, there := find(full)
	name, isDir := strings.CutSuffix(full, "/")
	if there || !isDir {
		return there
	}
	if at < len(entries) && bytes.HasPrefix(entries[at].name, []byte(full)) {
		return true
	}
	at, there = find(name)
	return there && entries[at].mode == modeGitlink
}
