package status

import (
	"cmp"
	"context"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"golang.org/x/sys/unix"
)

// recheck scans a worktree a second time. It returns the entries whose stat data differ from the first scan, and the
// directories in which names came or went. When there are none, every file and every directory was unchanged between
// the two scans, and so all of them existed in that state at once.
func (sc *Scanner) recheck(ctx context.Context, first *scanResult) (moved, unsure []string, err error) {
	sc.result, sc.isRecheck = first, true
	lookers, err := sc.runWorkers(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lookers {
		moved, unsure = append(moved, l.changedEntries...), append(unsure, l.changedDirs...)
	}
	slices.Sort(moved)
	slices.Sort(unsure)
	return moved, unsure, nil
}

// recheckDirectory compares a directory and its entries with the first scan.
func (l *scanWorker) recheckDirectory(v *scannedDir) error {
	dir, stamp, err := v.open()
	if err != nil {
		return err
	}
	if dir == nil {
		v.children = nil
		l.changedEntries = append(l.changedEntries, v.path)
		return nil
	}
	defer dir.release()
	if stamp != v.stat || v.isRacy && hasInotify {
		l.changedDirs = append(l.changedDirs, cmp.Or(v.path, "."))
	}
	next := 0 // index into the child directories
	for i := v.lo; i < v.hi; {
		if next < len(v.children) && i == v.children[next].lo {
			i = v.children[next].hi
			next++
			continue
		}
		if f := l.result.statuses[i]; f == entryUnchanged || f == entryModified {
			e := &l.result.entries[i]
			var st unix.Stat_t
			if err := unix.Fstatat(dir.fd, string(e.Name[len(v.path):]), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || git.FileStatOf(&st) != l.result.stats[i] {
				l.changedEntries = append(l.changedEntries, string(e.Name))
			}
		}
		i++
	}
	dir.retainFor(v.children)
	return nil
}
