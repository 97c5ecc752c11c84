package status

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// overlayScan scans a worktree that consists of the layers of an overlay. It lists only the upper directory. The files that
// the lower directories show never change, and are known from an index of ours: an entry that equals that of this index, and
// that nothing in the upper directory hides, is unchanged. So a scan takes time in proportion to the changes; all
// other files are compared in memory.
//
// Like a Scanner it descends only into directories with index entries, and follows no symlink.
type overlayScan struct {
	*scanWorker
	tree  *beneath.Dir  // all layers
	upper *beneath.Dir  // the upper directory
	lower []index.Entry // files that the lower directories show, sorted by name

	whiteouts map[string]bool // names that whiteouts hide in the directory that is being scanned
	todo      []*upperDir
}

// upperDir is a directory in the upper directory and, after it was scanned, its stat data.
type upperDir struct {
	path             string // path with a trailing slash; empty for the top directory
	lo, hi           int    // range of the index entries below it
	lowerLo, lowerHi int    // range of the lower files below it, which are visible unless something hides them

	stat   git.FileStat // stat data from before it was listed
	isRacy bool         // changed within the last clock tick, so that another change may leave the same timestamp
}

// scanFiles compares the files of the worktree with the index.
func (v *worktreeScan) scanFiles(ctx context.Context) (*scanResult, error) {
	if v.spec.Overlay == nil {
		return v.newScanner().scan(ctx, v.spec.Dir, v.entries)
	}
	lower, err := v.lowerFiles()
	if err != nil {
		return nil, err
	}
	upper, err := openWriteDir(v.spec)
	if err != nil {
		return nil, err
	}
	sc := v.newScanner()
	sc.result = newScanResult(v.entries)
	o := &overlayScan{scanWorker: &scanWorker{Scanner: sc}, tree: v.tree, upper: upper, lower: lower}
	o.todo = []*upperDir{{hi: len(v.entries), lowerHi: len(o.lower)}}
	for len(o.todo) > 0 && err == nil {
		next := o.todo[len(o.todo)-1]
		o.todo = o.todo[:len(o.todo)-1]
		if err = context.Cause(ctx); err == nil {
			err = o.scanDirectory(next)
		}
	}
	if err := errors.Join(err, upper.Close()); err != nil {
		return nil, err
	}
	sc.collect([]scanWorker{*o.scanWorker})
	return sc.result, nil
}

// readLowerFiles reads the index of the files in the lower directories of an overlay in the background, and returns a function
// that waits for it; nil for another worktree.
func readLowerFiles(s git.WorktreeSpec, format object.Format) func() ([]index.Entry, error) {
	if s.Overlay == nil {
		return nil
	}
	return proc.Async(func() ([]index.Entry, error) {
		data, err := durable.ReadFile(s.Overlay.Index, index.MaxSize)
		if err != nil {
			return nil, err
		}
		x, err := index.ReadTrusted(data, format)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Overlay.Index, err)
		}
		return slices.DeleteFunc(selectEntries(s, x, time.Time{}).Entries, func(e index.Entry) bool { return e.SkipWorktree }), nil
	})
}

// recheckOverlay is Scanner.recheck for an overlay. A change of a lower file creates a name in the upper directory.
func (v *worktreeScan) recheckOverlay(ctx context.Context) (moved, unsure []string, err error) {
	for _, d := range v.result.upperDirs {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		path := cmp.Or(strings.TrimSuffix(d.path, "/"), ".")
		switch now := v.statNow(path); {
		case now == (git.FileStat{}):
			moved = append(moved, d.path)
		case now != d.stat || d.isRacy && hasInotify:
			unsure = append(unsure, cmp.Or(d.path, "."))
		}
	}
	for _, i := range v.result.compared {
		if name := string(v.entries[i].Name); v.statNow(name) != v.result.stats[i] {
			moved = append(moved, name)
		}
	}
	slices.Sort(moved)
	slices.Sort(unsure)
	return moved, unsure, nil
}

// scanDirectory scans one directory of the upper directory.
func (o *overlayScan) scanDirectory(v *upperDir) error {
	name := cmp.Or(strings.TrimSuffix(v.path, "/"), ".")
	layer, err := o.upper.ReadLayer(name)
	if v.path != "" && beneath.IsGone(err) {
		o.changedSinceStart = true // it existed when its parent was listed
		return nil
	}
	if err != nil {
		return err
	}
	v.stat = git.FileStatOf(&layer.Stat)
	v.isRacy = time.Since(time.Unix(0, v.stat.Ctime)) < o.clockTick()
	o.result.upperDirs = append(o.result.upperDirs, v)
	if layer.IsOpaque && v.path != "" { // overlayfs does not look at the attribute of the top directory
		v.lowerHi = v.lowerLo
	}
	o.setNames(v.path, layer)
	for i, j := v.lo, v.lowerLo; i < v.hi || j < v.lowerHi; {
		g := o.nextGroup(v, i, j)
		if err := o.scanGroup(v, g); err != nil {
			return err
		}
		i, j = g.hi, g.lowerHi
	}
	if err := o.scanUntracked(v.path, func(name string, st *unix.Stat_t) error { return o.upper.Lstat(v.path+name, st) }); err != nil {
		return err
	}
	// Only now: a name that came or went during the scan has changed the ctime of the directory.
	var st unix.Stat_t
	switch err := o.upper.Lstat(name, &st); {
	case beneath.IsGone(err):
		o.changedSinceStart = true
	case err != nil:
		return err
	default:
		o.observeCtime(git.FileStatOf(&st))
	}
	return nil
}

// setNames sets the names in the directory that is being scanned.
func (o *overlayScan) setNames(path string, layer beneath.Layer) {
	o.names, o.whiteouts = o.names[:0], map[string]bool{}
	for _, e := range layer.Entries {
		if path != "" || !o.skipsTopLevel(e.Name) {
			o.names = append(o.names, dirEntry{name: e.Name, kind: e.Kind})
		}
	}
	for _, name := range layer.Whiteouts {
		o.whiteouts[name] = true
	}
	slices.SortFunc(o.names, func(a, b dirEntry) int { return strings.Compare(a.name, b.name) })
}

// nameGroup is a name in a directory with the index entries and the lower files that it stands for: at most one of each, or
// all those below a directory. A name may be that of a file in one of the two and that of a directory in the other: these are
// two groups.
type nameGroup struct {
	name             string
	isDir            bool
	lo, hi           int
	lowerLo, lowerHi int
}

// nextGroup returns the group of the first name in the rest of the entries and lower files of a directory, which are sorted
// in the same order.
func (o *overlayScan) nextGroup(v *upperDir, i, j int) nameGroup {
	key := func(e index.Entry) []byte { // the name in the directory, with a slash for what is below it
		name := e.Name[len(v.path):]
		if slash := bytes.IndexByte(name, '/'); slash >= 0 {
			return name[:slash+1]
		}
		return name
	}
	var first []byte
	if i < v.hi {
		first = key(o.result.entries[i])
	}
	if j < v.lowerHi {
		if lower := key(o.lower[j]); first == nil || bytes.Compare(lower, first) < 0 {
			first = lower
		}
	}
	name, isDir := bytes.CutSuffix(first, []byte("/"))
	end := func(entries []index.Entry, from, to int) int {
		switch {
		case from == to || !bytes.Equal(key(entries[from]), first):
			return from
		case !isDir:
			return from + 1
		}
		return from + sort.Search(to-from, func(n int) bool { return !bytes.HasPrefix(entries[from+n].Name[len(v.path):], first) })
	}
	return nameGroup{name: string(name), isDir: isDir, lo: i, hi: end(o.result.entries, i, v.hi), lowerLo: j, lowerHi: end(o.lower, j, v.lowerHi)}
}

// scanGroup compares the index entries of a name with what the layers show.
func (o *overlayScan) scanGroup(v *upperDir, g nameGroup) error {
	n := o.lookupName(g.name)
	switch {
	case o.whiteouts[g.name], n != nil && g.isDir && !n.kind.IsDir():
		for i := g.lo; i < g.hi; i++ {
			o.markMissing(i)
		}
	case n == nil:
		return o.joinLower(g)
	case !g.isDir && g.hi > g.lo:
		return o.compareUpper(g, v.path, n)
	case g.isDir && g.hi > g.lo:
		n.tracked = true
		o.todo = append(o.todo, &upperDir{path: v.path + g.name + "/", lo: g.lo, hi: g.hi, lowerLo: g.lowerLo, lowerHi: g.lowerHi})
	}
	return nil // else there is no index entry: see scanUntracked
}
