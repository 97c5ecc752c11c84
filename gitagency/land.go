package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// LandRequest says what to land, and how. The zero value of all but the first is right for most.
type LandRequest struct {
	ID          string   // required: the invocation, by its id or a unique prefix
	Strategy    string   // one of Strategies; "" is agency.land.strategy, else merge
	CommitAll   bool     // work that is not committed is committed first, with Message
	Message     string   // else that of the landing, unless it is a rebase; "" is what it is by default
	RequireBase bool     // the integration branch must not have moved since the sandbox last had all of it
	DryRun      bool     // the same checks and errors, and nothing changes
	Later       bool     // what is left of the sandbox is removed by a second Land of it, and not by this one
	Stand       []string // what the caller has landed before it, for who is told that nothing else has changed

	// Verify is a shell line that has to succeed on the tree that would land, in a sandbox of its own with the walls and
	// limits of the one that the work is from; "" is agency.verify, unless NoVerify says that nothing is verified.
	Verify   string
	NoVerify bool
	Output   io.Writer       // gets what it writes; nil is nobody
	Hurry    <-chan struct{} // as for ExecOptions

	known     *Landed // what is known of one that fails
	verified  string  // the tree on which it has succeeded
	overtaken int     // how often somebody has moved the branch before we had
}

// Landed is what came of a landing.
type Landed struct {
	Invocation string    `json:"invocation_id"`
	Commit     string    `json:"commit"`    // where it brought the integration branch to; of one that landed before, where that was then
	Before     string    `json:"before"`    // where it was
	Branch     string    `json:"branch"`    // of the integration worktree
	Strategy   string    `json:"strategy"`  // by which it landed
	Tip        string    `json:"tip"`       // the last commit of the sandbox
	Commits    int       `json:"commits"`   // how many of its commits landed; by a rebase, how many were made of them
	TrashRef   string    `json:"trash_ref"` // what keeps the sandbox's own commits until they are pruned
	Already    bool      `json:"already"`   // it had landed before, or all of it was there
	DryRun     bool      `json:"dry_run"`   // nothing was changed
	LeftOut    []LeftOut `json:"left_out"`  // what was in the sandbox and in no commit of it
	Unsaid     bool      `json:"-"`         // all was committed, and the message of CommitAll was not needed
	Aside      bool      `json:"-"`         // its tree is out of the way, and not removed: another Land of it does that

	Verified  bool   `json:"verified"`   // a command has found it to be good
	VerifyLog string `json:"verify_log"` // where what that command wrote is kept; empty when there was none

	candidate *candidate // what has to be verified before it can land
}

// New reports whether it has landed, and had not before.
func (l Landed) New() bool { return l.Commit != "" && !l.Already && !l.DryRun }

// Land moves the work of a sandbox into the integration branch, and into the tree that a person has it checked out in:
// all of it or nothing. Then the sandbox goes, and a ref keeps its commits as they were.
//
// Nothing is changed anywhere when the error is an *UncommittedError, *NothingToLandError, *ConflictsError,
// *OverwriteError, *UnderWayError, *BaseMovedError, *NotSubmittedError, *VerifyError or *MovingError. A landing that is
// killed is finished or undone by the next command that takes the repository lock. With an error comes what is known all
// the same; it has no Commit unless it has landed.
func (r *Repository) Land(ctx context.Context, req LandRequest) (Landed, error) {
	if err := req.check(r); err != nil {
		return Landed{}, err
	}
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return Landed{}, err
	}
	req.ID, req.known = inv.ID, &Landed{Invocation: inv.ID, Strategy: req.Strategy, DryRun: req.DryRun, LeftOut: []LeftOut{}}
	if inv.Landing == store.Landed && !inv.Broken && !req.DryRun { // which needs no lock, and may take long
		if err := r.tidy(ctx, inv.ID); err != nil {
			return *req.known, err
		}
	}
	landed, err := r.landVerified(ctx, req)
	var archived *ArchivedError
	if errors.As(err, &archived) {
		archived.Invocation = req.ID
	}
	tellStanding(err, req.Stand)
	if err != nil && !is[*EndedError](err) && !is[*CleanupError](err) {
		return *req.known, fmt.Errorf("land %s: %w", req.ID, err)
	}
	if err != nil && landed.Invocation == "" {
		landed = *req.known
	}
	return landed, err
}

func (req *LandRequest) check(r *Repository) error {
	if req.Strategy == "" {
		strategy, err := r.landStrategy()
		if err != nil {
			return err
		}
		req.Strategy = strategy
	}
	if err := checkStrategy(req.Strategy); err != nil {
		return err
	}
	given := req.Message != ""
	switch req.Message = strings.TrimSpace(req.Message); {
	case req.Message != "":
	case req.CommitAll:
		return &InvalidError{What: "message", Want: "some text, to commit what is not committed with"}
	case given:
		return &InvalidError{What: "message", Want: "some text, for the commit of the landing"}
	}
	if !utf8.ValidString(req.Message) || strings.Contains(req.Message, "\x00") {
		return &InvalidError{What: "message", Value: req.Message, Want: "text in UTF-8"}
	}
	if req.Message != "" && !req.CommitAll && req.Strategy == rebaseStrategy {
		return &InvalidError{What: "message", Value: req.Message, Want: "none: a rebase keeps those of the sandbox's commits"}
	}
	if err := checkLine(req.Verify); err != nil {
		return err
	}
	switch {
	case strings.Contains(req.Verify, "\x00"):
		return &InvalidError{What: "command", Value: req.Verify, Want: "a line for a shell, without NUL"}
	case req.NoVerify:
		req.Verify = ""
	case req.Verify == "":
		line, err := r.verifyLine()
		if err != nil {
			return err
		}
		req.Verify = line
	}
	return nil
}

// land is Land for who holds the repository lock, up to what has to be verified first.
func (r *Repository) land(ctx context.Context, repo *git.Repo, req LandRequest) (_ Landed, err error) {
	if err := r.finishLanding(ctx, repo); err != nil { // of one that could not be finished when the lock was taken
		return Landed{}, err
	}
	entry := r.store.Invocation(r.ID, req.ID, nil) // it may have changed while we waited
	if entry.Broken == store.Whole && entry.Record.Landing == store.Landed {
		return r.landedBefore(ctx, repo, entry, req.DryRun)
	}
	if _, err := invocation(entry, nil).Path(); err != nil {
		return Landed{}, err
	}
	if of := entry.Record.Verifies; of != "" {
		return Landed{}, &ThrowAwayError{ID: entry.ID, Verifies: of}
	}
	ctx, cancel, err := r.bounded(ctx, "landing")
	if err != nil {
		return Landed{}, err
	}
	defer cancel()
	l := &landing{r: r, repo: repo, req: req, entry: entry, s: r.sandboxOf(req.ID)}
	defer func() {
		l.tell(req.known)
		err = errors.Join(err, l.close())
	}()
	if err := l.consider(ctx); err != nil {
		return Landed{}, err
	}
	if err := l.make(ctx); err != nil {
		return Landed{}, err
	}
	c, err := l.candidate(ctx)
	if c != nil {
		return Landed{Branch: short(l.target.branch), candidate: c}, err
	}
	var landed Landed
	if err == nil {
		landed, err = l.publish(ctx)
	}
	if overtaken(err) && req.overtaken == mostOvertaken {
		err = &MovingError{ID: req.ID, Branch: short(l.target.branch), Times: mostOvertaken + 1}
	}
	if overtaken(err) && req.overtaken < mostOvertaken {
		req.overtaken++
		l.tell(req.known)
		l.looked, l.target = git.Looked{}, target{} // who comes next knows better
		if err := errors.Join(l.close(), pause(ctx, req.overtaken, betweenLandings)); err != nil {
			return Landed{}, err
		}
		return r.land(ctx, repo, req)
	}
	return landed, err
}

// overtaken reports that somebody has moved the branch, or checked it out elsewhere, since we looked.
func overtaken(err error) bool { return is[*git.MovedRefError](err) || is[*git.ReseatedError](err) }

// mostOvertaken is how often a landing begins again because somebody has committed to the branch, or in the sandbox,
// meanwhile. What they commit takes longer than it takes to land, and the more often they have, the longer it waits for a moment
// in which they do not.
const mostOvertaken = 50

// landedBefore says what came of a landing that is done, and takes away what one that was killed left of the sandbox.
func (r *Repository) landedBefore(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta], dry bool) (Landed, error) {
	m := entry.Record
	landed := Landed{
		Invocation: entry.ID, Commit: m.LandedCommit, Before: m.LandedBefore, Branch: m.LandedBranch, Strategy: m.LandedStrategy, Tip: m.LandedTip,
		Already: true, DryRun: dry, LeftOut: []LeftOut{},
	}
	kept, err := r.kept(ctx, repo, entry.ID)
	if kept != "" {
		landed.TrashRef = trashRef(entry.ID)
	}
	if err != nil {
		return landed, err
	}
	gone := &GoneError{ID: entry.ID, Commit: m.LandedCommit, Branch: m.LandedBranch, Ref: landed.TrashRef, Work: landed.TrashRef}
	if kept != "" && kept != m.LandedTip {
		gone.Work = m.LandedTip
	}
	if there, err := r.stillThere(ctx, repo, m, gone); err != nil || !there {
		return Landed{}, err
	}
	if dry {
		return landed, nil
	}
	if m.UnlandedCommit != "" { // somebody has brought it back
		if err := r.store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
			m.UnlandedCommit, m.UnlandedAt = "", nil
		}); err != nil {
			return Landed{}, err
		}
	}
	return landed, r.endLanded(ctx, repo, entry.ID)
}

// stillThere reports whether what has landed is on its branch; where it is not, the error is gone, which it completes.
func (r *Repository) stillThere(ctx context.Context, repo *git.Repo, m store.InvocationMeta, gone *GoneError) (bool, error) {
	if m.LandedCommit == "" {
		return true, nil
	}
	there, err := repo.IsAncestor(ctx, m.LandedCommit, heads+m.LandedBranch)
	if err != nil {
		return false, err
	}
	switch {
	case there && m.UnlandedCommit != "":
		gone.By = m.UnlandedCommit
		there, err = r.anythingLeft(ctx, repo, m)
	case there:
		there, err = r.anythingLeft(ctx, repo, m)
		if gone.Undone = true; m.LandedStrategy != "" {
			gone.Again = "cherry-pick " + landedRange(m)
		}
	case m.UnlandedCommit == "": // a person may have merged it anew
		there, err = repo.IsAncestor(ctx, m.LandedTip, heads+m.LandedBranch)
	}
	if err != nil || there {
		return there, err
	}
	gone.Tree = checkedOut(ctx, repo, heads+m.LandedBranch)
	return false, gone
}

// checkedOut is the tree in which a branch is, for somebody who is told what to do there; empty where none has it.
func checkedOut(ctx context.Context, repo *git.Repo, branch string) string {
	_, tree, err := repo.Seat(ctx, branch)
	var busy *WorktreeBusyError
	if errors.As(err, &busy) {
		return busy.Tree
	}
	return tree
}

// landing is one under way.
type landing struct {
	r     *Repository
	repo  *git.Repo // with the repository lock
	req   LandRequest
	entry store.Entry[store.InvocationMeta]
	s     *Sandbox

	target target
	place  *site
	leave  []func() // what has to be given up again, the last first
	merger *git.Merger
	ending func() (struct{}, error) // waits until the merger is closed; nil when nobody closes it

	began   time.Time // what was written to the sandbox from then on may not be in what was seen of it
	looked  git.Looked
	tip     string // the last commit that lands
	commits []git.Commit
	made    int    // how many of them the integration branch gets by it: each, or fewer where they are made anew
	result  string // the commit that the integration branch goes to; empty when it has all of it
	trash   string // what the trash ref pointed at before
}

func (l *landing) close() error {
	l.endMerger()
	_, err := l.ending()
	l.merger, l.ending = nil, nil
	l.depart()
	return err
}

// endMerger begins to close it, while there is something else to do.
func (l *landing) endMerger() {
	if l.ending == nil {
		merger := l.merger
		l.ending = proc.Meanwhile(func() (struct{}, error) { return struct{}{}, merger.Close() })
	}
}

// tell says what is known of where it would have landed.
func (l *landing) tell(known *Landed) {
	known.Tip = cmp.Or(l.looked.Head, known.Tip)
	if l.target.branch != "" {
		known.Branch = short(l.target.branch)
	}
}

// depart lets others into the sandbox again.
func (l *landing) depart() {
	for len(l.leave) > 0 {
		l.leave[len(l.leave)-1]()
		l.leave = l.leave[:len(l.leave)-1]
	}
}
