package doctor

import (
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkTarget finds a sandbox whose landing branch was renamed or deleted. A created worktree whose own branch is missing
// is a finding of the worktree.
func (x *checkRun) checkTarget(ctx context.Context, e store.Entry[store.InvocationMeta]) {
	var wt core.Worktree
	if id := e.Record.IntegrationWorktreeID; ids.Valid(id) {
		wt = x.WorktreeFromEntry(x.Store.Worktree(x.ID, id, nil))
	}
	branch := core.IntegrationBranch(e.Record, wt.Entry.Record)
	if x.refs[branch] != "" || branch == "" || wt.State == store.Archived {
		return
	}
	var missing *fault.MissingBranchError
	if !errors.As(x.MissingBranch(ctx, x.repo, core.InvocationFromEntry(e, nil), branch), &missing) {
		return
	}
	f := Finding{Code: "missing-target", ID: e.ID, Path: x.repo.RefPath(branch), Problem: "the branch that it lands on, " + missing.Branch + ", does not exist any more"}
	switch {
	case missing.RenamedTo == "" && missing.Branch == wt.Branch && !wt.Adopted:
		return
	case missing.RenamedTo == "":
		f.FixCommand = "git branch " + quote.Shell(missing.Branch) + " " + missing.Commit
		x.addFinding(f, nil)
		return
	}
	f.Problem = "the branch that it lands on, " + missing.Branch + ", was renamed to " + missing.RenamedTo
	x.addFinding(f, func(context.Context) error {
		return x.Store.UpdateInvocationMeta(x.ID, e.ID, func(m *store.InvocationMeta) { m.IntegrationBranch = core.HeadsPrefix + missing.RenamedTo })
	})
}

// followsBranch reports whether an adopted tree has a branch checked out: sandboxes land there, and not on the branch that
// the tree was adopted with.
func followsBranch(tree string) bool {
	dir, err := git.DotGitTarget(tree)
	if err != nil || dir == "" {
		return false
	}
	head, err := git.ReadHead(dir)
	return err == nil && head.Branch != ""
}
