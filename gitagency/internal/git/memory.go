package git

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// indexCache is the index that git last wrote of a directory that is no worktree, with the stat data of every file
// when git read it. It must never be used as a list of tracked files. Whether a file belongs to a state is decided
// anew each time: the ignore rules and secret patterns may have changed, and the last capture may have included
// ignored files.
type memory struct {
	index Index
	at    time.Time // files that are not older may have changed since they were read
}

// loadIndexCache writes the cached index to the path where git will read it. A cache that cannot be parsed is
// ignored: git then reads all files again.
func (v *view) recall(index string) error {
	data, at, err := readMemory(v.s.Memory)
	if err == nil {
		_, err = ReadIndex(data, SHA1)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return nil
	}
	if err := os.WriteFile(index, data, 0o600); err != nil {
		return err
	}
	return os.Chtimes(index, at, at) // from which git tells the racy entries
}

func readMemory(path string) (data []byte, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, at, err
	}
	data, err = durable.ReadFile(path, mostIndex)
	return data, fi.ModTime(), err
}

// recordIndexCache keeps the entries of the index that git has just written, for the requested names only and not for
// others that the cache had.
func (v *view) note(x Index, index string, names []string) error {
	fi, err := os.Lstat(index)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	v.known = memory{index: Index{format: x.format, extended: x.extended}, at: fi.ModTime()}
	for left := x.body; len(left) > 0; {
		e, rest := nextStaged(left, x.format.size())
		if asked[string(e.name)] {
			v.known.index.body = append(v.known.index.body, left[:len(left)-len(rest)]...)
			v.known.index.count++
		}
		left = rest
	}
	return nil
}

// saveIndexCache writes the cache for the next capture.
func (v *view) remember() error {
	if v.known.at.IsZero() { // no file was read
		return durable.Remove(v.s.Memory)
	}
	if data, at, err := readMemory(v.s.Memory); err == nil && at.Equal(v.known.at) && len(data) == len(v.known.index.Encode()) {
		return nil // git added no entry
	}
	f, err := durable.Create(v.s.Memory, v.known.index.Encode(), 0o600, func(f *os.File) error {
		return os.Chtimes(f.Name(), v.known.at, v.known.at)
	})
	if err != nil {
		return err
	}
	return f.Close()
}
