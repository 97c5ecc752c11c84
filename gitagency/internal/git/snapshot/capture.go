package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// StagedSubject is the message of the commit in which a capture keeps the index.
const StagedSubject = "staged when captured"

// CaptureResult is the state of a worktree as a commit.
type CaptureResult struct {
	Commit    string // commit that holds everything; HEAD if that already does; empty when there was nothing
	BranchTip string // commit of the branch; empty when the branch did not exist
	Dirty     bool   // there were changes that no commit held

	NoSpecialFiles bool // the worktree is known to have no pipes, sockets and devices, which the commit would not hold
}

// Capture writes the contents of a worktree as a commit: tracked, staged and untracked files, without ignored ones.
// Its first parent is HEAD. Further parents are the branch, if it is elsewhere, the commits that a merge or rebase in
// progress still needs, commits that only the reflog of HEAD refers to, and the index, if it differs from all of
// these. Capture changes nothing in the worktree but permissions that keep its owner from reading it. Neither
// its .git file nor anything else that a process in it could have written decides where git looks or what it runs.
//
// A .gitattributes that adds a slow pattern to HEAD is refused with a *fsck.Error, also if it is staged: a checkout of the
// commit would compare every path with it.
func Capture(ctx context.Context, r *git.Repo, s git.WorktreeSpec) (CaptureResult, error) {
	if s.Onto != "" {
		return captureOnto(ctx, r, s)
	}
	return captureHead(ctx, r, s, true)
}

// CaptureIndex is Capture without the files of the worktree, which are kept elsewhere: the tree of the commit is that of
// HEAD, or of the earlier capture, and the index is a parent.
func CaptureIndex(ctx context.Context, r *git.Repo, s git.WorktreeSpec) (CaptureResult, error) {
	s.Dir = ""
	if s.Onto != "" {
		return captureOnto(ctx, r, s)
	}
	return captureHead(ctx, r, s, false)
}

// captureHead captures on top of HEAD. If the worktree is gone, the index stands for its files, if that is allowed.
func captureHead(ctx context.Context, r *git.Repo, s git.WorktreeSpec, indexAsFiles bool) (CaptureResult, error) {
	head, branch, err := r.HeadAndBranch(ctx, s)
	if err != nil {
		return CaptureResult{}, err
	}
	got := CaptureResult{Commit: head, BranchTip: branch}
	headTree, err := treeOfCommit(ctx, r, head)
	if err != nil {
		return CaptureResult{}, err
	}
	parents, err := r.CapturedParents(ctx, s, head, headTree, branch)
	if err != nil {
		return CaptureResult{}, err
	}
	tree := headTree
	staged, work, special := headTree, headTree, false
	if !status.IsUntouchedOverlay(r, s, headTree) {
		staged, work, special, err = writeWorktreeTrees(ctx, r, s, head)
	}
	if err != nil {
		return CaptureResult{}, err
	}
	got.NoSpecialFiles = work != "" && !special
	switch {
	case work != "":
		tree = work
	case staged != "" && indexAsFiles:
		tree = staged // the best that is left
	}
	got.Dirty = tree != headTree
	if staged != "" && staged != headTree && staged != tree {
		commit, err := r.CommitTree(ctx, s, staged, parents[:min(len(parents), 1)], StagedSubject)
		if err != nil {
			return CaptureResult{}, err
		}
		parents, got.Dirty = append(parents, commit), true
	}
	if tree == headTree && len(parents) <= 1 {
		return got, nil
	}
	got.Commit, err = r.CommitTree(ctx, s, tree, parents, s.Message)
	return got, err
}

// Covers reports whether a later capture holds everything that an earlier one of the same worktree holds. Two
// captures are never the same commit, so the commits that only one of them reaches are compared by tree and author.
func Covers(ctx context.Context, r *git.Repo, later, earlier string) (bool, error) {
	lacks, err := treesAndAuthors(ctx, r, earlier, later)
	if err != nil || len(lacks) == 0 {
		return err == nil, err
	}
	has, err := treesAndAuthors(ctx, r, later, earlier)
	return !slices.ContainsFunc(lacks, func(line string) bool { return !slices.Contains(has, line) }), err
}

// treesAndAuthors lists tree and author of the commits that are reachable from one commit and not from another.
func treesAndAuthors(ctx context.Context, r *git.Repo, in, notIn string) ([]string, error) {
	if in == "" {
		return nil, nil
	}
	if !object.IsOID(in) || notIn != "" && !object.IsOID(notIn) {
		return nil, fmt.Errorf("not an object name: %q", in+" "+notIn)
	}
	args := []string{"rev-list", "--no-commit-header", "--format=%T %ae", in}
	if notIn != "" {
		args = append(args, "--not", notIn)
	}
	out, err := r.RunRead(ctx, git.RunOptions{}, args...)
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' }), err
}

// captureOnto adds what has appeared since an earlier capture: files, commits, and index contents. It ignores missing
// files, because the worktree was being removed.
func captureOnto(ctx context.Context, r *git.Repo, s git.WorktreeSpec) (CaptureResult, error) {
	before, err := treeOfCommit(ctx, r, s.Onto)
	if err != nil {
		return CaptureResult{}, err
	}
	head, branch, err := r.HeadAndBranch(ctx, s)
	if err != nil {
		return CaptureResult{}, err
	}
	parents, err := r.CapturedParents(ctx, s, s.Onto, before, head, branch)
	if err != nil {
		return CaptureResult{}, err
	}
	_, work, _, err := writeWorktreeTrees(ctx, r, s, s.Onto)
	if err != nil {
		return CaptureResult{}, err
	}
	if s.Dir == "" {
		work = before
	}
	staged, err := stagedTreeSince(ctx, r, s, head, work)
	if err != nil {
		return CaptureResult{}, err
	}
	if staged != "" {
		commit, err := r.CommitTree(ctx, s, staged, []string{cmp.Or(head, s.Onto)}, StagedSubject)
		if err != nil {
			return CaptureResult{}, err
		}
		parents = append(parents, commit)
	}
	if work == before && len(parents) == 1 {
		return CaptureResult{Commit: s.Onto, BranchTip: branch}, nil
	}
	commit, err := r.CommitTree(ctx, s, work, parents, s.Message)
	return CaptureResult{Commit: commit, BranchTip: branch, Dirty: true}, err
}

// stagedTreeSince returns the tree of the index. It is empty when that tree equals the files on disk or HEAD, or is
// part of the earlier capture.
func stagedTreeSince(ctx context.Context, r *git.Repo, s git.WorktreeSpec, head, work string) (string, error) {
	onto := s.Onto
	s.Onto, s.Dir = "", "" // only the index
	staged, _, _, err := writeWorktreeTrees(ctx, r, s, head)
	if err != nil || staged == "" || staged == work {
		return "", err
	}
	headTree, err := treeOfCommit(ctx, r, head)
	if err != nil || staged == headTree {
		return "", err
	}
	captured := []string{"rev-list", "--no-commit-header", "--format=%T", onto}
	if head != "" {
		captured = append(captured, "^"+head)
	}
	out, err := r.RunRead(ctx, git.RunOptions{}, captured...)
	if err != nil || slices.Contains(strings.Fields(string(out)), staged) {
		return "", err
	}
	return staged, nil
}

// treeOfCommit returns the tree of a commit; empty for no commit.
func treeOfCommit(ctx context.Context, r *git.Repo, commit string) (string, error) {
	if commit == "" {
		return "", nil
	}
	found, err := r.Lookup(ctx, commit+"^{tree}")
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// writeWorktreeTrees writes the index and the files on disk as tree objects. The tree of the index is empty when it
// cannot be written, as in the middle of a merge; the other one when the worktree is gone. special reports that there are
// pipes, sockets or devices.
func writeWorktreeTrees(ctx context.Context, r *git.Repo, s git.WorktreeSpec, head string) (staged, work string, special bool, err error) {
	g, err := status.CollectWorktree(ctx, r, s, head)
	defer func() { err = errors.Join(err, g.Close()) }()
	if err != nil {
		return "", "", false, err
	}
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return "", "", false, err
	}
	defer t.Close()
	known, err := treeOfCommit(ctx, r, head)
	if err != nil {
		return "", "", false, err
	}
	check := checkAttributes
	if s.CheckRules {
		check = checkRuleFiles
	}
	if err := check(ctx, r, t, g, known); err != nil {
		return "", "", false, err
	}
	if err := status.StoreTrees(ctx, r, t, g, known); err != nil {
		return "", "", false, err
	}
	if g.Staged != nil {
		staged = g.Staged.HexOID()
	}
	if g.Worktree != nil {
		work = g.Worktree.HexOID()
	}
	return staged, work, g.HasSpecial, nil
}

// checkAttributes refuses a .gitattributes on disk that adds a slow pattern to a known tree. The scan has checked those that
// differ from the index.
func checkAttributes(ctx context.Context, r *git.Repo, t *git.CatFile, g status.WorktreeContents, known string) error {
	files, err := g.AttributeFiles(t, known)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := fsck.CheckAttributes(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}
