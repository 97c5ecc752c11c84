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
		most = 64
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
			if read++; read > most {
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
