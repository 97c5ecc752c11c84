package snapshots

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// TakeRequest holds the options of a snapshot. The zero value is the default.
type TakeRequest struct {
	Message        string // commit message
	IncludeIgnored bool   // include ignored files
	IncludeSecrets bool   // include untracked files that look like credentials
}

// Check trims the message, and refuses one that is not text in UTF-8.
func (req *TakeRequest) Check() error {
	req.Message = strings.TrimSpace(req.Message)
	if !utf8.ValidString(req.Message) || strings.Contains(req.Message, "\x00") {
		return &fault.InvalidError{What: "message", Value: req.Message, Want: "text in UTF-8"}
	}
	return nil
}

// Series is the numbered series of snapshots of one tree: of a sandbox, or of a directory.
type Series struct {
	Repo     *core.Repository
	ID       string                                // directory of their refs below the snapshot refs
	TreeName string                                // name of the tree in messages
	Subject  func(message string) git.WorktreeSpec // description of the tree's current state
}

// Take adds a snapshot to the series, or returns the last one if nothing has changed since. Before it creates the ref, it
// only writes objects, which nothing refers to.
func (s Series) Take(ctx context.Context, repo *git.Repo, req TakeRequest) (_ Snapshot, err error) {
	tx := s.Repo.BeginTx("snapshot")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	snapshot, err := s.TakeSteps(ctx, tx, repo, req, nil)
	if err != nil {
		return Snapshot{}, err
	}
	tx.Commit()
	return snapshot, nil
}

// TakeSteps runs the steps of a snapshot in tx, which may continue after them. also, which may be nil, is given the
// commit and returns paths that must be captured in addition.
func (s Series) TakeSteps(ctx context.Context, tx *undo.Tx, repo *git.Repo, req TakeRequest, also func(commit string) ([]string, error)) (Snapshot, error) {
	last, err := s.latest(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	snap := Snapshot{Invocation: s.ID, Number: last.Number + 1, Created: true}
	snap.Ref = core.SnapshotRef(s.ID, snap.Number)
	message := req.Message
	if message == "" {
		message = fmt.Sprintf("agency: snapshot %d of %s", snap.Number, s.TreeName)
	}
	var secrets []string
	if !req.IncludeSecrets {
		if secrets, err = s.Repo.Settings.SecretPatterns(); err != nil {
			return Snapshot{}, err
		}
	}
	var made []string
	// 1. Capture the state as a commit that no ref points at yet.
	if err := tx.Step(ctx, "capture", func() error {
		state, err := s.Repo.PrepareCapture(s.Subject(message))
		if err != nil {
			return err
		}
		state.IncludeIgnored, state.SecretPatterns = req.IncludeIgnored, secrets
		frozen, err := snapshot.CaptureState(ctx, repo, state, last.ID)
		if err == nil && also != nil {
			if state.ForcedPaths, err = also(frozen.Commit); err == nil && len(state.ForcedPaths) > 0 {
				frozen, err = snapshot.CaptureState(ctx, repo, state, last.ID)
			}
		}
		if err == nil {
			frozen.LeftOut, err = s.Repo.WithoutCleanSubmodules(ctx, repo, state, frozen.LeftOut)
		}
		snap.ID, snap.LeftOut, made = frozen.Commit, ToLeftOut(frozen.LeftOut), frozen.Objects
		return err
	}); err != nil {
		return Snapshot{}, err
	}
	if snap.ID == last.ID {
		last.LeftOut = snap.LeftOut
		return last, nil
	}
	// 2. Commit point: create the ref.
	if err := tx.Step(ctx, "ref", func() error { return Keep(ctx, tx, repo, snap, made...) }); err != nil {
		return Snapshot{}, err
	}
	return snap, nil
}

// Keep creates the ref of a snapshot and checks that the objects that were written for it still exist.
func Keep(ctx context.Context, tx *undo.Tx, repo *git.Repo, snapshot Snapshot, made ...string) error {
	if err := repo.RemoveRefLeftovers(ctx, snapshot.Ref); err != nil { // left by a killed attempt
		return err
	}
	err := repo.CreateRef(ctx, snapshot.Ref, snapshot.ID, "agency: snapshot")
	if !git.ChangedNothing(err) { // a ref that git refused to create belongs to another process
		tx.Undo("ref", func(ctx context.Context) error { return repo.DeleteOwnedRef(ctx, snapshot.Ref, snapshot.ID) })
	}
	if err != nil {
		return err
	}
	if err := repo.CheckObjectsExist(ctx, made...); err != nil {
		return err
	}
	return repo.SyncRef(snapshot.Ref) // must be durable before the caller gets its name
}

// latest returns the snapshot with the highest number; the number is 0 when there is none.
func (s Series) latest(ctx context.Context, repo *git.Repo) (Snapshot, error) {
	if n, ok := repo.LastNumberedRef(core.SnapshotsPrefix(s.ID)); ok { // without reading all refs
		commit, err := repo.Tip(ctx, core.SnapshotRef(s.ID, n))
		if err != nil || commit != "" {
			return Snapshot{Invocation: s.ID, ID: commit, Ref: core.SnapshotRef(s.ID, n), Number: n}, err
		}
	}
	all, err := List(ctx, repo, s.ID)
	if err != nil || len(all) == 0 {
		return Snapshot{Invocation: s.ID}, err
	}
	return all[len(all)-1], nil
}
