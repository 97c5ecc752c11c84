package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// DiscardResult reports what remains of a discarded invocation.
type DiscardResult struct {
	ID             string `json:"invocation_id"`
	TrashRef       string `json:"trash_ref"`    // ref that keeps the content of the sandbox; empty when there was none
	Commit         string `json:"trash_commit"` // commit that TrashRef points at
	Already        bool   `json:"already"`      // already discarded before this call
	CreationUndone bool   `json:"undone"`       // it was an interrupted creation, which was undone; not even a record is left
	EndedCommands  int    `json:"commands"`     // number of commands that still ran in the sandbox and were ended

	TrashArchive string   `json:"trash_archive"` // archive that keeps what no commit can hold; empty when there is none
	ArchiveSize  int64    `json:"archive_size"`  // its size in bytes
	Lost         []string `json:"lost"`          // with Force: files that are not kept, with the reasons; empty, not null
}

// DiscardRequest selects the invocation to discard.
type DiscardRequest struct {
	Query string // required: its id or a unique prefix
	Force bool   // discard it even if some of its content cannot be kept
}

// Discard ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files; files that no commit can hold go to an archive.
// Discarding twice is allowed and finishes an interrupted discard. Of an interrupted creation it removes every trace.
func Discard(ctx context.Context, r *core.Repository, query string) (DiscardResult, error) {
	return DiscardWith(ctx, r, DiscardRequest{Query: query})
}

// errStopped reports that something that ran in the sandbox was ended. Its git state is to be imported without the
// repository lock, because checking it may take long.
var errStopped = errors.New("the commands in the sandbox were ended")

// DiscardWith is Discard with more choices. It begins again when it has ended commands, a few times if new ones begin.
func DiscardWith(ctx context.Context, r *core.Repository, req DiscardRequest) (d DiscardResult, err error) {
	inv, err := r.Invocation(req.Query)
	for round := 1; round == 1 && err == nil || errors.Is(err, errStopped); round++ {
		ended := d.EndedCommands
		d, err = discard(ctx, r, inv, req.Force, round < 3)
		d.EndedCommands += ended
	}
	if err != nil && d.EndedCommands > 0 {
		r.Warn("commands in sandbox %s that were ended: %d", inv.ID, d.EndedCommands)
	}
	if d.Lost == nil {
		d.Lost = []string{}
	}
	return d, err
}

func discard(ctx context.Context, r *core.Repository, inv core.Invocation, force, mayStop bool) (DiscardResult, error) {
	Of(r, inv.ID).ImportUnlocked(ctx)
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return DiscardResult{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // may have changed while waiting for the lock
	if _, there := store.FirstExisting(r.Store.InvocationDir(r.ID, inv.ID), r.Store.SandboxDir(r.ID, inv.ID)); !there {
		return DiscardResult{ID: inv.ID, Already: !inv.Broken, CreationUndone: inv.Broken}, nil // pruned or undone by another process meanwhile
	}

	switch {
	case entry.Defect != store.NoDefect && entry.Intent != nil:
		err = UndoInterruptedStart(ctx, r, repo, entry.ID, *entry.Intent)
	case entry.Defect == store.Incomplete:
		err = store.RemoveEmptyRecordDirs(r.Store.SandboxDir(r.ID, entry.ID), r.Store.InvocationDir(r.ID, entry.ID))
	case entry.Defect != store.NoDefect && entry.Defect != store.MissingTree:
		return DiscardResult{}, core.InvocationFromEntry(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		return DiscardResult{}, &fault.EndedError{ID: entry.ID, Landing: entry.Record.Landing, Ref: core.TrashRef(entry.ID)}
	default:
		return endInvocation(ctx, r, repo, entry, core.TrashOptions{Archive: true, Force: force}, mayStop)
	}
	if err != nil {
		return DiscardResult{}, fmt.Errorf("undo the interrupted creation of %s: %w", entry.ID, err)
	}
	return DiscardResult{ID: entry.ID, CreationUndone: true}, nil
}

// UndoInterruptedStart removes what an interrupted Start left behind.
func UndoInterruptedStart(ctx context.Context, r *core.Repository, repo *git.Repo, id string, intent store.Intent) error {
	if intent.Command == restoreVerb {
		// The tree is compared with its commit only if it has a marker. This one has files of an archive too, which
		// the trash still holds.
		if err := durable.Remove(guard.Sandbox.Path(r.Store.SandboxTreePath(r.ID, id))); err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
	}
	return r.UndoCreation(ctx, repo, r.Store.InvocationDir(r.ID, id), changeset.Spec{
		ID: id, Tree: r.Store.SandboxTreePath(r.ID, id), Branch: core.SandboxRef(id),
		Base: intent.BaseCommit, Tip: intent.Tip, FilesCommit: intent.FromSnapshot,
	})
}

// EndInvocation discards an invocation that has a record, or finishes an interrupted discard or landing of it. Without
// an archive it refuses content that no commit can hold, except git state that was refused.
func EndInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) (DiscardResult, error) {
	return endInvocation(ctx, r, repo, entry, o, false)
}

func endInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions, mayStop bool) (DiscardResult, error) {
	var lost []string
	o.Lost = func(file string) { lost = append(lost, file) }
	if err := core.CheckParentResolved(r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return DiscardResult{}, err
	}
	already, how := core.HasEnded(entry.Record), store.Discarded
	if already {
		how = entry.Record.Landing
	} else if err := r.CheckTreeNotMoved(repo, entry.ID, r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return DiscardResult{}, err // not checked for an ended invocation: its name may be in use elsewhere
	}
	if err := CheckBeforeStop(ctx, r, repo, TrashSubject(r, entry), o); err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	locked, err := LockExclusive(ctx, r, entry.ID)
	if err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer locked.Close()
	if mayStop && locked.stopped {
		return DiscardResult{EndedCommands: locked.EndedCommands}, errStopped
	}
	RecoverUploads(ctx, r, entry.ID)
	Of(r, entry.ID).finishRollbackForDiscard(ctx, repo, locked)
	refused, err := Of(r, entry.ID).ImportForDiscard(ctx, repo, entry.Record.Primitives, locked.invocationLock)
	if err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	if refused != nil {
		o.GitLayer = handoff.UpperDir(r, entry.ID)
		r.Warn("sandbox %s: some git state behind the walls is refused: %v", entry.ID, refused)
	}
	since := time.Now()
	if already { // unknown when the interrupted run began
		since = time.Time{}
	}
	keeps, err := hasUnkeptWork(ctx, r, repo, entry.ID)
	if err != nil {
		return DiscardResult{}, err
	}
	switch {
	case !already:
		err = moveToTrash(ctx, r, repo, entry, o)
	case keeps:
		err = addToTrash(ctx, r, repo, entry, o)
	}
	if err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	commit, err := removeSandbox(ctx, r, repo, entry, since, o)
	if err != nil {
		return DiscardResult{}, &fault.CleanupError{Kind: "invocation", ID: entry.ID, Done: how, Err: err}
	}
	d := DiscardResult{ID: entry.ID, Commit: commit, Already: already, EndedCommands: locked.EndedCommands, Lost: lost}
	if commit != "" {
		d.TrashRef = core.TrashRef(entry.ID)
	}
	if fi, err := os.Lstat(r.Store.TrashArchivePath(r.ID, entry.ID)); err == nil {
		d.TrashArchive, d.ArchiveSize = r.Store.TrashArchivePath(r.ID, entry.ID), fi.Size()
	}
	return d, nil
}

// TrashSubject describes the worktree of an invocation for the commit that its trash ref will point at.
func TrashSubject(r *core.Repository, entry store.Entry[store.InvocationMeta]) git.WorktreeSpec {
	how := store.Discarded
	if core.HasEnded(entry.Record) {
		how = entry.Record.Landing
	}
	return git.WorktreeSpec{
		Name: entry.ID, Dir: r.Store.SandboxTreePath(r.ID, entry.ID), Branch: core.SandboxRef(entry.ID), Base: entry.Record.BaseCommit,
		Message: fmt.Sprintf("agency: what was in sandbox %s when it was %s\n\nAgency-Invocation: %s\nAgency-Base: %s",
			entry.ID, how, entry.ID, entry.Record.BaseCommit),
	}
}

// hasUnkeptWork reports whether the invocation still has a tree, a branch whose commits the trash ref does not
// contain, or a git worktree entry that may lead to commits although its tree is gone. This happens after an
// interrupted discard, or when an agent continued to write.
func hasUnkeptWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string) (bool, error) {
	found, err := repo.Lookup(ctx, core.TrashRef(id), core.SandboxRef(id))
	if err != nil {
		return false, err
	}
	held := false
	if !cannotHoldCommits(found[1]) {
		if held, err = repo.IsAncestor(ctx, found[1].OID, found[0].OID); err != nil {
			return false, err
		}
	}
	registered, err := repo.RegisteredTrees()
	if err != nil {
		return false, err
	}
	spec := Spec(r, id)
	// If the tree was renamed aside, removing it captures the entry too.
	entry := !store.IsDir(store.WithdrawnPath(spec.Tree)) && core.WorktreeBackend(repo).IsRegistered(spec, registered)
	return store.IsDir(spec.Tree) || !found[1].Missing() && !held || entry, nil
}

// removeSandbox removes the tree, the worktree entry and the branch of a discarded invocation, and returns the commit
// of the trash ref. Each part may be gone already.
func removeSandbox(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time, o core.TrashOptions) (string, error) {
	id, spec := entry.ID, Spec(r, entry.ID)
	if err := r.RunSteps(ctx, "discard", []core.Step{
		{Name: "tree", Do: func() error {
			err := r.RemoveCapturedTree(ctx, repo, TrashSubject(r, entry), since, o, func() error { return renewFinishedAt(r, id) })
			if err == nil && r.HasTrashArchive(id) && !r.Store.Invocation(r.ID, id, nil).Record.HasTrashArchive { // made of late changes
				err = recordArchive(r, id)
			}
			return err
		}},
		{Name: "registration", Do: func() error { return core.WorktreeBackend(repo).Unregister(spec) }},
		{Name: "branch", Do: func() error { return DeleteKeptBranch(ctx, r, repo, spec, o) }},
		{Name: "leftovers", Do: func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{Name: "sandbox-dir", Do: func() error { return r.Store.RemoveSandboxTree(r.ID, id) }},
	}); err != nil {
		return "", err
	}
	return r.TrashCommit(ctx, repo, id)
}

// Spec returns the paths and the branch of the sandbox of an invocation.
func Spec(r *core.Repository, id string) changeset.Spec {
	return changeset.Spec{ID: id, Tree: r.Store.SandboxTreePath(r.ID, id), Branch: core.SandboxRef(id), Scratch: r.Store.InvocationDir(r.ID, id)}
}

// cannotHoldCommits reports whether a branch names an object that leads to no commit.
func cannotHoldCommits(branch git.Object) bool { return branch.Type == "blob" || branch.Type == "tree" }

// DeleteKeptBranch deletes the branch of a discarded sandbox, unless another worktree has it checked out. It fails if
// the trash ref does not contain all commits of the branch, and without Force if the branch names no commit.
func DeleteKeptBranch(ctx context.Context, r *core.Repository, repo *git.Repo, spec changeset.Spec, o core.TrashOptions) error {
	found, err := repo.Lookup(ctx, core.TrashRef(spec.ID), spec.Branch)
	if err != nil {
		return err
	}
	kept, branch := found[0].OID, found[1].OID
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return err
	}
	if path := CheckedOutElsewhere(listing.Worktrees, spec); path != "" {
		r.Warn("branch %s is checked out at %s; it stays", core.ShortBranch(spec.Branch), path)
		return nil
	}
	if branch == "" {
		return errors.Join(repair.DeleteBrokenRef(ctx, repo, spec.Branch), repo.RemoveRefLeftovers(ctx, spec.Branch))
	}
	if cannotHoldCommits(found[1]) {
		names := "branch " + core.ShortBranch(spec.Branch) + " names the " + found[1].Type + " " + branch + ", not a commit"
		if !o.Force {
			return errors.New(names + "; 'git agency discard --force " + spec.ID + "' deletes it")
		}
		o.Lost(names)
		return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, branch)
	}
	safe, err := repo.IsAncestor(ctx, branch, kept)
	if err != nil {
		return err
	}
	if !safe {
		return errors.New("branch " + core.ShortBranch(spec.Branch) + " has commits that are not in " + core.TrashRef(spec.ID) + "; the branch is kept")
	}
	return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, branch)
}

// CheckedOutElsewhere returns the path of another worktree that has the branch of the sandbox checked out; empty when
// there is none.
func CheckedOutElsewhere(worktrees []git.Worktree, spec changeset.Spec) string {
	for _, w := range worktrees {
		if w.Branch == spec.Branch && w.Path != spec.Tree {
			return w.Path
		}
	}
	return ""
}
