package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"golang.org/x/sys/unix"
)

// StillChangingError reports a worktree in which files keep changing, so that no scan shows one state of it.
type StillChangingError struct {
	Dir   string
	Paths []string

	ChangingDirs []string // directories in which unknown names came and went
}

func (e *StillChangingError) Error() string {
	const most = 5
	names := strings.Join(e.Paths[:min(len(e.Paths), most)], ", ")
	if len(e.Paths) > most {
		names += fmt.Sprintf(" and %d more", len(e.Paths)-most)
	}
	return fmt.Sprintf("%s keeps changing: %s", e.Dir, names)
}

// CheckStable verifies that the collected contents are one state of the worktree: nil, or a *StillChangingError.
func (g WorktreeContents) CheckStable(ctx context.Context) error {
	if g.scan == nil {
		return nil
	}
	return g.scan.checkStable(ctx)
}

// waitForClock waits until every file that git is about to read is older than a tick of the file timestamp clock: if
// such a file changed again within the same tick, its stat data would not show it.
func (v *worktreeScan) waitForClock(ctx context.Context, seed []int) error {
	const tick = 10 * time.Millisecond
	newest := int64(0)
	for _, i := range seed {
		newest = max(newest, v.result.stats[i].Ctime)
	}
	for _, f := range v.untrackedFiles {
		newest = max(newest, f.stat.Ctime)
	}
	wait := time.Until(time.Unix(0, newest).Add(tick))
	if v.result.consistent || wait <= 0 || wait > tick { // longer than a tick: the clock is wrong, and proves nothing
		return nil
	}
	return v.sleep(ctx, wait)
}

func (v *worktreeScan) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkStable verifies that the files read are one state of the whole worktree: nil, or a *StillChangingError. By
// ctime it is the state at the moment when the scan began, if nothing has touched the files read since then.
// Otherwise everything is scanned a second time: if nothing differs, the worktree was in that state at the moment
// when the last file had been read.
func (v *worktreeScan) checkStable(ctx context.Context) error {
	if v.result.consistent && v.isUntouched() {
		return nil
	}
	recheck := v.recheckOverlay
	if v.spec.Overlay == nil {
		recheck = func(ctx context.Context) (moved, unsure []string, err error) {
			return v.newScanner().recheck(ctx, v.result)
		}
	}
	moved, unsure, err := recheck(ctx)
	if err != nil {
		return err
	}
	for _, f := range v.untrackedFiles {
		if v.statNow(f.name) != f.stat {
			moved = append(moved, f.name)
		}
	}
	for dir, was := range v.untrackedDirStats {
		if v.statNow(dir) != was {
			unsure = append(unsure, dir)
		}
	}
	if len(moved) == 0 && len(unsure) == 0 {
		return nil
	}
	err = &StillChangingError{Dir: v.spec.Dir, Paths: slices.Concat(moved, unsure), ChangingDirs: unsure}
	if len(moved) > 0 || !v.watch.covers(unsure) {
		return err
	}
	// The names that came and went there may all be ignored ones.
	names, ok := v.watch.changedNames()
	if !ok {
		return err
	}
	if moved, err = v.relevantPaths(names); err != nil || len(moved) == 0 {
		return err
	}
	return &StillChangingError{Dir: v.spec.Dir, Paths: moved, ChangingDirs: unsure}
}

// relevantPaths returns those of some names that belong to a state: index entries, their parent directories, and
// paths that are not ignored.
func (v *worktreeScan) relevantPaths(names []string) (part []string, err error) {
	var asked []string
	for _, name := range names {
		at, tracked := slices.BinarySearchFunc(v.entries, name, func(e index.Entry, name string) int { return strings.Compare(string(e.Name), name) })
		if !tracked && at < len(v.entries) {
			tracked = strings.HasPrefix(string(v.entries[at].Name), strings.TrimSuffix(name, "/")+"/")
		}
		top, _, _ := strings.Cut(name, "/")
		switch {
		case tracked:
			part = append(part, name)
		case !v.newScanner().skipsTopLevel(top):
			asked = append(asked, name)
		}
	}
	for _, name := range asked {
		clean, isDir := strings.CutSuffix(name, "/")
		ignored, err := v.isIgnored(clean, isDir)
		if err != nil {
			return nil, err
		}
		if !ignored {
			part = append(part, name)
		}
	}
	return part, nil
}

// statNow returns the present stat data of a path; zero when it is gone.
func (v *worktreeScan) statNow(name string) git.FileStat { return statIn(v.tree, name) }

// statIn is statNow for a path below an open directory.
func statIn(tree *beneath.Dir, name string) git.FileStat {
	var st unix.Stat_t
	if tree.Lstat(name, &st) != nil {
		return git.FileStat{}
	}
	return git.FileStatOf(&st)
}

// isUntouched reports whether the files read, and the untracked directories, have not changed since the scan began.
func (v *worktreeScan) isUntouched() bool {
	still := func(name string, was git.FileStat) bool { return was.Ctime < v.startedAt && v.statNow(name) == was }
	for i, f := range v.result.statuses {
		if f == entryModified && !still(string(v.entries[i].Name), v.result.stats[i]) {
			return false
		}
	}
	for _, f := range v.untrackedFiles {
		if !still(f.name, f.stat) {
			return false
		}
	}
	for dir, was := range v.untrackedDirStats {
		if !still(dir, was) {
			return false
		}
	}
	return true
}
