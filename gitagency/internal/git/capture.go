package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Snapshot says which tree to capture, and as what.
type Snapshot struct {
	Name    string   // required: of the worktree's entry below <common dir>/worktrees
	Tree    string   // the directory; empty when it is gone and only commits are left
	Branch  string   // full ref of the branch that belongs to the worktree
	Omit    string   // a top-level name that is never captured
	Message string   // of the commit, if one is needed
	Author  Identity // of that commit
}

// Identity is who a commit is by.
type Identity struct{ Name, Email string }

// Captured is the state of a tree as a commit.
type Captured struct {
	Commit string // holds everything that was there; a new commit only when HEAD does not
	Branch string // where the branch was; empty when it did not exist
	Dirty  bool   // there was work that no commit held
}

// Capture writes what a worktree holds as a commit: tracked, staged and untracked files, not the
// ignored ones. Its first parent is HEAD; further parents are the branch, where that is elsewhere,
// and what was staged, where that is different again. Nothing in the worktree is changed, and
// neither its .git file nor anything else that somebody in it could have written says where git
// looks or what it runs.
func (r *Repo) Capture(ctx context.Context, s Snapshot) (Captured, error) {
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return Captured{}, err
	}
	got := Captured{Commit: head, Branch: branch}
	parents := []string{head}
	if branch != "" && branch != head {
		parents = append(parents, branch)
	}
	headTree, err := r.Lookup(ctx, head+"^{tree}")
	if err != nil {
		return Captured{}, err
	}
	tree := headTree[0].OID
	if s.Tree != "" {
		staged, work, err := r.writeTrees(ctx, s, head)
		if err != nil {
			return Captured{}, err
		}
		if staged != "" && staged != tree && staged != work {
			commit, err := r.commitTree(ctx, s, staged, []string{head}, "staged when captured")
			if err != nil {
				return Captured{}, err
			}
			parents = append(parents, commit)
		}
		got.Dirty = work != tree || len(parents) > 2
		tree = work
	}
	if tree == headTree[0].OID && len(parents) == 1 {
		return got, nil
	}
	got.Commit, err = r.commitTree(ctx, s, tree, parents, s.Message)
	return got, err
}

// tips finds where HEAD and the branch of a worktree are.
func (r *Repo) tips(ctx context.Context, s Snapshot) (head, branch string, err error) {
	var w Worktree
	readHead(r.AdminDir(s.Name), &w)
	name := s.Branch
	switch {
	case isOID(w.Head):
		name = w.Head
	case strings.HasPrefix(w.Branch, "refs/"):
		name = w.Branch
	}
	objects, err := r.Lookup(ctx, name+"^{commit}", s.Branch)
	if err != nil {
		return "", "", err
	}
	head, branch = objects[0].OID, objects[1].OID
	if head == "" {
		head = branch // HEAD names something that is not there; what the branch holds still is
	}
	if head == "" {
		return "", "", fmt.Errorf("neither HEAD nor %s of worktree %s leads to a commit", s.Branch, s.Name)
	}
	return head, branch, nil
}

// writeTrees writes what is staged and what is on disk as tree objects, through an index of our own.
// The staged one is empty when it cannot be written, as in the middle of a merge.
func (r *Repo) writeTrees(ctx context.Context, s Snapshot, head string) (staged, work string, err error) {
	if err := r.refuseNested(ctx, s.Tree); err != nil {
		return "", "", err
	}
	index := filepath.Join(r.CommonDir, "agency", "capture-"+s.Name)
	if err := os.MkdirAll(filepath.Dir(index), 0o777); err != nil {
		return "", "", err
	}
	defer func() {
		for _, name := range []string{index, index + ".lock"} {
			if rmErr := durable.Remove(name); err == nil {
				err = rmErr
			}
		}
	}()
	if err := durable.Remove(index + ".lock"); err != nil { // of a capture that was killed
		return "", "", err
	}
	p := place{
		tree: s.Tree, env: []string{"GIT_INDEX_FILE=" + index},
		config: []string{"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false"},
	}
	if err := r.seedIndex(ctx, s, p, index, head); err != nil {
		return "", "", err
	}
	if out, err := r.change(ctx, p, "write-tree"); err == nil {
		staged = strings.TrimSpace(string(out))
	} else if !exitedWith(err, 128) {
		return "", "", err
	}
	if _, err := r.change(ctx, p, "add", "-A", "--sparse", "--", "."); err != nil {
		return "", "", err
	}
	if s.Omit != "" {
		if _, err := r.change(ctx, p, "rm", "-r", "-q", "--cached", "--sparse", "--ignore-unmatch", "--", ":(top,icase)"+s.Omit); err != nil {
			return "", "", err
		}
	}
	out, err := r.change(ctx, p, "write-tree")
	if err != nil {
		return "", "", err
	}
	return staged, strings.TrimSpace(string(out)), nil
}

// seedIndex copies the index of the worktree, whose stat data spares hashing every file again. An
// index that cannot be used, or that tells git to look away from files (assume-unchanged), is
// replaced by one made from HEAD.
func (r *Repo) seedIndex(ctx context.Context, s Snapshot, p place, index, head string) error {
	err := copyFile(filepath.Join(r.AdminDir(s.Name), "index"), index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		out, err := r.read(ctx, p, "ls-files", "-v", "-z")
		if err == nil && !slices.ContainsFunc(strings.Split(string(out), "\x00"), looksAway) {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if err := durable.Remove(index); err != nil {
			return err
		}
	}
	_, err = r.change(ctx, p, "read-tree", head)
	return err
}

// looksAway: ls-files -v marks assume-unchanged entries with a lower-case letter.
func looksAway(line string) bool { return line != "" && line[0] >= 'a' && line[0] <= 'z' }

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

// NestedError names repositories inside a tree. Git would keep only the id of their current commit;
// everything else in them would be lost with the tree.
type NestedError struct {
	Tree  string
	Paths []string // relative to Tree
}

func (e *NestedError) Error() string {
	return fmt.Sprintf("%s holds repositories of its own, which cannot be captured: %s", e.Tree, strings.Join(e.Paths, ", "))
}

// refuseNested looks for repositories below the tree that are not ignored. It also keeps git from
// ever entering one: git add would run git in it, with a configuration anybody could have written.
func (r *Repo) refuseNested(ctx context.Context, tree string) error {
	nested, err := findNested(tree)
	if errors.Is(err, fs.ErrPermission) {
		// Somebody took his own permissions away. Git would skip such a directory in silence.
		if err := durable.MakeReachable(tree); err != nil {
			return err
		}
		nested, err = findNested(tree)
	}
	if err != nil || len(nested) == 0 {
		return err
	}
	out, err := r.read(ctx, place{tree: tree, stdin: strings.Join(nested, "\x00")}, "check-ignore", "-z", "--stdin")
	if err != nil && !exitedWith(err, 1) {
		return err
	}
	ignored := strings.Split(string(out), "\x00")
	nested = slices.DeleteFunc(nested, func(p string) bool { return slices.Contains(ignored, p) })
	if len(nested) == 0 {
		return nil
	}
	return &NestedError{Tree: tree, Paths: nested}
}

// findNested lists the directories below tree, not tree itself, that have a .git of any kind.
func findNested(tree string) ([]string, error) {
	var nested []string
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != tree {
			return nil // gone since it was listed
		}
		if err != nil {
			return err
		}
		if !d.IsDir() {
			if d.Type().IsRegular() {
				return readable(path, d)
			}
			return nil
		}
		if path == tree {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(path, ".git")); err == nil {
			rel, err := filepath.Rel(tree, path)
			if err != nil {
				return err
			}
			nested = append(nested, rel)
			return fs.SkipDir
		}
		return nil
	})
	return nested, err
}

// readable reports a file that its owner may not read. The mode alone is asked, not the disk.
func readable(path string, d fs.DirEntry) error {
	if os.Geteuid() == 0 {
		return nil
	}
	fi, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	if err != nil || fi.Mode().Perm()&0o400 != 0 {
		return err
	}
	return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
}

func copyFile(from, to string) (err error) {
	// Not blocking: somebody could have put a pipe there.
	src, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if fi, err := src.Stat(); err != nil || !fi.Mode().IsRegular() {
		return errors.Join(err, fs.ErrNotExist)
	}
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
