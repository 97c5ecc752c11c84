package handoff

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// importLFS copies the objects of Git LFS from the upper directory to the real git directory, so that the files of every
// imported commit can be checked out there. An object whose content does not have the SHA-256 that is its name is left
// out, as git-lfs would not use it. Copies are needed: commands could change the content of a hard link.
func (e *Exchange) importLFS(ctx context.Context) error {
	upper, err := beneath.Open(e.upper)
	if err != nil {
		return err
	}
	defer upper.Close()
	i := lfsImport{upper: upper, gitDir: e.repo.CommonDir, limits: e.repo.Git.ReadLimits}
	err = i.importDir(ctx, "lfs/objects", 0)
	if len(i.unreadable) > 0 {
		e.repo.Warn("sandbox %s: objects of Git LFS are not exported, because commands have made them unreadable: %s", e.id, strings.Join(i.unreadable, ", "))
	}
	return err
}

// lfsImport copies objects of Git LFS.
type lfsImport struct {
	upper  *beneath.Dir
	gitDir string
	limits readlimit.Limits
	total  int64 // bytes of the objects that were read

	unreadable []string // the first objects and directories that we may not read
}

// skip drops an error about an entry that is no object, and remembers one that we may not read: neither may keep the commits
// of the sandbox from being imported.
func (i *lfsImport) skip(name string, err error) error {
	const most = 3 // to report
	switch {
	case errors.Is(err, fs.ErrPermission):
		if len(i.unreadable) < most {
			i.unreadable = append(i.unreadable, name)
		}
		return nil
	case beneath.IsGone(err) || fault.Is[*beneath.NotRegularError](err):
		return nil
	}
	return err
}

// lfsNames are the names of the two levels of directories in lfs/objects, and of the objects.
var lfsNames = sync.OnceValue(func() [3]*regexp.Regexp {
	dir := regexp.MustCompile(`^[0-9a-f]{2}$`)
	return [3]*regexp.Regexp{dir, dir, regexp.MustCompile(`^[0-9a-f]{64}$`)}
})

func (i *lfsImport) importDir(ctx context.Context, dir string, level int) error {
	entries, _, err := i.upper.ReadDir(dir)
	if err != nil {
		return i.skip(dir, err)
	}
	for _, entry := range entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if !lfsNames()[level].MatchString(entry.Name) {
			continue
		}
		name := dir + "/" + entry.Name
		if level == 2 {
			err = i.importObject(name)
		} else {
			err = i.importDir(ctx, name, level+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *lfsImport) importObject(name string) (err error) {
	target := filepath.Join(i.gitDir, name)
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	oid := filepath.Base(name)
	if name != path.Join("lfs/objects", oid[:2], oid[2:4], oid) {
		return nil // git-lfs does not look there
	}
	source, st, err := i.upper.OpenFile(name)
	if err != nil {
		return i.skip(name, err)
	}
	defer source.Close()
	i.total += st.Size
	if err := i.limits.CheckSize("the size of its new objects of Git LFS", readlimit.Inflated, i.total); err != nil {
		return err
	}
	temps := filepath.Join(i.gitDir, "lfs", "tmp") // from which git-lfs removes what is left over
	if err := errors.Join(os.MkdirAll(temps, 0o777), os.MkdirAll(filepath.Dir(target), 0o777)); err != nil {
		return err
	}
	temp, err := os.CreateTemp(temps, filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, temp.Close(), durable.RemoveIfExists(temp.Name())) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(temp, sum), io.LimitReader(source, st.Size)); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != filepath.Base(name) {
		return nil
	}
	if err := temp.Chmod(0o644); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), target); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(target))
}
