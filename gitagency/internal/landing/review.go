package landing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// SubmitRequest says which invocation to submit for review.
type SubmitRequest struct {
	Invocation string // required: id or unique prefix
	Note       string // message for the reviewer
}

// SubmitResult is the result of Submit.
type SubmitResult struct {
	ID            string    `json:"invocation_id"`
	Commit        string    `json:"submitted_commit"` // commit to review: HEAD of the sandbox
	At            time.Time `json:"submitted_at"`     // time of submission; determines the place in the queue
	Note          string    `json:"review_note"`
	Already       bool      `json:"already"` // this commit was in review already
	CommitChanged bool      `json:"renewed"` // another commit of the invocation was in review
}

// Submit marks the HEAD commit of a sandbox as ready for review and landing. Uncommitted work is an *UncommittedError, no
// work at all a *NothingToLandError; commits with unsafe objects, which must not land, are refused too. The sandbox stays
// as it is, and commands may go on in it. Submitting again is allowed: the submission keeps its place in the queue unless
// HEAD has moved.
func Submit(ctx context.Context, r *core.Repository, req SubmitRequest) (SubmitResult, error) {
	note, err := normalizeText("note", req.Note)
	if err != nil {
		return SubmitResult{}, err
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return SubmitResult{}, err
	}
	if _, err := inv.Path(); err != nil {
		return SubmitResult{}, err
	}
	if inv.Verifies != "" {
		return SubmitResult{}, &fault.TemporarySandboxError{ID: inv.ID, Verifies: inv.Verifies}
	}
	if err := r.CheckNotArchived(inv); err != nil {
		return SubmitResult{}, fmt.Errorf("submit %s: %w", inv.ID, err)
	}
	s := sandbox.Of(r, inv.ID)
	if err := s.ImportPending(ctx); fault.Is[*fault.ImportError](err) { // commits that are not imported would be missing from the review
		return SubmitResult{}, &fault.InvocationError{Operation: "submit", ID: s.ID, Err: err}
	} else if err != nil {
		return SubmitResult{}, err
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return SubmitResult{}, err
	}
	defer unlock()
	h, err := s.OpenLocked(ctx, repo)
	if err != nil {
		return SubmitResult{}, err
	}
	defer func() {
		if closeErr := h.Close(); closeErr != nil {
			r.Warn("%s: %v", s.Tree, closeErr)
		}
	}()
	ctx, cancel, err := r.Settings.WithOperationTimeout(ctx, "submit")
	if err != nil {
		return SubmitResult{}, err
	}
	defer cancel()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // the record may have changed while we waited for the lock
	tip, err := submittableCommit(ctx, r, repo, h, s, entry)
	if err != nil {
		return SubmitResult{}, &fault.InvocationError{Operation: "submit", ID: s.ID, Err: err}
	}
	return recordSubmission(ctx, r, entry, tip, note)
}

// recordSubmission is the transaction: one step, which is the commit point.
func recordSubmission(ctx context.Context, r *core.Repository, entry store.Entry[store.InvocationMeta], tip, note string) (_ SubmitResult, err error) {
	m := entry.Record
	inReview := m.Landing == store.Review
	done := SubmitResult{ID: entry.ID, Commit: tip, At: core.TimeOrZero(m.SubmittedAt), Note: note, Already: inReview && m.SubmittedCommit == tip}
	done.CommitChanged = inReview && !done.Already
	if inReview { // same work: keep the earlier note unless there is a new one
		done.Note = cmp.Or(note, m.ReviewNote)
	}
	if done.Already && done.Note == m.ReviewNote {
		return done, nil
	}
	if !done.Already {
		if done.At, err = nextQueueTime(r); err != nil {
			return SubmitResult{}, err
		}
	}
	if err := updateReview(ctx, r, "submit", entry, func(m *store.InvocationMeta) {
		m.Landing, m.SubmittedAt, m.SubmittedCommit, m.ReviewNote = store.Review, &done.At, tip, done.Note
	}); err != nil {
		return SubmitResult{}, err
	}
	r.AppendEvent(entry.ID, reviewEvent{Time: r.EventTime(), Event: "submit", Commit: tip, Note: done.Note})
	return done, nil
}

// nextQueueTime returns a time after that of every waiting submission, even if the clock was set back or stands still.
func nextQueueTime(r *core.Repository) (time.Time, error) {
	at := r.Opts.Now().UTC()
	waiting, err := InReview(r, "")
	for _, i := range waiting {
		if !at.After(i.SubmittedAt) {
			at = i.SubmittedAt.Add(1)
		}
	}
	return at, err
}

// InReview lists the invocations that wait for review or landing, in the order of submission. An empty worktree means all
// worktrees.
func InReview(r *core.Repository, worktree string) ([]core.Invocation, error) {
	live, err := r.Invocations(core.ListRequest{Worktree: worktree})
	if err != nil {
		return nil, err
	}
	waiting := slices.DeleteFunc(live, func(i core.Invocation) bool { return i.Landing != store.Review || i.Verifies != "" })
	sort.Slice(waiting, func(i, j int) bool {
		a, b := &waiting[i], &waiting[j]
		return cmp.Or(a.SubmittedAt.Compare(b.SubmittedAt), strings.Compare(a.ID, b.ID)) < 0
	})
	return waiting, nil
}

// RejectRequest says which submission to reject, and why.
type RejectRequest struct {
	Invocation string // required: id or unique prefix
	Reason     string // required
}

// RejectResult is the result of Reject.
type RejectResult struct {
	ID     string    `json:"invocation_id"`
	Commit string    `json:"submitted_commit"` // commit that was rejected
	At     time.Time `json:"rejected_at"`
	Reason string    `json:"rejected_reason"`
}

// Reject sends a submission back for more work, with the reason. An invocation that is not in review is a
// *NotInReviewError.
func Reject(ctx context.Context, r *core.Repository, req RejectRequest) (RejectResult, error) {
	reason, err := normalizeText("reason", req.Reason)
	if err != nil {
		return RejectResult{}, err
	}
	if reason == "" {
		return RejectResult{}, &fault.InvalidError{What: "reason", Want: "a text that says what to change"}
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return RejectResult{}, err
	}
	_, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return RejectResult{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // the record may have changed while we waited for the lock
	if err := core.InvocationFromEntry(entry, nil).Err(); err != nil {
		return RejectResult{}, err
	}
	if m := entry.Record; m.Landing != store.Review {
		return RejectResult{}, &fault.NotInReviewError{ID: entry.ID, State: m.Landing}
	}
	done := RejectResult{ID: entry.ID, Commit: entry.Record.SubmittedCommit, At: r.Now(), Reason: reason}
	if err := updateReview(ctx, r, "reject", entry, func(m *store.InvocationMeta) {
		m.Landing, m.RejectedAt, m.RejectedReason = store.Rejected, &done.At, reason
	}); err != nil {
		return RejectResult{}, err
	}
	r.AppendEvent(entry.ID, reviewEvent{Time: r.EventTime(), Event: "reject", Commit: done.Commit, Reason: reason})
	return done, nil
}

// updateReview changes the review state in the record of an invocation. The rename of the record is the commit point.
func updateReview(ctx context.Context, r *core.Repository, verb string, entry store.Entry[store.InvocationMeta], change func(*store.InvocationMeta)) (err error) {
	tx := r.BeginTx(verb)
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
				m.Landing, m.Submission = entry.Record.Landing, entry.Record.Submission
			})
		})
		return r.Store.UpdateInvocationMeta(r.ID, entry.ID, change)
	}); err != nil {
		return fmt.Errorf("%s %s: %w", verb, entry.ID, err)
	}
	tx.Commit()
	return nil
}

type reviewEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Commit string    `json:"commit"`
	Note   string    `json:"note,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// submittableCommit returns HEAD of a sandbox, if that contains all of its work and there is any. The caller holds the
// repository lock and has the sandbox open.
func submittableCommit(ctx context.Context, r *core.Repository, repo *git.Repo, h *sandbox.Handle, s *sandbox.Sandbox, entry store.Entry[store.InvocationMeta]) (tip string, err error) {
	subject, err := r.PrepareCapture(s.SnapshotSubject(h.Base, ""))
	if err != nil {
		return "", err
	}
	if subject, err = withLeftPatterns(r, subject); err != nil {
		return "", err
	}
	merger, err := merge.NewMerger(repo, h.Base)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	found, err := merger.Inspect(ctx, subject)
	if err := r.SaveFilesRefusal(s.ID, err, false); err != nil {
		return "", err
	}
	if err := fsckSubmission(ctx, r, repo, merger, entry, found.Head); err != nil { // first, because an unsafe tree would show up as uncommitted work
		return "", err
	}
	if found.InProgress.Command != "" {
		return "", s.OperationError(ctx, found.InProgress, h.Prims)
	}
	if err := addChangedSubmodules(ctx, r, repo, s, &found); err != nil {
		return "", err
	}
	if len(found.Uncommitted) > 0 {
		return "", &sandbox.UncommittedError{ID: s.ID, Path: s.Tree, Files: found.Uncommitted, LeftOut: snapshots.ToLeftOut(found.LeftOut), Unadded: unaddedSubmodules(ctx, r, repo, s, found)}
	}
	base, err := sandbox.WorkBase(ctx, r, core.InvocationFromEntry(entry, nil))
	if err != nil {
		return "", err
	}
	none, err := repo.IsAncestor(ctx, found.Head, base)
	void := false
	if err == nil && !none {
		void, err = merger.SameTree(ctx, found.Head, base)
	}
	if err != nil {
		return "", err
	}
	if onto := entry.Record.IntegrationBranch; (none || void) && onto != "" {
		has, err := repo.IsAncestor(ctx, base, onto)
		if err == nil && !has { // the sandbox was started with commits that the branch lacks, by start --from
			return found.Head, nil
		}
	}
	if none || void {
		return "", &NothingToLandError{ID: s.ID, NoNetChange: void, LeftOut: snapshots.ToLeftOut(found.LeftOut)}
	}
	return found.Head, nil
}

// fsckSubmission refuses commits with unsafe objects, as a landing does. If the integration worktree has no branch to land
// on, which Land reports, it checks the commits since the base of the sandbox.
func fsckSubmission(ctx context.Context, r *core.Repository, repo *git.Repo, merger *merge.Merger, entry store.Entry[store.InvocationMeta], head string) error {
	onto := entry.Record.BaseCommit
	if to, err := r.FindIntegrationTarget(ctx, repo, core.InvocationFromEntry(entry, nil)); err == nil {
		onto = to.Commit
	}
	return addFsckContext(ctx, merger, entry, [2]string{onto, head}, merger.FsckRange(ctx, onto, head))
}

// checkReviewed refuses to land a tip that was not submitted, if agency.requireReview is set. Changes after the submitted
// commit, committed or not, have not been reviewed.
func checkReviewed(r *core.Repository, entry store.Entry[store.InvocationMeta], tip string) error {
	required, err := r.Settings.Bool(settings.RequireReviewKey, false)
	if err != nil || !required {
		return err
	}
	m := entry.Record
	if inReview := m.Landing == store.Review; !inReview || m.SubmittedCommit != tip {
		return &fault.NotSubmittedError{ID: entry.ID, State: m.Landing, Moved: inReview}
	}
	return nil
}

// normalizeText trims and checks a note or a reason, which is stored in a record.
func normalizeText(what, text string) (string, error) {
	const most = 64 << 10 // records are read as a whole by every command
	text = strings.TrimSpace(text)
	switch {
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		return "", &fault.InvalidError{What: what, Value: text, Want: "UTF-8 text without NUL"}
	case len(text) > most:
		return "", &fault.InvalidError{What: what, Value: text[:40] + "…", Want: "at most 64 KiB"}
	}
	return text, nil
}
