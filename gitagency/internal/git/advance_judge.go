package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// judge says of a file by its content what it is. Where the machine has stopped, that may be all that tells.
type judge struct{ old, new string } // trees in which each is what it was, and what it was to be

// newJudge has git write all that went, and all that was to come, once more.
func (g *stage) newJudge(ctx context.Context) (*judge, error) {
	s, err := g.repo.take(ctx, g.a)
	if err != nil {
		return nil, err
	}
	j := &judge{}
	for dir, side := range map[*string][]stagedEntry{&j.old: s.going(), &j.new: s.coming()} {
		at, err := os.MkdirTemp(g.dir, "judge-")
		if err != nil {
			return nil, err
		}
		*dir = filepath.Join(at, "tree")
		one := &stage{repo: g.repo, a: g.a, dir: at, entries: map[string]stagedEntry{}}
		if err = one.fill(); err == nil && len(side) > 0 {
			err = s.checkOut(ctx, one, side)
		}
		if err != nil {
			return nil, err
		}
	}
	return j, nil
}

// of says what a file is. One that is ours, and of which there is only a part, is the new one.
func (j *judge) of(path, name string, ours bool) standing {
	if same, _ := compareFiles(path, filepath.Join(j.old, name)); same {
		return isOld
	}
	if same, part := compareFiles(path, filepath.Join(j.new, name)); same || part && ours {
		return isNew
	}
	return isOther
}

// compareFiles reports whether two files are the same, and whether the first is the beginning of the second.
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
	f, _, err := openRegular(path)
	if err != nil {
		return false, false
	}
	defer f.Close()
	g, _, err := openRegular(other)
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
