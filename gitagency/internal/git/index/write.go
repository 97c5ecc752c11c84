package index

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Suffixes of the files beside the index.
const (
	DraftSuffix = ".agency"
	LockSuffix  = ".lock" // git's own
)

// EncodeEntries returns an index file with a few entries, given in any order.
func EncodeEntries(format object.Format, entries []Entry) []byte {
	entries = slices.Clone(entries)
	sort.Slice(entries, func(i, j int) bool { return string(entries[i].Name) < string(entries[j].Name) })
	x := File{Format: format}
	for _, e := range entries {
		x.Append(e.Stat, e.OID, e.Name)
	}
	return x.Encode()
}

// RewriteSuffix names the file in which Replace writes the index.
const RewriteSuffix = DraftSuffix + "-again"

// Replace writes the edited index beside a locked one durably, and then renames it into place.
func (y *Edited) Replace(index string) (err error) {
	name := index + RewriteSuffix
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if y.Perm != 0 {
		err = f.Chmod(y.Perm)
	}
	if err == nil {
		err = y.WriteSynced(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	if err := os.Rename(name, index); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(index))
}

// WriteSynced writes and fsyncs the index, with the mtime of the index that it replaces. Files modified since then,
// every new file included, are racy to git, which re-reads them instead of trusting their stat data.
func (y *Edited) WriteSynced(f *os.File) error {
	if err := y.write(f); err != nil {
		return err
	}
	if !y.ModTime.IsZero() {
		if err := os.Chtimes(f.Name(), y.ModTime, y.ModTime); err != nil {
			return err
		}
	}
	return f.Sync()
}

// StatWithMode returns the stat data of an index entry whose file git has not looked at yet: only the mode is set.
func StatWithMode(mode uint32) []byte {
	stat := make([]byte, StatSize)
	stat[ModeOffset], stat[ModeOffset+1], stat[ModeOffset+2], stat[ModeOffset+3] = byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode)
	return stat
}
