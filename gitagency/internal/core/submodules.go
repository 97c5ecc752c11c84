package core

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// FindSubmodules lists the submodules that are checked out in the tree of an invocation, or were.
func (r *Repository) FindSubmodules(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) ([]submodule.Checkout, error) {
	req := submodule.FindRequest{Worktree: s.Name, Tree: s.Dir}
	if files := changeset.OverlayUpperDir(r.Store.OverlayDir(r.ID, s.Name)); store.IsDir(files) {
		req.Files = files
	}
	if upper := r.UpperDir(s.Name); store.IsDir(upper) {
		req.UpperDir = upper
	}
	if !store.IsDir(repo.AdminDir(s.Name)) {
		req.Commit = s.Onto // the worktree is not registered any more
	}
	return submodule.Find(ctx, repo, req)
}

// ChangedSubmodules lists the submodules of a sandbox whose checkouts have uncommitted changes, or another commit than the
// index.
func (r *Repository) ChangedSubmodules(ctx context.Context, repo *git.Repo, spec git.WorktreeSpec) (paths []string, err error) {
	found, err := r.FindSubmodules(ctx, repo, spec)
	if err != nil {
		return nil, err
	}
	for _, c := range found {
		changed, err := c.IsChanged(ctx)
		if err != nil {
			return nil, err
		}
		if changed {
			paths = append(paths, c.Path)
		}
	}
	return paths, nil
}

// WithKeptSubmodules fills in which submodules of a tree hold nothing that is not kept elsewhere, and where the repositories
// of the others are. A submodule that cannot be compared counts as one that is not kept.
func (r *Repository) WithKeptSubmodules(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) (git.WorktreeSpec, error) {
	if s.Dir == "" || !store.IsDir(s.Dir) {
		return s, nil
	}
	if entry := overlay.OpaqueEntry(r.UpperDir(s.Name), s.Name); entry != "" && store.IsDir(filepath.Join(entry, "modules")) {
		s.ModulesDir = filepath.Join(entry, "modules")
	}
	unchanged, err := r.submodulesThat(ctx, repo, s, func(c submodule.Checkout) (bool, error) { return c.IsUnchanged(ctx, r.AllSandboxesWalled()) })
	if err != nil {
		return s, err
	}
	s.KeptSubmodules = map[string]string{}
	for _, c := range unchanged {
		s.KeptSubmodules[c.Path] = c.Name
	}
	return s, nil
}

// submodulesThat lists the submodules of a tree for which is returns true. It warns of what cannot be read because of its
// content, and leaves that out.
func (r *Repository) submodulesThat(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, is func(submodule.Checkout) (bool, error)) (listed []submodule.Checkout, err error) {
	found, err := r.FindSubmodules(ctx, repo, s)
	if err != nil {
		if !IsContentError(ctx, err) {
			return nil, err
		}
		r.Warn("submodules in %s: %v", guard.QuotePath(s.Dir), err)
	}
	for _, c := range found {
		yes, err := is(c)
		switch {
		case err != nil && !IsContentError(ctx, err):
			return nil, err
		case err != nil:
			r.Warn("submodule %s: %v", guard.QuotePath(c.Path), err)
		case yes:
			listed = append(listed, c)
		}
	}
	return listed, nil
}

// LostModules lists the repositories of submodules of a tree that belong to no submodule that is checked out there, or was:
// nothing else reports that they may hold what is not kept elsewhere.
func (r *Repository) LostModules(ctx context.Context, repo *git.Repo, s git.WorktreeSpec) ([]string, error) {
	s, err := r.WithKeptSubmodules(ctx, repo, s)
	if err != nil {
		return nil, err
	}
	others, err := r.otherModules(repo, s)
	if err != nil || len(others) == 0 {
		return nil, err
	}
	found, err := r.FindSubmodules(ctx, repo, s)
	if err != nil && !IsContentError(ctx, err) {
		return nil, err
	}
	return slices.DeleteFunc(others, func(name string) bool {
		return slices.ContainsFunc(found, func(c submodule.Checkout) bool { return c.Name == name })
	}), nil
}

// otherModules lists the repositories of submodules of a tree that hold, or may hold, what is not kept elsewhere. s has the
// fields that WithKeptSubmodules fills in.
func (r *Repository) otherModules(repo *git.Repo, s git.WorktreeSpec) ([]string, error) {
	return submodule.Others(cmp.Or(s.ModulesDir, filepath.Join(repo.AdminDir(s.Name), "modules")), slices.Collect(maps.Values(s.KeptSubmodules)))
}

// WithoutCleanSubmodules removes the clean submodules (see submodule.Checkout.IsClean) from a list of what a capture left out. A
// submodule that cannot be compared stays in the list.
func (r *Repository) WithoutCleanSubmodules(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, left []status.LeftOut) ([]status.LeftOut, error) {
	submodules := map[string]bool{}
	for _, l := range left {
		if l.Reason == status.OmitSubmodule {
			submodules[l.Path] = true
		}
	}
	if len(submodules) == 0 {
		return left, nil
	}
	clean, err := r.submodulesThat(ctx, repo, s, func(c submodule.Checkout) (bool, error) {
		if !submodules[c.Path] {
			return false, nil
		}
		return c.IsClean(ctx, r.AllSandboxesWalled())
	})
	if err != nil {
		return left, err
	}
	return slices.DeleteFunc(left, func(l status.LeftOut) bool {
		return slices.ContainsFunc(clean, func(c submodule.Checkout) bool { return c.Path == l.Path })
	}), nil
}
