package merge

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
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// WorktreeMergeRequest describes a merge of a commit into a worktree, as git merge does it.
type WorktreeMergeRequest struct {
	From       snapshot.State // required: present state of the worktree
	Commit     string         // required: commit to merge
	OursName   string         // labels of conflict markers
	TheirsName string
	Message    string // message of the merge commit

	// Signatures returns author and committer of the merge commit; called only if there is one.
	Signatures func(ctx context.Context) (author, committer object.Signature, err error)
}

// WorktreeMergeResult is the state of the worktree after a merge.
type WorktreeMergeResult struct {
	State       snapshot.State // not yet written as a commit
	Conflicts   []Conflict     // empty: clean merge
	FastForward bool           // fast-forward: HEAD was an ancestor of the commit
}

// UncommittedError lists uncommitted changes in a worktree.
type UncommittedError struct{ Paths []string }

func (e *UncommittedError) Error() string {
	return "uncommitted changes: " + strings.Join(e.Paths, ", ")
}

// UntrackedError lists untracked files that a merge would overwrite.
type UntrackedError struct{ Paths []string }

func (e *UntrackedError) Error() string {
	return "untracked files would be overwritten: " + strings.Join(e.Paths, ", ")
}

// MergeIntoWorktree computes the state in which git merge would leave a worktree, and writes its objects to the merger. It
// does not touch the worktree. With conflicts it is the state of a merge in progress, the same as a capture of a worktree
// in the middle of one. The caller makes sure that no operation is in progress. Uncommitted changes are an
// *UncommittedError; untracked files stay, or are an *UntrackedError if the merge would overwrite them.
func (m *Merger) MergeIntoWorktree(ctx context.Context, s git.WorktreeSpec, req WorktreeMergeRequest) (done WorktreeMergeResult, err error) {
	strays, err := m.untrackedFiles(ctx, req.From)
	if err != nil {
		return done, err
	}
	merged, err := m.mergeOrFastForward(ctx, req, &done)
	if err == nil {
		err = m.Flush(ctx)
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
func (m *Merger) untrackedFiles(ctx context.Context, from snapshot.State) ([]git.TreeChange, error) {
	staged, err := m.Repo.TreeChanges(ctx, m.GitOptions(), from.Head+"^{tree}", from.IndexTree)
	if err != nil {
		return nil, err
	}
	changed, err := m.Repo.TreeChanges(ctx, m.GitOptions(), from.IndexTree, from.Tree)
	if err != nil {
		return nil, err
	}
	var paths []string
	var strays []git.TreeChange
	for _, c := range staged {
		paths = append(paths, c.Path)
	}
	for _, c := range changed {
		if c.Status == 'A' {
			strays = append(strays, c)
		} else {
			paths = append(paths, c.Path)
		}
	}
	if len(paths) > 0 {
		slices.Sort(paths)
		return nil, &UncommittedError{Paths: slices.Compact(paths)}
	}
	return strays, nil
}

// mergeOrFastForward fast-forwards, or merges and commits, and sets HEAD in result.
func (m *Merger) mergeOrFastForward(ctx context.Context, req WorktreeMergeRequest, result *WorktreeMergeResult) (Result, error) {
	head, p := req.From.Head, m.GitOptions()
	result.State = snapshot.State{Head: head, HeadRef: req.From.HeadRef, BranchTip: head}
	switch has, err := m.Contains(ctx, req.Commit, head); {
	case err != nil:
		return Result{}, err
	case has:
		out, err := m.Repo.RunRead(ctx, p, "rev-parse", "--verify", req.Commit+"^{tree}")
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
	_, err := m.Repo.RunRead(ctx, m.GitOptions(), "merge-base", "--is-ancestor", other, commit)
	if git.ExitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// untrackedToKeep returns the untracked files that the merge does not add with the same content. The error is an
// *UntrackedError if the merge adds other content at such a path, below it, or at one of its parents.
func (m *Merger) untrackedToKeep(ctx context.Context, before, after string, strays []git.TreeChange) ([]git.TreeChange, error) {
	if len(strays) == 0 {
		return nil, nil
	}
	changes, err := m.Repo.TreeChanges(ctx, m.GitOptions(), before, after)
	if err != nil {
		return nil, err
	}
	comes, dirs := map[string]git.TreeChange{}, map[string]bool{}
	for _, c := range changes {
		if c.Status == 'D' {
			continue
		}
		comes[c.Path] = c
		for dir := path.Dir(c.Path); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	var stay []git.TreeChange
	var inTheWay []string
	for _, c := range strays {
		same, there := comes[c.Path]
		onTheWay := dirs[c.Path]
		for dir := path.Dir(c.Path); dir != "." && !onTheWay; dir = path.Dir(dir) {
			_, onTheWay = comes[dir]
		}
		switch {
		case onTheWay, there && (same.NewOID != c.NewOID || same.NewMode != c.NewMode):
			inTheWay = append(inTheWay, c.Path)
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
func (m *Merger) editTree(ctx context.Context, tree string, without []string, with []git.TreeChange) (_ string, err error) {
	if len(without) == 0 && len(with) == 0 {
		return tree, nil
	}
	p := m.GitOptions()
	index := filepath.Join(m.Dir, "with-entries")
	p.Env, p.Reading = append(p.Env, "GIT_INDEX_FILE="+index), m.Repo.ReadingOf("reading the tree "+tree)
	defer func() {
		if removed := durable.Remove(index); err == nil {
			err = removed
		}
	}()
	if _, err := m.Repo.RunWrite(ctx, p, "read-tree", tree); err != nil {
		return "", err
	}
	change := p
	var lines strings.Builder
	for _, name := range without {
		fmt.Fprintf(&lines, "0 %s\t%s\x00", strings.Repeat("0", len(tree)), name)
	}
	for _, c := range with {
		fmt.Fprintf(&lines, "%s %s\t%s\x00", c.NewMode, c.NewOID, c.Path)
	}
	change.Stdin = lines.String()
	if _, err := m.Repo.RunWrite(ctx, change, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return m.Repo.WriteTree(ctx, p)
}

// writeStoppedMerge writes the state files and unmerged entries that git leaves when a merge stops at conflicts, and
// returns the commit that holds them.
func (m *Merger) writeStoppedMerge(ctx context.Context, s git.WorktreeSpec, req WorktreeMergeRequest, merged Result) (string, error) {
	message := strings.TrimRight(req.Message, "\n") + "\n\n# Conflicts:\n"
	u := snapshot.Operation{}
	var paths []string
	for _, c := range merged.Conflicts {
		if len(c.Stages) == 0 { // named only by a message
			continue
		}
		paths = append(paths, c.Path)
		message += "#\t" + c.Path + "\n"
		for _, stage := range c.Stages {
			u.Conflicts = append(u.Conflicts, snapshot.UnmergedEntry{Mode: stage.Mode, OID: stage.OID, Stage: strconv.Itoa(stage.Number), Path: c.Path})
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
	if m.Repo.WorktreeAdminDir(s) == m.Repo.AdminDir(s.Name) {
		u.HostFiles = u.Files
	}
	dir := filepath.Join(m.Dir, "waiting")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := git.InitBareAs(dir, object.FormatOf(merged.Tree)); err != nil {
		return "", err
	}
	p := git.RunOptions{GitDir: dir, WorkTree: dir, Config: []string{"-c", "core.bare=false"}, Reading: m.Repo.ReadingOf("the stopped merge of " + req.Commit)}
	return snapshot.WriteOperationCommit(ctx, m.Repo, p, req.From.Head, s.Author, u)
}

// MergeHead returns the commit that is being merged in a worktree; empty: none, or several.
func MergeHead(r *git.Repo, s git.WorktreeSpec) string {
	data, err := git.ReadSmallFile(r.WorktreeAdminDir(s), "MERGE_HEAD")
	if commit := strings.TrimSpace(string(data)); err == nil && object.IsOID(commit) {
		return commit
	}
	return ""
}
