package repair

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// RelinkWorktree connects a worktree with its entry again: it writes the missing or invalid files of the entry, and
// the .git of the worktree. Valid files stay, but for the two paths. Without an index, a new one is made from the
// commit that HEAD is at.
func RelinkWorktree(ctx context.Context, r *git.Repo, w worktree.Registration) error {
	return worktree.Relink(r, w, func(admin string) error {
		if _, err := os.Lstat(filepath.Join(admin, "index")); errors.Is(err, fs.ErrNotExist) {
			if err := createEntryIndex(ctx, r, w, admin); err != nil {
				return err
			}
		}
		return removeTempDotGits(w.Tree)
	})
}

// removeTempDotGits removes the files that killed calls of RelinkWorktree left in a worktree, where they look like files of
// the user. Files with another content are kept.
func removeTempDotGits(tree string) error {
	temps, err := durable.ListTemps(tree)
	if err != nil {
		return err
	}
	for _, path := range temps {
		if !strings.HasPrefix(filepath.Base(path), durable.TempPrefix+".git-") {
			continue
		}
		const limit = 1 << 16
		data, err := durable.ReadFile(path, limit)
		if err != nil || len(data) > 0 && !bytes.HasPrefix(data, []byte("gitdir: ")) {
			continue // not one of ours
		}
		if err := durable.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// WriteEntryGitdir writes the path of a worktree into its entry.
func WriteEntryGitdir(r *git.Repo, name, tree string) error {
	return durable.WriteFile(filepath.Join(r.AdminDir(name), "gitdir"), []byte(filepath.Join(tree, ".git")+"\n"), 0o644)
}

// createEntryIndex writes an index of the commit that HEAD is at into an entry. Git runs on the common directory and
// not on the entry: an agent in the worktree can have written a configuration there.
func createEntryIndex(ctx context.Context, r *git.Repo, w worktree.Registration, dir string) error {
	head, _, err := r.HeadAndBranch(ctx, git.WorktreeSpec{Name: w.Name, Branch: w.Branch})
	if err != nil || head == "" {
		return err
	}
	_, err = r.RunWrite(ctx, git.RunOptions{Env: []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "index")}, Reading: r.ReadingOf("reading the tree of " + head)}, "read-tree", head)
	return err
}

// RestoreEntry makes a worktree entry that is not ours readable for git again, as far as the lost content can be
// known. An entry in which nothing was ever checked out is removed.
func RestoreEntry(r *git.Repo, e worktree.Entry) error {
	if !e.WasCheckedOut {
		return worktree.RemoveAdminDir(r, e.Name)
	}
	for _, flaw := range e.BadFiles {
		content, known := repairedContent(r, e, flaw)
		if !known {
			continue
		}
		if err := durable.WriteFile(filepath.Join(r.AdminDir(e.Name), flaw), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// UnrepairableFiles lists the bad files of an entry that only its owner can repair: their content cannot be known any
// more.
func UnrepairableFiles(r *git.Repo, e worktree.Entry) []string {
	return slices.DeleteFunc(slices.Clone(e.BadFiles), func(flaw string) bool {
		_, known := repairedContent(r, e, flaw)
		return known || !e.WasCheckedOut
	})
}

// repairedContent returns the content that a bad file of an entry must have had.
func repairedContent(r *git.Repo, e worktree.Entry, flaw string) (content string, known bool) {
	switch flaw {
	case "commondir":
		common, err := filepath.Rel(r.AdminDir(e.Name), r.CommonDir)
		return common, err == nil
	case "HEAD":
		if log := r.ReflogCommits(git.WorktreeSpec{Name: e.Name}); len(log) > 0 {
			return log[0], true
		}
	}
	return "", false
}

// UnlockWorktree removes the "locked" file that "git worktree add" leaves when it is killed.
func UnlockWorktree(r *git.Repo, e worktree.Entry) error {
	return durable.Remove(filepath.Join(r.AdminDir(e.Name), "locked"))
}

// LastLoggedCommit returns the newest existing commit in the reflog of a worktree's HEAD; empty when there is none.
func LastLoggedCommit(ctx context.Context, r *git.Repo, name string) (string, error) {
	log := r.ReflogCommits(git.WorktreeSpec{Name: name})
	for i := range log {
		log[i] += "^{commit}"
	}
	if len(log) == 0 {
		return "", nil
	}
	found, err := r.Lookup(ctx, log...)
	if err != nil {
		return "", err
	}
	for _, o := range found {
		if !o.Missing() {
			return o.OID, nil
		}
	}
	return "", nil
}
