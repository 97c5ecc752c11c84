package checkout

import (
	"bytes"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// Memory stores which files of a source had the content of their index entry when they were copied, so that a later copy need
// not hash those whose stat data is the same: an index file of them. It is a cache. The zero value stores nothing.
type Memory struct {
	Load   func() []byte
	Save   func([]byte) error
	MinAge time.Duration // younger files are not stored: they could change once more within the resolution of their ctime
}

// knownFiles are the files of a source that have the content of their index entry.
type knownFiles struct {
	minAge  time.Duration
	entries []index.Entry
	earlier [][]byte // stat data of the file of each entry that had the content of the entry earlier; nil if none is known
	now     [][]byte // the same, of the files hashed by this copy
}

// load begins to read what was stored for a source. The returned function waits for it; damaged data counts as none.
func (m Memory) load(format object.Format) (wait func(entries []index.Entry) knownFiles) {
	if m.Load == nil {
		return func(entries []index.Entry) knownFiles { return knownFiles{} }
	}
	stored := proc.Async(func() (index.File, error) { return index.Read(m.Load(), format) })
	return func(entries []index.Entry) knownFiles {
		k := knownFiles{minAge: m.MinAge, entries: entries, earlier: make([][]byte, len(entries)), now: make([][]byte, len(entries))}
		x, err := stored()
		if err != nil {
			return k
		}
		left, size, was := x.Body, format.IDSize(), index.Entry{}
		for i, e := range entries {
			for len(left) > 0 && bytes.Compare(was.Name, e.Name) < 0 {
				was, left = index.NextEntry(left, size)
			}
			if bytes.Equal(was.Name, e.Name) && bytes.Equal(was.OID, e.OID) && was.Mode == e.Mode {
				k.earlier[i] = was.Stat
			}
		}
		return k
	}
}

// has reports whether the file of entry i, with this stat data, had the content of the entry earlier.
func (k *knownFiles) has(i int, st *unix.Stat_t) bool {
	if k.entries == nil || k.earlier[i] == nil {
		return false
	}
	return bytes.Equal(index.EncodeStat(st, k.entries[i].Mode), k.earlier[i])
}

// add makes the file of entry i known.
func (k *knownFiles) add(i int, st *unix.Stat_t) {
	if k.entries != nil {
		k.now[i] = index.EncodeStat(st, k.entries[i].Mode)
	}
}

// save stores the known files, unless too few of them are new to be worth the time.
func (m Memory) save(format object.Format, k knownFiles) error {
	const worth = 32 // one new file of so many
	hashed := 0
	for _, stat := range k.now {
		if stat != nil {
			hashed++
		}
	}
	if hashed == 0 || hashed*worth < len(k.entries) {
		return nil
	}
	x := index.File{Format: format}
	for i, e := range k.entries {
		stat := k.now[i]
		if stat == nil {
			stat = k.earlier[i]
		}
		if stat != nil {
			x.Append(stat, e.OID, e.Name)
		}
	}
	return m.Save(x.Encode())
}
