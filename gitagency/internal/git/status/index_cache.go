package status

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// indexCache is the index that git last wrote of a directory that is no worktree, with the stat data of every file
// when git read it. It must never be used as a list of tracked files. Whether a file belongs to a state is decided
// anew each time: the ignore rules and secret patterns may have changed, and the last capture may have included
// ignored files.
type indexCache struct {
	index index.File
	mtime time.Time // files that are not older may have changed since they were read
}

// loadIndexCache writes the cached index to the path where git will read it. A cache that cannot be parsed is
// ignored: git then reads all files again.
func (v *worktreeScan) loadIndexCache(idx string) error {
	data, at, err := readIndexCache(v.spec.IndexCache)
	if err == nil {
		_, err = index.Read(data, object.SHA1)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return nil
	}
	if err := os.WriteFile(idx, data, 0o600); err != nil {
		return err
	}
	return os.Chtimes(idx, at, at) // from which git tells the racy entries
}

func readIndexCache(path string) (data []byte, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, at, err
	}
	data, err = durable.ReadFile(path, index.MaxSize)
	return data, fi.ModTime(), err
}

// recordIndexCache keeps the entries of the index that git has just written, for the requested names only and not for
// others that the cache had.
func (v *worktreeScan) recordIndexCache(x index.File, idx string, names []string) error {
	fi, err := os.Lstat(idx)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	v.cache = indexCache{index: index.File{Format: x.Format, Extended: x.Extended}, mtime: fi.ModTime()}
	for left := x.Body; len(left) > 0; {
		e, rest := index.NextEntry(left, x.Format.IDSize())
		if asked[string(e.Name)] {
			v.cache.index.Body = append(v.cache.index.Body, left[:len(left)-len(rest)]...)
			v.cache.index.Count++
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
