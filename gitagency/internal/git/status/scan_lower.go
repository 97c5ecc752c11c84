package status

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// joinLower compares the index entries of a name that the upper directory does not have with the lower files.
func (o *overlayScan) joinLower(g nameGroup) (err error) {
	for i, j := g.lo, g.lowerLo; (i < g.hi || j < g.lowerHi) && err == nil; {
		order := 0
		switch {
		case i == g.hi:
			order = 1
		case j == g.lowerHi:
			order = -1
		default:
			order = bytes.Compare(o.result.entries[i].Name, o.lower[j].Name)
		}
		switch {
		case order < 0:
			err = o.compareLower(i, nil)
			i++
		case order > 0:
			j, err = o.addUntrackedLower(i, j, g.lowerHi)
		default:
			err = o.compareLower(i, &o.lower[j])
			i, j = i+1, j+1
		}
	}
	return err
}

// compareLower compares an index entry with the lower file of the same name, which may be nil.
func (o *overlayScan) compareLower(i int, lower *index.Entry) error {
	switch e := &o.result.entries[i]; {
	case lower == nil && e.Mode != object.ModeGitlink:
		o.markMissing(i)
	case lower != nil && e.Mode == object.ModeGitlink && lower.Mode == object.ModeGitlink:
		o.result.statuses[i] = entryNotCompared // an empty directory
	case lower != nil && isSameFile(e, lower):
		o.result.statuses[i] = entryUnchanged
	default:
		return o.compareShown(i)
	}
	return nil
}

// isSameFile reports whether an index entry is that of a lower file, with the same stat data but for the device, which is
// another one where the overlay is mounted.
func isSameFile(e, lower *index.Entry) bool {
	const device, afterDevice = 16, 20
	return bytes.Equal(e.OID, lower.OID) && bytes.Equal(e.Stat[:device], lower.Stat[:device]) && bytes.Equal(e.Stat[afterDevice:], lower.Stat[afterDevice:]) &&
		!e.IntentToAdd
}

// compareShown compares an index entry with the file that the layers show.
func (o *overlayScan) compareShown(i int) error {
	name := string(o.result.entries[i].Name)
	var st unix.Stat_t
	if err := o.tree.Lstat(name, &st); err != nil {
		if beneath.IsGone(err) {
			o.markMissing(i)
			return nil
		}
		return err
	}
	switch kind := uint32(st.Mode) & unix.S_IFMT; {
	case kind == unix.S_IFREG || kind == unix.S_IFLNK:
		o.compareStat(i, &st, nil)
	case kind == unix.S_IFDIR && o.result.entries[i].Mode == object.ModeGitlink:
		return o.addSubmodule(i)
	default:
		o.markMissing(i)
	}
	return nil
}

// compareUpper compares an index entry with what the upper directory has under its name.
func (o *overlayScan) compareUpper(g nameGroup, path string, n *dirEntry) error {
	i := g.lo
	if n.kind.IsDir() && o.result.entries[i].Mode == object.ModeGitlink {
		n.tracked = true
		return o.addSubmodule(i)
	}
	if !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0 {
		o.markMissing(i) // the directory or special file there has no entry: see scanUntracked
		return nil
	}
	var st unix.Stat_t
	if err := o.upper.Lstat(path+g.name, &st); err != nil {
		if beneath.IsGone(err) {
			o.changedSinceStart = true // it was listed a moment ago
			o.markMissing(i)
			return nil
		}
		return err
	}
	n.tracked = true
	var lower *index.Entry
	if g.lowerHi > g.lowerLo {
		lower = &o.lower[g.lowerLo]
	}
	o.compareStat(i, &st, lower)
	return nil
}

// compareStat compares an index entry with the stat data of its file. If that is in the upper directory and there is a lower
// file too, it may have been copied from there, so that overlayfs shows it with the inode number of the lower file.
func (o *overlayScan) compareStat(i int, st *unix.Stat_t, lower *index.Entry) {
	const inodeWord = 5
	e := &o.result.entries[i]
	o.result.stats[i] = git.FileStatOf(st)
	o.observeCtime(o.result.stats[i])
	o.result.compared = append(o.result.compared, i)
	same := o.MatchesIndex(e, st)
	if !same && lower != nil {
		shown := *st
		shown.Ino = uint64(binary.BigEndian.Uint32(lower.Stat[inodeWord*4:]))
		same = o.MatchesIndex(e, &shown)
	}
	o.result.statuses[i] = entryModified
	if same {
		o.result.statuses[i] = entryUnchanged
	}
}

// addSubmodule adds a submodule whose directory exists.
func (o *overlayScan) addSubmodule(i int) error {
	o.result.statuses[i] = entryNotCompared
	name := string(o.result.entries[i].Name)
	inside, _, err := o.tree.ReadDir(name)
	if len(inside) > 0 {
		o.populatedSubmodules = append(o.populatedSubmodules, name)
	}
	if beneath.IsGone(err) {
		err = nil
	}
	return err
}

// addUntrackedLower adds a lower file without an index entry, which would come before entry i: after "git rm --cached", or
// when the sandbox has checked out another commit. If the directory that it is in has no entry either, that stands for
// everything below it. It returns the position of the next lower file, up to end.
func (o *overlayScan) addUntrackedLower(i, j, end int) (next int, err error) {
	name := o.lower[j].Name
	known := 0 // length of the path of the deepest directory with an index entry: one of the neighbours is in it
	if i > 0 {
		known = sharedDir(name, o.result.entries[i-1].Name)
	}
	if i < len(o.result.entries) {
		known = max(known, sharedDir(name, o.result.entries[i].Name))
	}
	if slash := bytes.IndexByte(name[known:], '/'); slash >= 0 {
		dir := name[:known+slash+1]
		for next = j + 1; next < end && bytes.HasPrefix(o.lower[next].Name, dir); {
			next++
		}
		if !o.isSubmodule(dir[:len(dir)-1]) {
			o.untracked = append(o.untracked, pathStat{name: string(dir)})
		}
		return next, nil
	}
	var st unix.Stat_t
	err = o.tree.Lstat(string(name), &st)
	switch kind := uint32(st.Mode) & unix.S_IFMT; {
	case beneath.IsGone(err):
		return j + 1, nil // hidden meanwhile, or the directory of a submodule that was not created
	case err != nil:
		return j + 1, err
	case kind == unix.S_IFDIR:
		o.untracked = append(o.untracked, pathStat{name: string(name) + "/"})
	default:
		o.untracked = append(o.untracked, pathStat{name: string(name), stat: git.FileStatOf(&st)})
	}
	return j + 1, nil
}

// sharedDir returns the length of the longest path of a directory, with its slash, that two files are in.
func sharedDir(a, b []byte) (length int) {
	for n := 0; n < len(a) && n < len(b) && a[n] == b[n]; n++ {
		if a[n] == '/' {
			length = n + 1
		}
	}
	return length
}

// isSubmodule reports whether the index entry of a path is a submodule.
func (o *overlayScan) isSubmodule(name []byte) bool {
	at, found := slices.BinarySearchFunc(o.result.entries, name, func(e index.Entry, name []byte) int { return bytes.Compare(e.Name, name) })
	return found && o.result.entries[at].Mode == object.ModeGitlink
}
