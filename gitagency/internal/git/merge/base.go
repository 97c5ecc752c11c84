package merge

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// mergeBase returns the merge base of two commits; empty if there are several, in which case git has to do the merge. The
// error is an *UnrelatedError if there is none.
func (m *Merger) mergeBase(ctx context.Context, ours, theirs string) (string, error) {
	if ours == theirs {
		return ours, nil
	}
	bases, known, err := m.nearMergeBases(ctx, ours, theirs)
	if err != nil {
		return "", err
	}
	if !known {
		if err := m.Flush(ctx); err != nil {
			return "", err
		}
		out, err := m.Repo.RunRead(ctx, m.GitOptions(), "merge-base", "--all", ours, theirs)
		if err != nil && !git.ExitedWith(err, 1) {
			return "", err
		}
		bases = strings.Fields(string(out))
	}
	switch len(bases) {
	case 0:
		return "", &UnrelatedError{Ours: ours, Theirs: theirs}
	case 1:
		return bases[0], nil
	}
	return "", nil
}

// isLinearDescendant reports whether a commit descends from another through commits that each have one parent and, but for
// the child of the other commit, are no older than it. Most work is like that, and needs no look at the history before the
// other commit, even if the clock was wrong when a single commit was made. False means only that it is not known.
func (m *Merger) isLinearDescendant(ctx context.Context, commit, other string) (bool, error) {
	data, err := m.ReadContents(ctx, other, "commit")
	if err != nil {
		return false, err
	}
	_, _, since, _ := object.ParseCommitHeader(string(data))
	for at, steps := commit, 0; steps < maxNearCommits; steps++ {
		data, err := m.ReadContents(ctx, at, "commit")
		if err != nil {
			return false, nil // incomplete history: git reports it
		}
		_, parents, when, ok := object.ParseCommitHeader(string(data))
		switch {
		case !ok || len(parents) != 1:
			return false, nil
		case parents[0] == other:
			return true, nil
		case when < since:
			return false, nil
		}
		at = parents[0]
	}
	return false, nil
}

// maxNearCommits is the number of commits to read before starting a git is cheaper.
const maxNearCommits = 64

// nearMergeBases finds the merge base of two commits with git's algorithm, by reading a few commits: starting a git takes
// as long as reading some dozens. known is false if that is not enough, if there is not exactly one base, or if the
// repository is shallow.
func (m *Merger) nearMergeBases(ctx context.Context, ours, theirs string) (bases []string, known bool, err error) {
	if _, err := os.Lstat(filepath.Join(m.Dir, "shallow")); !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	const (
		fromOurs   = 1 << iota // ancestor of ours
		fromTheirs             // ancestor of theirs
		stale                  // ancestor of a common ancestor
		found                  // in bases
	)
	type visit struct {
		oid     string
		parents []string
		when    int64
	}
	flags := map[string]int{ours: fromOurs, theirs: fromTheirs}
	var queue []visit // youngest commit last
	push := func(oid string) error {
		data, err := m.ReadContents(ctx, oid, "commit")
		if err != nil {
			return err
		}
		_, parents, when, ok := object.ParseCommitHeader(string(data))
		if !ok {
			return &object.InvalidCommitError{Commit: oid, Why: "no tree"}
		}
		v := visit{oid, parents, when}
		at, _ := slices.BinarySearchFunc(queue, v, func(a, b visit) int { return cmp.Compare(a.when, b.when) })
		queue = slices.Insert(queue, at, v)
		return nil
	}
	for _, oid := range []string{ours, theirs} {
		if err := push(oid); err != nil {
			return nil, false, err
		}
	}
	if follows, err := m.isLinearDescendant(ctx, theirs, ours); err != nil || follows {
		return []string{ours}, follows, err
	}
	for read := 0; slices.ContainsFunc(queue, func(v visit) bool { return flags[v.oid]&stale == 0 }); {
		v := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		pass := flags[v.oid] & (fromOurs | fromTheirs | stale)
		if pass == fromOurs|fromTheirs {
			if flags[v.oid]&found == 0 {
				flags[v.oid] |= found
				bases = append(bases, v.oid)
			}
			pass |= stale
		}
		for _, parent := range v.parents {
			if flags[parent]&pass == pass {
				continue
			}
			if read++; read > maxNearCommits {
				return nil, false, nil
			}
			flags[parent] |= pass
			if err := push(parent); err != nil {
				return nil, false, nil // incomplete history: git reports it
			}
		}
	}
	bases = slices.DeleteFunc(bases, func(oid string) bool { return flags[oid]&stale != 0 })
	return bases, len(bases) == 1, nil // of several, some may be ancestors of others
}
