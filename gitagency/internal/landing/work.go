package landing

import (
	"cmp"
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Work is the state of the work in a sandbox in which nothing runs.
type Work struct {
	Uncommitted []string // files that keep the sandbox from landing without CommitAll
	FromStart   []string // those of them that the sandbox started with, and that are as they were then
	Operation   string   // git operation in progress, such as "merge"; empty for none
	Committed   bool     // HEAD has commits that the sandbox did not start with
}

// InspectWork finds out whether all work in a sandbox is committed. Files that match agency.leave do not count.
func InspectWork(ctx context.Context, r *core.Repository, id string) (_ Work, err error) {
	s := sandbox.Of(r, id)
	if err := s.ImportPending(ctx); err != nil {
		return Work{}, &fault.InvocationError{Operation: "inspect", ID: id, Err: err}
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return Work{}, err
	}
	defer unlock()
	h, err := s.OpenLocked(ctx, repo)
	if err != nil {
		return Work{}, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	subject, err := r.PrepareCapture(s.SnapshotSubject(h.Base, ""))
	if err != nil {
		return Work{}, err
	}
	if subject, err = withLeftPatterns(r, subject); err != nil {
		return Work{}, err
	}
	merger, err := merge.NewMerger(repo, h.Base)
	if err != nil {
		return Work{}, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	found, err := merger.Inspect(ctx, subject)
	if err := r.SaveFilesRefusal(id, err, false); err != nil {
		return Work{}, err
	}
	if err := addChangedSubmodules(ctx, r, repo, s, &found); err != nil {
		return Work{}, err
	}
	fromStart, err := uncommittedSinceStart(ctx, merger, r.Store.Invocation(r.ID, id, nil).Record, found)
	if err != nil {
		return Work{}, err
	}
	none, err := repo.IsAncestor(ctx, found.Head, h.Base)
	return Work{Uncommitted: found.Uncommitted, FromStart: fromStart, Operation: found.InProgress.Command, Committed: !none}, err
}

// uncommittedSinceStart returns the uncommitted files that were uncommitted when the sandbox started, and whose content on
// disk has not changed since. It returns none if git gc has removed the commit of the start, which no ref may keep.
func uncommittedSinceStart(ctx context.Context, m *merge.Merger, record store.InvocationMeta, found status.Report) ([]string, error) {
	commit := cmp.Or(record.StartChanges, record.FromSnapshot)
	if commit == "" || len(found.Uncommitted) == 0 {
		return nil, nil
	}
	if objects, err := m.Repo.Lookup(ctx, commit+"^{commit}"); err != nil || objects[0].Missing() {
		return nil, err
	}
	start, err := snapshot.ReadState(ctx, m.Repo, commit)
	if err != nil {
		return nil, err
	}
	head := cmp.Or(start.Head, record.BaseCommit) // commits of older versions do not name it
	atStart, err := changedPaths(ctx, m, head, start.Tree, cmp.Or(start.IndexTree, start.Tree))
	if err != nil {
		return nil, err
	}
	since, err := changedPaths(ctx, m, start.Tree, found.DiskTree)
	if err != nil {
		return nil, err
	}
	var same []string
	for _, path := range found.Uncommitted {
		if atStart[path] && !since[path] {
			same = append(same, path)
		}
	}
	return same, nil
}

// changedPaths returns the paths by which any of some trees differs from another one.
func changedPaths(ctx context.Context, m *merge.Merger, from string, to ...string) (map[string]bool, error) {
	paths := map[string]bool{}
	for _, tree := range to {
		changes, err := m.Repo.TreeChanges(ctx, m.GitOptions(), from, tree)
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			paths[c.Path] = true
		}
	}
	return paths, nil
}
