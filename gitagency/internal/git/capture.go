package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Subject says which tree to capture, and as what.
type Subject struct {
	Name    string   // required: of the worktree's entry below <common dir>/worktrees
	Tree    string   // the directory; empty when it is gone and only git's entry may be left
	Branch  string   // full ref of the branch that belongs to the worktree
	Base    string   // a commit to fall back on when neither HEAD nor the branch leads to one
	Onto    string   // an earlier capture, of which only what has come since is to be added
	Omit    string   // a top-level name that is never captured
	Also    []string // paths from the tree that are captured whatever ignores them
	Layer   string   // what somebody behind walls wrote over the git directory: what they have under way is read there
	Message string   // of the commit, if one is needed
	Author  Identity // of that commit

	asIs bool // the tree goes on being worked in: not even what cannot be read is made readable
}

// Identity is who a commit is by.
type Identity struct{ Name, Email string }

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
	p, done, err := r.scratch(s, head)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	entries, err := r.seedIndex(ctx, p, head)
	if err != nil {
		return "", "", err
	}
	if err := r.survey(ctx, s, entries); err != nil {
		return "", "", err
	}
	if slices.ContainsFunc(entries, func(e indexEntry) bool { return e.path == s.Omit || strings.HasPrefix(e.path, s.Omit+"/") }) {
		if err := r.omit(ctx, p, s.Omit); err != nil {
			return "", "", err
		}
	}
	if s.Tree == "" && len(entries) == 0 {
		return "", "", nil
	}
	if staged, err = r.writeTree(ctx, p); err != nil && !exitedWith(err, 128) {
		return "", "", err
	}
	if s.Tree == "" {
		return staged, "", nil
	}
	if err := r.addAll(ctx, p, s, entries); err != nil {
		return "", "", err
	}
	if len(s.Also) > 0 {
		also := p
		also.stdin, also.env = strings.Join(s.Also, "\x00"), append(slices.Clone(p.env), "GIT_LITERAL_PATHSPECS=1")
		if _, err := r.change(ctx, also, "add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"); err != nil {
			return "", "", err
		}
	}
	if err := r.omit(ctx, p, s.Omit); err != nil {
		return "", "", err
	}
	work, err = r.writeTree(ctx, p)
	return staged, work, err
}

func (r *Repo) writeTree(ctx context.Context, p place) (string, error) {
	out, err := r.change(ctx, p, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// addAll adds what is on disk to the index. Submodules, of which none is checked out, are not in the
// index meanwhile: git would enter one that appeared just now to ask whether it is dirty. Where its
// directory is still there afterwards, a submodule is what it was.
func (r *Repo) addAll(ctx context.Context, p place, s Subject, entries []indexEntry) error {
	links := slices.DeleteFunc(slices.Clone(entries), func(e indexEntry) bool { return e.mode != gitlink })
	if len(links) > 0 {
		away := p
		for _, e := range links {
			away.stdin += e.path + "\x00"
		}
		if _, err := r.change(ctx, away, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return err
		}
	}
	which := "--all"
	if s.Onto != "" {
		which = "--ignore-removal"
	}
	if _, err := r.change(ctx, p, "add", which, "--sparse", "--", "."); err != nil {
		return err
	}
	back := p
	for _, e := range links {
		if fi, err := os.Lstat(filepath.Join(p.tree, e.path)); err == nil && fi.IsDir() || s.Onto != "" {
			back.stdin += fmt.Sprintf("%s %s 0\t%s\x00", e.mode, e.oid, e.path)
		}
	}
	if back.stdin == "" {
		return nil
	}
	_, err := r.change(ctx, back, "update-index", "-z", "--index-info")
	return err
}

// omit takes a top-level name out of the index; git add has no way to leave out what is ignored too.
func (r *Repo) omit(ctx context.Context, p place, name string) error {
	if name == "" {
		return nil
	}
	_, err := r.change(ctx, p, "rm", "-r", "-q", "-f", "--cached", "--sparse", "--ignore-unmatch", "--", ":(top,literal)"+name)
	return err
}

func (r *Repo) commitTree(ctx context.Context, s Subject, tree string, parents []string, message string) (string, error) {
	args := []string{"commit-tree", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	out, err := r.change(ctx, place{stdin: message + "\n", env: []string{
		"GIT_AUTHOR_NAME=" + s.Author.Name, "GIT_AUTHOR_EMAIL=" + s.Author.Email,
		"GIT_COMMITTER_NAME=" + s.Author.Name, "GIT_COMMITTER_EMAIL=" + s.Author.Email,
	}}, args...)
	return strings.TrimSpace(string(out)), err
}
