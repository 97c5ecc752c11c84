package fsck_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// Promise: a walk over many large trees reads each of them once, and ends at its limits.
func TestTreeWalkIsBounded(t *testing.T) {
	t.Parallel()
	const names, commits, nameSize = 500, 20, 32 // a name, its mode and id are 32 bytes
	l := gittest.New(t)
	var all []fsck.ReceivedCommit
	blob, other := l.MakeBlob("x"), l.MakeBlob("y")
	var size int64
	for c := range commits {
		var lines []string
		for i := range names {
			oid := blob
			if i == c {
				oid = other
			}
			lines = append(lines, fmt.Sprintf("100644 blob %s\tf%03d", oid, i))
		}
		commit := fsck.ReceivedCommit{Tree: l.MakeTree(lines...)}
		if c > 0 {
			commit.ParentTree = all[c-1].Tree
		}
		all = append(all, commit)
		size += names * nameSize
	}
	repo := repotest.OpenRepo(l)
	walk := func(limits readlimit.Limits) error {
		objects, err := repo.OpenCatFile(t.Context())
		l.Must(err)
		defer objects.Close()
		w := fsck.TreeWalk{Objects: objects, Seen: map[string]bool{}, Blobs: map[string]bool{}, Size: 20, Reading: readlimit.Reading{Limits: limits, What: "the trees"}}
		for _, c := range all {
			if err := w.WalkCommit(c); err != nil {
				return err
			}
		}
		if len(w.Blobs) != 2 {
			t.Errorf("blobs are %v", w.Blobs)
		}
		return nil
	}
	if err := walk(readlimit.Limits{Inflated: size}); err != nil {
		t.Errorf("with as much as all trees have: %v", err)
	}
	for name, limits := range map[string]readlimit.Limits{
		readlimit.Inflated: {Inflated: size - 1},
		readlimit.Memory:   {Memory: 8*names*nameSize - 8}, // an eighth is the largest tree
		"names":            {Memory: 1},
	} {
		var exceeded *readlimit.ExceededError
		if err := walk(limits); !errors.As(err, &exceeded) || exceeded.Limit != name && name != "names" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
