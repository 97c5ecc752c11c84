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
type Subject struct {
	Name    string   // required: name below <common dir>/worktrees; any name with IndexCache
	Tree    string   // directory of the worktree; empty when it is gone and at most git's entry is left
	Branch  string   // full ref of the worktree's own branch
	Base    string   // fallback commit when neither HEAD nor the branch leads to one
	Onto    string   // earlier capture to extend: only additions since then are captured
	Omit    string   // top-level name that is never captured
	Secrets []string // name patterns of untracked files to leave out: see looksSecret
	Ignored bool     // capture ignored files too
	Also    []string // paths that are captured even if they are ignored or look like secrets
	Layer   string   // overlay upper directory over the git directory; a sandbox has its operation in progress there
	Message string   // commit message, if a commit is needed
	Author  Identity // author of that commit
	Trusted bool     // only the user can have written the repository's configuration: its filters run

	// IndexCache makes Dir a plain directory that is no worktree: git has no entry for it, so that there is no HEAD,
	// no branch, no index and no operation in progress, and every file is untracked. It is the path of a cache file
	// of ours, which need not exist: an index of the files last read, by which unchanged files are recognised. See
	// CaptureState.
	Memory string

	unsure []string // directories in which names come and go, to watch: see dirWatch

	ahead func() (stagedTree, error) // waits for the index that is read in the background; nil when none is

	asIs bool // the worktree stays in use: not even unreadable files in it are made readable
}

// CaptureResult is the state of a worktree as a commit.
type Captured struct {
	Commit string // commit that holds everything; HEAD if that already does; empty when there was nothing
	Branch string // commit of the branch; empty when the branch did not exist
	Dirty  bool   // there were changes that no commit held
}

// Capture writes the contents of a worktree as a commit: tracked, staged and untracked files, without ignored ones.
// Its first parent is HEAD. Further parents are the branch, if it is elsewhere, the commits that a merge or rebase in
// progress still needs, commits that only the reflog of HEAD refers to, and the index, if it differs from all of
// these. Capture changes nothing in the worktree. Neither its .git file nor anything else that a process in it could
// have written decides where git looks or what it runs.
func (r *Repo) Capture(ctx context.Context, s Subject) (Captured, error) {
	if s.Onto != "" {
		return r.captureOnto(ctx, s)
	}
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return Captured{}, err
	}
	got := Captured{Commit: head, Branch: branch}
	headTree, err := r.treeOfCommit(ctx, head)
	if err != nil {
		return Captured{}, err
	}
	parents, err := r.history(ctx, s, head, headTree, branch)
	if err != nil {
		return Captured{}, err
	}
	tree := headTree
	staged, work, err := r.writeTrees(ctx, s, head)
	if err != nil {
		return Captured{}, err
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
			return Captured{}, err
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
	lacks, err := r.contents(ctx, earlier, later)
	if err != nil || len(lacks) == 0 {
		return err == nil, err
	}
	has, err := r.contents(ctx, later, earlier)
	return !slices.ContainsFunc(lacks, func(line string) bool { return !slices.Contains(has, line) }), err
}

// treesAndAuthors lists tree and author of the commits that are reachable from one commit and not from another.
func (r *Repo) contents(ctx context.Context, in, notIn string) ([]string, error) {
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
	out, err := r.read(ctx, place{}, args...)
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' }), err
}

// captureOnto adds what has appeared since an earlier capture: files, commits, and index contents. It ignores missing
// files, because the worktree was being removed.
func (r *Repo) captureOnto(ctx context.Context, s Subject) (Captured, error) {
	before, err := r.treeOfCommit(ctx, s.Onto)
	if err != nil {
		return Captured{}, err
	}
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return Captured{}, err
	}
	parents, err := r.history(ctx, s, s.Onto, before, head, branch)
	if err != nil {
		return Captured{}, err
	}
	_, work, err := r.writeTrees(ctx, s, s.Onto)
	if err != nil {
		return Captured{}, err
	}
	if s.Tree == "" {
		work = before
	}
	staged, err := r.stagedSince(ctx, s, head, work)
	if err != nil {
		return Captured{}, err
	}
	if staged != "" {
		commit, err := r.commitTree(ctx, s, staged, []string{cmp.Or(head, s.Onto)}, "staged when captured")
		if err != nil {
			return Captured{}, err
		}
		parents = append(parents, commit)
	}
	if work == before && len(parents) == 1 {
		return Captured{Commit: s.Onto, Branch: branch}, nil
	}
	commit, err := r.commitTree(ctx, s, work, parents, s.Message)
	return Captured{Commit: commit, Branch: branch, Dirty: true}, err
}

// stagedTreeSince returns the tree of the index. It is empty when that tree equals the files on disk or HEAD, or is
// part of the earlier capture.
func (r *Repo) stagedSince(ctx context.Context, s Subject, head, work string) (string, error) {
	onto := s.Onto
	s.Onto, s.Tree = "", "" // only the index
	staged, _, err := r.writeTrees(ctx, s, head)
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
	out, err := r.read(ctx, place{}, captured...)
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
func (r *Repo) writeTrees(ctx context.Context, s Subject, head string) (staged, work string, err error) {
	g, err := r.gather(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return "", "", err
	}
	t, err := r.ask(ctx)
	if err != nil {
		return "", "", err
	}
	defer t.close()
	known, err := r.treeOfCommit(ctx, head)
	if err != nil {
		return "", "", err
	}
	if err := r.keepTrees(ctx, t, g, known); err != nil {
		return "", "", err
	}
	if g.staged != nil {
		staged = g.staged.name()
	}
	if g.work != nil {
		work = g.work.name()
	}
	return staged, work, nil
}

func (r *Repo) writeTree(ctx context.Context, p place) (string, error) {
	out, err := r.change(ctx, p, "write-tree")
	return strings.TrimSpace(string(out)), err
}
