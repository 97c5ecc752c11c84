// Package worktree lists, registers and unregisters the worktrees of a repository, and reads the entries of linked
// worktrees, <common dir>/worktrees/<name>, without git, as far as they are intact. It knows what git records of a
// worktree and nothing of the files in it.
package worktree

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Worktree is one entry of "git worktree list".
type Worktree struct {
	Path           string // resolved, as git records it; any bytes
	Head           string // commit; empty in a bare repository and where only files could be read
	Branch         string // full ref; empty when detached or bare
	Bare           bool
	Detached       bool
	Locked         bool
	LockReason     string
	Prunable       bool
	PrunableReason string
}

func (w *Worktree) setHead(head git.Head) {
	w.Branch, w.Head, w.Detached = head.Branch, head.Commit, head.Commit != ""
}

// Listing lists the worktrees of a repository, the main one first.
type Listing struct {
	Worktrees []Worktree

	// Damaged lists the entries that make "git worktree list" fail. When there are any, Worktrees was read from the
	// files directly and has no commits for entries on a branch.
	Damaged []DamagedEntry
}

// List lists the worktrees of the repository. One damaged entry makes "git worktree list" fail for all of them;
// then the entries are read one by one, and the damaged ones are reported.
func List(ctx context.Context, r *git.Repo) (Listing, error) {
	out, err := r.RunRead(ctx, git.RunOptions{}, "worktree", "list", "--porcelain", "-z")
	if err == nil {
		trees, err := parseWorktrees(string(out))
		FixMainPath(r, trees)
		return Listing{Worktrees: trees}, err
	}
	if ctx.Err() != nil {
		return Listing{}, err
	}
	listing, readErr := ListWithoutGit(r, nil)
	if readErr != nil || len(listing.Damaged) == 0 {
		return Listing{}, err // git failed for another reason than a damaged entry
	}
	return listing, nil
}

// FixMainPath corrects the path of the main worktree. Git guesses it from the name of the common directory,
// which is wrong in a submodule and where the git directory was moved elsewhere.
func FixMainPath(r *git.Repo, trees []Worktree) {
	if len(trees) == 0 || trees[0].Bare {
		return
	}
	switch configured := r.Config.Value("core.worktree"); {
	case r.GitDir == r.CommonDir && hasOurDotGit(r, r.TopLevel):
		trees[0].Path = r.TopLevel
	case filepath.IsAbs(configured):
		trees[0].Path = configured
	case configured != "":
		trees[0].Path = filepath.Join(r.CommonDir, configured)
	}
}

// hasOurDotGit reports whether the .git of a worktree is this repository's. With GIT_DIR set, git takes any directory
// for the top of a worktree.
func hasOurDotGit(r *git.Repo, tree string) bool {
	if tree == "" {
		return false
	}
	dotGit := filepath.Join(tree, ".git")
	if data, err := git.ReadSmallFile(tree, ".git"); err == nil {
		dotGit = strings.TrimSpace(strings.TrimPrefix(string(data), "gitdir:"))
		if !filepath.IsAbs(dotGit) {
			dotGit = filepath.Join(tree, dotGit)
		}
	}
	real, err := filepath.EvalSymlinks(dotGit)
	return err == nil && real == r.CommonDir
}

// parseWorktrees reads "git worktree list --porcelain -z": attributes end with NUL, entries with one NUL more. Values
// are verbatim, so paths and reasons may hold newlines and any other byte.
func parseWorktrees(out string) ([]Worktree, error) {
	var trees []Worktree
	for len(out) > 0 {
		entry, rest, ok := strings.Cut(out, "\x00\x00")
		if !ok {
			return nil, fmt.Errorf("git worktree list: entry without an end: %q", out)
		}
		out = rest
		w, err := parseWorktree(entry)
		if err != nil {
			return nil, err
		}
		trees = append(trees, w)
	}
	return trees, nil
}

func parseWorktree(entry string) (Worktree, error) {
	var w Worktree
	for i, attr := range strings.Split(entry, "\x00") {
		key, value, _ := strings.Cut(attr, " ")
		if (i == 0) != (key == "worktree") {
			return Worktree{}, fmt.Errorf("git worktree list: unexpected %q in %q", attr, entry)
		}
		switch key {
		case "worktree":
			w.Path = value
		case "HEAD":
			w.Head = value
		case "branch":
			w.Branch = value
		case "bare":
			w.Bare = true
		case "detached":
			w.Detached = true
		case "locked":
			w.Locked, w.LockReason = true, value
		case "prunable":
			w.Prunable, w.PrunableReason = true, value
		} // unknown attributes of a newer git are ignored
	}
	if w.Path == "" {
		return Worktree{}, fmt.Errorf("git worktree list: entry without a path: %q", entry)
	}
	return w, nil
}
