package doctor

import (
	"context"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/pathland"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkLandings finds a landing that was killed.
func (x *checkRun) checkLandings(context.Context) error {
	if x.changing {
		return nil
	}
	x.checkPathLanding()
	if !landing.HasInterruptedLanding(x.Repository) {
		return x.checkLeftoverStages()
	}
	f := Finding{
		Code: "interrupted-land", Path: x.Store.LandingJournalPath(x.ID), AtRisk: true,
		Problem: "its landing was interrupted; the next command that changes the repository finishes or undoes it",
	}
	note, err := x.Store.ReadLandingJournal(x.ID)
	switch {
	case err != nil:
		f.ID, f.Problem = "landing.json", err.Error()
	case note == nil:
		return nil
	default:
		f.ID = note.InvocationID
	}
	x.addFinding(f, func(ctx context.Context) error { return landing.Recover(ctx, x.Repository, x.repo) })
	return nil
}

// checkPathLanding finds a landing in plain directories that was killed.
func (x *checkRun) checkPathLanding() {
	id, path, err := pathland.Interrupted(x.Repository)
	if path == "" {
		return
	}
	f := Finding{
		Code: "interrupted-land", ID: id, Path: path, AtRisk: true,
		Problem: "its landing was interrupted; the next command that changes sandboxes over plain directories finishes or undoes it",
	}
	if err != nil {
		f.ID, f.Problem = filepath.Base(path), err.Error()
	}
	x.addFinding(f, func(ctx context.Context) error { return pathland.Recover(ctx, x.Repository, x.repo) })
}

// checkLeftoverStages finds the staging directories of killed landings that no journal refers to any more.
func (x *checkRun) checkLeftoverStages() error {
	strays, err := update.LeftoverStagings(x.repo, x.presentTrees()...)
	for _, s := range strays {
		f := Finding{Code: "stray-landing", ID: x.relativePath(s.Path), Path: s.Path, AtRisk: s.MayHoldFiles, Problem: "staging directory of an interrupted landing; it contains no files of yours"}
		if s.MayHoldFiles {
			f.Problem = "staging directory of an interrupted landing without a journal; it may contain files of yours"
		}
		x.addFinding(f, func(ctx context.Context) error { return update.RecoverStaging(ctx, x.repo, s) })
	}
	return err
}

// presentTrees lists the integration trees, which may contain staging directories of landings.
func (x *checkRun) presentTrees() []string {
	var trees []string
	for _, e := range x.worktrees {
		if e.Defect == store.NoDefect && e.Record.State == store.Present {
			trees = append(trees, e.TreePath)
		}
	}
	return trees
}
