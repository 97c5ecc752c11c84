package git

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// commonBase is the one commit that two have in common and that every other such leads to; empty when there are
// several, which git knows how to deal with. It is an *UnrelatedError when there is none.
func (m *Merger) commonBase(ctx context.Context, ours, theirs string) (string, error) {
	if ours == theirs {
		return ours, nil
	}
	bases, known, err := m.nearBases(ctx, ours, theirs)
	if err != nil {
		return "", err
	}
	if !known {
		if err := m.flush(ctx); err != nil {
			return "", err
		}
		out, err := m.repo.read(ctx, m.place(), "merge-base", "--all", ours, theirs)
		if err != nil && !exitedWith(err, 1) {
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

// follows reports whether one commit was made on top of another, or on top of one that was, as long as each has one parent and
// those between are no older than the other. It is what most work is, and needs no look at what was before, not even where the
// clock of who made a single commit was behind.
func (m *Merger) follows(ctx context.Context, commit, other string) (bool, error) {
	data, err := m.contents(ctx, other, "commit")
	if err != nil {
		return false, err
	}
	_, _, since, _ := skimCommit(string(data))
	for at, steps := commit, 0; steps < mostNear; steps++ {
		data, err := m.contents(ctx, at, "commit")
		if err != nil {
			return false, nil // git says what it thinks of a history that is not all there
		}
		_, parents, when, ok := skimCommit(string(data))
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

// mostNear is how many commits are asked for before it takes less to start a git.
const mostNear = 64

// nearBases finds what git finds, as long as that is not far away: to start a git takes as long as it takes to ask for
// some dozens of commits. known is false when it is too far, or there is more to it.
func (m *Merger) nearBases(ctx context.Context, ours, theirs string) (bases []string, known bool, err error) {
	if _, err := os.Lstat(filepath.Join(m.dir, "shallow")); !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	const (
		fromOurs   = 1 << iota
		fromTheirs // what both lead to is in common; what that leads to is too, and of no interest
		stale
		found
	)
	type visit struct {
		oid     string
		parents []string
		when    int64
	}
	flags := map[string]int{ours: fromOurs, theirs: fromTheirs}
	var queue []visit // the youngest last
	push := func(oid string) error {
		data, err := m.contents(ctx, oid, "commit")
		if err != nil {
			return err
		}
		_, parents, when, ok := skimCommit(string(data))
		if !ok {
			return &UnsoundCommitError{Commit: oid, Why: "no tree"}
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
	if follows, err := m.follows(ctx, theirs, ours); err != nil || follows {
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
			if read++; read > mostNear {
				return nil, false, nil
			}
			flags[parent] |= pass
			if err := push(parent); err != nil {
				return nil, false, nil // git says what it thinks of a history that is not all there
			}
		}
	}
	bases = slices.DeleteFunc(bases, func(oid string) bool { return flags[oid]&stale != 0 })
	return bases, len(bases) == 1, nil // of several, some may lead to others
}
