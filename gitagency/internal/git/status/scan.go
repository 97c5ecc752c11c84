package status

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// scanResult compares the files of a worktree with an index: which entries are unchanged on disk, and which paths
// have no entry. It is what "git status" computes, but without reading a single file. That leaves time for a second
// scan, and only two scans can show that nothing changed in between.
type scanResult struct {
	entries             []index.Entry  // index entries that are not in conflict
	statuses            []entryStatus  // status of each entry
	stats               []git.FileStat // stat data of each entry that is on disk
	untracked           []pathStat     // paths without an entry, sorted; a directory without any entry stands for everything below it
	populatedSubmodules []string       // submodules whose directory is not empty

	// consistent: by ctime, no scanned file or directory had changed since the scan began. Then the result is the
	// state of the whole worktree at that moment.
	consistent bool

	root *scannedDir // root of the scanned directories
}

// entryStatus is the result of comparing an index entry with the disk.
type entryStatus uint8

const (
	entryMissing     entryStatus = iota // not on disk
	entryUnchanged                      // stat data match the index
	entryModified                       // possibly modified: git has to read the file
	entryNotCompared                    // not compared: a submodule, or a skip-worktree entry that is not on disk
)

// pathStat is a path with its stat data.
type pathStat struct {
	name string // relative to the worktree; a directory without an entry ends in a slash
	stat git.FileStat
}

// scanner compares a worktree with an index, one directory at a time, on several goroutines. It opens each directory
// relative to its parent with O_NOFOLLOW, so that it follows no symlink, not even one created during the scan.
type Scanner struct {
	omit          string    // top-level name that is not scanned, besides .git
	TrustFileMode bool      // core.fileMode: the executable bit on disk counts
	HasSymlinks   bool      // core.symlinks: symlinks on disk are symlinks
	EmptyBlob     []byte    // id of the empty blob
	IndexMtime    time.Time // mtime of the index; an entry whose file is not older may be stale (racy git)
	startedAt     int64     // start of the scan by the file timestamp clock, in nanoseconds; 0 where that clock is unknown

	onUntracked func() // called for each path without an entry; may be nil

	result    *scanResult
	isRecheck bool // this is the second scan: see recheck

	mu     sync.Mutex
	wake   *sync.Cond
	todo   []*scannedDir
	active int
	err    error
}

// scannedDir is a directory to scan and, afterwards, its stat data.
type scannedDir struct {
	parent *dirHandle // open parent directory; nil for the root
	name   string     // name in the parent; for the root, the path of the worktree
	path   string     // path with a trailing slash; empty for the root
	lo, hi int        // range of the index entries below it

	stat     git.FileStat // stat data from before anything in it was scanned
	isRacy   bool         // changed within the last clock tick, so that another change may leave the same timestamp
	children []*scannedDir
}

// dirHandle is a reference-counted directory descriptor. It stays open until every child directory has been opened.
type dirHandle struct {
	fd       int
	mu       sync.Mutex
	refCount int
}

// release drops one reference and closes the descriptor with the last one.
func (f *dirHandle) release() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.refCount--
	last := f.refCount == 0
	f.mu.Unlock()
	if last {
		_ = unix.Close(f.fd)
	}
}

// scanWorkers is the number of scanning goroutines: GOMAXPROCS at package initialisation, before main adds one P for
// reading the output of git.
var scanWorkers = runtime.GOMAXPROCS(0)

// scan compares a worktree with an index, on every processor.
func (sc *Scanner) scan(ctx context.Context, tree string, entries []index.Entry) (*scanResult, error) {
	s := &scanResult{entries: entries, statuses: make([]entryStatus, len(entries)), stats: make([]git.FileStat, len(entries)), root: &scannedDir{name: tree, hi: len(entries)}}
	sc.result = s
	lookers, err := sc.runWorkers(ctx)
	if err != nil {
		return nil, err
	}
	fine := false
	s.consistent = sc.startedAt != 0
	for _, l := range lookers {
		s.consistent, fine = s.consistent && !l.changedSinceStart, fine || l.hasSubsecondTimes
		s.untracked, s.populatedSubmodules = append(s.untracked, l.untracked...), append(s.populatedSubmodules, l.populatedSubmodules...)
	}
	slices.SortFunc(s.untracked, func(a, b pathStat) int { return strings.Compare(a.name, b.name) })
	slices.Sort(s.populatedSubmodules)
	s.consistent = s.consistent && fine // timestamps in whole seconds prove nothing
	return s, nil
}

// runWorkers scans every directory, starting at the root, and returns the workers with their results.
func (sc *Scanner) runWorkers(ctx context.Context) ([]worker, error) {
	sc.wake = sync.NewCond(&sc.mu)
	sc.todo = []*scannedDir{sc.result.root}
	stop := context.AfterFunc(ctx, func() { sc.fail(context.Cause(ctx)) })
	defer stop()
	lookers := make([]worker, scanWorkers)
	var group sync.WaitGroup
	for i := range lookers {
		lookers[i].Scanner = sc
		group.Go(lookers[i].work)
	}
	group.Wait()
	return lookers, sc.err
}

func (sc *Scanner) fail(err error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.err == nil {
		sc.err = err
	}
	sc.wake.Broadcast()
}

// nextDir returns the next directory to scan, and waits for other workers to find one; nil when there are no more.
func (sc *Scanner) nextDir() *scannedDir {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for len(sc.todo) == 0 && sc.active > 0 && sc.err == nil {
		sc.wake.Wait()
	}
	if len(sc.todo) == 0 || sc.err != nil {
		for _, v := range sc.todo {
			v.parent.release()
		}
		sc.todo = nil
		return nil
	}
	v := sc.todo[len(sc.todo)-1]
	sc.todo = sc.todo[:len(sc.todo)-1]
	sc.active++
	return v
}

// dirDone reports a directory as scanned, and queues its child directories.
func (sc *Scanner) dirDone(below []*scannedDir) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.todo = append(sc.todo, below...)
	sc.active--
	if len(sc.todo) > 0 || sc.active == 0 {
		sc.wake.Broadcast()
	}
}

// worker is one scanning goroutine. It writes the status of an entry directly to the scan result, and collects
// everything else for itself.
type worker struct {
	*Scanner
	untracked           []pathStat
	populatedSubmodules []string
	changedEntries      []string // entries that differ from the first scan
	changedDirs         []string // directories in which names came or went since the first scan
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

func (l *worker) work() {
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

// open opens a directory and returns its stat data. It returns no handle, and no error, when the directory has gone
// since its parent was listed.
func (v *scannedDir) open() (*dirHandle, git.FileStat, error) {
	at, flags := unix.AT_FDCWD, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC
	if v.parent != nil {
		at = v.parent.fd
	}
	fd, err := unix.Openat(at, v.name, flags, 0)
	v.parent.release()
	if v.parent != nil && (git.IsNotExist(err) || errors.Is(err, unix.ELOOP)) {
		return nil, git.FileStat{}, nil
	}
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return nil, git.FileStat{}, &fs.PathError{Op: "open", Path: v.path + ".", Err: err}
	}
	return &dirHandle{fd: fd, refCount: 1}, git.FileStatOf(&st), nil
}

// retainFor adds one reference for each child directory.
func (f *dirHandle) retainFor(below []*scannedDir) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refCount += len(below)
	for _, v := range below {
		v.parent = f
	}
}

// scanDirectory scans one directory.
func (l *worker) scanDirectory(v *scannedDir) (err error) {
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
	if err := l.scanUntracked(dir.fd, v.path); err != nil {
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

// clockTick returns the longest time during which two changes may get the same timestamp.
func (sc *Scanner) clockTick() time.Duration {
	if sc.startedAt == 0 { // unknown clock, on any file system
		return 2 * time.Second
	}
	return fileClockTick()
}

// skipsTopLevel reports whether a top-level name is not scanned.
func (sc *Scanner) skipsTopLevel(text string) bool {
	return text == ".git" || sc.omit != "" && text == sc.omit
}

func (l *worker) lookupName(text string) *dirEntry {
	at, there := slices.BinarySearchFunc(l.names, text, func(n dirEntry, text string) int { return strings.Compare(n.name, text) })
	if !there {
		return nil
	}
	return &l.names[at]
}

// markMissing records that an entry has no file. A skip-worktree entry is meant to have none.
func (l *worker) markMissing(i int) {
	if l.result.entries[i].SkipWorktree {
		l.result.statuses[i] = entryNotCompared
	}
}

// scanEntry compares one index entry with the directory that contains it.
func (l *worker) scanEntry(fd, i int, text string) error {
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
	if st.Size == 0 && !bytes.Equal(e.Oid, sc.EmptyBlob) {
		return false // git sets the size of a racy entry to 0, which only the empty blob really has
	}
	word := func(n int) uint32 { return binary.BigEndian.Uint32(s[n*4:]) }
	mtime := time.Unix(int64(word(2)), int64(word(3)))
	return word(0) == uint32(st.Ctim.Sec) && word(1) == uint32(st.Ctim.Nsec) &&
		word(2) == uint32(st.Mtim.Sec) && word(3) == uint32(st.Mtim.Nsec) &&
		word(5) == uint32(st.Ino) && word(7) == st.Uid && word(8) == st.Gid && word(9) == uint32(st.Size) &&
		!e.IntentToAdd && mtime.Before(sc.IndexMtime)
}

// scanUntracked collects the names without an index entry.
func (l *worker) scanUntracked(fd int, path string) error {
	for _, n := range l.names {
		if n.tracked {
			continue
		}
		if l.onUntracked != nil {
			l.onUntracked()
		}
		switch {
		case n.kind.IsDir():
			l.untracked = append(l.untracked, pathStat{name: path + n.name + "/"})
			continue
		case !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0:
			if strings.HasPrefix(n.name, ".git") {
				return &git.SpecialFileError{Path: path + n.name}
			}
			continue // no commit can hold it
		}
		var st unix.Stat_t
		err := unix.Fstatat(fd, n.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			l.changedSinceStart = true
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "stat", Path: path + n.name, Err: err}
		}
		l.untracked = append(l.untracked, pathStat{name: path + n.name, stat: git.FileStatOf(&st)})
	}
	return nil
}

// observeCtime updates the worker's verdict on timestamps. It uses ctime, which programs cannot set.
func (l *worker) observeCtime(s git.FileStat) {
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
