package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// MultipleCheckoutsError reports a branch that several worktrees have checked out. Only one would be updated; the
// others would show the reverse of the new commits as local changes.
type MultipleCheckoutsError struct {
	Branch    string
	Worktrees []string
}

func (e *MultipleCheckoutsError) Error() string {
	return fmt.Sprintf("%s is checked out more than once: %s", strings.TrimPrefix(e.Branch, "refs/heads/"), strings.Join(e.Worktrees, ", "))
}

// MissingWorktreeError reports a worktree that has a branch checked out and whose directory is missing, for example
// because its disk is not mounted.
type MissingWorktreeError struct {
	Branch   string
	Worktree string
}

func (e *MissingWorktreeError) Error() string {
	return fmt.Sprintf("%s is checked out in %s, which does not exist", strings.TrimPrefix(e.Branch, "refs/heads/"), e.Worktree)
}

// CheckoutMovedError reports a branch that is checked out in another worktree than when the update began. That worktree
// would show the reverse of the new commits as local changes.
type CheckoutMovedError struct {
	Branch   string
	Worktree string // worktree that has the branch now; empty: none
}

func (e *CheckoutMovedError) Error() string {
	branch := strings.TrimPrefix(e.Branch, "refs/heads/")
	if e.Worktree == "" {
		return branch + " is not checked out in its worktree any more"
	}
	return fmt.Sprintf("%s was checked out in %s during the update", branch, e.Worktree)
}

// recheckCheckout checks, while we hold the ref locks, that the branch is still checked out in the same worktree. A git
// that is checking out a branch holds index.lock of its worktree; we wait for it only briefly, as the lock may be
// stale.
func (tx *Transaction) recheckCheckout(ctx context.Context) error {
	if tx.spec.Old == tx.spec.New {
		return nil
	}
	var failed error
	err := tx.repo.LockWait.Until(ctx, func() bool {
		var worktrees map[string]string
		worktrees, failed = worktreesByGitDir(ctx, tx.repo)
		for dir := range worktrees {
			if _, err := os.Lstat(filepath.Join(dir, "index"+index.LockSuffix)); err == nil && dir != tx.spec.GitDir {
				return false
			}
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	gitDir, tree, err := CheckedOutIn(ctx, tx.repo, tx.spec.Branch)
	if err == nil && gitDir != tx.spec.GitDir {
		err = &CheckoutMovedError{Branch: tx.spec.Branch, Worktree: tree}
	}
	return err
}

// StaleCheckoutError reports a worktree that checked out a branch at the very moment it moved. Its index and files may
// be those of the old commit, which looks like a local revert of the new commits.
type StaleCheckoutError struct {
	Branch, Old, New string
	Worktree         string
	Err              error // reason why the worktree could not be updated
}

func (e *StaleCheckoutError) Error() string {
	return fmt.Sprintf("%s was checked out in %s while it moved from %.12s to %.12s: %v", strings.TrimPrefix(e.Branch, "refs/heads/"), e.Worktree, e.Old, e.New, e.Err)
}

func (e *StaleCheckoutError) Unwrap() error { return e.Err }

// StaleCheckout returns the worktree that checked out the branch while it moved and could not be updated; nil: none.
func (tx *Transaction) StaleCheckout() *StaleCheckoutError { return tx.staleCheckout }

// updateLateCheckout looks once more, after a branch moved that was not checked out, whether a worktree has it now. A
// git checkout that read the branch before we locked it, and wrote HEAD after recheckCheckout, has the files of the old
// commit. "git read-tree -m -u" updates them, as when switching branches: files that are up to date stay, and local
// changes are refused. A worktree that writes HEAD even later is not seen. ctx is no longer cancelled here, so there is
// a time limit: a filter may never end.
func (tx *Transaction) updateLateCheckout(ctx context.Context) (*StaleCheckoutError, error) {
	if tx.spec.GitDir != "" || tx.spec.Old == tx.spec.New {
		return nil, nil
	}
	longest := cmp.Or(tx.lateCheckoutTimeout, 2*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it took longer than %s", longest))
	defer cancel()
	gitDir, tree, err := CheckedOutIn(ctx, tx.repo, tx.spec.Branch)
	switch {
	case errors.As(err, new(*MultipleCheckoutsError)) || errors.As(err, new(*OperationInProgressError)):
		return nil, nil // several worktrees have it, or one rebases it: it was not checked out just now
	case err != nil:
		return nil, fmt.Errorf("find the worktree that has %s checked out: %w", strings.TrimPrefix(tx.spec.Branch, "refs/heads/"), err)
	case gitDir == "":
		return nil, nil
	}
	if err = errors.New("filters in the configuration of the repository are not trusted"); tx.spec.Trusted {
		err = tx.repo.LockWait.Until(ctx, func() bool { _, err := os.Lstat(filepath.Join(gitDir, "index"+index.LockSuffix)); return err != nil })
		if err == nil {
			_, err = tx.repo.RunWrite(ctx, git.RunOptions{GitDir: gitDir, WorkTree: tree}, "read-tree", "-m", "-u", tx.spec.Old, tx.spec.New)
		}
	}
	if err == nil {
		return nil, nil
	}
	return &StaleCheckoutError{Branch: tx.spec.Branch, Old: tx.spec.Old, New: tx.spec.New, Worktree: tree, Err: err}, nil
}

// CheckedOutIn returns the git directory and the path of the worktree that has a branch checked out; empty: none. A
// worktree that is rebasing the branch, or bisecting from it, is an *OperationInProgressError, several worktrees are a
// *MultipleCheckoutsError, and one that is not at its path is a *MissingWorktreeError.
func CheckedOutIn(ctx context.Context, r *git.Repo, branch string) (gitDir, tree string, err error) {
	worktrees, err := worktreesByGitDir(ctx, r)
	if err != nil {
		return "", "", err
	}
	var found, busy []string
	what := ""
	for _, dir := range slices.Sorted(maps.Keys(worktrees)) {
		at := worktrees[dir]
		on, doing := branchUse(r, dir, branch)
		switch {
		case doing != "":
			busy, what = append(busy, at), doing
		case on:
			gitDir, tree = dir, at
		default:
			continue
		}
		found = append(found, at)
	}
	switch {
	case len(found) == 0:
		return "", "", nil
	case len(found) > 1:
		return "", "", &MultipleCheckoutsError{Branch: branch, Worktrees: found}
	case len(busy) > 0:
		return "", "", &OperationInProgressError{Worktree: busy[0], Operation: what}
	}
	// A worktree that was moved by hand has no .git file at its registered path; git does not know where it is either.
	if linked, err := git.DotGitTarget(tree); err != nil || linked == "" {
		if configured := r.Config.Value("core.worktree"); gitDir != r.CommonDir || configured == "" {
			return "", "", errors.Join(&MissingWorktreeError{Branch: branch, Worktree: tree}, err)
		}
	}
	return gitDir, tree, nil
}

// worktreesByGitDir maps the git directories of all worktrees, except a bare main one, to their paths.
func worktreesByGitDir(ctx context.Context, r *git.Repo) (map[string]string, error) {
	if _, err := os.Lstat(filepath.Join(r.CommonDir, "reftable")); err == nil { // then the HEAD files are dummies
		return nil, fmt.Errorf("%s uses the reftable format, from which the branches of its worktrees cannot be read", r.CommonDir)
	}
	worktrees := map[string]string{}
	if main := mainWorktreePath(r); main != "" {
		worktrees[r.CommonDir] = main
	}
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if at := worktree.RegisteredTree(r, e.Name()); e.IsDir() && at != "" {
			worktrees[r.AdminDir(e.Name())] = at
		}
	}
	return worktrees, context.Cause(ctx)
}

// mainWorktreePath returns the path of the main worktree; empty if the repository is bare. It also reads core.bare in
// config.worktree, which a git in a linked worktree does not see.
func mainWorktreePath(r *git.Repo) string {
	bare := r.ConfigBool("core.bare", false)
	if data, err := durable.ReadFile(filepath.Join(r.CommonDir, "config.worktree"), 1<<20); err == nil {
		entries, _ := config.ParsePlainFile(string(data))
		for _, e := range entries {
			if e.Key == "core.bare" {
				bare = e.NoValue || e.Value == "true" || e.Value == "yes" || e.Value == "on" || e.Value == "1"
			}
		}
	}
	trees := []worktree.Worktree{{Path: strings.TrimSuffix(r.CommonDir, "/.git"), Bare: bare}}
	worktree.FixMainPath(r, trees)
	if bare || trees[0].Path == r.CommonDir {
		return ""
	}
	return trees[0].Path
}

// branchUse reports whether a worktree has a branch checked out, directly or through symrefs, or returns the operation
// ("rebase", "bisect") that uses it.
func branchUse(r *git.Repo, gitDir, branch string) (on bool, doing string) {
	is := func(name, want string) bool {
		data, err := git.ReadSmallFile(gitDir, name)
		return err == nil && strings.TrimSpace(string(data)) == want
	}
	switch {
	case is("rebase-merge/head-name", branch), is("rebase-apply/head-name", branch):
		return false, "rebase"
	case is("BISECT_START", strings.TrimPrefix(branch, "refs/heads/")):
		return false, "bisect"
	}
	if data, err := git.ReadSmallFile(gitDir, "rebase-merge/update-refs"); err == nil {
		for line := range strings.Lines(string(data)) {
			if strings.TrimSpace(line) == branch {
				return false, "rebase"
			}
		}
	}
	head, err := git.ReadHead(gitDir)
	if err != nil {
		return false, ""
	}
	ref := head.Branch
	for range 5 { // git's limit of nested symrefs
		if ref == branch {
			return true, ""
		}
		data, err := durable.ReadFile(r.RefPath(ref), 1<<10)
		next, symbolic := strings.CutPrefix(string(data), "ref:")
		if ref == "" || err != nil || !symbolic {
			return false, ""
		}
		ref = strings.TrimSpace(next)
	}
	return false, ""
}
