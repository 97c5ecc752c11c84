package status

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
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

	// hasSpecialFile reports that there are pipes, sockets or devices, which no commit can hold.
	hasSpecialFile bool

	root *scannedDir // root of the scanned directories; nil for an overlay

	upperDirs []*upperDir // scanned directories of an overlay
	compared  []int       // entries of an overlay whose files were looked at
}

func newScanResult(entries []index.Entry) *scanResult {
	return &scanResult{entries: entries, statuses: make([]entryStatus, len(entries)), stats: make([]git.FileStat, len(entries))}
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

// Scanner compares a worktree with an index, one directory at a time, on several goroutines. It opens each directory
// relative to its parent with O_NOFOLLOW, so that it follows no symlink, not even one created during the scan.
type Scanner struct {
	omit          string    // top-level name that is not scanned, besides .git
	TrustFileMode bool      // core.fileMode: the executable bit on disk counts
	HasSymlinks   bool      // core.symlinks: symlinks on disk are symlinks
	EmptyBlob     []byte    // id of the empty blob
	IndexMtime    time.Time // mtime of the index; an entry whose file is not older may be stale (racy git)
	startedAt     int64     // start of the scan by the file timestamp clock, in nanoseconds; 0 where that clock is unknown

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

// entriesPerWorker is the number of index entries that are worth another goroutine.
const entriesPerWorker = 500

// scan compares a worktree with an index, on every processor if it is large.
func (sc *Scanner) scan(ctx context.Context, tree string, entries []index.Entry) (*scanResult, error) {
	sc.result = newScanResult(entries)
	sc.result.root = &scannedDir{name: tree, hi: len(entries)}
	lookers, err := sc.runWorkers(ctx)
	if err != nil {
		return nil, err
	}
	sc.collect(lookers)
	return sc.result, nil
}

// collect adds to the scan result what each worker has collected for itself.
func (sc *Scanner) collect(lookers []scanWorker) {
	s, fine := sc.result, false
	s.consistent = sc.startedAt != 0
	for _, l := range lookers {
		s.consistent, fine = s.consistent && !l.changedSinceStart, fine || l.hasSubsecondTimes
		s.hasSpecialFile = s.hasSpecialFile || l.sawSpecialFile
		s.untracked, s.populatedSubmodules = append(s.untracked, l.untracked...), append(s.populatedSubmodules, l.populatedSubmodules...)
	}
	slices.SortFunc(s.untracked, func(a, b pathStat) int { return strings.Compare(a.name, b.name) })
	slices.Sort(s.populatedSubmodules)
	s.consistent = s.consistent && fine // timestamps in whole seconds prove nothing
}

// runWorkers scans every directory, starting at the root, and returns the workers with their results.
func (sc *Scanner) runWorkers(ctx context.Context) ([]scanWorker, error) {
	sc.wake = sync.NewCond(&sc.mu)
	sc.todo = []*scannedDir{sc.result.root}
	stop := context.AfterFunc(ctx, func() { sc.fail(context.Cause(ctx)) })
	defer stop()
	lookers := make([]scanWorker, min(scanWorkers, 1+len(sc.result.entries)/entriesPerWorker))
	var group sync.WaitGroup
	for i := range lookers {
		if lookers[i].Scanner = sc; i > 0 {
			group.Go(lookers[i].work)
		}
	}
	lookers[0].work()
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
