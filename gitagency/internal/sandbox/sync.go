package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// SyncResult is the result of Sync.
type SyncResult struct {
	Invocation   string           `json:"invocation_id"`
	Commit       string           `json:"integration_commit"` // integration commit that was merged
	Branch       string           `json:"integration_branch"` // branch of that commit; empty if the worktree is on no branch
	Head         string           `json:"head"`               // new commit of the sandbox's branch
	Already      bool             `json:"already"`            // the sandbox had that commit; nothing changed
	FastForward  bool             `json:"fast_forward"`       // the sandbox had no commits of its own; its branch moved to the integration commit
	Conflicts    []fault.Conflict `json:"conflicts"`          // unresolved conflicts left in the sandbox; empty, not null
	Previous     string           `json:"left"`               // snapshot of the state before; empty if nothing changed
	PreviousName string           `json:"left_name"`          // name of that snapshot, for rollback
	Added        int              `json:"added"`              // new files in the sandbox
	Changed      int              `json:"changed"`
	Removed      int              `json:"removed"`
}

// Sync merges the integration branch into the sandbox's branch, as git merge would: by a merge commit, or by a fast-forward
// if the sandbox has no commits of its own. Conflicts stay in the sandbox as an unfinished merge with conflict markers,
// and are returned as a *ConflictsError together with the result; resolving and committing them there completes the merge.
//
// No git process runs in the sandbox, so nothing that an agent configured there runs. The merge is made in memory, and the
// sandbox is then moved to the state that git would have left, in the same way as by a rollback. A snapshot of the state
// before is taken first, so that a rollback can undo the sync.
//
// Sync refuses while commands run in the sandbox (*RunningError), while a git operation is in progress, if HEAD is not on
// the sandbox's branch (*OffBranchError), and if tracked files have uncommitted changes (*UncommittedError). Untracked
// files stay; Sync refuses if the merge would overwrite one. Ignored files in the way are kept in the snapshot and then
// replaced.
func (s *Sandbox) Sync(ctx context.Context) (SyncResult, error) {
	if err := s.CheckNoOpenJob(); err != nil {
		return SyncResult{}, err
	}
	s.ImportUnlocked(ctx)
	repo, unlock, err := s.Repo.LockAndRecover(ctx)
	if err != nil {
		return SyncResult{}, err
	}
	defer unlock()
	h, leave, err := s.OpenExclusive(ctx)
	if err != nil {
		return SyncResult{}, err
	}
	defer leave()
	if err := s.ResumeRollback(ctx, repo, h); err != nil {
		return SyncResult{}, err
	}
	ctx, cancel, err := s.Repo.Settings.WithOperationTimeout(ctx, SyncVerb)
	if err != nil {
		return SyncResult{}, err
	}
	defer cancel()
	synced, err := s.syncLocked(ctx, repo, h)
	if err != nil && !fault.Is[*fault.UnfinishedTransitionError](err) && !fault.Is[*fault.ConflictsError](err) {
		err = &fault.InvocationError{Operation: "sync of", ID: s.ID, Err: err}
	}
	return synced, err
}

// SyncVerb is the verb of steps, events and records of a sync.
const SyncVerb = "sync"

// syncLocked is Sync for a caller that holds the repository lock and has locked the sandbox exclusively.
func (s *Sandbox) syncLocked(ctx context.Context, repo *git.Repo, h *Handle) (_ SyncResult, err error) {
	if err := s.ImportPendingExclusive(ctx, repo, h); err != nil {
		return SyncResult{}, err
	}
	// An operation in progress outside would be in progress behind the walls too, once there is an upper directory.
	if what := git.OperationIn(repo.AdminDir(s.ID)); what != "" && !store.IsDir(handoff.UpperDir(s.Repo, s.ID)) {
		return SyncResult{}, s.OperationError(ctx, status.OngoingOperation{Command: what, OutsideWalls: true}, h.Prims)
	}
	if err := s.EnsureGitUpperDir(ctx, h.Prims); err != nil {
		return SyncResult{}, err
	}
	synced := SyncResult{Invocation: s.ID, Conflicts: []fault.Conflict{}}
	if synced.Commit, err = s.Repo.IntegrationCommit(ctx, core.Invocation{ID: s.ID, WorktreeID: h.worktreeID, IntegrationBranch: h.branch, BaseCommit: h.Base}); err != nil {
		return SyncResult{}, err
	}
	synced.Branch = core.ShortBranch(h.branch)
	if marker, err := repo.Lookup(ctx, synced.Commit+":"+guard.AgencyDir); err != nil || !marker[0].Missing() {
		return SyncResult{}, errors.Join(err, &fault.TrackedMarkerError{Commit: synced.Commit})
	}
	with := cmp.Or(synced.Branch, synced.Commit)
	merger, err := merge.NewMerger(repo, synced.Commit)
	if err != nil {
		return SyncResult{}, err
	}
	merger.Trusted = s.Repo.TrustsRepoConfig(s.ID)
	defer func() {
		if closeErr := merger.Close(); closeErr != nil {
			s.Repo.Warn("%v", closeErr)
		}
	}()
	done, err := s.runTransition(ctx, repo, h, transition{
		verb: SyncVerb, syncedCommit: synced.Commit, trustsConfig: true,
		sourceMessage: "agency: before the sync with " + with, targetMessage: "agency: after the sync with " + with,
		reflogMessage: "agency: sync with " + with,
		chooseTarget: func(ctx context.Context, from snapshot.State) (snapshot.State, error) {
			return s.mergedState(ctx, repo, merger, h, from, &synced)
		},
		checkOverwrite: func(ctx context.Context, from snapshot.State, paths []string) error {
			if paths, err = snapshot.NotIgnored(ctx, repo, s.SnapshotSubject(h.Base, ""), from.Tree, paths); err == nil && len(paths) > 0 {
				err = &fault.UntrackedInTheWayError{ID: s.ID, Path: s.Tree, Files: paths}
			}
			return err
		},
	})
	if errors.Is(err, errAlreadyInState) {
		synced.Already = true
		return synced, nil
	}
	if err != nil {
		return SyncResult{}, err
	}
	synced.Previous, synced.PreviousName = done.source.ID, done.source.Name()
	synced.Added, synced.Changed, synced.Removed = done.added, done.changed, done.removed
	s.recordSync(synced.Commit, done)
	if len(synced.Conflicts) > 0 {
		return synced, &fault.ConflictsError{ID: s.ID, Conflicts: synced.Conflicts, UnfinishedIn: s.Tree}
	}
	return synced, nil
}

// mergedState returns the state of the sandbox after merging the integration branch, and writes its objects to the
// repository.
func (s *Sandbox) mergedState(ctx context.Context, repo *git.Repo, merger *merge.Merger, h *Handle, from snapshot.State, synced *SyncResult) (snapshot.State, error) {
	subject, err := s.Repo.PrepareCapture(s.SnapshotSubject(h.Base, ""))
	if err != nil {
		return snapshot.State{}, err
	}
	if err := s.checkMergeable(ctx, repo, h, subject, from); err != nil {
		return snapshot.State{}, err
	}
	synced.Head = from.Head
	if has, err := merger.Contains(ctx, from.Head, synced.Commit); err != nil || has {
		return snapshot.State{}, errors.Join(err, errAlreadyInState)
	}
	joined, err := merger.MergeIntoWorktree(ctx, subject, merge.WorktreeMergeRequest{
		From: from, Commit: synced.Commit, TheirsName: synced.Branch, OursName: "HEAD",
		Message: mergeMessage(synced.Commit, synced.Branch, core.ShortBranch(subject.Branch)), Signatures: s.Repo.LandingSignatures,
	})
	var uncommitted *merge.UncommittedError
	var strays *merge.UntrackedError
	switch {
	case errors.As(err, &uncommitted):
		return snapshot.State{}, &UncommittedError{ID: s.ID, Path: s.Tree, Files: uncommitted.Paths, TrackedOnly: true}
	case errors.As(err, &strays):
		return snapshot.State{}, &fault.UntrackedInTheWayError{ID: s.ID, Path: s.Tree, Files: strays.Paths}
	case err != nil:
		return snapshot.State{}, err
	}
	synced.Head, synced.FastForward, synced.Conflicts = joined.State.Head, joined.FastForward, fault.ConvertConflicts(joined.Conflicts)
	return joined.State, merger.Persist(ctx)
}

// checkMergeable refuses a sandbox in which git would not start a merge, or would merge into another branch.
func (s *Sandbox) checkMergeable(ctx context.Context, repo *git.Repo, h *Handle, subject git.WorktreeSpec, from snapshot.State) error {
	if err := repair.CheckHead(ctx, repo, subject, from.Head); err != nil {
		return err
	}
	if begun, err := snapshot.FindOperation(ctx, repo, subject, from); err != nil || begun.Command != "" {
		return errors.Join(err, s.OperationError(ctx, begun, h.Prims))
	}
	under, err := snapshot.ReadOperation(ctx, repo, from)
	if err != nil {
		return err
	}
	on := from.HeadRef
	if inside, elsewhere := under.SandboxRefs["HEAD"]; elsewhere {
		if branch, is := strings.CutPrefix(inside, "ref: "); is {
			on = branch
		} else {
			on = git.DetachedHead
		}
	}
	if on != subject.Branch || under.SandboxRefs["branch"] != "" {
		return &fault.OffBranchError{ID: s.ID, On: core.ShortBranch(on), Branch: core.ShortBranch(subject.Branch)}
	}
	return nil
}

// mergeMessage returns the message that git merge would generate.
func mergeMessage(commit, branch, into string) string {
	if branch == "" {
		return fmt.Sprintf("Merge commit '%s' into %s\n", commit, into)
	}
	return fmt.Sprintf("Merge branch '%s' into %s\n", branch, into)
}

// EnsureGitUpperDir creates the overlay upper directory for the git directory before an operation is in progress, so that
// the git behind the walls has its own copy of the worktree's state. Without it, an operation that git ends there would
// stay in progress outside.
func (s *Sandbox) EnsureGitUpperDir(ctx context.Context, prims store.Primitives) error {
	if prims.Isolation != settings.IsolationOS || s.Repo.IsClone(s.ID) || store.IsDir(handoff.UpperDir(s.Repo, s.ID)) {
		return nil
	}
	return handoff.CreateUpperDirs(ctx, s.Repo, s.ID, walls.Plan{Overlays: []walls.OverlayMount{{Path: s.Repo.CommonDir, Upper: handoff.UpperDir(s.Repo, s.ID), Work: s.setupLockDir()}}})
}

// resumeSync finishes an interrupted sync: it moves the sandbox to the state in the snapshot made for it.
func (s *Sandbox) resumeSync(ctx context.Context, repo *git.Repo, h *Handle, to snapshots.Snapshot, commit string) error {
	target, err := s.readTarget(ctx, repo, to)
	if err != nil {
		return err
	}
	done, err := s.runTransition(ctx, repo, h, transition{
		verb: SyncVerb, to: to, syncedCommit: commit, resuming: true, trustsConfig: true,
		sourceMessage: "agency: before the sync was finished", reflogMessage: "agency: sync",
		chooseTarget: func(context.Context, snapshot.State) (snapshot.State, error) { return target, nil },
	})
	if err == nil {
		s.recordSync(commit, done)
	}
	return err
}

func (s *Sandbox) recordSync(commit string, done transitionResult) {
	s.Repo.AppendEvent(s.ID, syncEvent{s.Repo.EventTime(), "sync", commit, done.target.ID, done.target.Ref, done.source.ID, done.source.Ref})
}

type syncEvent struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Commit      string    `json:"integration_commit"`
	Snapshot    string    `json:"snapshot"` // state after the sync
	Ref         string    `json:"ref"`
	Previous    string    `json:"left"`
	PreviousRef string    `json:"left_ref"`
}

// commitOutside reports what a git outside of the walls has committed since the last sync began a merge behind them: the
// merged commit, or a commit that does not have it. It is for hints: what cannot be read counts as no commit.
func (s *Sandbox) commitOutside(ctx context.Context) (merged bool, commit string) {
	var last syncEvent
	if err := s.Repo.Store.ReadEvents(s.Repo.ID, s.ID, func(line []byte) {
		if e := (syncEvent{}); json.Unmarshal(line, &e) == nil && e.Event == SyncVerb {
			last = e
		}
	}); err != nil || last.Snapshot == "" {
		return false, ""
	}
	repo := s.Repo.Git
	then, err := snapshot.ReadState(ctx, repo, last.Snapshot)
	if err != nil {
		return false, ""
	}
	tip, err := repo.Tip(ctx, core.SandboxRef(s.ID))
	if err != nil || tip == "" || tip == then.Head {
		return false, ""
	}
	if merged, err = repo.IsAncestor(ctx, last.Commit, tip); err != nil || merged {
		return merged, ""
	}
	if follows, err := repo.IsAncestor(ctx, then.Head, tip); err != nil || !follows {
		return false, ""
	}
	return false, tip
}

// WorkBase returns the commit that the work of an invocation builds on: its base commit or, of the commits that syncs have
// merged, the last that is still in its history. A sync may have been rolled back, or its merge aborted.
func WorkBase(ctx context.Context, r *core.Repository, inv core.Invocation) (string, error) {
	if inv.SyncedCommit == "" {
		return inv.BaseCommit, nil
	}
	head := core.TrashRef(inv.ID)
	if _, err := inv.Path(); err == nil {
		s := Of(r, inv.ID)
		subject := s.SnapshotSubject(inv.BaseCommit, "")
		if merge.MergeHead(r.Git, subject) == inv.SyncedCommit {
			return inv.SyncedCommit, nil
		}
		if head, err = r.Git.Head(ctx, subject); err != nil {
			return "", err
		}
	}
	base, err := r.Git.MergeBase(ctx, head, inv.SyncedCommit)
	return cmp.Or(base, inv.BaseCommit), err
}
