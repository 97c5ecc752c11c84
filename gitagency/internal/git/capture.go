package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// WorktreeSpec says which worktree to capture, and how.
type WorktreeSpec struct {
	Name           string   // required: name below <common dir>/worktrees; any name with IndexCache
	Dir            string   // directory of the worktree; empty when it is gone and at most git's entry is left
	Branch         string   // full ref of the worktree's own branch
	Base           string   // fallback commit when neither HEAD nor the branch leads to one
	Onto           string   // earlier capture to extend: only additions since then are captured
	Omit           string   // top-level name that is never captured
	SecretPatterns []string // name patterns of untracked files to leave out: see looksSecret
	IncludeIgnored bool     // capture ignored files too
	ForcedPaths    []string // paths that are captured even if they are ignored or look like secrets
	UpperDir       string   // overlay upper directory over the git directory; a sandbox has its operation in progress there
	Message        string   // commit message, if a commit is needed
	Author         Identity // author of that commit
	TrustConfig    bool     // only the user can have written the repository's configuration: its filters run

	// IndexCache makes Dir a plain directory that is no worktree: git has no entry for it, so that there is no HEAD,
	// no branch, no index and no operation in progress, and every file is untracked. It is the path of a cache file
	// of ours, which need not exist: an index of the files last read, by which unchanged files are recognised. See
	// CaptureState.
	IndexCache string

	changingDirs []string // directories in which names come and go, to watch: see dirWatch

	pendingIndex func() (indexContents, error) // waits for the index that is read in the background; nil when none is

	inUse bool // the worktree stays in use: not even unreadable files in it are made readable
}

// CaptureResult is the state of a worktree as a commit.
type CaptureResult struct {
	Commit    string // commit that holds everything; HEAD if that already does; empty when there was nothing
	BranchTip string // commit of the branch; empty when the branch did not exist
	Dirty     bool   // there were changes that no commit held
}

// Capture writes the contents of a worktree as a commit: tracked, staged and untracked files, without ignored ones.
// Its first parent is HEAD. Further parents are the branch, if it is elsewhere, the commits that a merge or rebase in
// progress still needs, commits that only the reflog of HEAD refers to, and the index, if it differs from all of
// these. Capture changes nothing in the worktree. Neither its .git file nor anything else that a process in it could
// have written decides where git looks or what it runs.
func (r *Repo) Capture(ctx context.Context, s WorktreeSpec) (CaptureResult, error) {
	if s.Onto != "" {
		return r.captureOnto(ctx, s)
	}
	head, branch, err := r.headAndBranch(ctx, s)
	if err != nil {
		return CaptureResult{}, err
	}
	got := CaptureResult{Commit: head, BranchTip: branch}
	headTree, err := r.treeOfCommit(ctx, head)
	if err != nil {
		return CaptureResult{}, err
	}
	parents, err := r.capturedParents(ctx, s, head, headTree, branch)
	if err != nil {
		return CaptureResult{}, err
	}
	tree := headTree
	staged, work, err := r.writeWorktreeTrees(ctx, s, head)
	if err != nil {
		return CaptureResult{}, err
	}
	switch {
	case work != "":
		tree = work
	case staged != "":
		tree = staged // the worktree is gone; the index is the best that is left
	}
	got.Dirty = tree != headTree
	if staged != "" && staged != headTree && staged != tree {
		commit, err := r.commitTree(ctx, s, staged, parents[:min(len(parents), 1)], "staged when captured")
		if err != nil {
			return CaptureResult{}, err
		}
		parents, got.Dirty = append(parents, commit), true
	}
	if tree == headTree && len(parents) <= 1 {
		return got, nil
	}
	got.Commit, err = r.commitTree(ctx, s, tree, parents, s.Message)
	return got, err
}

// Covers reports whether a later capture holds everything that an earlier one of the same worktree holds. Two
// captures are never the same commit, so the commits that only one of them reaches are compared by tree and author.
func (r *Repo) Covers(ctx context.Context, later, earlier string) (bool, error) {
	lacks, err := r.treesAndAuthors(ctx, earlier, later)
	if err != nil || len(lacks) == 0 {
		return err == nil, err
	}
	has, err := r.treesAndAuthors(ctx, later, earlier)
	return !slices.ContainsFunc(lacks, func(line string) bool { return !slices.Contains(has, line) }), err
}

// treesAndAuthors lists tree and author of the commits that are reachable from one commit and not from another.
func (r *Repo) treesAndAuthors(ctx context.Context, in, notIn string) ([]string, error) {
	if in == "" {
		return nil, nil
	}
	if !isOID(in) || notIn != "" && !isOID(notIn) {
		return nil, fmt.Errorf("not a name of an object: %q", in+" "+notIn)
	}
	args := []string{"rev-list", "--no-commit-header", "--format=%T %ae", in}
	if notIn != "" {
		args = append(args, "--not", notIn)
	}
	out, err := r.runRead(ctx, runOptions{}, args...)
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' }), err
}

// captureOnto adds what has appeared since an earlier capture: files, commits, and index contents. It ignores missing
// files, because the worktree was being removed.
func (r *Repo) captureOnto(ctx context.Context, s WorktreeSpec) (CaptureResult, error) {
	before, err := r.treeOfCommit(ctx, s.Onto)
	if err != nil {
		return CaptureResult{}, err
	}
	head, branch, err := r.headAndBranch(ctx, s)
	if err != nil {
		return CaptureResult{}, err
	}
	parents, err := r.capturedParents(ctx, s, s.Onto, before, head, branch)
	if err != nil {
		return CaptureResult{}, err
	}
	_, work, err := r.writeWorktreeTrees(ctx, s, s.Onto)
	if err != nil {
		return CaptureResult{}, err
	}
	if s.Dir == "" {
		work = before
	}
	staged, err := r.stagedTreeSince(ctx, s, head, work)
	if err != nil {
		return CaptureResult{}, err
	}
	if staged != "" {
		commit, err := r.commitTree(ctx, s, staged, []string{cmp.Or(head, s.Onto)}, "staged when captured")
		if err != nil {
			return CaptureResult{}, err
		}
		parents = append(parents, commit)
	}
	if work == before && len(parents) == 1 {
		return CaptureResult{Commit: s.Onto, BranchTip: branch}, nil
	}
	commit, err := r.commitTree(ctx, s, work, parents, s.Message)
	return CaptureResult{Commit: commit, BranchTip: branch, Dirty: true}, err
}

// stagedTreeSince returns the tree of the index. It is empty when that tree equals the files on disk or HEAD, or is
// part of the earlier capture.
func (r *Repo) stagedTreeSince(ctx context.Context, s WorktreeSpec, head, work string) (string, error) {
	onto := s.Onto
	s.Onto, s.Dir = "", "" // only the index
	staged, _, err := r.writeWorktreeTrees(ctx, s, head)
	if err != nil || staged == "" || staged == work {
		return "", err
	}
	headTree, err := r.treeOfCommit(ctx, head)
	if err != nil || staged == headTree {
		return "", err
	}
	captured := []string{"rev-list", "--no-commit-header", "--format=%T", onto}
	if head != "" {
		captured = append(captured, "^"+head)
	}
	out, err := r.runRead(ctx, runOptions{}, captured...)
	if err != nil || slices.Contains(strings.Fields(string(out)), staged) {
		return "", err
	}
	return staged, nil
}

// treeOfCommit returns the tree of a commit; empty for no commit.
func (r *Repo) treeOfCommit(ctx context.Context, commit string) (string, error) {
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
// cannot be written, as in the middle of a merge; the other one when the worktree is gone.
func (r *Repo) writeWorktreeTrees(ctx context.Context, s WorktreeSpec, head string) (staged, work string, err error) {
	g, err := r.collectWorktree(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return "", "", err
	}
	t, err := r.openCatFile(ctx)
	if err != nil {
		return "", "", err
	}
	defer t.close()
	known, err := r.treeOfCommit(ctx, head)
	if err != nil {
		return "", "", err
	}
	if err := r.storeTrees(ctx, t, g, known); err != nil {
		return "", "", err
	}
	if g.staged != nil {
		staged = g.staged.hexOID()
	}
	if g.worktree != nil {
		work = g.worktree.hexOID()
	}
	return staged, work, nil
}

func (r *Repo) writeTree(ctx context.Context, p runOptions) (string, error) {
	out, err := r.runWrite(ctx, p, "write-tree")
	return strings.TrimSpace(string(out)), err
}
