package git

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// WorktreeMerge describes a merge of a commit into a worktree, as git merge does it.
type WorktreeMerge struct {
	From       State  // required: present state of the worktree
	Commit     string // required: commit to merge
	OursName   string // labels of conflict markers
	TheirsName string
	Message    string // message of the merge commit

	// Signatures returns author and committer of the merge commit; called only if there is one.
	Signatures func(ctx context.Context) (author, committer Signature, err error)
}

// WorktreeMergeResult is the state of the worktree after a merge.
type WorktreeMergeResult struct {
	State       State      // not yet written as a commit
	Conflicts   []Conflict // empty: clean merge
	FastForward bool       // fast-forward: HEAD was an ancestor of the commit
}

// UncommittedError lists uncommitted changes in a worktree.
type UncommittedError struct{ Paths []string }

func (e *UncommittedError) Error() string {
	return "not committed: " + strings.Join(e.Paths, ", ")
}

// UntrackedError lists untracked files that a merge would overwrite.
type UntrackedError struct{ Paths []string }

func (e *UntrackedError) Error() string {
	return "not tracked, and in the way: " + strings.Join(e.Paths, ", ")
}

// MergeIntoWorktree computes the state in which git merge would leave a worktree, and writes its objects to the merger. It
// does not touch the worktree. With conflicts it is the state of a merge in progress, the same as a capture of a worktree
// in the middle of one. The caller makes sure that no operation is in progress. Uncommitted changes are an
// *UncommittedError; untracked files stay, or are an *UntrackedError if the merge would overwrite them.
func (m *Merger) MergeIntoWorktree(ctx context.Context, s WorktreeSpec, req WorktreeMerge) (done WorktreeMergeResult, err error) {
	strays, err := m.untrackedFiles(ctx, req.From)
	if err != nil {
		return done, err
	}
	merged, err := m.mergeOrFastForward(ctx, req, &done)
	if err == nil {
		err = m.flush(ctx)
	}
	if err != nil {
		return done, err
	}
	if strays, err = m.untrackedToKeep(ctx, req.From.IndexTree, merged.Tree, strays); err != nil {
		return done, err
	}
	done.Conflicts = merged.Conflicts
	if done.State.Tree, err = m.editTree(ctx, merged.Tree, nil, strays); err != nil {
		return done, err
	}
	if len(merged.Conflicts) > 0 {
		done.State.OperationCommit, err = m.writeStoppedMerge(ctx, s, req, merged)
	}
	if !slices.ContainsFunc(merged.Conflicts, func(c Conflict) bool { return len(c.Stages) > 0 }) {
		done.State.IndexTree = merged.Tree
	}
	return done, err
}

// untrackedFiles lists the untracked files of a state, and refuses other uncommitted changes.
func (m *Merger) untrackedFiles(ctx context.Context, from State) ([]treeChange, error) {
	staged, err := m.repo.treeChanges(ctx, m.gitOptions(), from.Head+"^{tree}", from.IndexTree)
	if err != nil {
		return nil, err
	}
	changed, err := m.repo.treeChanges(ctx, m.gitOptions(), from.IndexTree, from.Tree)
	if err != nil {
		return nil, err
	}
	var paths []string
	var strays []treeChange
	for _, c := range staged {
		paths = append(paths, c.path)
	}
	for _, c := range changed {
		if c.status == 'A' {
			strays = append(strays, c)
		} else {
			paths = append(paths, c.path)
		}
	}
	if len(paths) > 0 {
		slices.Sort(paths)
		return nil, &UncommittedError{Paths: slices.Compact(paths)}
	}
	return strays, nil
}

// mergeOrFastForward fast-forwards, or merges and commits, and sets HEAD in result.
func (m *Merger) mergeOrFastForward(ctx context.Context, req WorktreeMerge, result *WorktreeMergeResult) (Result, error) {
	head, p := req.From.Head, m.gitOptions()
	result.State = State{Head: head, HeadRef: req.From.HeadRef, BranchTip: head}
	switch has, err := m.Contains(ctx, req.Commit, head); {
	case err != nil:
		return Result{}, err
	case has:
		out, err := m.repo.runRead(ctx, p, "rev-parse", "--verify", req.Commit+"^{tree}")
		result.FastForward, result.State.Head, result.State.BranchTip = true, req.Commit, req.Commit
		return Result{Tree: strings.TrimSpace(string(out))}, err
	}
	// The .gitattributes of the incoming commit apply, as they do when the work lands.
	merged, err := m.Merge(ctx, Request{Ours: head, Theirs: req.Commit, Attributes: req.Commit, OursName: req.OursName, TheirsName: req.TheirsName})
	if err != nil || len(merged.Conflicts) > 0 {
		return merged, err
	}
	author, committer, err := req.Signatures(ctx)
	if err != nil {
		return merged, err
	}
	result.State.Head, err = m.CreateCommit(ctx, CommitRequest{
		Tree: merged.Tree, Parents: []string{head, req.Commit}, Author: author, Committer: committer, Message: req.Message,
	})
	result.State.BranchTip = result.State.Head
	return merged, err
}

// Contains reports whether other is the commit or an ancestor of it.
func (m *Merger) Contains(ctx context.Context, commit, other string) (bool, error) {
	_, err := m.repo.runRead(ctx, m.gitOptions(), "merge-base", "--is-ancestor", other, commit)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// untrackedToKeep returns the untracked files that the merge does not add with the same content. The error is an
// *UntrackedError if the merge adds other content at such a path, below it, or at one of its parents.
func (m *Merger) untrackedToKeep(ctx context.Context, before, after string, strays []treeChange) ([]treeChange, error) {
	if len(strays) == 0 {
		return nil, nil
	}
	changes, err := m.repo.treeChanges(ctx, m.gitOptions(), before, after)
	if err != nil {
		return nil, err
	}
	comes, dirs := map[string]treeChange{}, map[string]bool{}
	for _, c := range changes {
		if c.status == 'D' {
			continue
		}
		comes[c.path] = c
		for dir := path.Dir(c.path); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	var stay []treeChange
	var inTheWay []string
	for _, c := range strays {
		same, there := comes[c.path]
		onTheWay := dirs[c.path]
		for dir := path.Dir(c.path); dir != "." && !onTheWay; dir = path.Dir(dir) {
			_, onTheWay = comes[dir]
		}
		switch {
		case onTheWay, there && (same.newOID != c.newOID || same.newMode != c.newMode):
			inTheWay = append(inTheWay, c.path)
		case !there:
			stay = append(stay, c)
		}
	}
	if len(inTheWay) > 0 {
		return nil, &UntrackedError{Paths: inTheWay}
	}
	return stay, nil
}

// editTree returns a tree with some paths removed and others added.
func (m *Merger) editTree(ctx context.Context, tree string, without []string, with []treeChange) (_ string, err error) {
	if len(without) == 0 && len(with) == 0 {
		return tree, nil
	}
	p := m.gitOptions()
	index := filepath.Join(m.dir, "with-entries")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	defer func() {
		if removed := durable.Remove(index); err == nil {
			err = removed
		}
	}()
	if _, err := m.repo.runWrite(ctx, p, "read-tree", tree); err != nil {
		return "", err
	}
	change := p
	var lines strings.Builder
	for _, name := range without {
		fmt.Fprintf(&lines, "0 %s\t%s\x00", strings.Repeat("0", len(tree)), name)
	}
	for _, c := range with {
		fmt.Fprintf(&lines, "%s %s\t%s\x00", c.newMode, c.newOID, c.path)
	}
	change.stdin = lines.String()
	if _, err := m.repo.runWrite(ctx, change, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return m.repo.writeTree(ctx, p)
}

// writeStoppedMerge writes the state files and unmerged entries that git leaves when a merge stops at conflicts, and
// returns the commit that holds them.
func (m *Merger) writeStoppedMerge(ctx context.Context, s WorktreeSpec, req WorktreeMerge, merged Result) (string, error) {
	message := strings.TrimRight(req.Message, "\n") + "\n\n# Conflicts:\n"
	u := Operation{}
	var paths []string
	for _, c := range merged.Conflicts {
		if len(c.Stages) == 0 { // named only by a message
			continue
		}
		paths = append(paths, c.Path)
		message += "#\t" + c.Path + "\n"
		for _, stage := range c.Stages {
			u.Conflicts = append(u.Conflicts, UnmergedEntry{Mode: stage.Mode, OID: stage.OID, Stage: strconv.Itoa(stage.Number), Path: c.Path})
		}
	}
	if len(paths) > 0 {
		var err error
		if u.MergedTree, err = m.editTree(ctx, merged.Tree, paths, nil); err != nil {
			return "", err
		}
	}
	u.Files = map[string][]byte{
		"MERGE_HEAD": []byte(req.Commit + "\n"), "MERGE_MODE": {}, "MERGE_MSG": []byte(message), "AUTO_MERGE": []byte(merged.Tree + "\n"),
	}
	dir := filepath.Join(m.dir, "waiting")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := initBare(dir, FormatOf(merged.Tree)); err != nil {
		return "", err
	}
	p := runOptions{gitDir: dir, workTree: dir, config: []string{"-c", "core.bare=false"}}
	return m.repo.writeOperationCommit(ctx, p, req.From.Head, s.Author, u)
}

// MergeHead returns the commit that is being merged in a worktree; empty: none, or several.
func (r *Repo) MergeHead(s WorktreeSpec) string {
	data, err := readSmallFile(r.worktreeAdminDir(s), "MERGE_HEAD")
	if commit := strings.TrimSpace(string(data)); err == nil && isOID(commit) {
		return commit
	}
	return ""
}

// MergeBase returns a merge base of two commits; empty: none, or a commit is missing.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	out, err := r.runRead(ctx, runOptions{env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}, "merge-base", a, b)
	if exitedWith(err, 1, 128) { // 1: no merge base; 128: a commit is missing
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// WriteState writes a state of a worktree as a commit, in the form of a capture, with the state after as first parent.
func (r *Repo) WriteState(ctx context.Context, s WorktreeSpec, after string, state State) (string, error) {
	parents, err := r.addIndependent(ctx, []string{after}, []string{state.Head, state.BranchTip, state.OperationCommit})
	if err != nil {
		return "", err
	}
	return r.commitTree(ctx, s, state.Tree, parents, s.Message+state.trailers())
}

// NotIgnored returns the paths that the ignore rules of a tree do not ignore.
func (r *Repo) NotIgnored(ctx context.Context, s WorktreeSpec, tree string, names []string) ([]string, error) {
	ignored, err := r.ignoredByTree(ctx, s, tree, names)
	if err != nil {
		return nil, err
	}
	some := map[string]bool{}
	for _, name := range ignored {
		some[name] = true
	}
	return withoutNames(names, some), nil
}
