package core

import (
	"context"
	"errors"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// withoutRemoved returns a capture as got, but without the files that are gone in an overlay. The archive of an overlay holds only
// what is in its upper directory, so that a restore puts it on top of the files of the commit.
func withoutRemoved(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, got snapshot.CaptureResult) (snapshot.CaptureResult, error) {
	if s.Overlay == nil || got.Commit == "" {
		return got, nil
	}
	removed, err := findRemoved(ctx, repo, s, got.Commit)
	if err != nil || len(removed) == 0 {
		return got, err
	}
	tree, err := repo.TreeWithout(ctx, got.Commit, removed)
	if err != nil {
		return got, err
	}
	parents := []string{got.Commit}
	capture, err := ReadCapture(ctx, repo, got.Commit)
	if err != nil {
		return got, err
	}
	if capture.IsCaptureOf(s.Name) {
		parents = capture.Parents
	}
	got.Commit, err = repo.CommitTree(ctx, s, tree, parents, s.Message)
	got.Dirty = true
	return got, err
}

// findRemoved lists the files of a commit that are not in a worktree, or in whose place there is a directory.
func findRemoved(ctx context.Context, repo *git.Repo, s git.WorktreeSpec, commit string) (removed []string, err error) {
	files, err := listPaths(ctx, repo, commit, func(mode string) bool { return mode != object.ModeGitlinkText })
	if err != nil {
		return nil, err
	}
	tree, err := status.OpenTree(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	for path := range files.paths {
		switch kind, err := tree.Kind(path); {
		case beneath.IsGone(err) || err == nil && kind.IsDir():
			removed = append(removed, path)
		case err != nil:
			return nil, err
		}
	}
	slices.Sort(removed)
	return removed, nil
}
