package git

import "context"

// Advance is a branch that is to go from one commit to another, together with the worktree that has it checked out.
type Advance struct {
	Branch   string // required: full ref
	Old, New string // required: commits
	Also     []RefMove
	Reason   string // for the logs

	// The worktree that has the branch checked out; empty where none has.
	GitDir, Tree string
	Trusted      bool // the repository's own settings can only be the user's: filters that they name run
}

// RefMove is another ref that moves in the same transaction. An Old of zeros means that it must not be there.
type RefMove struct{ Ref, Old, New string }

// Advancing is an Advance under way. Each of its steps may be called once, in their order; until Commit all of it can be
// taken back with Undo.
type Advancing struct {
	repo *Repo
	a    Advance
}

// Advance finds out whether it could be done. Nothing changes.
func (r *Repo) Advance(_ context.Context, a Advance) (*Advancing, error) {
	return &Advancing{repo: r, a: a}, nil
}

// Commit moves the branch.
func (x *Advancing) Commit(ctx context.Context) error {
	return x.repo.MoveRef(ctx, x.a.Branch, x.a.New, x.a.Old, x.a.Reason)
}
