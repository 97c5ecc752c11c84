package status

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// indexCache is an index of the files of a directory that is no worktree, with the stat data of every file when it was
// read. It must never be used as a list of tracked files. Whether a file belongs to a state is decided anew each time: the
// ignore rules and secret patterns may have changed, and the last capture may have included ignored files.
type indexCache struct {
	known map[string]index.Entry // files of the last capture, by name
	mtime time.Time              // files that are not older may have changed since they were read

	entries []index.EntryChange // files of this capture
	readAt  time.Time           // moment from before the first file was read
	changed bool                // a file was read
}

// loadIndexCache reads the cache of the last capture. A cache that cannot be parsed is ignored: all files are then read
// again.
func (v *worktreeScan) loadIndexCache() error {
	v.cache = indexCache{known: map[string]index.Entry{}, readAt: time.Now()}
	if now := fileClockNow(v.spec.WriteDir()); now != 0 {
		v.cache.readAt = time.Unix(0, now) // the clock of timestamps lags behind the other
	}
	data, at, err := readIndexCache(v.spec.IndexCache)
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	x, parseErr := index.Read(data, object.SHA1)
	if err != nil || parseErr != nil {
		return nil
	}
	v.cache.mtime = at
	for e := range x.AllEntries() {
		v.cache.known[string(e.Name)] = e
	}
	return nil
}

func readIndexCache(path string) (data []byte, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, at, err
	}
	data, err = durable.ReadFile(path, index.MaxSize)
	return data, fi.ModTime(), err
}

// addCached adds a file that is unchanged since the last capture, and reports whether it is.
func (h *fileHasher) addCached(name string) bool {
	e, known := h.cache.known[name]
	if !known {
		return false
	}
	sc := h.newScanner()
	sc.IndexMtime = h.cache.mtime
	var st unix.Stat_t
	if h.tree.Lstat(name, &st) != nil || !sc.MatchesIndex(&e, &st) {
		return false
	}
	h.leaves[name] = object.LeafChange{Mode: e.Mode, OID: e.OID, Path: name}
	h.cache.entries = append(h.cache.entries, index.EntryChange{Name: name, Mode: e.Mode, OID: e.OID, Stat: e.Stat})
	return true
}

// recordCached remembers a file that was read.
func (h *fileHasher) recordCached(name string, st *unix.Stat_t) {
	if h.spec.IndexCache == "" {
		return
	}
	l := h.leaves[name]
	h.cache.changed = true
	h.cache.entries = append(h.cache.entries, index.EntryChange{Name: name, Mode: l.Mode, OID: l.OID, Stat: index.EncodeStat(st, l.Mode)})
}

// saveIndexCache writes the cache for the next capture.
func (v *worktreeScan) saveIndexCache() error {
	if len(v.cache.entries) == 0 {
		return durable.Remove(v.spec.IndexCache)
	}
	if !v.cache.changed && len(v.cache.entries) == len(v.cache.known) {
		return nil
	}
	at := v.cache.readAt
	if !v.cache.changed {
		at = v.cache.mtime
	}
	x := index.File{Format: v.format}
	slices.SortFunc(v.cache.entries, func(a, b index.EntryChange) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range v.cache.entries {
		x.Append(e.Stat, e.OID, []byte(e.Name))
	}
	f, err := durable.Create(v.spec.IndexCache, x.Encode(), 0o600, func(f *os.File) error {
		return os.Chtimes(f.Name(), at, at)
	})
	if err != nil {
		return err
	}
	return f.Close()
}
