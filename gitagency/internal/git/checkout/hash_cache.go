package checkout

import (
	"bytes"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// HashCache stores an index file of those files of a source whose content had the object id of their entry, so that a later copy
// does not hash a file with the same stat data. The zero value stores nothing.
type HashCache struct {
	Load func() []byte     // returns the stored data; nil if there is none
	Save func(data []byte) // replaces the stored data

	always bool // for sources of few files, and for files that could change without another ctime; set by tests
}

// racyAge is the age below which a file could change once more with the same ctime. Some file systems store seconds.
const racyAge = 2 * time.Second

// read returns the stored index; the zero value if there is none, or it is damaged.
func (c HashCache) read(format object.Format) index.File {
	if c.Load == nil {
		return index.File{}
	}
	x, err := index.Read(c.Load(), format)
	if err != nil {
		return index.File{}
	}
	return x
}

// save stores the hashed files, unless too few of them are new to be worth the time.
func (c HashCache) save(format object.Format, files *hashedFiles) {
	const maxFilesPerNew = 32 // files of a cache that is worth writing, for each that is new to it
	added := 0
	for _, stat := range files.now {
		if stat != nil {
			added++
		}
	}
	if added == 0 || added*maxFilesPerNew < len(files.entries) {
		return
	}
	x := index.File{Format: format}
	for i, e := range files.entries {
		if stat := files.stat(i); stat != nil {
			x.Append(stat, e.OID, e.Name)
		}
	}
	c.Save(x.Encode())
}

// hashedFiles are the files of a source that have the content of their entry.
type hashedFiles struct {
	mayAdd  func(file int, st *unix.Stat_t, now time.Time) bool
	entries []index.Entry
	cached  [][]byte // stat data of the file of each entry, from the cache; nil if the entry is not in it
	now     [][]byte // the same, of the files that this copy hashed
}

// newHashedFiles returns the files of entries that a cache has with the same object id and mode.
func (c HashCache) newHashedFiles(x index.File, entries []index.Entry) *hashedFiles {
	files := &hashedFiles{
		mayAdd: c.addRule(len(entries)), entries: entries,
		cached: make([][]byte, len(entries)), now: make([][]byte, len(entries)),
	}
	left, cached := x.Body, index.Entry{}
	for i, e := range entries {
		for len(left) > 0 && bytes.Compare(cached.Name, e.Name) < 0 {
			cached, left = index.NextEntry(left, x.Format.IDSize())
		}
		if bytes.Equal(cached.Name, e.Name) && bytes.Equal(cached.OID, e.OID) && cached.Mode == e.Mode {
			files.cached[i] = cached.Stat
		}
	}
	return files
}

// addRule returns the function that says whether a file of a source of so many files may be added, if its stat data is still the
// same after it was hashed.
func (c HashCache) addRule(files int) func(file int, st *unix.Stat_t, now time.Time) bool {
	const fewFiles = 1000 // their hashes take milliseconds
	switch {
	case c.always:
		return func(int, *unix.Stat_t, time.Time) bool { return true }
	case c.Save == nil || files < fewFiles:
		return func(int, *unix.Stat_t, time.Time) bool { return false }
	}
	return isSettled
}

// isSettled reports whether any change of a file from now on gives it another ctime.
func isSettled(file int, st *unix.Stat_t, now time.Time) bool {
	return isOlder(st, now, racyAge) && durable.IsWritten(file)
}

// stat returns the stat data with which the file of entry i was hashed last, or nil.
func (f *hashedFiles) stat(i int) []byte {
	if f.now[i] != nil {
		return f.now[i]
	}
	return f.cached[i]
}

// has reports whether the cache has the file of entry i with this stat data.
func (f *hashedFiles) has(i int, st *unix.Stat_t) bool {
	return f.cached[i] != nil && bytes.Equal(index.EncodeStat(st, f.entries[i].Mode), f.cached[i])
}

// add adds the file of entry i.
func (f *hashedFiles) add(i int, st *unix.Stat_t) { f.now[i] = index.EncodeStat(st, f.entries[i].Mode) }

// isOlder reports whether a file was last changed more than this long before a time.
func isOlder(st *unix.Stat_t, now time.Time, age time.Duration) bool {
	return time.Unix(st.Ctim.Unix()).Before(now.Add(-age))
}
