package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CheckObjectsExist checks that objects which were written before the ref to them still exist. A concurrent "git gc
// --prune=now" may have computed reachability before the ref was created, and have deleted them since.
func (r *Repo) CheckObjectsExist(ctx context.Context, objects ...string) error {
	var ask []string
	for _, oid := range objects {
		if _, err := os.Lstat(r.loosePath(oid)); err != nil { // it may be in a pack by now
			ask = append(ask, oid)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	found, err := r.Lookup(ctx, ask...)
	if err != nil {
		return err
	}
	for i, o := range found {
		if o.Missing() {
			return fmt.Errorf("object %s is gone again: something tidies up the repository, as 'git gc --prune=now' does", ask[i])
		}
	}
	return nil
}

// PackReachable packs the objects that are reachable from commit and not from known. A concurrent gc deletes loose
// objects, and packs that existed when it computed reachability: a pack that is made after the ref is safe from every
// gc that began before it, however long that takes.
func (r *Repo) PackReachable(ctx context.Context, commit, known string) (err error) {
	p := runOptions{stdin: commit + "\n--not\n" + known + "\n", config: []string{"-c", "core.attributesFile=/dev/null"}}
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0"}
	objects := filepath.Join(r.CommonDir, "objects")
	if _, partial := r.Config.Last("extensions.partialclone"); partial { // objects that a remote has may be missing
		args = append(args, "--exclude-promisor-objects")
	} else {
		// Git reads the delta attribute, and an attributes file of the repository may be a pipe, on which it would
		// block.
		m, err := r.NewMirror(commit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		p.gitDir, p.env = m.dir, []string{"GIT_OBJECT_DIRECTORY=" + objects}
	}
	_, err = r.runWrite(ctx, p, append(args, filepath.Join(objects, "pack", "pack"))...)
	return err
}
