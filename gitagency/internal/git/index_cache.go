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
type indexCache struct {
	index Index
	mtime time.Time // files that are not older may have changed since they were read
}

// loadIndexCache writes the cached index to the path where git will read it. A cache that cannot be parsed is
// ignored: git then reads all files again.
func (v *worktreeScan) loadIndexCache(index string) error {
	data, at, err := readIndexCache(v.spec.IndexCache)
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

func readIndexCache(path string) (data []byte, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, at, err
	}
	data, err = durable.ReadFile(path, maxIndexSize)
	return data, fi.ModTime(), err
}

// recordIndexCache keeps the entries of the index that git has just written, for the requested names only and not for
// others that the cache had.
func (v *worktreeScan) recordIndexCache(x Index, index string, names []string) error {
	fi, err := os.Lstat(index)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	v.cache = indexCache{index: Index{format: x.format, extended: x.extended}, mtime: fi.ModTime()}
	for left := x.body; len(left) > 0; {
		e, rest := nextIndexEntry(left, x.format.idSize())
		if asked[string(e.name)] {
			v.cache.index.body = append(v.cache.index.body, left[:len(left)-len(rest)]...)
			v.cache.index.count++
		}
		left = rest
	}
	return nil
}

// saveIndexCache writes the cache for the next capture.
func (v *worktreeScan) saveIndexCache() error {
	if v.cache.mtime.IsZero() { // no file was read
		return durable.Remove(v.spec.IndexCache)
	}
	if data, at, err := readIndexCache(v.spec.IndexCache); err == nil && at.Equal(v.cache.mtime) && len(data) == len(v.cache.index.Encode()) {
		return nil // git added no entry
	}
	f, err := durable.Create(v.spec.IndexCache, v.cache.index.Encode(), 0o600, func(f *os.File) error {
		return os.Chtimes(f.Name(), v.cache.mtime, v.cache.mtime)
	})
	if err != nil {
		return err
	}
	return f.Close()
}
