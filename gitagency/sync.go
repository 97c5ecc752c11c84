package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// SyncResult is the result of Sync.
type Synced struct {
	Invocation string     `json:"invocation_id"`
	Commit     string     `json:"integration_commit"` // integration commit that was merged
	Branch     string     `json:"integration_branch"` // branch of that commit; empty if the worktree is on no branch
	Head       string     `json:"head"`               // new commit of the sandbox's branch
	Already    bool       `json:"already"`            // the sandbox had that commit; nothing changed
	Forward    bool       `json:"fast_forward"`       // the sandbox had no commits of its own; its branch moved to the integration commit
	Conflicts  []Conflict `json:"conflicts"`          // unresolved conflicts left in the sandbox; empty, not null
	Left       string     `json:"left"`               // snapshot of the state before; empty if nothing changed
	LeftName   string     `json:"left_name"`          // name of that snapshot, for rollback
	Added      int        `json:"added"`              // new files in the sandbox
	Changed    int        `json:"changed"`
	Removed    int        `json:"removed"`
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
func (s *Sandbox) Sync(ctx context.Context) (Synced, error) {
	repo, unlock, err := s.repo.lock(ctx)
	if err != nil {
		return Synced{}, err
	}
	defer unlock()
	place, leave, err := s.openAlone(ctx)
	if err != nil {
		return Synced{}, err
	}
	defer leave()
	if err := s.finish(ctx, repo, place); err != nil {
		return Synced{}, err
	}
	ctx, cancel, err := s.repo.bounded(ctx, syncVerb)
	if err != nil {
		return Synced{}, err
	}
	defer cancel()
	synced, err := s.sync(ctx, repo, place)
	if err != nil && !is[*HalfWayError](err) && !is[*ConflictsError](err) {
		err = fmt.Errorf("sync of %s: %w", s.ID, err)
	}
	return synced, err
}

const syncVerb = "sync"

// syncLocked is Sync for a caller that holds the repository lock and has locked the sandbox exclusively.
func (s *Sandbox) sync(ctx context.Context, repo *git.Repo, place *site) (_ Synced, err error) {
	if err := s.bringOutAlone(ctx, repo, place); err != nil {
		return Synced{}, err
	}
	// An operation in progress outside would be in progress behind the walls too, once there is an upper directory.
	if what := git.UnderwayIn(repo.AdminDir(s.ID)); what != "" && !store.IsDir(s.layer()) {
		return Synced{}, s.underWay(git.Begun{What: what, Outside: true}, place.prims)
	}
	if err := s.ownLayer(ctx, place.prims); err != nil {
		return Synced{}, err
	}
	synced := Synced{Invocation: s.ID, Conflicts: []Conflict{}}
	if synced.Commit, err = s.repo.integration(ctx, Invocation{WorktreeID: place.worktree}); err != nil {
		return Synced{}, err
	}
	synced.Branch = s.repo.worktree(s.repo.store.Worktree(s.repo.ID, place.worktree, nil)).Branch
	if marker, err := repo.Lookup(ctx, synced.Commit+":"+guard.Dir); err != nil || !marker[0].Missing() {
		return Synced{}, errors.Join(err, &TrackedMarkerError{Commit: synced.Commit})
	}
	with := cmp.Or(synced.Branch, synced.Commit)
	merger, err := repo.Merger(synced.Commit)
	if err != nil {
		return Synced{}, err
	}
	merger.Trusted = s.repo.trustsSettings(s.ID)
	defer func() {
		if closeErr := merger.Close(); closeErr != nil {
			s.repo.warn("%v", closeErr)
		}
	}()
	done, err := s.pass(ctx, repo, place, passage{
		verb: syncVerb, synced: synced.Commit, trusted: true,
		leaving: "agency: before the sync with " + with, arriving: "agency: after the sync with " + with,
		why: "agency: sync with " + with,
		aim: func(ctx context.Context, from git.State) (git.State, error) {
			return s.joined(ctx, repo, merger, place, from, &synced)
		},
		spare: func(ctx context.Context, from git.State, paths []string) error {
			if paths, err = repo.NotIgnored(ctx, s.subject(place.base, ""), from.Tree, paths); err == nil && len(paths) > 0 {
				err = &StraysInTheWayError{ID: s.ID, Path: s.tree, Files: paths}
			}
			return err
		},
	})
	if errors.Is(err, errAlready) {
		synced.Already = true
		return synced, nil
	}
	if err != nil {
		return Synced{}, err
	}
	synced.Left, synced.LeftName = done.left.ID, done.left.name()
	synced.Added, synced.Changed, synced.Removed = done.added, done.changed, done.removed
	s.recordSync(synced.Commit, done)
	if len(synced.Conflicts) > 0 {
		return synced, &ConflictsError{ID: s.ID, Conflicts: synced.Conflicts, Left: s.tree}
	}
	return synced, nil
}

// mergedState returns the state of the sandbox after merging the integration branch, and writes its objects to the
// repository.
func (s *Sandbox) joined(ctx context.Context, repo *git.Repo, merger *git.Merger, place *site, from git.State, synced *Synced) (git.State, error) {
	subject, err := s.repo.capturable(s.subject(place.base, ""))
	if err != nil {
		return git.State{}, err
	}
	if err := s.mergeable(ctx, repo, place, subject, from); err != nil {
		return git.State{}, err
	}
	synced.Head = from.Head
	if has, err := merger.Has(ctx, from.Head, synced.Commit); err != nil || has {
		return git.State{}, errors.Join(err, errAlready)
	}
	joined, err := merger.Join(ctx, subject, git.Join{
		From: from, Commit: synced.Commit, Name: synced.Branch, OursName: "HEAD",
		Message: mergeMessage(synced.Commit, synced.Branch, short(subject.Branch)), Sign: s.repo.landingIdentity,
	})
	var uncommitted *git.UncommittedError
	var strays *git.UntrackedError
	switch {
	case errors.As(err, &uncommitted):
		return git.State{}, &UncommittedError{ID: s.ID, Path: s.tree, Files: uncommitted.Paths, Tracked: true}
	case errors.As(err, &strays):
		return git.State{}, &StraysInTheWayError{ID: s.ID, Path: s.tree, Files: strays.Paths}
	case err != nil:
		return git.State{}, err
	}
	synced.Head, synced.Forward, synced.Conflicts = joined.State.Head, joined.Forward, conflicts(joined.Conflicts)
	return joined.State, merger.Keep(ctx)
}

// checkMergeable refuses a sandbox in which git would not start a merge, or would merge into another branch.
func (s *Sandbox) mergeable(ctx context.Context, repo *git.Repo, place *site, subject git.Subject, from git.State) error {
	if err := repo.LostHead(ctx, subject, from.Head); err != nil {
		return err
	}
	if begun, err := repo.Begun(ctx, subject, from); err != nil || begun.What != "" {
		return errors.Join(err, s.underWay(begun, place.prims))
	}
	under, err := repo.ReadUnderway(ctx, from)
	if err != nil {
		return err
	}
	on := from.On
	if inside, elsewhere := under.Inside["HEAD"]; elsewhere {
		if branch, is := strings.CutPrefix(inside, "ref: "); is {
			on = branch
		} else {
			on = git.Detached
		}
	}
	if on != subject.Branch || under.Inside["branch"] != "" {
		return &OffBranchError{ID: s.ID, On: short(on), Branch: short(subject.Branch)}
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

// ensureGitUpperDir creates the overlay upper directory for the git directory before an operation is in progress, so that
// the git behind the walls has its own copy of the worktree's state. Without it, an operation that git ends there would
// stay in progress outside.
func (s *Sandbox) ownLayer(ctx context.Context, prims Primitives) error {
	if prims.Isolation != isolationOS || store.IsDir(s.layer()) {
		return nil
	}
	return s.makeLayers(ctx, confine.Plan{Layers: []confine.Layer{{Path: s.repo.CommonDir, Upper: s.layer(), Work: s.threshold()}}})
}

// resumeSync finishes an interrupted sync: it moves the sandbox to the state in the snapshot made for it.
func (s *Sandbox) goOn(ctx context.Context, repo *git.Repo, place *site, to Snapshot, commit string) error {
	target, err := s.target(ctx, repo, to)
	if err != nil {
		return err
	}
	done, err := s.pass(ctx, repo, place, passage{
		verb: syncVerb, to: to, synced: commit, again: true, trusted: true,
		leaving: "agency: before the sync was finished", why: "agency: sync",
		aim: func(context.Context, git.State) (git.State, error) { return target, nil },
	})
	if err == nil {
		s.recordSync(commit, done)
	}
	return err
}

func (s *Sandbox) recordSync(commit string, done passed) {
	s.repo.record(s.ID, syncEvent{s.repo.now(), "sync", commit, done.to.ID, done.to.Ref, done.left.ID, done.left.Ref})
}

type syncEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Commit   string    `json:"integration_commit"`
	Snapshot string    `json:"snapshot"` // state after the sync
	Ref      string    `json:"ref"`
	Left     string    `json:"left"`
	LeftRef  string    `json:"left_ref"`
}

// workBase returns the commit that the work of an invocation builds on: its base commit or, of the commits that syncs have
// merged, the last that is still in its history. A sync may have been rolled back, or its merge aborted.
func (r *Repository) baseOf(ctx context.Context, inv Invocation) (string, error) {
	if inv.SyncedCommit == "" {
		return inv.BaseCommit, nil
	}
	head := trashRef(inv.ID)
	if _, err := inv.Path(); err == nil {
		s := r.sandboxOf(inv.ID)
		subject := s.subject(inv.BaseCommit, "")
		if r.git.Merging(subject) == inv.SyncedCommit {
			return inv.SyncedCommit, nil
		}
		if head, err = r.git.Head(ctx, subject); err != nil {
			return "", err
		}
	}
	base, err := r.git.MergeBase(ctx, head, inv.SyncedCommit)
	return cmp.Or(base, inv.BaseCommit), err
}
