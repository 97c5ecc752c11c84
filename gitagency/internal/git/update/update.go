// Package update moves a branch together with the worktree that has it checked out, all or nothing. Every step can be
// undone until the refs have moved; a later process finishes or undoes an update that was killed.
package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// BeginMerged is Begin for a new commit that exists only in the merger. Callers must Persist it before the first step.
func BeginMerged(ctx context.Context, m *merge.Merger, u Update) (*Transaction, error) {
	u.merger = m
	return Begin(ctx, m.RepoWithObjects(), u)
}

// Update describes the move of a branch from one commit to another, together with the worktree that has it checked out.
//
// It holds everything that Recover needs to finish or undo an update that was killed: callers must store it durably
// before they take the first step.
type Update struct {
	Branch    string    `json:"branch"` // required: full ref
	Old       string    `json:"old"`    // required: commit ids
	New       string    `json:"new"`
	OtherRefs []RefMove `json:"also,omitempty"`
	Reason    string    `json:"reason,omitempty"` // reflog message

	// git directory and path of the worktree that has the branch checked out, as CheckedOutIn returns them; empty: none
	GitDir   string `json:"git_dir,omitempty"`
	Worktree string `json:"tree,omitempty"`
	Trusted  bool   `json:"trusted,omitempty"` // only the user can have written the repository's config: its filters run

	StartFiles string `json:"-"` // commit of the uncommitted work that the new commits were made on top of; empty: none

	merger *merge.Merger // merger that made the new commit and holds the new objects; nil: read them through git
}

// RefMove is another ref that moves in the same transaction. An Old of zeros means that the ref must not exist, a New
// of zeros that it is deleted.
type RefMove struct {
	Ref string `json:"ref"`
	Old string `json:"old"`
	New string `json:"new"`
}

// Transaction is an Update in progress. Each step may be called once, in this order; until Commit, Undo reverts them
// all.
//
//	Lock         writes the new files to a staging directory and locks the worktree's index (index.lock)
//	Prepare      locks the refs and checks their old values
//	MoveFiles    exchanges each file with the staged one and writes the new index beside the old one
//	Commit       moves the refs
//	Publish      renames the new index into place
//	WaitCleanup  waits until the staging directory is removed
//
// A file is replaced by rename, and the replaced file is compared after that: if it is not the file that was inspected
// before, it is moved back. So no process sees a partly written file, and a file saved at that very moment is not lost.
type Transaction struct {
	repo *git.Repo
	spec Update

	checkout *checkout   // state found in the worktree; nil: the branch is not checked out
	staging  *stagingDir // the new files
	draft    *git.IndexDraft

	keptInPack bool // the new objects are in a pack with a .keep file, which gc leaves alone

	startingUpdateRef   func() (*proc.Coprocess, error) // waits until updateRef has started; nil: not starting
	updateRef           *proc.Coprocess                 // git update-ref --stdin, which holds the ref locks
	killUpdateRef       context.CancelCauseFunc         // kills updateRef
	commitSent          bool                            // git was told to commit the ref transaction
	committed           bool                            // the refs have moved
	outcomeUnknown      bool                            // git may or may not have moved the refs
	lateErr             error                           // errors from after the refs had moved
	waitRefsSynced      func() (struct{}, error)        // waits until the moved refs are durable
	staleCheckout       *StaleCheckoutError             // worktree that checked the branch out too late and could not be updated
	lateCheckoutTimeout time.Duration                   // limit of that late update; zero: the default
	finished            bool                            // no lock is held any more
	waitCleanedUp       func() (struct{}, error)        // waits until the staging directory is removed; nil: no removal in progress
	stepsDone           int                             // number of steps that succeeded
	fault               func(step string) error         // fault injection of tests
}

// beginStep refuses a step that is called before all earlier ones have succeeded, or twice.
func (tx *Transaction) beginStep(n int, name string) error {
	if tx.stepsDone != n || tx.finished {
		return fmt.Errorf("%s: called out of order", name)
	}
	return tx.injectFault(name)
}

// endStep counts a step that succeeded.
func (tx *Transaction) endStep(err error) {
	if err == nil {
		tx.stepsDone++
	}
}

// Begin checks whether an update is possible, and changes nothing. Errors that the user has to resolve are
// *LocalChangesError, *OperationInProgressError, *WrongBranchError, *MovedRefError and *git.UntrustedFilterError.
func Begin(ctx context.Context, r *git.Repo, u Update) (*Transaction, error) {
	x := &Transaction{repo: r, spec: u}
	if !object.IsValidRef(u.Branch) || !object.IsOID(u.Old) || !object.IsOID(u.New) {
		return nil, fmt.Errorf("want a branch and two commits, have %q, %q, %q", u.Branch, u.Old, u.New)
	}
	for _, m := range x.spec.refMoves() {
		if err := checkRefMove(r, m); err != nil {
			return nil, err
		}
	}
	if u.GitDir == "" {
		return x, nil
	}
	r, err := r.WithWorktreeConfig(ctx, u.GitDir, u.Trusted)
	if err != nil {
		return nil, err
	}
	x.repo = r
	// A git of the user's that refreshes the index holds index.lock for some milliseconds.
	err = r.LockWait.Until(ctx, func() bool { _, err := os.Lstat(u.indexPath() + index.LockSuffix); return err != nil })
	if err != nil {
		return nil, err
	}
	x.checkout, err = inspectCheckout(ctx, r, u, false)
	return x, err
}

// checkRefMove refuses a ref whose loose file shows that it is not at its old value, or symbolic. It only fails early:
// git checks all refs, packed ones too, in Prepare.
func checkRefMove(r *git.Repo, m RefMove) error {
	if oid := r.ReadLooseRef(m.Ref); oid != "" {
		if oid != m.Old {
			return &MovedRefError{Ref: m.Ref, Want: m.Old, Have: oid}
		}
		return nil
	}
	data, err := durable.ReadFile(r.RefPath(m.Ref), 1<<10)
	if err == nil && strings.HasPrefix(string(data), "ref:") {
		return fmt.Errorf("%s is a symbolic ref", m.Ref)
	}
	return nil
}

// Close releases all locks and removes the staging directory. It undoes a transaction that was not committed. Of one
// that was committed and not published, it leaves the index lock and the staging directory for Recover.
func (tx *Transaction) Close() error {
	if tx == nil {
		return nil
	}
	if tx.finished {
		return tx.WaitCleanup()
	}
	if !tx.committed {
		return tx.Undo(context.WithoutCancel(context.Background()))
	}
	// The refs have moved and the index has not been published: the next Recover does that.
	return tx.closeUpdateRef()
}

// MovedRefError reports a ref that does not have its expected old value.
type MovedRefError struct {
	Ref  string
	Want string // expected commit; zeros: the ref must not exist
	Have string // empty: the ref does not exist
}

func (e *MovedRefError) Error() string {
	switch {
	case git.IsZeroOID(e.Want):
		return e.Ref + " exists already"
	case e.Have == "":
		return e.Ref + " does not exist"
	}
	return fmt.Sprintf("%s is at %s, not at %s", e.Ref, e.Have, e.Want)
}

// Overlap is a path at which local work of the user would be overwritten.
type Overlap struct {
	Path   string `json:"path"`
	Reason string `json:"why"` // one of the constants below
}

// Reasons of an Overlap.
const (
	OverlapDirty      = "dirty"      // uncommitted change in the worktree
	OverlapStaged     = "staged"     // uncommitted change in the index
	OverlapUntracked  = "untracked"  // untracked file
	OverlapIgnored    = "ignored"    // ignored file
	OverlapRepository = "repository" // nested repository
	OverlapSubmodule  = "submodule"  // populated submodule
)

// LocalChangesError lists all paths at which local work would be overwritten.
type LocalChangesError struct {
	Worktree string
	Paths    []Overlap // sorted

	AlreadyNew bool // all of them are files that already are as the update would make them
	AsStarted  bool // all of them are files that are as the update would make them, or as in Update.StartFiles
}

func (e *LocalChangesError) Error() string {
	const most = 20
	var b strings.Builder
	fmt.Fprintf(&b, "local changes in %s would be overwritten, and are left as they are:", e.Worktree)
	for i, p := range e.Paths {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Paths)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s (%s)", p.Path, p.Reason)
	}
	return b.String()
}

// OperationInProgressError reports an operation in a worktree that the user has to finish first.
type OperationInProgressError struct {
	Worktree  string
	Operation string // "merge", "rebase", "am", "cherry-pick", "revert", "bisect", "conflicts", or "index.lock" for a running git
}

func (e *OperationInProgressError) Error() string {
	switch e.Operation {
	case "index.lock":
		return fmt.Sprintf("the index of %s is locked: a git process is running there, or was killed", e.Worktree)
	case "conflicts":
		return fmt.Sprintf("there are conflicts in %s", e.Worktree)
	}
	return fmt.Sprintf("a %s is in progress in %s", e.Operation, e.Worktree)
}

// WrongBranchError reports a worktree that does not, or no longer, have the expected branch checked out.
type WrongBranchError struct {
	Worktree string
	Branch   string
	Head     string // branch that HEAD names, or the commit of a detached HEAD
}

func (e *WrongBranchError) Error() string {
	return fmt.Sprintf("%s is not on %s but on %s", e.Worktree, strings.TrimPrefix(e.Branch, "refs/heads/"), strings.TrimPrefix(e.Head, "refs/heads/"))
}

// ConcurrentChangeError lists paths that hold neither the old nor the new file, after all others have been put back.
// Another process has written there, so they are left as they are.
type ConcurrentChangeError struct {
	Worktree string
	Paths    []string
}

func (e *ConcurrentChangeError) Error() string {
	return fmt.Sprintf("files in %s were changed by another process, and are left as they are: %s", e.Worktree, strings.Join(e.Paths, ", "))
}

// injectFault calls the fault function of a test.
func (tx *Transaction) injectFault(step string) error {
	if tx.fault == nil {
		return nil
	}
	return tx.fault(step)
}

func (u Update) indexPath() string { return filepath.Join(u.GitDir, "index") }

// Undo reverts all steps, before the refs have moved. Files that another process has changed meanwhile stay, and are
// reported by a *ConcurrentChangeError after everything else is reverted. If Undo fails half-way, the staging directory
// and the index lock stay, for Recover.
func (tx *Transaction) Undo(ctx context.Context) error {
	if tx.committed {
		return errors.New("the refs have moved; the update cannot be undone any more")
	}
	ctx = context.WithoutCancel(ctx) // half an undo would be worse than none
	err := tx.closeUpdateRef()
	if tx.outcomeUnknown {
		tx.finished = true
		return errors.Join(err, errors.New("the refs may have moved; nothing is undone until that is known"), tx.draft.Close())
	}
	if tx.staging != nil {
		undone := tx.staging.undoMoves(ctx)
		if undone != nil && !errors.As(undone, new(*ConcurrentChangeError)) {
			tx.finished = true
			return errors.Join(err, undone, tx.draft.Close())
		}
		err = errors.Join(err, undone, tx.staging.remove())
	}
	switch {
	case tx.commitSent:
		err = errors.Join(err, restoreOtherRefs(ctx, tx.repo, tx.spec))
	case tx.stepsDone > 0:
		for _, m := range tx.spec.OtherRefs { // git made the directories for their lock files
			_ = syscall.Rmdir(filepath.Dir(tx.repo.RefPath(m.Ref)))
		}
	}
	if tx.keptInPack {
		err = errors.Join(err, removeKeepFiles(tx.repo, tx.spec))
	}
	err = errors.Join(err, tx.draft.Drop())
	tx.staging, tx.draft, tx.finished = nil, nil, true
	return err
}
