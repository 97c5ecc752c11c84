package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Subject says which tree to capture, and as what.
type Subject struct {
	Name    string   // required: of the worktree's entry below <common dir>/worktrees; or any, with Memory
	Tree    string   // the directory; empty when it is gone and only git's entry may be left
	Branch  string   // full ref of the branch that belongs to the worktree
	Base    string   // a commit to fall back on when neither HEAD nor the branch leads to one
	Onto    string   // an earlier capture, of which only what has come since is to be added
	Omit    string   // a top-level name that is never captured
	Secrets []string // patterns of untracked files that are left out: see secret
	Ignored bool     // what git ignores is captured too
	Also    []string // paths that are captured whatever says that they are not
	Layer   string   // what somebody behind walls wrote over the git directory: what they have under way is read there
	Message string   // of the commit, if one is needed
	Author  Identity // of that commit
	Trusted bool     // the repository's own settings can only be the user's: filters that they name run

	// Memory makes it a directory that is no worktree: git has no entry of it, so that there is no HEAD and no branch,
	// nothing is staged or under way, and everything is untracked. It is the path of a file of ours, which need not be
	// there: an index of what was last read, by which files are known that have not changed since. See Freeze.
	Memory string

	ahead func() (stagedTree, error) // the index, which somebody reads meanwhile; nil when nobody does

	asIs bool // the tree goes on being worked in: not even what cannot be read is made readable
}

// Captured is the state of a tree as a commit.
type Captured struct {
	Commit string // holds everything that was there; a new commit only when HEAD does not; empty when there was nothing
	Branch string // where the branch was; empty when it did not exist
	Dirty  bool   // there was work that no commit held
}

// Capture writes what a worktree holds as a commit: tracked, staged and untracked files, not the
// ignored ones. Its first parent is HEAD; further parents are the branch, where that is elsewhere,
// what a merge or rebase under way still needs, what only the log of HEAD remembers, and what was
// staged, where that is different again. Nothing in the worktree is changed, and neither its .git file
// nor anything else that somebody in it could have written says where git looks or what it runs.
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
		tree = staged // the best that is left of a tree that is gone
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

// Covers reports whether everything that an earlier capture of a tree holds is also in a later one. No two
// captures are the same commit, so what only they hold is compared by content and author.
func (r *Repo) Covers(ctx context.Context, later, earlier string) (bool, error) {
	lacks, err := r.contents(ctx, earlier, later)
	if err != nil || len(lacks) == 0 {
		return err == nil, err
	}
	has, err := r.contents(ctx, later, earlier)
	return !slices.ContainsFunc(lacks, func(line string) bool { return !slices.Contains(has, line) }), err
}

// contents lists tree and author of the commits that are in one and not in another.
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

// captureOnto adds what has appeared in a tree since it was captured, on disk, in its history or staged.
// What is missing from it means nothing: somebody was removing it.
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

// stagedSince is what is staged, as a tree object; empty when it is on disk too, is what HEAD has, or is
// part of the earlier capture.
func (r *Repo) stagedSince(ctx context.Context, s Subject, head, work string) (string, error) {
	onto := s.Onto
	s.Onto, s.Tree = "", "" // the index as it is, and nothing else
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

// treeOfCommit is the tree of a commit; empty when there is no commit.
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

// writeTrees writes what is staged and what is on disk as tree objects. The staged one is empty when
// it cannot be written, as in the middle of a merge; the other when the tree is gone.
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
