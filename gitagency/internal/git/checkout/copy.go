package checkout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// copier copies the files of index entries from one worktree to another, new one.
type copier struct {
	ctx      context.Context
	format   object.Format
	from, to int    // descriptors of both worktrees
	target   string // path of the new one, for errors
	modes    bool   // files that are executable, or not, unlike their entry are not copied
	entries  []index.Entry
	hashed   *hashedFiles
	noDirs   []string    // directories that the source does not have, with a slash; it may have symlinks in their place
	stats    [][]byte    // stat data of the copies; nil for entries that were not copied
	began    time.Time   // files that are not older get a new mtime
	noClone  atomic.Bool // the file system cannot share blocks
}

// copyFiles copies the files of entries that have the content of their entry on disk and, with modes, its permissions. It returns the stat data of the copies,
// nil for each entry that was not copied. Errors of the source are no error: git then writes the file.
func copyFiles(ctx context.Context, source, target string, format object.Format, modes bool, entries []index.Entry, hashed *hashedFiles) (_ [][]byte, err error) {
	c := copier{ctx: ctx, format: format, modes: modes, target: target, entries: entries, hashed: hashed, stats: make([][]byte, len(entries)), began: time.Now()}
	const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY
	if c.from, err = openat(unix.AT_FDCWD, source, dirFlags, 0); err != nil {
		return c.stats, nil
	}
	defer unix.Close(c.from)
	if c.to, err = openat(unix.AT_FDCWD, target, dirFlags, 0); err != nil {
		return nil, c.errorIn("open", "", err)
	}
	defer unix.Close(c.to)
	if err := c.makeDirs(); err != nil {
		return nil, err
	}
	return c.stats, c.copyAll()
}

// openat opens a file that is no symlink.
func openat(dir int, name string, flags int, perm uint32) (fd int, err error) {
	for {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// makeDirs creates the directories of all entries before any file and symlink: no path of an entry leads through a symlink.
func (c *copier) makeDirs() error {
	last := []byte(nil)
	for _, e := range c.entries {
		end := bytes.LastIndexByte(e.Name, '/')
		if end < 0 || bytes.Equal(e.Name[:end], last) {
			continue
		}
		last = e.Name[:end]
		if err := c.makeDir(string(last)); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) makeDir(name string) error {
	err := unix.Mkdirat(c.to, name, 0o777)
	if errors.Is(err, unix.ENOENT) && path.Dir(name) != "." {
		if err := c.makeDir(path.Dir(name)); err != nil {
			return err
		}
		err = unix.Mkdirat(c.to, name, 0o777)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return c.errorIn("mkdir", name, err)
	}
	if n := len(c.noDirs); n > 0 && strings.HasPrefix(name, c.noDirs[n-1]) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(c.from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		c.noDirs = append(c.noDirs, name+"/") // to git, the files below it are deleted
	}
	return nil
}

// copyAll copies all entries, on all processors. Of several errors, mostly of the same disk, it returns one.
func (c *copier) copyAll() error {
	const batch = 32 // entries of mostly one directory
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for n := range errs {
		group.Go(func() {
			w := worker{copier: c, hash: c.format.NewHash(), buffer: make([]byte, 256<<10)}
			for errs[n] == nil {
				first := int(next.Add(batch)) - batch
				if first >= len(c.entries) {
					return
				}
				errs[n] = w.copyRange(first, min(first+batch, len(c.entries)))
			}
		})
	}
	group.Wait()
	return cmp.Or(errs...)
}

// worker is one goroutine that copies files.
type worker struct {
	*copier
	hash   hash.Hash
	buffer []byte
	sum    []byte
}

func (w *worker) copyRange(first, end int) (err error) {
	for i := first; i < end && err == nil; i++ {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		e := w.entries[i]
		name := string(e.Name)
		switch {
		case slices.ContainsFunc(w.noDirs, func(dir string) bool { return strings.HasPrefix(name, dir) }):
		case e.Mode == object.ModeSymlink:
			w.stats[i], err = w.copyLink(name, e)
		default:
			w.stats[i], err = w.copyFile(i, name, e)
		}
	}
	return err
}

// copyFile copies the regular file of entry i if it has the content of the entry: it is hashed, unless an earlier copy hashed it
// with the same stat data. The stat data in the index proves nothing: attributes may once have let git take other content for
// unchanged.
func (w *worker) copyFile(i int, name string, e index.Entry) (_ []byte, err error) {
	source, err := openat(w.from, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil
	}
	defer unix.Close(source)
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil
	}
	if w.modes && (st.Mode&unix.S_IXUSR != 0) != (e.Mode == object.ModeExecutable) {
		return nil, nil // a change of the mode
	}
	cached := w.hashed.has(i, &st)
	addable := !cached && w.hashed.mayAdd(source, &st, w.began)
	hasContent := func() bool { return isUnchanged(source, &st) }
	if !cached {
		w.begin(st.Size)
		hasContent = func() bool { return w.matches(e) }
	}
	content := []byte(nil)
	if small := st.Size <= int64(len(w.buffer)); small { // it is read before it is written
		content = w.buffer[:st.Size]
		if n, err := readFull(source, content); err != nil || n < len(content) {
			return nil, nil
		}
		if !cached {
			w.hash.Write(content)
		}
		if !hasContent() {
			return nil, nil
		}
	}
	target, err := w.create(name, e)
	if err != nil {
		return nil, err
	}
	defer unix.Close(target)
	cloned, copied := w.clone(target, source, &st), true
	switch {
	case content == nil && !(cached && cloned):
		copied, err = w.copyContent(target, source, name, st.Size, contentUse{hash: !cached, write: !cloned})
		copied = copied && hasContent()
	case !cloned:
		err = w.write(target, name, content)
	}
	if err != nil {
		return nil, err
	}
	if !copied || cloned && !isUnchanged(source, &st) {
		return nil, w.errorIn("remove", name, unix.Unlinkat(w.to, name, 0))
	}
	if addable && isUnchanged(source, &st) {
		w.hashed.add(i, &st)
	}
	return w.finish(target, name, e, st.Mtim)
}

// contentUse says what is to be done with the content of a large file.
type contentUse struct{ hash, write bool }

// copyContent reads a large file once, to hash it and to write it. It reports whether it could be read.
func (w *worker) copyContent(target, source int, name string, size int64, use contentUse) (bool, error) {
	for size > 0 {
		if err := context.Cause(w.ctx); err != nil {
			return false, err
		}
		part := w.buffer[:min(size, int64(len(w.buffer)))]
		if n, err := readFull(source, part); err != nil || n < len(part) {
			return false, nil
		}
		if use.hash {
			w.hash.Write(part)
		}
		if use.write {
			if err := w.write(target, name, part); err != nil {
				return false, err
			}
		}
		size -= int64(len(part))
	}
	return true, nil
}

// clone makes a new file share the blocks of its source, where the file system can. The caller checks with isUnchanged that the
// blocks are those of the file that st describes; a file that has just changed could change once more without a sign of it.
func (w *worker) clone(target, source int, st *unix.Stat_t) bool {
	if st.Size == 0 || w.noClone.Load() || !isOlder(st, w.began, racyAge) {
		return false
	}
	if err := durable.CloneFile(target, source); err != nil {
		w.noClone.Store(true) // both worktrees are mostly on one file system each
		return false
	}
	return true
}

// isUnchanged reports whether a file is as it was when st was read.
func isUnchanged(file int, st *unix.Stat_t) bool {
	var now unix.Stat_t
	err := unix.Fstat(file, &now)
	return err == nil && now.Ctim == st.Ctim && now.Mtim == st.Mtim && now.Size == st.Size
}

// readFull reads until the buffer is full or the file ends.
func readFull(file int, buffer []byte) (n int, err error) {
	for n < len(buffer) {
		got, err := unix.Read(file, buffer[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || got == 0:
			return n, err
		default:
			n += got
		}
	}
	return n, nil
}

// copyLink copies a symlink if it has the target of its entry.
func (w *worker) copyLink(name string, e index.Entry) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(w.from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil
	}
	n, err := unix.Readlinkat(w.from, name, w.buffer)
	if err != nil {
		return nil, nil
	}
	w.begin(int64(n))
	w.hash.Write(w.buffer[:n])
	if !w.matches(e) {
		return nil, nil
	}
	if err := unix.Symlinkat(string(w.buffer[:n]), w.to, name); err != nil {
		return nil, w.errorIn("symlink", name, err)
	}
	return w.finish(-1, name, e, st.Mtim)
}

// begin starts the hash of a blob.
func (w *worker) begin(size int64) {
	w.hash.Reset()
	head := append(make([]byte, 0, 32), "blob "...)
	w.hash.Write(append(strconv.AppendInt(head, size, 10), 0))
}

// matches reports whether what was hashed is the blob of an entry.
func (w *worker) matches(e index.Entry) bool {
	w.sum = w.hash.Sum(w.sum[:0])
	return bytes.Equal(w.sum, e.OID)
}

func (w *worker) create(name string, e index.Entry) (int, error) {
	perm := uint32(0o666)
	if e.Mode == object.ModeExecutable {
		perm = 0o777
	}
	target, err := openat(w.to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, perm)
	return target, w.errorIn("create", name, err)
}

func (w *worker) write(target int, name string, content []byte) error {
	for len(content) > 0 {
		n, err := unix.Write(target, content)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return w.errorIn("write", name, err)
		}
		content = content[max(n, 0):]
	}
	return nil
}

// finish sets the mtime of a copy, and returns its stat data. The descriptor is -1 for a symlink.
func (w *worker) finish(target int, name string, e index.Entry, mtime unix.Timespec) ([]byte, error) {
	if time.Unix(mtime.Unix()).Before(w.began) { // another one is not before that of the index, so that git would not trust it
		if err := unix.UtimesNanoAt(w.to, name, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, w.errorIn("set the time of", name, err)
		}
	}
	var st unix.Stat_t
	var err error
	if target >= 0 {
		err = unix.Fstat(target, &st)
	} else {
		err = unix.Fstatat(w.to, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return nil, w.errorIn("stat", name, err)
	}
	return index.EncodeStat(&st, e.Mode), nil
}

// errorIn returns the error of a file of the new worktree.
func (c *copier) errorIn(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path.Join(c.target, name), Err: err}
}
