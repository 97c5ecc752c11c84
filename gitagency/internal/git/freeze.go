package git

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// Freeze writes the state of a worktree that goes on as a commit, and changes nothing in it. The tree is
// what is on disk: tracked, staged and untracked files, not the ignored ones. Its first parent is the
// state it follows, else the base; so the first parents are the history of the worktree as it was taken.
// Further parents hold what that does not: HEAD, the branch where that is elsewhere, what a merge or rebase
// under way needs, and what was staged where neither HEAD nor the disk has it. When all of that is as it
// was, previous is returned.
func (r *Repo) Freeze(ctx context.Context, s Subject, previous string) (commit string, err error) {
	s.asIs = true
	head, branch, err := r.tips(ctx, s)
	if err != nil {
		return "", err
	}
	found, err := r.Lookup(ctx, previous+"^{commit}", s.Base+"^{commit}", head+"^{tree}")
	if err != nil {
		return "", err
	}
	first, headTree := cmp.Or(found[0].OID, found[1].OID, head), found[2].OID
	if first == "" {
		return "", fmt.Errorf("neither HEAD nor %s leads to a commit", s.Branch)
	}
	staged, work, err := r.writeTrees(ctx, s, head)
	if err != nil {
		return "", err
	}
	now := State{Tree: work, Head: head, On: r.on(s), Tip: branch, Index: staged}
	if now.Held, err = r.holdUnderway(ctx, s, head, branch, staged); err != nil {
		return "", err
	}
	parents, err := r.independent(ctx, []string{first}, []string{head, branch, now.Held})
	if err != nil {
		return "", err
	}
	if first == previous && len(parents) == 1 {
		same, err := r.frozen(ctx, previous, now)
		if err != nil || same {
			return previous, err
		}
	}
	if staged != "" && staged != headTree && staged != work {
		held, err := r.commitTree(ctx, s, staged, parentsOf(head), "staged when captured")
		if err != nil {
			return "", err
		}
		parents = append(parents, held)
	}
	return r.commitTree(ctx, s, work, parents, s.Message+now.trailers())
}

// frozen reports whether a commit is the state with this tree, HEAD, index and what else there is of it.
func (r *Repo) frozen(ctx context.Context, commit string, now State) (bool, error) {
	was, err := r.ReadState(ctx, commit)
	return err == nil && was.Tree == now.Tree && was.Head == now.Head && was.Index == now.Index && was.Held == now.Held &&
		was.Tip == cmp.Or(now.Tip, now.Head) && was.On == now.On, err
}

// on is what HEAD of a worktree names, as State.On says it.
func (r *Repo) on(s Subject) string {
	var w Worktree
	if err := readHead(r.AdminDir(s.Name), &w); err != nil {
		return ""
	}
	switch {
	case w.Detached:
		return Detached
	case strings.HasPrefix(w.Branch, "refs/heads/"):
		return w.Branch
	}
	return ""
}

// parentsOf is the list of parents of a commit on top of another, which may be none.
func parentsOf(commit string) []string {
	if commit == "" {
		return nil
	}
	return []string{commit}
}
