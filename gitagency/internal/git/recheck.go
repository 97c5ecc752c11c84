package git

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sys/unix"
)

// recheck scans a worktree a second time. It returns the entries whose stat data differ from the first scan, and the
// directories in which names came or went. When there are none, every file and every directory was unchanged between
// the two scans, and so all of them existed in that state at once.
func (sc *scanner) recheck(ctx context.Context, first *sight) (moved, unsure []string, err error) {
	sc.sight, sc.again = first, true
	lookers, err := sc.send(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lookers {
		moved, unsure = append(moved, l.moved...), append(unsure, l.unsure...)
	}
	slices.Sort(moved)
	slices.Sort(unsure)
	return moved, unsure, nil
}

// recheckDirectory compares a directory and its entries with the first scan.
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
	if stamp != v.stamp || v.young && canWatch {
		l.unsure = append(l.unsure, cmp.Or(v.path, "."))
	}
	next := 0 // index into the child directories
	for i := v.lo; i < v.hi; {
		if next < len(v.below) && i == v.below[next].lo {
			i = v.below[next].hi
			next++
			continue
		}
		if f := l.sight.fates[i]; f == same || f == changed {
			e := &l.sight.entries[i]
			var st unix.Stat_t
			if err := unix.Fstatat(dir.fd, string(e.name[len(v.path):]), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || stampOf(&st) != l.sight.stamps[i] {
				l.moved = append(l.moved, string(e.name))
			}
		}
		i++
	}
	dir.lend(v.below)
	return nil
}
