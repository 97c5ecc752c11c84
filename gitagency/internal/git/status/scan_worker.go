package status

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// scanWorker is one scanning goroutine. It writes the status of an entry directly to the scan result, and collects
// everything else for itself.
type scanWorker struct {
	*Scanner
	untracked           []pathStat
	populatedSubmodules []string
	changedEntries      []string // entries that differ from the first scan
	changedDirs         []string // directories in which names came or went since the first scan
	sawSpecialFile      bool     // there is a file that no commit can hold
	changedSinceStart   bool     // something changed after the scan began, or in the same clock tick
	hasSubsecondTimes   bool     // timestamps have fractions of a second

	names  []dirEntry
	buffer []byte
}

// dirEntry is one name in a directory.
type dirEntry struct {
	name    string
	kind    fs.FileMode
	tracked bool // an index entry has this path
}

func (l *scanWorker) work() {
	for v := l.nextDir(); v != nil; v = l.nextDir() {
		look := l.scanDirectory
		if l.isRecheck {
			look = l.recheckDirectory
		}
		if err := look(v); err != nil {
			l.fail(err)
			v.children = nil
		}
		l.dirDone(v.children)
	}
}

// scanDirectory scans one directory.
func (l *scanWorker) scanDirectory(v *scannedDir) (err error) {
	dir, stamp, err := v.open()
	if dir == nil {
		l.changedSinceStart = true // it existed when the scan began
		return err
	}
	defer dir.release()
	v.stat, v.isRacy = stamp, time.Since(time.Unix(0, stamp.Ctime)) < l.clockTick()
	if err := l.readNames(dir.fd, v.path); err != nil {
		return err
	}
	for i := v.lo; i < v.hi; {
		full := l.result.entries[i].Name
		rest := full[len(v.path):]
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			if err := l.scanEntry(dir.fd, i, string(rest)); err != nil {
				return err
			}
			i++
			continue
		}
		// The index is sorted, so the entries below a directory are contiguous.
		prefix, end := full[:len(v.path)+slash+1], i+1
		for end < v.hi && bytes.HasPrefix(l.result.entries[end].Name, prefix) {
			end++
		}
		switch n := l.lookupName(string(rest[:slash])); {
		case n != nil && n.kind.IsDir():
			n.tracked = true
			v.children = append(v.children, &scannedDir{name: n.name, path: string(prefix), lo: i, hi: end})
		default: // missing, or not a directory
			for ; i < end; i++ {
				l.markMissing(i)
			}
		}
		i = end
	}
	lstat := func(name string, st *unix.Stat_t) error {
		if err := unix.Fstatat(dir.fd, name, st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "stat", Path: v.path + name, Err: err}
		}
		return nil
	}
	if err := l.scanUntracked(v.path, lstat); err != nil {
		return err
	}
	// Only now: a name that came or went during the scan has changed the ctime of the directory.
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: v.path + ".", Err: err}
	}
	l.observeCtime(git.FileStatOf(&st))
	dir.retainFor(v.children)
	return nil
}

func (l *scanWorker) lookupName(text string) *dirEntry {
	at, there := slices.BinarySearchFunc(l.names, text, func(n dirEntry, text string) int { return strings.Compare(n.name, text) })
	if !there {
		return nil
	}
	return &l.names[at]
}

// markMissing records that an entry has no file. A skip-worktree entry is meant to have none.
func (l *scanWorker) markMissing(i int) {
	if l.result.entries[i].SkipWorktree {
		l.result.statuses[i] = entryNotCompared
	}
}

// scanEntry compares one index entry with the directory that contains it.
func (l *scanWorker) scanEntry(fd, i int, text string) error {
	e, n := &l.result.entries[i], l.lookupName(text)
	if n == nil {
		l.markMissing(i)
		return nil
	}
	if e.Mode == object.ModeGitlink && n.kind.IsDir() {
		n.tracked = true
		l.result.statuses[i] = entryNotCompared
		opened, err := dirHasEntries(fd, text)
		if opened {
			l.populatedSubmodules = append(l.populatedSubmodules, string(e.Name))
		}
		return err
	}
	if !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0 {
		l.markMissing(i) // the directory or special file there has no entry: see scanUntracked
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, text, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			l.changedSinceStart = true // it was listed a moment ago
			l.markMissing(i)
			return nil
		}
		return &fs.PathError{Op: "stat", Path: string(e.Name), Err: err}
	}
	n.tracked = true
	l.result.stats[i] = git.FileStatOf(&st)
	l.observeCtime(l.result.stats[i])
	l.result.statuses[i] = entryModified
	if l.MatchesIndex(e, &st) {
		l.result.statuses[i] = entryUnchanged
	}
	return nil
}

// MatchesIndex reports whether a file is unchanged, by the stat data of its index entry and without reading it, as
// git does.
func (sc *Scanner) MatchesIndex(e *index.Entry, st *unix.Stat_t) bool {
	mode := uint32(object.ModeFile)
	switch kind := uint32(st.Mode) & unix.S_IFMT; {
	case kind == unix.S_IFLNK:
		mode = object.ModeSymlink
	case kind != unix.S_IFREG:
		return false
	case st.Mode&0o100 != 0:
		mode = object.ModeExecutable
	}
	if mode != e.Mode && (sc.TrustFileMode || mode == object.ModeSymlink || e.Mode != object.ModeFile && e.Mode != object.ModeExecutable) && (sc.HasSymlinks || e.Mode != object.ModeSymlink || mode == object.ModeSymlink) {
		return false
	}
	s := e.Stat
	if st.Size == 0 && !bytes.Equal(e.OID, sc.EmptyBlob) {
		return false // git sets the size of a racy entry to 0, which only the empty blob really has
	}
	word := func(n int) uint32 { return binary.BigEndian.Uint32(s[n*4:]) }
	mtime := time.Unix(int64(word(2)), int64(word(3)))
	return word(0) == uint32(st.Ctim.Sec) && word(1) == uint32(st.Ctim.Nsec) &&
		word(2) == uint32(st.Mtim.Sec) && word(3) == uint32(st.Mtim.Nsec) &&
		word(5) == uint32(st.Ino) && word(7) == st.Uid && word(8) == st.Gid && word(9) == uint32(st.Size) &&
		!e.IntentToAdd && mtime.Before(sc.IndexMtime)
}

// scanUntracked collects the names without an index entry, with the stat data that lstat returns.
func (l *scanWorker) scanUntracked(path string, lstat func(name string, st *unix.Stat_t) error) error {
	for _, n := range l.names {
		if n.tracked {
			continue
		}
		switch {
		case n.kind.IsDir():
			l.untracked = append(l.untracked, pathStat{name: path + n.name + "/"})
			continue
		case !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0:
			if strings.HasPrefix(n.name, ".git") {
				return &git.SpecialFileError{Path: path + n.name}
			}
			l.sawSpecialFile = true
			continue
		}
		var st unix.Stat_t
		err := lstat(n.name, &st)
		if beneath.IsGone(err) {
			l.changedSinceStart = true
			continue
		}
		if err != nil {
			return err
		}
		l.untracked = append(l.untracked, pathStat{name: path + n.name, stat: git.FileStatOf(&st)})
	}
	return nil
}

// observeCtime updates the worker's verdict on timestamps. It uses ctime, which programs cannot set.
func (l *scanWorker) observeCtime(s git.FileStat) {
	l.changedSinceStart = l.changedSinceStart || s.Ctime >= l.startedAt
	l.hasSubsecondTimes = l.hasSubsecondTimes || s.Ctime%int64(time.Second) != 0
}

// dirHasEntries reports whether a directory contains anything. A directory that has just been removed does not.
func dirHasEntries(fd int, text string) (bool, error) {
	sub, err := unix.Openat(fd, text, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if git.IsNotExist(err) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: text, Err: err}
	}
	f := os.NewFile(uintptr(sub), text)
	names, err := f.Readdirnames(1)
	if err = errors.Join(err, f.Close()); errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) > 0, err
}
