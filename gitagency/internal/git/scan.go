package git

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

	"golang.org/x/sys/unix"
)

// scanResult compares the files of a worktree with an index: which entries are unchanged on disk, and which paths
// have no entry. It is what "git status" computes, but without reading a single file. That leaves time for a second
// scan, and only two scans can show that nothing changed in between.
type sight struct {
	entries []stagedEntry // index entries that are not in conflict
	fates   []fate        // status of each entry
	stamps  []stamp       // stat data of each entry that is on disk
	loose   []found       // paths without an entry, sorted; a directory without any entry stands for everything below it
	opened  []string      // submodules whose directory is not empty

	// consistent: by ctime, no scanned file or directory had changed since the scan began. Then the result is the
	// state of the whole worktree at that moment.
	whole bool

	top *visit // root of the scanned directories
}

// entryStatus is the result of comparing an index entry with the disk.
type fate uint8

const (
	absent  fate = iota // not on disk
	same                // stat data match the index
	changed             // possibly modified: git has to read the file
	kept                // not compared: a submodule, or a skip-worktree entry that is not on disk
)

// pathStat is a path with its stat data.
type found struct {
	name  string // relative to the worktree; a directory without an entry ends in a slash
	stamp stamp
}

// fileStat is the stat data by which a later scan recognises an unchanged file.
type stamp struct {
	mode         uint32
	size         int64
	mtime, ctime int64 // nanoseconds
	ino          uint64
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{mode: uint32(st.Mode), size: st.Size, mtime: unix.TimespecToNsec(unix.Timespec(st.Mtim)), ctime: unix.TimespecToNsec(unix.Timespec(st.Ctim)), ino: st.Ino}
}

// scanner compares a worktree with an index, one directory at a time, on several goroutines. It opens each directory
// relative to its parent with O_NOFOLLOW, so that it follows no symlink, not even one created during the scan.
type scanner struct {
	omit     string    // top-level name that is not scanned, besides .git
	modes    bool      // core.fileMode: the executable bit on disk counts
	symlinks bool      // core.symlinks: symlinks on disk are symlinks
	empty    []byte    // id of the empty blob
	young    time.Time // mtime of the index; an entry whose file is not older may be stale (racy git)
	began    int64     // start of the scan by the file timestamp clock, in nanoseconds; 0 where that clock is unknown

	noticed func() // called for each path without an entry; may be nil

	sight *sight
	again bool // this is the second scan: see recheck

	mu      sync.Mutex
	wake    *sync.Cond
	todo    []*visit
	working int
	err     error
}

// scannedDir is a directory to scan and, afterwards, its stat data.
type visit struct {
	around *folder // open parent directory; nil for the root
	name   string  // name in the parent; for the root, the path of the worktree
	path   string  // path with a trailing slash; empty for the root
	lo, hi int     // range of the index entries below it

	stamp stamp // stat data from before anything in it was scanned
	young bool  // changed within the last clock tick, so that another change may leave the same timestamp
	below []*visit
}

// dirHandle is a reference-counted directory descriptor. It stays open until every child directory has been opened.
type folder struct {
	fd   int
	mu   sync.Mutex
	uses int
}

// release drops one reference and closes the descriptor with the last one.
func (f *folder) drop() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.uses--
	last := f.uses == 0
	f.mu.Unlock()
	if last {
		_ = unix.Close(f.fd)
	}
}

// scanWorkers is the number of scanning goroutines: GOMAXPROCS at package initialisation, before main adds one P for
// reading the output of git.
var processors = runtime.GOMAXPROCS(0)

// scan compares a worktree with an index, on every processor.
func (sc *scanner) scan(ctx context.Context, tree string, entries []stagedEntry) (*sight, error) {
	s := &sight{entries: entries, fates: make([]fate, len(entries)), stamps: make([]stamp, len(entries)), top: &visit{name: tree, hi: len(entries)}}
	sc.sight = s
	lookers, err := sc.send(ctx)
	if err != nil {
		return nil, err
	}
	fine := false
	s.whole = sc.began != 0
	for _, l := range lookers {
		s.whole, fine = s.whole && !l.late, fine || l.fine
		s.loose, s.opened = append(s.loose, l.loose...), append(s.opened, l.opened...)
	}
	slices.SortFunc(s.loose, func(a, b found) int { return strings.Compare(a.name, b.name) })
	slices.Sort(s.opened)
	s.whole = s.whole && fine // timestamps in whole seconds prove nothing
	return s, nil
}

// runWorkers scans every directory, starting at the root, and returns the workers with their results.
func (sc *scanner) send(ctx context.Context) ([]looker, error) {
	sc.wake = sync.NewCond(&sc.mu)
	sc.todo = []*visit{sc.sight.top}
	stop := context.AfterFunc(ctx, func() { sc.fail(context.Cause(ctx)) })
	defer stop()
	lookers := make([]looker, processors)
	var group sync.WaitGroup
	for i := range lookers {
		lookers[i].scanner = sc
		group.Go(lookers[i].work)
	}
	group.Wait()
	return lookers, sc.err
}

func (sc *scanner) fail(err error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.err == nil {
		sc.err = err
	}
	sc.wake.Broadcast()
}

// nextDir returns the next directory to scan, and waits for other workers to find one; nil when there are no more.
func (sc *scanner) next() *visit {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for len(sc.todo) == 0 && sc.working > 0 && sc.err == nil {
		sc.wake.Wait()
	}
	if len(sc.todo) == 0 || sc.err != nil {
		for _, v := range sc.todo {
			v.around.drop()
		}
		sc.todo = nil
		return nil
	}
	v := sc.todo[len(sc.todo)-1]
	sc.todo = sc.todo[:len(sc.todo)-1]
	sc.working++
	return v
}

// dirDone reports a directory as scanned, and queues its child directories.
func (sc *scanner) done(below []*visit) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.todo = append(sc.todo, below...)
	sc.working--
	if len(sc.todo) > 0 || sc.working == 0 {
		sc.wake.Broadcast()
	}
}

// worker is one scanning goroutine. It writes the status of an entry directly to the scan result, and collects
// everything else for itself.
type looker struct {
	*scanner
	loose  []found
	opened []string
	moved  []string // entries that differ from the first scan
	unsure []string // directories in which names came or went since the first scan
	late   bool     // something changed after the scan began, or in the same clock tick
	fine   bool     // timestamps have fractions of a second

	names  []name
	buffer []byte
}

// dirEntry is one name in a directory.
type name struct {
	text string
	kind fs.FileMode
	seen bool // an index entry has this path
}

func (l *looker) work() {
	for v := l.next(); v != nil; v = l.next() {
		look := l.visit
		if l.again {
			look = l.revisit
		}
		if err := look(v); err != nil {
			l.fail(err)
			v.below = nil
		}
		l.done(v.below)
	}
}

// open opens a directory and returns its stat data. It returns no handle, and no error, when the directory has gone
// since its parent was listed.
func (v *visit) open() (*folder, stamp, error) {
	at, flags := unix.AT_FDCWD, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC
	if v.around != nil {
		at = v.around.fd
	}
	fd, err := unix.Openat(at, v.name, flags, 0)
	v.around.drop()
	if v.around != nil && (nothingThere(err) || errors.Is(err, unix.ELOOP)) {
		return nil, stamp{}, nil
	}
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return nil, stamp{}, &fs.PathError{Op: "open", Path: v.path + ".", Err: err}
	}
	return &folder{fd: fd, uses: 1}, stampOf(&st), nil
}

// retainFor adds one reference for each child directory.
func (f *folder) lend(below []*visit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses += len(below)
	for _, v := range below {
		v.around = f
	}
}

// scanDirectory scans one directory.
func (l *looker) visit(v *visit) (err error) {
	dir, stamp, err := v.open()
	if dir == nil {
		l.late = true // it existed when the scan began
		return err
	}
	defer dir.drop()
	v.stamp, v.young = stamp, time.Since(time.Unix(0, stamp.ctime)) < l.tick()
	if err := l.list(dir.fd, v.path); err != nil {
		return err
	}
	for i := v.lo; i < v.hi; {
		full := l.sight.entries[i].name
		rest := full[len(v.path):]
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			if err := l.entry(dir.fd, i, string(rest)); err != nil {
				return err
			}
			i++
			continue
		}
		// The index is sorted, so the entries below a directory are contiguous.
		prefix, end := full[:len(v.path)+slash+1], i+1
		for end < v.hi && bytes.HasPrefix(l.sight.entries[end].name, prefix) {
			end++
		}
		switch n := l.named(string(rest[:slash])); {
		case n != nil && n.kind.IsDir():
			n.seen = true
			v.below = append(v.below, &visit{name: n.text, path: string(prefix), lo: i, hi: end})
		default: // missing, or not a directory
			for ; i < end; i++ {
				l.missing(i)
			}
		}
		i = end
	}
	if err := l.strays(dir.fd, v.path); err != nil {
		return err
	}
	// Only now: a name that came or went during the scan has changed the ctime of the directory.
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: v.path + ".", Err: err}
	}
	l.notice(stampOf(&st))
	dir.lend(v.below)
	return nil
}

// clockTick returns the longest time during which two changes may get the same timestamp.
func (sc *scanner) tick() time.Duration {
	if sc.began == 0 { // unknown clock, on any file system
		return 2 * time.Second
	}
	return stampTick()
}

// skipsTopLevel reports whether a top-level name is not scanned.
func (sc *scanner) passOver(text string) bool {
	return text == ".git" || sc.omit != "" && text == sc.omit
}

func (l *looker) named(text string) *name {
	at, there := slices.BinarySearchFunc(l.names, text, func(n name, text string) int { return strings.Compare(n.text, text) })
	if !there {
		return nil
	}
	return &l.names[at]
}

// markMissing records that an entry has no file. A skip-worktree entry is meant to have none.
func (l *looker) missing(i int) {
	if l.sight.entries[i].skipped {
		l.sight.fates[i] = kept
	}
}

// scanEntry compares one index entry with the directory that contains it.
func (l *looker) entry(fd, i int, text string) error {
	e, n := &l.sight.entries[i], l.named(text)
	if n == nil {
		l.missing(i)
		return nil
	}
	if e.mode == modeGitlink && n.kind.IsDir() {
		n.seen = true
		l.sight.fates[i] = kept
		opened, err := holdsAnything(fd, text)
		if opened {
			l.opened = append(l.opened, string(e.name))
		}
		return err
	}
	if !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0 {
		l.missing(i) // the directory or special file there has no entry: see scanUntracked
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, text, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			l.late = true // it was listed a moment ago
			l.missing(i)
			return nil
		}
		return &fs.PathError{Op: "stat", Path: string(e.name), Err: err}
	}
	n.seen = true
	l.sight.stamps[i] = stampOf(&st)
	l.notice(l.sight.stamps[i])
	l.sight.fates[i] = changed
	if l.asStaged(e, &st) {
		l.sight.fates[i] = same
	}
	return nil
}

// matchesIndex reports whether a file is unchanged, by the stat data of its index entry and without reading it, as
// git does.
func (sc *scanner) asStaged(e *stagedEntry, st *unix.Stat_t) bool {
	mode := uint32(modeFile)
	switch kind := uint32(st.Mode) & unix.S_IFMT; {
	case kind == unix.S_IFLNK:
		mode = modeLink
	case kind != unix.S_IFREG:
		return false
	case st.Mode&0o100 != 0:
		mode = modeProgram
	}
	if mode != e.mode && (sc.modes || mode == modeLink || e.mode != modeFile && e.mode != modeProgram) && (sc.symlinks || e.mode != modeLink || mode == modeLink) {
		return false
	}
	s := e.stat
	if st.Size == 0 && !bytes.Equal(e.oid, sc.empty) {
		return false // git sets the size of a racy entry to 0, which only the empty blob really has
	}
	word := func(n int) uint32 { return binary.BigEndian.Uint32(s[n*4:]) }
	mtime := time.Unix(int64(word(2)), int64(word(3)))
	return word(0) == uint32(st.Ctim.Sec) && word(1) == uint32(st.Ctim.Nsec) &&
		word(2) == uint32(st.Mtim.Sec) && word(3) == uint32(st.Mtim.Nsec) &&
		word(5) == uint32(st.Ino) && word(7) == st.Uid && word(8) == st.Gid && word(9) == uint32(st.Size) &&
		!e.intended && mtime.Before(sc.young)
}

// scanUntracked collects the names without an index entry.
func (l *looker) strays(fd int, path string) error {
	for _, n := range l.names {
		if n.seen {
			continue
		}
		if l.noticed != nil {
			l.noticed()
		}
		switch {
		case n.kind.IsDir():
			l.loose = append(l.loose, found{name: path + n.text + "/"})
			continue
		case !n.kind.IsRegular() && n.kind&fs.ModeSymlink == 0:
			if strings.HasPrefix(n.text, ".git") {
				return &WaitsForeverError{Path: path + n.text}
			}
			continue // no commit can hold it
		}
		var st unix.Stat_t
		err := unix.Fstatat(fd, n.text, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			l.late = true
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "stat", Path: path + n.text, Err: err}
		}
		l.loose = append(l.loose, found{name: path + n.text, stamp: stampOf(&st)})
	}
	return nil
}

// observeCtime updates the worker's verdict on timestamps. It uses ctime, which programs cannot set.
func (l *looker) notice(s stamp) {
	l.late = l.late || s.ctime >= l.began
	l.fine = l.fine || s.ctime%int64(time.Second) != 0
}

// dirHasEntries reports whether a directory contains anything. A directory that has just been removed does not.
func holdsAnything(fd int, text string) (bool, error) {
	sub, err := unix.Openat(fd, text, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if nothingThere(err) || errors.Is(err, unix.ELOOP) {
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
