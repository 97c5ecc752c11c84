package git

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sys/unix"
)

// recheck looks at a tree a second time, and says which entries are not what they were, and which directories have had
// names come or go. When there are none, then every file and every list of names was the same all the time between the
// two looks, and so all of them were there at once.
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
	if stamp != v.stamp || v.young && canWatch {
		l.unsure = append(l.unsure, cmp.Or(v.path, "."))
	}
	next := 0 // of the directories below
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
