package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// ReplayRequest describes commits to rebase.
type ReplayRequest struct {
	Upstream, Tip string                       // required: the commits are Upstream..Tip
	Onto          string                       // required: new base commit
	Committer     object.Signature             // required: committer of the new commits, which keep their authors
	Message       func(original string) string // new message; nil: unchanged
	Sign          bool                         // sign with the user's configured program and key

	Attributes string // as in Request, but empty means Onto
}

// ReplayResult is the result of a replay.
type ReplayResult struct {
	Tip, Tree string            // last commit and its tree; with conflicts no Tip, and the Tree has conflict markers
	Commits   []RewrittenCommit // oldest first
	Dropped   []string          // commits left out because Onto already has their changes
	Collapsed []string          // merges and merged commits that became the first of Commits together

	StoppedAt string     // commit with conflicts; empty: none
	Conflicts []Conflict // of the commit in StoppedAt
}

// RewrittenCommit is a replayed commit: its old and new id.
type RewrittenCommit struct{ Old, New string }

// Replay makes commits again on top of another, as git rebase does, without a worktree. Each keeps its author, date and
// encoding, but not its signature, which would be invalid. A commit that becomes empty is dropped, unless it was empty
// before.
//
// Merge commits are not made again: the other commits are linearized. If the result differs from a merge of both sides,
// for example because a merge commit resolved a conflict, all commits up to the last merge are squashed into one.
func (m *Merger) Replay(ctx context.Context, req ReplayRequest) (ReplayResult, error) {
	commits, err := m.listBetween(ctx, req.Upstream, req.Tip)
	if err != nil {
		return ReplayResult{}, err
	}
	tree, err := m.treeOf(ctx, req.Onto)
	if err != nil {
		return ReplayResult{}, err
	}
	if req.Attributes == "" {
		req.Attributes = req.Onto
	}
	merges := slices.ContainsFunc(commits, func(c object.Commit) bool { return len(c.Parents) > 1 })
	done := ReplayResult{Tip: req.Onto, Tree: tree}
	if err := m.replayCommits(ctx, req, &done, commits); err != nil || !merges {
		return done, err
	}
	if done.StoppedAt == "" {
		whole, err := m.Merge(ctx, Request{Ours: req.Onto, Theirs: req.Tip, Attributes: req.Attributes})
		if err != nil {
			return ReplayResult{}, err
		}
		if len(whole.Conflicts) == 0 && whole.Tree == done.Tree {
			return done, nil
		}
	}
	done = ReplayResult{Tip: req.Onto, Tree: tree}
	rest, err := m.collapseMerges(ctx, req, &done, commits)
	if err != nil || done.StoppedAt != "" {
		return done, err
	}
	err = m.replayCommits(ctx, req, &done, rest)
	return done, err
}

// listBetween lists the commits of upstream..tip, oldest first, and refuses malformed ones.
func (m *Merger) listBetween(ctx context.Context, upstream, tip string) (commits []object.Commit, err error) {
	if !object.IsOID(upstream) || !object.IsOID(tip) {
		return nil, fmt.Errorf("not commit ids: %q, %q", upstream, tip)
	}
	asked := [2]string{upstream, tip}
	m.mu.Lock()
	commits, is := m.rangeCache[asked]
	m.mu.Unlock()
	if is {
		return commits, nil
	}
	defer func() {
		if err == nil {
			m.mu.Lock()
			m.rangeCache[asked] = commits
			m.mu.Unlock()
		}
	}()
	// A short linear history needs no git rev-list.
	bases, known, err := m.nearMergeBases(ctx, upstream, tip)
	if err != nil {
		return nil, err
	}
	for at := tip; known && at != bases[0]; {
		c, err := m.readCommit(ctx, at)
		if err != nil {
			return nil, err
		}
		if known = len(c.Parents) == 1; known {
			commits, at = append(commits, c), c.Parents[0]
		}
	}
	if known {
		slices.Reverse(commits)
		return commits, nil
	}
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	out, err := m.Repo.RunRead(ctx, m.GitOptions(), "rev-list", "--topo-order", "--reverse", tip, "^"+upstream)
	if err != nil {
		return nil, err
	}
	commits = nil
	for oid := range strings.FieldsSeq(string(out)) {
		c, err := m.readCommit(ctx, oid)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// replayCommits replays all commits that are not merges on top of result.Tip. At a conflict it stops and records it in
// result.
func (m *Merger) replayCommits(ctx context.Context, req ReplayRequest, result *ReplayResult, commits []object.Commit) error {
	for _, c := range commits {
		if len(c.Parents) > 1 {
			continue
		}
		before := m.emptyTree()
		if len(c.Parents) == 1 {
			var err error
			if before, err = m.treeOf(ctx, c.Parents[0]); err != nil {
				return err
			}
		}
		merged := Result{Tree: result.Tree}
		if before != c.Tree {
			var err error
			merged, err = m.mergeWithBase(ctx, Request{Base: before, Ours: result.Tip, Theirs: c.OID, Attributes: req.Attributes}, before, result.Tree, c.Tree)
			if err != nil {
				return fmt.Errorf("replay %.12s: %w", c.OID, err)
			}
			switch {
			case len(merged.Conflicts) > 0:
				result.Tip, result.Tree, result.StoppedAt, result.Conflicts = "", merged.Tree, c.OID, merged.Conflicts
				return nil
			case merged.Tree == result.Tree:
				result.Dropped = append(result.Dropped, c.OID)
				continue
			}
		}
		if err := m.appendCommit(ctx, req, result, c, merged.Tree); err != nil {
			return err
		}
	}
	return nil
}

// appendCommit makes a commit again with a new tree. It keeps its encoding, unless the new committer or message does not
// fit in it: then it becomes UTF-8.
func (m *Merger) appendCommit(ctx context.Context, req ReplayRequest, result *ReplayResult, c object.Commit, tree string) error {
	if c.Encoding != "" && (!object.IsASCII(req.Committer.String()) || req.Message != nil && !object.IsASCII(req.Message(""))) {
		c = c.ToUTF8()
	}
	made := object.Commit{Tree: tree, Parents: []string{result.Tip}, Author: c.Author, Committer: req.Committer.String(), Encoding: c.Encoding, Message: c.Message}
	if req.Message != nil {
		if made.Message = req.Message(c.Message); strings.Contains(made.Message, "\x00") {
			return errors.New("the commit message contains NUL")
		}
	}
	write := m.writeCommit
	if req.Sign {
		write = m.writeSignedCommit
	}
	oid, err := write(ctx, made)
	if err != nil {
		return err
	}
	result.Tip, result.Tree = oid, tree
	result.Commits = append(result.Commits, RewrittenCommit{Old: c.OID, New: oid})
	return nil
}

// collapseMerges squashes all commits up to the last merge on the first-parent history of the tip into one, and returns
// the commits after that merge.
func (m *Merger) collapseMerges(ctx context.Context, req ReplayRequest, result *ReplayResult, commits []object.Commit) (rest []object.Commit, err error) {
	by := map[string]object.Commit{}
	for _, c := range commits {
		by[c.OID] = c
	}
	last := by[req.Tip]
	for len(last.Parents) == 1 {
		rest = append(rest, last)
		last = by[last.Parents[0]]
	}
	slices.Reverse(rest)
	if len(last.Parents) < 2 {
		return nil, fmt.Errorf("no merge in the first-parent history of %.12s", req.Tip) // cannot happen: the range has a merge
	}
	merged, err := m.Merge(ctx, Request{Ours: req.Onto, Theirs: last.OID, Attributes: req.Attributes})
	if err != nil {
		return nil, err
	}
	if len(merged.Conflicts) > 0 {
		result.Tip, result.Tree, result.StoppedAt, result.Conflicts = "", merged.Tree, last.OID, merged.Conflicts
		return nil, nil
	}
	var subjects []string
	for _, c := range commits {
		if slices.ContainsFunc(rest, func(r object.Commit) bool { return r.OID == c.OID }) {
			continue
		}
		result.Collapsed = append(result.Collapsed, c.OID)
		if len(c.Parents) < 2 {
			subjects = append(subjects, subjectLine(object.ToUTF8(c.Message, c.Encoding)))
		}
	}
	if merged.Tree == result.Tree {
		result.Dropped, result.Collapsed = result.Collapsed, nil
		return rest, nil
	}
	last = last.ToUTF8() // the commits may have different encodings
	one := object.Commit{OID: last.OID, Author: last.Author, Message: last.Message}
	switch n := len(subjects); {
	case n == 1:
		one.Message = subjects[0] + "\n"
	case n > 1:
		one.Message = fmt.Sprintf("%s, and %d more\n\n* %s\n", subjects[n-1], n-1, strings.Join(subjects, "\n* "))
	}
	return rest, m.appendCommit(ctx, req, result, one, merged.Tree)
}

// subjectLine returns the first line of a message.
func subjectLine(message string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return strings.TrimSpace(line)
}

func (m *Merger) emptyTree() string { return object.HexOID(object.HashObject(m.format, "tree", nil)) }
