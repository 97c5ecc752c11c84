package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ReplayRequest describes commits to rebase.
type Replaying struct {
	Upstream, Tip string                       // required: the commits are Upstream..Tip
	Onto          string                       // required: new base commit
	Committer     Signature                    // required: committer of the new commits, which keep their authors
	Message       func(original string) string // new message; nil: unchanged
	Sign          bool                         // sign with the user's configured program and key

	Attributes string // as in Request, but empty means Onto
}

// ReplayResult is the result of a replay.
type Replayed struct {
	Tip, Tree string      // last commit and its tree; with conflicts no Tip, and the Tree has conflict markers
	Commits   []Rewritten // oldest first
	Dropped   []string    // commits left out because Onto already has their changes
	Collapsed []string    // merges and merged commits that became the first of Commits together

	Stopped   string     // commit with conflicts; empty: none
	Conflicts []Conflict // of the commit in StoppedAt
}

// Rewritten is a replayed commit: its old and new id.
type Rewritten struct{ Old, New string }

// Replay makes commits again on top of another, as git rebase does, without a worktree. Each keeps its author, date and
// encoding, but not its signature, which would be invalid. A commit that becomes empty is dropped, unless it was empty
// before.
//
// Merge commits are not made again: the other commits are linearized. If the result differs from a merge of both sides,
// for example because a merge commit resolved a conflict, all commits up to the last merge are squashed into one.
func (m *Merger) Replay(ctx context.Context, req Replaying) (Replayed, error) {
	commits, err := m.between(ctx, req.Upstream, req.Tip)
	if err != nil {
		return Replayed{}, err
	}
	tree, err := m.treeOf(ctx, req.Onto)
	if err != nil {
		return Replayed{}, err
	}
	if req.Attributes == "" {
		req.Attributes = req.Onto
	}
	merges := slices.ContainsFunc(commits, func(c written) bool { return len(c.parents) > 1 })
	done := Replayed{Tip: req.Onto, Tree: tree}
	if err := m.replay(ctx, req, &done, commits); err != nil || !merges {
		return done, err
	}
	if done.Stopped == "" {
		whole, err := m.Merge(ctx, Merging{Ours: req.Onto, Theirs: req.Tip, Attributes: req.Attributes})
		if err != nil {
			return Replayed{}, err
		}
		if len(whole.Conflicts) == 0 && whole.Tree == done.Tree {
			return done, nil
		}
	}
	done = Replayed{Tip: req.Onto, Tree: tree}
	rest, err := m.collapse(ctx, req, &done, commits)
	if err != nil || done.Stopped != "" {
		return done, err
	}
	err = m.replay(ctx, req, &done, rest)
	return done, err
}

// listBetween lists the commits of upstream..tip, oldest first, and refuses malformed ones.
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
	// A short linear history needs no git rev-list.
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

// replayCommits replays all commits that are not merges on top of result.Tip. At a conflict it stops and records it in
// result.
func (m *Merger) replay(ctx context.Context, req Replaying, result *Replayed, commits []written) error {
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
		merged := Merged{Tree: result.Tree}
		if before != c.tree {
			var err error
			merged, err = m.mergeOver(ctx, Merging{Base: before, Ours: result.Tip, Theirs: c.oid, Attributes: req.Attributes}, before, result.Tree, c.tree)
			if err != nil {
				return fmt.Errorf("replay %.12s: %w", c.oid, err)
			}
			switch {
			case len(merged.Conflicts) > 0:
				result.Tip, result.Tree, result.Stopped, result.Conflicts = "", merged.Tree, c.oid, merged.Conflicts
				return nil
			case merged.Tree == result.Tree:
				result.Dropped = append(result.Dropped, c.oid)
				continue
			}
		}
		if err := m.append(ctx, req, result, c, merged.Tree); err != nil {
			return err
		}
	}
	return nil
}

// appendCommit makes a commit again with a new tree. It keeps its encoding, unless the new committer or message does not
// fit in it: then it becomes UTF-8.
func (m *Merger) append(ctx context.Context, req Replaying, result *Replayed, c written, tree string) error {
	if c.encoding != "" && (!fits(req.Committer.String()) || req.Message != nil && !fits(req.Message(""))) {
		c = c.inUTF8()
	}
	made := written{tree: tree, parents: []string{result.Tip}, author: c.author, committer: req.Committer.String(), encoding: c.encoding, message: c.message}
	if req.Message != nil {
		if made.message = req.Message(c.message); strings.Contains(made.message, "\x00") {
			return errors.New("a message with a NUL in it")
		}
	}
	write := m.write
	if req.Sign {
		write = m.writeSigned
	}
	oid, err := write(ctx, made)
	if err != nil {
		return err
	}
	result.Tip, result.Tree = oid, tree
	result.Commits = append(result.Commits, Rewritten{Old: c.oid, New: oid})
	return nil
}

// collapseMerges squashes all commits up to the last merge on the first-parent history of the tip into one, and returns
// the commits after that merge.
func (m *Merger) collapse(ctx context.Context, req Replaying, result *Replayed, commits []written) (rest []written, err error) {
	by := map[string]written{}
	for _, c := range commits {
		by[c.oid] = c
	}
	last := by[req.Tip]
	for len(last.parents) == 1 {
		rest = append(rest, last)
		last = by[last.parents[0]]
	}
	slices.Reverse(rest)
	if len(last.parents) < 2 {
		return nil, fmt.Errorf("no merge on the way to %.12s", req.Tip) // cannot happen: the range has a merge
	}
	merged, err := m.Merge(ctx, Merging{Ours: req.Onto, Theirs: last.oid, Attributes: req.Attributes})
	if err != nil {
		return nil, err
	}
	if len(merged.Conflicts) > 0 {
		result.Tip, result.Tree, result.Stopped, result.Conflicts = "", merged.Tree, last.oid, merged.Conflicts
		return nil, nil
	}
	var subjects []string
	for _, c := range commits {
		if slices.ContainsFunc(rest, func(r written) bool { return r.oid == c.oid }) {
			continue
		}
		result.Collapsed = append(result.Collapsed, c.oid)
		if len(c.parents) < 2 {
			subjects = append(subjects, subject(inUTF8(c.message, c.encoding)))
		}
	}
	if merged.Tree == result.Tree {
		result.Dropped, result.Collapsed = result.Collapsed, nil
		return rest, nil
	}
	last = last.inUTF8() // the commits may have different encodings
	one := written{oid: last.oid, author: last.author, message: last.message}
	switch n := len(subjects); {
	case n == 1:
		one.message = subjects[0] + "\n"
	case n > 1:
		one.message = fmt.Sprintf("%s, and %d more\n\n* %s\n", subjects[n-1], n-1, strings.Join(subjects, "\n* "))
	}
	return rest, m.append(ctx, req, result, one, merged.Tree)
}

// subjectLine returns the first line of a message.
func subject(message string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return strings.TrimSpace(line)
}

func (m *Merger) emptyTree() string { return hexID(nameObject(m.format, "tree", nil)) }
