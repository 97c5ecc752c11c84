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

// sight is what a tree looks like beside an index: which entries are on disk as they are in there, and what is
// on disk besides. It is what "git status" finds out, but for reading a single file: in the same time one can
// look twice, which is the only way to tell that nothing has happened in between.
type sight struct {
	entries []stagedEntry // those of the index that are not in conflict
	fates   []fate        // what became of each
	stamps  []stamp       // of those that are on disk
	loose   []found       // what has no entry; of a directory without any, only the directory. Sorted by name
	opened  []string      // submodules with something in them

	// whole: nothing of what was looked at had changed since the scan began, going by its times. So that is what the
	// tree was at that moment, all of it at once.
	whole bool

	top *visit // the directories that were looked at
}

// fate is what became of an entry of the index.
type fate uint8

const (
	absent  fate = iota // not on disk
	same                // as the index says
	changed             // perhaps: git would have to read it
	kept                // not looked at: a submodule, or what is not checked out
)

// found is something that no entry of the index stands for.
type found struct {
	name  string // with a slash behind when it is a directory
	stamp stamp
}

// stamp tells whether a file is still the one that was seen.
type stamp struct {
	mode         uint32
	size         int64
	mtime, ctime int64 // nanoseconds
	ino          uint64
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{mode: uint32(st.Mode), size: st.Size, mtime: unix.TimespecToNsec(unix.Timespec(st.Mtim)), ctime: unix.TimespecToNsec(unix.Timespec(st.Ctim)), ino: st.Ino}
}

// scanner looks at a tree. It follows no link, also when somebody puts one in its way.
type scanner struct {
	omit     string    // a top-level name that is not looked at, besides .git
	modes    bool      // whether a file is a program is to be seen on disk
	symlinks bool      // and so is what is a link
	empty    []byte    // the id of an empty file
	young    time.Time // of what has changed since, the index does not know whether it has seen it
	began    int64     // by the clock that files are stamped with, in nanoseconds; 0 where there is none to go by

	noticed func() // is called when something has no entry; nil where nobody wants to know

	sight *sight
	again bool // it was looked at before: see recheck

	mu      sync.Mutex
	wake    *sync.Cond
	todo    []*visit
	working int
	err     error
}

// visit is a directory to look at.
type visit struct {
	around *folder // that it is in; nil for the top
	name   string  // of the directory in there
	path   string  // with a slash behind; empty for the top
	lo, hi int     // the entries that lie below it

	stamp stamp // when it was looked at, before anything in it was
	young bool  // it had changed so shortly before that it may look the same after another change
	below []*visit
}

// folder is a directory that is open for as long as one below it has not been opened.
type folder struct {
	fd   int
	mu   sync.Mutex
	uses int
}

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

// processors is how many there are to look at files, before the program has said how many of us there may be at once.
var processors = runtime.GOMAXPROCS(0)

// scan looks at a tree beside an index, on every processor there is.
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
	s.whole = s.whole && fine // where times are in seconds, they do not tell
	return s, nil
}

// send has every directory looked at, from the top on.
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

// next is the next directory to look at; nil when there is no more.
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

// done says that a directory was looked at, and what is below it.
func (sc *scanner) done(below []*visit) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.todo = append(sc.todo, below...)
	sc.working--
	if len(sc.todo) > 0 || sc.working == 0 {
		sc.wake.Broadcast()
	}
}

// looker is one of those who look. What entries have is written to where the entry is; the rest is gathered.
type looker struct {
	*scanner
	loose  []found
	opened []string
	moved  []string // entries that are not what they were when they were looked at first
	unsure []string // directories in which names have come or gone since
	late   bool     // something has changed since the scan began, or just when it did
	fine   bool     // times have fractions of a second

	names  []name
	buffer []byte
}

// name is one name in a directory.
type name struct {
	text string
	kind fs.FileMode
	seen bool // an entry stands for it
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

// open opens a directory, and says when it last changed. There is none when it is gone since it was listed.
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

// lend keeps a directory open for those below it.
func (f *folder) lend(below []*visit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses += len(below)
	for _, v := range below {
		v.around = f
	}
}

// visit looks at one directory.
func (l *looker) visit(v *visit) (err error) {
	dir, stamp, err := v.open()
	if dir == nil {
		l.late = true // it was there when we began
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
		// All that lies below a directory stands together.
		prefix, end := full[:len(v.path)+slash+1], i+1
		for end < v.hi && bytes.HasPrefix(l.sight.entries[end].name, prefix) {
			end++
		}
		switch n := l.named(string(rest[:slash])); {
		case n != nil && n.kind.IsDir():
			n.seen = true
			v.below = append(v.below, &visit{name: n.text, path: string(prefix), lo: i, hi: end})
		default: // not there, or something else
			for ; i < end; i++ {
				l.missing(i)
			}
		}
		i = end
	}
	if err := l.strays(dir.fd, v.path); err != nil {
		return err
	}
	// Only now: what came or went while it was looked at has changed it.
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: v.path + ".", Err: err}
	}
	l.notice(stampOf(&st))
	dir.lend(v.below)
	return nil
}

// tick is how long two changes may have the same time.
func (sc *scanner) tick() time.Duration {
	if sc.began == 0 { // whatever file system it is
		return 2 * time.Second
	}
	return stampTick()
}

// passOver: of these names at the top nothing is looked at.
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

// missing: what is not on disk is gone, unless it is not meant to be there.
func (l *looker) missing(i int) {
	if l.sight.entries[i].skipped {
		l.sight.fates[i] = kept
	}
}

// entry says what became of an entry.
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
		l.missing(i) // what stands there has no entry
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, text, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			l.late = true // it was listed
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

// asStaged reports whether a file is what the index has of it, going by what the index says of the file.
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
		return false // git gives an entry that it doubts the size of an empty file
	}
	word := func(n int) uint32 { return binary.BigEndian.Uint32(s[n*4:]) }
	mtime := time.Unix(int64(word(2)), int64(word(3)))
	return word(0) == uint32(st.Ctim.Sec) && word(1) == uint32(st.Ctim.Nsec) &&
		word(2) == uint32(st.Mtim.Sec) && word(3) == uint32(st.Mtim.Nsec) &&
		word(5) == uint32(st.Ino) && word(7) == st.Uid && word(8) == st.Gid && word(9) == uint32(st.Size) &&
		!e.intended && mtime.Before(sc.young)
}

// strays gathers what no entry stands for.
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

// notice goes by the time that nobody can set: when something about a file last changed.
func (l *looker) notice(s stamp) {
	l.late = l.late || s.ctime >= l.began
	l.fine = l.fine || s.ctime%int64(time.Second) != 0
}

// holdsAnything reports whether there is something in a directory. One that has just gone holds nothing.
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
