package landing

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkSubmodules refuses a sandbox with a submodule whose files or commits differ from the commit that lands: they would
// be removed with the sandbox. It runs when repositories that .gitmodules does not name were refused.
func (l *landAttempt) checkSubmodules(ctx context.Context) error {
	changed := changedSubmodules(l.scanResult)
	if len(changed) == 0 {
		return nil
	}
	if err := checkNestedModules(ctx, l.r, l.repo, l.s, changed); err != nil {
		return err
	}
	return l.uncommittedError(ctx, changed)
}

// checkNestedModules refuses submodules that have submodules of their own with repositories in the sandbox: no commit in the
// submodule changes that they are kept nowhere else.
func checkNestedModules(ctx context.Context, r *core.Repository, repo *git.Repo, s *sandbox.Sandbox, changed []string) error {
	found, err := r.FindSubmodules(ctx, repo, git.WorktreeSpec{Name: s.ID, Dir: s.Tree})
	if err != nil {
		return err
	}
	for _, c := range found {
		if !slices.Contains(changed, c.Path) {
			continue
		}
		if nested, err := c.HasNested(); err != nil || nested {
			return errors.Join(err, &fault.OtherModulesError{ID: s.ID, Names: []string{c.Name}, Nested: true})
		}
	}
	return nil
}

// changedSubmodules lists the submodules whose checkouts differ from the commits that the index has for them.
func changedSubmodules(k status.Report) (paths []string) {
	for _, l := range k.LeftOut {
		if l.Reason == status.OmitSubmodule {
			paths = append(paths, l.Path)
		}
	}
	return paths
}

// unaddedSubmodules lists the submodules left out of a report that are committed, and only have to be added in the sandbox.
func unaddedSubmodules(ctx context.Context, r *core.Repository, repo *git.Repo, s *sandbox.Sandbox, k status.Report) (paths []string) {
	left := changedSubmodules(k)
	if len(left) == 0 {
		return nil
	}
	found, err := r.FindSubmodules(ctx, repo, git.WorktreeSpec{Name: s.ID, Dir: s.Tree})
	if err != nil {
		r.Warn("submodules in %s: %v", quote.Path(s.Tree), err)
	}
	for _, c := range found {
		if !slices.Contains(left, c.Path) {
			continue
		}
		unadded, err := c.IsUnadded(ctx)
		if err != nil {
			r.Warn("submodule %s: %v", quote.Path(c.Path), err)
		}
		if unadded {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// addChangedSubmodules adds submodules with uncommitted changes to the uncommitted files of a sandbox. Unlike a landing, it
// accepts commits of submodules that are not imported yet.
func addChangedSubmodules(ctx context.Context, r *core.Repository, repo *git.Repo, s *sandbox.Sandbox, found *status.Report) error {
	left := changedSubmodules(*found)
	if len(left) == 0 {
		return nil
	}
	if err := checkNestedModules(ctx, r, repo, s, left); err != nil {
		return err
	}
	changed, err := r.ChangedSubmodules(ctx, repo, git.WorktreeSpec{Name: s.ID, Dir: s.Tree})
	if err != nil {
		return err
	}
	for _, path := range changed {
		if slices.Contains(left, path) && !slices.Contains(found.Uncommitted, path) {
			found.Uncommitted = append(found.Uncommitted, path)
		}
	}
	slices.Sort(found.Uncommitted)
	return nil
}

// checkGitlinks refuses submodules at commits that the user has nowhere but in the refs by which git-agency keeps them.
func (l *landAttempt) checkGitlinks(ctx context.Context, links []merge.Gitlink) error {
	for _, g := range links {
		if g.Name == "" {
			continue
		}
		dir := ""
		if l.target.CheckoutTree != "" {
			dir = filepath.Join(l.target.CheckoutTree, g.Path)
		}
		where, err := submodule.FindCommit(ctx, l.repo, g.Name, dir, g.OID)
		if err != nil {
			return fmt.Errorf("submodule %s: %w", quote.Path(g.Path), err)
		}
		if where != submodule.Referenced {
			return &fault.SubmoduleCommitError{
				ID: l.s.ID, Path: g.Path, Commit: g.OID, Where: where, Tree: l.target.CheckoutTree,
				GitDir: filepath.Join(submodule.Dir(l.repo), g.Name), New: g.Old == "", URL: g.URL,
			}
		}
	}
	return nil
}

// outdatedSubmodules lists the submodules that the landing has added or changed and that are at other commits in the worktree
// of the branch: like git merge, a landing does not update the files of submodules.
func (l *landAttempt) outdatedSubmodules(ctx context.Context) (all []OutdatedSubmodule) {
	for _, g := range l.gitlinks {
		if g.Name == "" || l.target.CheckoutTree == "" {
			continue
		}
		o, is, err := submodule.FindOutdated(ctx, l.repo, l.target.CheckoutTree, submodule.Module{Name: g.Name, Path: g.Path, Commit: g.OID}, g.Old == "")
		if err != nil {
			l.r.Warn("submodule %s: %v", quote.Path(g.Path), err)
		}
		if is {
			all = append(all, o)
		}
	}
	return all
}
