package update

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
)

// classifier tells old files from new ones by content. After a crash of the machine, stat data may not be what the plan
// recorded, and content is all that is left to compare.
type classifier struct{ oldTree, newTree string } // directories with all changed files at the old and at the new commit

// newClassifier checks out the old and the new version of all changed files into the staging directory.
func (sd *stagingDir) newClassifier(ctx context.Context) (*classifier, error) {
	s, err := loadCheckout(ctx, sd.repo, sd.spec)
	if err != nil {
		return nil, err
	}
	j := &classifier{}
	for dir, side := range map[*string][]index.Entry{&j.oldTree: s.oldEntries(), &j.newTree: s.newEntries()} {
		at, err := os.MkdirTemp(sd.dir, "judge-")
		if err != nil {
			return nil, err
		}
		*dir = filepath.Join(at, "tree")
		one := &stagingDir{repo: sd.repo, spec: sd.spec, dir: at, entries: map[string]index.Entry{}}
		if err = one.createLayout(); err == nil && len(side) > 0 {
			err = s.checkOutFiles(ctx, one, side)
		}
		if err != nil {
			return nil, err
		}
	}
	return j, nil
}

// classify compares a file with its old and new version. A file with the inode of our new file (ours) counts as new even
// if only its beginning reached the disk.
func (c *classifier) classify(path, name string, ours bool) fileState {
	if same, _ := compareFiles(path, filepath.Join(c.oldTree, name)); same {
		return stateOld
	}
	if same, part := compareFiles(path, filepath.Join(c.newTree, name)); same || part && ours {
		return stateNew
	}
	return stateOther
}

// compareFiles reports whether two files are the same, and whether the first is a prefix of the second.
func compareFiles(path, other string) (same, part bool) {
	a, err := os.Lstat(path)
	b, otherErr := os.Lstat(other)
	if err != nil || otherErr != nil || a.Mode().Type() != b.Mode().Type() {
		return false, false
	}
	if a.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		and, otherErr := os.Readlink(other)
		return err == nil && otherErr == nil && to == and, false
	}
	if !a.Mode().IsRegular() || a.Size() > b.Size() {
		return false, false
	}
	if a.Size() == b.Size() && a.Mode()&0o100 != b.Mode()&0o100 {
		return false, false
	}
	f, _, err := git.OpenRegular(path)
	if err != nil {
		return false, false
	}
	defer f.Close()
	g, _, err := git.OpenRegular(other)
	if err != nil {
		return false, false
	}
	defer g.Close()
	const room = 64 << 10
	some, more := make([]byte, room), make([]byte, room)
	for {
		n, err := io.ReadFull(f, some)
		m, _ := io.ReadFull(g, more[:n])
		if n != m || !bytes.Equal(some[:n], more[:n]) {
			return false, false
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return a.Size() == b.Size(), true
		}
		if err != nil {
			return false, false
		}
	}
}
