package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Still makes sure that objects are there which were written before a ref led to them. A git that tidies up at once, as
// "gc --prune=now" does, may have looked for what is needed before there was the ref, and have taken them away since.
func (r *Repo) Still(ctx context.Context, objects ...string) error {
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

// Pack puts what a commit leads to, and another does not, into a pack. Who tidies up takes away what lies by itself, and
// packs that were there when he looked for what is needed: a pack that is made after the ref is safe from all who began
// before it, however long they take.
func (r *Repo) Pack(ctx context.Context, commit, known string) (err error) {
	p := place{stdin: commit + "\n--not\n" + known + "\n", config: []string{"-c", "core.attributesFile=/dev/null"}}
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0"}
	objects := filepath.Join(r.CommonDir, "objects")
	if _, partial := r.Config.Last("extensions.partialclone"); partial { // what a remote has need not be here
		args = append(args, "--exclude-promisor-objects")
	} else {
		// Git asks attributes what it may pack; what stands in for them may be something that it would wait for.
		m, err := r.Mirror(commit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		p.gitDir, p.env = m.dir, []string{"GIT_OBJECT_DIRECTORY=" + objects}
	}
	_, err = r.change(ctx, p, append(args, filepath.Join(objects, "pack", "pack"))...)
	return err
}
