package git

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
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Advance is a branch that is to go from one commit to another, together with the worktree that has it checked out.
//
// All that is needed to finish or to undo one that was killed is in here: whoever lets it happen writes it down before.
type Advance struct {
	Branch string    `json:"branch"` // required: full ref
	Old    string    `json:"old"`    // required: commits
	New    string    `json:"new"`
	Also   []RefMove `json:"also,omitempty"`
	Reason string    `json:"reason,omitempty"` // for the logs

	// The worktree that has the branch checked out, as Seat says; empty where none has.
	GitDir  string `json:"git_dir,omitempty"`
	Tree    string `json:"tree,omitempty"`
	Trusted bool   `json:"trusted,omitempty"` // the repository's own settings can only be the user's: filters that they name run

	by *Merger // who made the new commit, and has what is new; nil where git has to be asked
}

// RefMove is another ref that moves in the same transaction. An Old of zeros means that it must not be there, a New of
// zeros that it goes.
type RefMove struct {
	Ref string `json:"ref"`
	Old string `json:"old"`
	New string `json:"new"`
}

// Advancing is an Advance under way. Each of its steps may be called once, in their order; until Commit all of it can be
// taken back with Undo.
//
//	Lock     the new files are made, elsewhere; no git can write the person's index any more
//	Prepare  the refs are locked, and are where they have to be
//	Files    each file changes places with the new one, and the new index is written, beside the old one
//	Commit   the refs move
//	Publish  the index takes its place
//	Clear    what was needed for that is gone
//
// A file is replaced by a rename, and what was in its place is looked at after that: if it is not what was seen before, it
// goes back. So nobody ever sees a part of a file, and what somebody saved at that very moment is not lost.
type Advancing struct {
	repo *Repo
	a    Advance

	seat  *seat  // what was found in the worktree; nil where there is none
	stage *stage // the new files
	draft *IndexDraft

	held bool // all that is new is in a pack that nobody takes away

	called   func() (*proc.Conversation, error) // the git below, while it starts; nil when nobody waits for it
	talk     *proc.Conversation                 // a git that holds the locks of the refs
	silence  context.CancelCauseFunc            // kills it
	tried    bool                               // they were told to
	done     bool                               // the refs have moved
	unknown  bool                               // nobody can tell whether they have
	late     error                              // that came when they had
	syncing  func() (struct{}, error)           // waits until that lasts
	behind   *BehindError                       // a worktree that could not be taken along
	longest  time.Duration                      // how long that may take; zero is as long as anybody should wait
	finished bool                               // nothing is held any more
	clearing func() (struct{}, error)           // takes away what was needed; nil when that is not under way
	taken    int                                // how many of the steps were
	fault    func(step string) error
}

// step begins one of the steps, of which each may only be taken after those before have gone well.
func (x *Advancing) step(n int, name string) error {
	if x.taken != n || x.finished {
		return fmt.Errorf("%s: not now", name)
	}
	return x.at(name)
}

// went ends a step.
func (x *Advancing) went(err error) {
	if err == nil {
		x.taken++
	}
}

// Advance finds out whether it could be done. Nothing changes. Errors are an *OverlapsError, *UnderWayError,
// *HeadElsewhereError, *MovedRefError or *DistrustedError where that is for the person to see to.
func (r *Repo) Advance(ctx context.Context, a Advance) (*Advancing, error) {
	x := &Advancing{repo: r, a: a}
	if !validRef(a.Branch) || !isOID(a.Old) || !isOID(a.New) {
		return nil, fmt.Errorf("not a branch and two commits: %q, %q, %q", a.Branch, a.Old, a.New)
	}
	for _, m := range x.a.moves() {
		if err := r.movable(m); err != nil {
			return nil, err
		}
	}
	if a.GitDir == "" {
		return x, nil
	}
	r, err := r.in(ctx, a.GitDir, a.Trusted)
	if err != nil {
		return nil, err
	}
	x.repo = r
	// A git of the person's that refreshes the index has it locked for some milliseconds.
	err = r.waiting.until(ctx, func() bool { _, err := os.Lstat(a.index() + lockSuffix); return err != nil })
	if err != nil {
		return nil, err
	}
	x.seat, err = r.look(ctx, a, false)
	return x, err
}

// movable refuses a ref of which the file says that it cannot be moved so. Whatever else there is git finds out.
func (r *Repo) movable(m RefMove) error {
	if oid := r.loose(m.Ref); oid != "" {
		if oid != m.Old {
			return &MovedRefError{Ref: m.Ref, Want: m.Old, Have: oid}
		}
		return nil
	}
	data, err := durable.ReadFile(r.RefPath(m.Ref), 1<<10)
	if err == nil && strings.HasPrefix(string(data), "ref:") {
		return fmt.Errorf("%s stands for another ref", m.Ref)
	}
	return nil
}

// Close gives up what is still held, and takes away what was needed. What was neither committed nor undone is undone.
func (x *Advancing) Close() error {
	if x == nil {
		return nil
	}
	if x.finished {
		return x.Clear()
	}
	if !x.done {
		return x.Undo(context.WithoutCancel(context.Background()))
	}
	// The refs have moved and the index has not been published: who comes next finishes that.
	return x.hangUp()
}

// MovedRefError is a ref that is not where it has to be.
type MovedRefError struct {
	Ref  string
	Want string // the commit that it had to be at; zeros when it must not be there
	Have string // empty when it is not there
}

func (e *MovedRefError) Error() string {
	switch {
	case isNowhere(e.Want):
		return e.Ref + " is there already"
	case e.Have == "":
		return e.Ref + " is not there"
	}
	return fmt.Sprintf("%s is at %s, not at %s", e.Ref, e.Have, e.Want)
}

// Overlap is a path on which the person has something that would be overwritten.
type Overlap struct {
	Path string `json:"path"`
	Why  string `json:"why"` // one of those below
}

// Why a path overlaps.
const (
	OverlapDirty      = "dirty"      // changed, and not committed
	OverlapStaged     = "staged"     // the same, in the index
	OverlapUntracked  = "untracked"  // git does not know it
	OverlapIgnored    = "ignored"    // git was told not to
	OverlapRepository = "repository" // a repository of its own
	OverlapSubmodule  = "submodule"  // one that has something in it
)

// OverlapsError lists all that the person has where something else would have to be.
type OverlapsError struct {
	Tree  string
	Paths []Overlap // sorted
}

func (e *OverlapsError) Error() string {
	const most = 20
	var b strings.Builder
	fmt.Fprintf(&b, "what you have in %s is in the way, and stays as it is:", e.Tree)
	for i, p := range e.Paths {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Paths)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s (%s)", p.Path, p.Why)
	}
	return b.String()
}

// UnderWayError is something in a worktree that somebody has to end first.
type UnderWayError struct {
	Tree string
	What string // "merge", "rebase", "am", "cherry-pick", "revert", "bisect", "conflicts" or, for a git at work, "index.lock"
}

func (e *UnderWayError) Error() string {
	switch e.What {
	case "index.lock":
		return fmt.Sprintf("the index of %s is locked: a git is at work there, or was killed", e.Tree)
	case "conflicts":
		return fmt.Sprintf("there are conflicts in %s", e.Tree)
	}
	return fmt.Sprintf("a %s is under way in %s", e.What, e.Tree)
}

// HeadElsewhereError is a worktree that has not, or not any more, checked out the branch that it should.
type HeadElsewhereError struct {
	Tree   string
	Branch string
	On     string // the ref that HEAD names, or the commit
}

func (e *HeadElsewhereError) Error() string {
	return fmt.Sprintf("%s is not on %s but on %s", e.Tree, strings.TrimPrefix(e.Branch, "refs/heads/"), strings.TrimPrefix(e.On, "refs/heads/"))
}

// StrandedError lists paths that are neither what they were nor what they were to be, when all the others have been put
// back. They are left as they are: somebody else has written there.
type StrandedError struct {
	Tree  string
	Paths []string
}

func (e *StrandedError) Error() string {
	return fmt.Sprintf("changed by somebody else, and left as it is, in %s: %s", e.Tree, strings.Join(e.Paths, ", "))
}

// at calls the fault of a test.
func (x *Advancing) at(step string) error {
	if x.fault == nil {
		return nil
	}
	return x.fault(step)
}

func (a Advance) index() string { return filepath.Join(a.GitDir, "index") }

// Undo takes back all that was done, before the refs have moved. Where somebody else has changed a file meanwhile, that
// stays, and is reported by a *StrandedError when everything else is done. If it is stopped half-way, all that is needed to
// go on stays where it is, for FinishAdvance.
func (x *Advancing) Undo(ctx context.Context) error {
	if x.done {
		return errors.New("it cannot be undone any more")
	}
	ctx = context.WithoutCancel(ctx) // half of it would be worse
	err := x.hangUp()
	if x.unknown {
		x.finished = true
		return errors.Join(err, errors.New("the refs may have moved: nothing is undone before that is known"), x.draft.close())
	}
	if x.stage != nil {
		undone := x.stage.undo(ctx)
		if undone != nil && !errors.As(undone, new(*StrandedError)) {
			x.finished = true
			return errors.Join(err, undone, x.draft.close())
		}
		err = errors.Join(err, undone, x.stage.remove())
	}
	switch {
	case x.tried:
		err = errors.Join(err, x.repo.retract(ctx, x.a))
	case x.taken > 0:
		for _, m := range x.a.Also { // for whose lock git made a directory
			_ = syscall.Rmdir(filepath.Dir(x.repo.RefPath(m.Ref)))
		}
	}
	if x.held {
		err = errors.Join(err, x.repo.letGo(x.a))
	}
	err = errors.Join(err, x.draft.Drop())
	x.stage, x.draft, x.finished = nil, nil, true
	return err
}
