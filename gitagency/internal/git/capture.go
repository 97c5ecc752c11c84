package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Snapshot says which tree to capture, and as what.
type Snapshot struct {
	Name    string   // required: of the worktree's entry below <common dir>/worktrees
	Tree    string   // the directory; empty when it is gone and only git's entry may be left
	Branch  string   // full ref of the branch that belongs to the worktree
	Base    string   // a commit to fall back on when neither HEAD nor the branch leads to one
	Onto    string   // an earlier capture, of which only what has come since is to be added
	Omit    string   // a top-level name that is never captured
	Message string   // of the commit, if one is needed
	Author  Identity // of that commit
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
func (r *Repo) Capture(ctx context.Context, s Snapshot) (Captured, error) {
	if s.Onto != "" {
		return r.captureOnto(ctx, s)
	}
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return Captured{}, err
	}
	got := Captured{Commit: head, Branch: branch}
	parents, headTree, err := r.history(ctx, s, head, branch)
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

// captureOnto adds what has appeared in a tree since it was captured. What is missing from it means
// nothing: somebody was removing it.
func (r *Repo) captureOnto(ctx context.Context, s Snapshot) (Captured, error) {
	before, err := r.Lookup(ctx, s.Onto+"^{tree}")
	if err != nil {
		return Captured{}, err
	}
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return Captured{}, err
	}
	parents, err := r.independent(ctx, []string{s.Onto}, []string{head, branch})
	if err != nil {
		return Captured{}, err
	}
	_, work, err := r.writeTrees(ctx, s, s.Onto)
	if err != nil {
		return Captured{}, err
	}
	if s.Tree == "" {
		work = before[0].OID
	}
	if work == before[0].OID && len(parents) == 1 {
		return Captured{Commit: s.Onto, Branch: branch}, nil
	}
	commit, err := r.commitTree(ctx, s, work, parents, s.Message)
	return Captured{Commit: commit, Branch: branch, Dirty: true}, err
}

// tips finds where HEAD and the branch of a worktree are.
func (r *Repo) tips(ctx context.Context, s Snapshot) (head, branch string, err error) {
	var w Worktree
	if err := readHead(r.AdminDir(s.Name), &w); errors.Is(err, fs.ErrPermission) {
		return "", "", err // it is there, and may be where work is
	}
	name := s.Branch
	switch {
	case isOID(w.Head):
		name = w.Head
	case strings.HasPrefix(w.Branch, "refs/"):
		name = w.Branch
	}
	objects, err := r.Lookup(ctx, name+"^{commit}", s.Branch, s.Base+"^{commit}")
	if err != nil {
		return "", "", err
	}
	for _, o := range objects { // HEAD may name what is not there; what the branch holds still is
		if head == "" {
			head = o.OID
		}
	}
	return head, objects[1].OID, nil
}

// underWay are the files of a worktree's entry that name commits which nothing else may hold.
var underWay = []string{
	"MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD",
	"rebase-merge/orig-head", "rebase-merge/autostash", "rebase-apply/orig-head", "rebase-apply/autostash",
}

// history lists the commits that a capture must hold, head first, and the tree of head.
func (r *Repo) history(ctx context.Context, s Snapshot, head, branch string) (parents []string, headTree string, err error) {
	if head == "" {
		return nil, "", nil
	}
	candidates := []string{branch}
	for _, name := range underWay {
		if data, err := readSmall(r.AdminDir(s.Name), name); err == nil {
			candidates = append(candidates, strings.Fields(string(data))...)
		}
	}
	parents, err = r.independent(ctx, []string{head}, candidates)
	if err != nil {
		return nil, "", err
	}
	found, err := r.Lookup(ctx, head+"^{tree}")
	if err != nil {
		return nil, "", err
	}
	// Commits that were amended or reset away hang together under one parent more, out of the way.
	kept := len(parents)
	forgotten, err := r.independent(ctx, parents, r.logged(s))
	if err != nil {
		return nil, "", err
	}
	if len(forgotten) > kept {
		commit, err := r.commitTree(ctx, s, found[0].OID, forgotten[kept:], "what only the log of HEAD remembered")
		if err != nil {
			return nil, "", err
		}
		parents = append(parents, commit)
	}
	return parents, found[0].OID, nil
}

// logged lists the commits that HEAD of a worktree has been at, the newest first.
func (r *Repo) logged(s Snapshot) []string {
	data, err := durable.ReadFile(filepath.Join(r.AdminDir(s.Name), "logs", "HEAD"), 1<<22)
	if err != nil {
		return nil // a log is a convenience, also here
	}
	const most = 5000 // they become arguments
	var commits []string
	seen := map[string]bool{}
	for _, line := range slices.Backward(strings.Split(string(data), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && !seen[fields[1]] && len(commits) < most {
			seen[fields[1]] = true
			commits = append(commits, fields[1])
		}
	}
	return commits
}

// independent adds to the commits in have those of the candidates that exist and are not in them, nor
// in each other.
func (r *Repo) independent(ctx context.Context, have, candidates []string) ([]string, error) {
	var names []string
	for _, c := range candidates {
		if isOID(c) && !slices.Contains(have, c) {
			names = append(names, c+"^{commit}")
		}
	}
	if len(names) == 0 {
		return have, nil
	}
	found, err := r.Lookup(ctx, names...)
	if err != nil {
		return nil, err
	}
	var there []string
	for _, o := range found {
		if !o.Missing() {
			there = append(there, o.OID)
		}
	}
	if len(there) == 0 {
		return have, nil
	}
	out, err := r.read(ctx, place{}, slices.Concat([]string{"merge-base", "--independent"}, have, there)...)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(have)
	for _, c := range strings.Fields(string(out)) {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all, nil
}

// writeTrees writes what is staged and what is on disk as tree objects. The staged one is empty when
// it cannot be written, as in the middle of a merge; the other when the tree is gone.
func (r *Repo) writeTrees(ctx context.Context, s Snapshot, head string) (staged, work string, err error) {
	p, done, err := r.scratch(s, head)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	entries, err := r.seedIndex(ctx, p, head)
	if err != nil {
		return "", "", err
	}
	if err := r.survey(s, entries); err != nil {
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
func (r *Repo) addAll(ctx context.Context, p place, s Snapshot, entries []indexEntry) error {
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

func (r *Repo) commitTree(ctx context.Context, s Snapshot, tree string, parents []string, message string) (string, error) {
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

// NestedError names repositories inside a tree. Git would keep only the id of their current commit, if
// anything; everything else in them would be lost with the tree.
type NestedError struct {
	Tree  string
	Paths []string
}

func (e *NestedError) Error() string {
	return fmt.Sprintf("%s holds repositories of its own, which no commit can keep: %s", e.Tree, strings.Join(e.Paths, ", "))
}

// survey looks at what would be lost although git was asked to keep it all: repositories, ignored or
// not, and files where git expects a submodule. It also keeps git from ever entering a repository, with
// a configuration anybody could have written, and from waiting for ever for a pipe.
func (r *Repo) survey(s Snapshot, entries []indexEntry) error {
	var nested []string
	if s.Tree != "" {
		var err error
		if nested, err = walk(s.Tree); err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(s.Tree, e.path)
			if inside, err := os.ReadDir(path); e.mode == gitlink && err == nil && len(inside) > 0 {
				nested = append(nested, path)
			}
		}
		if fi, err := os.Lstat(filepath.Join(s.Tree, ".git")); err == nil && fi.IsDir() {
			nested = append(nested, filepath.Join(s.Tree, ".git"))
		}
	}
	// The repositories of submodules that were checked out there, and perhaps are no more.
	modules := filepath.Join(r.AdminDir(s.Name), "modules")
	if inside, err := os.ReadDir(modules); err == nil && len(inside) > 0 {
		nested = append(nested, modules)
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedError{Tree: s.Tree, Paths: slices.Compact(nested)}
	}
	return nil
}

// walk lists the directories below tree, not tree itself, that have a .git of any kind, and refuses
// what git could not read.
func walk(tree string) (nested []string, err error) {
	root := os.Geteuid() == 0 // who may read everything
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != tree:
			return nil // gone since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular() && !root:
			return readable(path, d)
		case d.Type().IsRegular():
			return nil
		case !d.IsDir():
			if strings.HasPrefix(d.Name(), ".git") && d.Type()&fs.ModeSymlink == 0 {
				return fmt.Errorf("%s is not a file, and git would wait for it for ever; remove it first", path)
			}
			return nil
		case path == tree:
			return nil
		}
		if _, err := os.Lstat(filepath.Join(path, ".git")); err != nil {
			return nil
		}
		nested = append(nested, path)
		return fs.SkipDir
	})
	return nested, err
}

// readable reports a file that its owner may not read. The mode alone is asked, not the disk.
func readable(path string, d fs.DirEntry) error {
	fi, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	if err != nil || fi.Mode().Perm()&0o400 != 0 {
		return err
	}
	return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
}
