package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Replaying says which commits to make again, and on top of what.
type Replaying struct {
	Upstream, Tip string                       // required: what leads to Tip, and not to Upstream
	Onto          string                       // required: the commit they come on top of
	Committer     Signature                    // required: of all of them; they keep their authors
	Message       func(original string) string // what a commit says then; nil is what it said
	Sign          bool                         // as the user has it set up

	Attributes string // as in Merging; empty is that of Onto
}

// Replayed is what came of it.
type Replayed struct {
	Tip, Tree string      // Onto and its tree where nothing is left; of a conflict only the tree, with its markers
	Commits   []Rewritten // oldest first
	Dropped   []string    // of which nothing is left, because what they do is done
	Collapsed []string    // that became the first of Commits together: merges, and what they merged

	Stopped   string     // the commit that does not go on top of the others; empty when all do
	Conflicts []Conflict // of that one
}

// Rewritten is a commit and what it became.
type Rewritten struct{ Old, New string }

// Replay makes commits again on top of another, as git rebase does, without a worktree. Each keeps its author, date and
// encoding; its signature would not hold any more. One that does nothing any more is left out, unless it never did.
//
// Merges are not made again: the commits go one on top of the other. Where that does not come out as what both sides make
// when they are merged, as where a conflict was resolved in a merge, all commits up to the last merge become one.
func (m *Merger) Replay(ctx context.Context, what Replaying) (Replayed, error) {
	commits, err := m.between(ctx, what.Upstream, what.Tip)
	if err != nil {
		return Replayed{}, err
	}
	tree, err := m.treeOf(ctx, what.Onto)
	if err != nil {
		return Replayed{}, err
	}
	if what.Attributes == "" {
		what.Attributes = what.Onto
	}
	merges := slices.ContainsFunc(commits, func(c written) bool { return len(c.parents) > 1 })
	done := Replayed{Tip: what.Onto, Tree: tree}
	if err := m.replay(ctx, what, &done, commits); err != nil || !merges {
		return done, err
	}
	if done.Stopped == "" {
		whole, err := m.Merge(ctx, Merging{Ours: what.Onto, Theirs: what.Tip, Attributes: what.Attributes})
		if err != nil {
			return Replayed{}, err
		}
		if len(whole.Conflicts) == 0 && whole.Tree == done.Tree {
			return done, nil
		}
	}
	done = Replayed{Tip: what.Onto, Tree: tree}
	rest, err := m.collapse(ctx, what, &done, commits)
	if err != nil || done.Stopped != "" {
		return done, err
	}
	err = m.replay(ctx, what, &done, rest)
	return done, err
}

// between lists the commits that lead to one and not to the other, the oldest first, and refuses those that no git has
// made.
func (m *Merger) between(ctx context.Context, upstream, tip string) (commits []written, err error) {
	if !isOID(upstream) || !isOID(tip) {
		return nil, fmt.Errorf("not names of commits: %q, %q", upstream, tip)
	}
	asked := [2]string{upstream, tip}
	m.talking.Lock()
	commits, is := m.ranges[asked]
	m.talking.Unlock()
	if is {
		return commits, nil
	}
	defer func() {
		if err == nil {
			m.talking.Lock()
			m.ranges[asked] = commits
			m.talking.Unlock()
		}
	}()
	// A line of commits that is not long needs no git of its own.
	bases, known, err := m.nearBases(ctx, upstream, tip)
	if err != nil {
		return nil, err
	}
	for at := tip; known && at != bases[0]; {
		c, err := m.commit(ctx, at)
		if err != nil {
			return nil, err
		}
		if known = len(c.parents) == 1; known {
			commits, at = append(commits, c), c.parents[0]
		}
	}
	if known {
		slices.Reverse(commits)
		return commits, nil
	}
	if err := m.flush(ctx); err != nil {
		return nil, err
	}
	out, err := m.repo.read(ctx, m.place(), "rev-list", "--topo-order", "--reverse", tip, "^"+upstream)
	if err != nil {
		return nil, err
	}
	commits = nil
	for oid := range strings.FieldsSeq(string(out)) {
		c, err := m.commit(ctx, oid)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// replay puts commits that are no merges on top of what is done.
func (m *Merger) replay(ctx context.Context, what Replaying, done *Replayed, commits []written) error {
	for _, c := range commits {
		if len(c.parents) > 1 {
			continue
		}
		before := m.emptyTree()
		if len(c.parents) == 1 {
			var err error
			if before, err = m.treeOf(ctx, c.parents[0]); err != nil {
				return err
			}
		}
		merged := Merged{Tree: done.Tree}
		if before != c.tree {
			var err error
			merged, err = m.mergeOver(ctx, Merging{Base: before, Ours: done.Tip, Theirs: c.oid, Attributes: what.Attributes}, before, done.Tree, c.tree)
			if err != nil {
				return fmt.Errorf("replay %.12s: %w", c.oid, err)
			}
			switch {
			case len(merged.Conflicts) > 0:
				done.Tip, done.Tree, done.Stopped, done.Conflicts = "", merged.Tree, c.oid, merged.Conflicts
				return nil
			case merged.Tree == done.Tree:
				done.Dropped = append(done.Dropped, c.oid)
				continue
			}
		}
		if err := m.append(ctx, what, done, c, merged.Tree); err != nil {
			return err
		}
	}
	return nil
}

// append makes a commit again. It stays in the encoding that it is in, unless what comes to it is not.
func (m *Merger) append(ctx context.Context, what Replaying, done *Replayed, c written, tree string) error {
	if c.encoding != "" && (!fits(what.Committer.String()) || what.Message != nil && !fits(what.Message(""))) {
		c = c.inUTF8()
	}
	made := written{tree: tree, parents: []string{done.Tip}, author: c.author, committer: what.Committer.String(), encoding: c.encoding, message: c.message}
	if what.Message != nil {
		if made.message = what.Message(c.message); strings.Contains(made.message, "\x00") {
			return errors.New("a message with a NUL in it")
		}
	}
	write := m.write
	if what.Sign {
		write = m.writeSigned
	}
	oid, err := write(ctx, made)
	if err != nil {
		return err
	}
	done.Tip, done.Tree = oid, tree
	done.Commits = append(done.Commits, Rewritten{Old: c.oid, New: oid})
	return nil
}

// collapse makes one commit of all up to the last merge on the way from the tip back along first parents, and returns
// those that come after it.
func (m *Merger) collapse(ctx context.Context, what Replaying, done *Replayed, commits []written) (rest []written, err error) {
	by := map[string]written{}
	for _, c := range commits {
		by[c.oid] = c
	}
	last := by[what.Tip]
	for len(last.parents) == 1 {
		rest = append(rest, last)
		last = by[last.parents[0]]
	}
	slices.Reverse(rest)
	if len(last.parents) < 2 {
		return nil, fmt.Errorf("no merge on the way to %.12s", what.Tip) // where there is one, there is one on the way
	}
	merged, err := m.Merge(ctx, Merging{Ours: what.Onto, Theirs: last.oid, Attributes: what.Attributes})
	if err != nil {
		return nil, err
	}
	if len(merged.Conflicts) > 0 {
		done.Tip, done.Tree, done.Stopped, done.Conflicts = "", merged.Tree, last.oid, merged.Conflicts
		return nil, nil
	}
	var subjects []string
	for _, c := range commits {
		if slices.ContainsFunc(rest, func(r written) bool { return r.oid == c.oid }) {
			continue
		}
		done.Collapsed = append(done.Collapsed, c.oid)
		if len(c.parents) < 2 {
			subjects = append(subjects, subject(inUTF8(c.message, c.encoding)))
		}
	}
	if merged.Tree == done.Tree {
		done.Dropped, done.Collapsed = done.Collapsed, nil
		return rest, nil
	}
	last = last.inUTF8() // what they were in need not be the same
	one := written{oid: last.oid, author: last.author, message: last.message}
	switch n := len(subjects); {
	case n == 1:
		one.message = subjects[0] + "\n"
	case n > 1:
		one.message = fmt.Sprintf("%s, and %d more\n\n* %s\n", subjects[n-1], n-1, strings.Join(subjects, "\n* "))
	}
	return rest, m.append(ctx, what, done, one, merged.Tree)
}

// subject is the first line of a message.
func subject(message string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return strings.TrimSpace(line)
}

func (m *Merger) emptyTree() string { return hexID(nameObject(m.format, "tree", nil)) }
