package gitagency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// prepare determines which commits would land on which branch, and refuses the ones that must not. It changes nothing
// except that it exports the git state from behind the walls, as every command that reads a sandbox does.
func (l *landing) consider(ctx context.Context) (err error) {
	r := l.r
	merger := proc.Meanwhile(func() (*git.Merger, error) {
		merger, err := l.repo.Merger(l.entry.Record.BaseCommit)
		if err == nil {
			merger.Wake(ctx)
		}
		return merger, err
	})
	notFound := l.find(ctx)
	l.merger, err = merger() // also on error, so that close can close the merger
	if err := errors.Join(notFound, err); err != nil {
		return err
	}
	l.merger.Trusted = r.trustsSettings(l.s.ID)
	if err := l.look(ctx); err != nil {
		return err
	}
	if l.commits, err = l.merger.Range(ctx, l.target.at, l.tip); err != nil {
		return l.unsound(ctx, err)
	}
	for _, check := range []func(context.Context) error{l.checkCommits, l.checkWork, l.checkBranch, l.checkRange, l.checkNested} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return r.reviewed(l.entry, l.tip)
}

// resolveTarget finds the integration branch and the current trash commit, and locks the sandbox.
func (l *landing) find(ctx context.Context) (err error) {
	if l.target, err = l.r.integrationTarget(ctx, l.repo, l.entry.Record.IntegrationWorktreeID); err != nil {
		return err
	}
	if err := l.enter(ctx); err != nil {
		return err
	}
	l.trash, err = l.r.kept(ctx, l.repo, l.s.ID)
	return err
}

// lockSandbox locks the sandbox exclusively, finishes an interrupted rollback or sync, exports the git state from behind
// the walls, undoes killed uploads and blocks new ones.
func (l *landing) enter(ctx context.Context) (err error) {
	place, leave, err := l.s.openAlone(ctx)
	if err != nil {
		return err
	}
	l.place, l.leave = place, append(l.leave, leave)
	if err := l.s.finish(ctx, l.repo, place); err != nil {
		return err
	}
	if err := l.s.bringOutAlone(ctx, l.repo, place); err != nil {
		return err
	}
	resume, err := l.s.quiesce(ctx, place)
	if err != nil {
		return err
	}
	l.leave = append(l.leave, resume)
	return nil
}

// scanSandbox finds the tip that lands: HEAD of the sandbox, or a new commit on top of it with all uncommitted work.
func (l *landing) look(ctx context.Context) error {
	subject, err := l.r.capturable(l.s.subject(l.place.base, ""))
	if err != nil {
		return err
	}
	subject.Secrets = l.r.SecretPatterns()
	if head, ok := l.repo.HeadAtOnce(subject); ok {
		l.merger.Foresee(ctx, l.target.at, head, l.target.gitDir)
	}
	l.began = time.Now()
	if l.looked, err = l.merger.Look(ctx, subject); err != nil {
		return err
	}
	if l.tip = l.looked.Head; len(l.looked.Uncommitted) > 0 && l.req.CommitAll && l.looked.Begun.What == "" {
		l.tip, err = l.commitAll(ctx)
	}
	return err
}

// checkUncommitted refuses a sandbox with a git operation in progress, or with uncommitted work unless CommitAll is set:
// only a part of the work would land.
func (l *landing) checkWork(context.Context) error {
	switch k := l.looked; {
	case k.Begun.What != "":
		return l.s.underWay(k.Begun, l.place.prims)
	case len(k.Uncommitted) > 0 && !l.req.CommitAll:
		required, err := l.r.truth(requireReviewKey, false)
		return &UncommittedError{
			ID: l.s.ID, Path: l.s.tree, Files: k.Uncommitted, LeftOut: leftOut(k.LeftOut), CommitAll: err == nil && !required,
		}
	}
	return nil
}

// commitUncommitted creates a commit of the uncommitted work. No branch points at it: the sandbox stays unchanged until
// the work has landed, and is removed then.
func (l *landing) commitAll(ctx context.Context) (string, error) {
	author, committer, err := l.r.landingIdentity(ctx)
	if err != nil {
		return "", err
	}
	return l.merger.Commit(ctx, git.NewCommit{
		Tree: l.looked.Work, Parents: []string{l.looked.Head}, Author: author, Committer: committer, Message: l.req.Message,
	})
}

// checkSandboxBranch refuses a sandbox whose own branch has commits that HEAD lacks: they would be lost.
func (l *landing) checkBranch(ctx context.Context) error {
	k := l.looked
	if k.Tip == "" || k.Tip == k.Head || k.On == sandboxRef(l.s.ID) {
		return nil
	}
	held, err := l.repo.IsAncestor(ctx, k.Tip, k.Head)
	if err != nil || held {
		return err
	}
	return &ElsewhereError{ID: l.s.ID, On: short(k.On), Branch: short(sandboxRef(l.s.ID))}
}

// checkNestedRepositories refuses to remove a sandbox that contains nested repositories, which the trash does not keep, or
// objects that the repository borrows through objects/info/alternates.
func (l *landing) checkNested(context.Context) error {
	borrowed, err := l.repo.Borrowed(l.s.tree)
	if err == nil && borrowed != "" {
		err = &UnsafePathError{Path: borrowed, Why: "the repository has objects there, which would go with the sandbox; to bring them in: git repack -a -d, and take the line out of objects/info/alternates"}
	}
	if err != nil {
		return err
	}
	return l.repo.Nested(l.s.subject(l.place.base, ""), l.looked)
}

// checkCommitRange refuses a sandbox without any change and, if RequireBase is set, one that lacks commits of the
// integration branch.
func (l *landing) checkRange(ctx context.Context) error {
	base, err := l.r.baseOf(ctx, invocation(l.entry, nil))
	if err != nil {
		return err
	}
	if len(l.commits) == 0 {
		before, err := l.repo.IsAncestor(ctx, l.tip, base)
		if err != nil || !before {
			return err // the branch has all of the commits: they were merged by hand
		}
		return &NothingToLandError{ID: l.s.ID, LeftOut: leftOut(l.looked.LeftOut)}
	}
	switch same, err := l.merger.SameTree(ctx, l.tip, base); {
	case err != nil:
		return err
	case same:
		return &NothingToLandError{ID: l.s.ID, Void: true, LeftOut: leftOut(l.looked.LeftOut)}
	}
	if l.req.RequireBase {
		has, err := l.merger.IsAncestor(ctx, l.target.at, l.tip)
		if err != nil {
			return err
		}
		if !has {
			return &BaseMovedError{ID: l.s.ID, Branch: short(l.target.branch), Base: base, At: l.target.at}
		}
	}
	return nil
}

// fsckCommits refuses commits with invalid or unsafe trees, even if a later commit removes the problem: the history lands
// too.
func (l *landing) checkCommits(ctx context.Context) error {
	return l.unsound(ctx, l.merger.SoundRange(ctx, l.target.at, l.tip))
}

func (l *landing) unsound(ctx context.Context, err error) error {
	return unsound(ctx, l.merger, l.entry, [2]string{l.target.at, l.tip}, err)
}

// addFsckContext wraps an error about an unsafe object with the data needed to rework the commits: the path, and a commit
// to start over from. commits is the pair of the target branch's commit and the tip that would land.
func unsound(ctx context.Context, merger *git.Merger, entry store.Entry[store.InvocationMeta], commits [2]string, err error) error {
	var tree *UnsoundError
	if !errors.As(err, &tree) && !is[*UnsoundCommitError](err) {
		return err
	}
	found := &UnsoundWorkError{ID: entry.ID, Base: entry.Record.BaseCommit, Err: err}
	if tree != nil {
		found.Path = tree.Path
	}
	bases, basesErr := merger.Bases(ctx, [][2]string{commits})
	if common := bases[commits]; basesErr == nil && len(common) == 1 { // otherwise the base commit of the sandbox serves
		found.Base = common[0]
	}
	return found
}

// fsckTree refuses a commit whose tree is unsafe to check out, or that adds a gitlink which .gitmodules does not name. An
// agent can create any object in its sandbox.
func (l *landing) checkTree(ctx context.Context, commit string) error {
	if err := l.merger.Sound(ctx, commit, l.target.at); err != nil {
		return l.unsound(ctx, err)
	}
	links, err := l.merger.Gitlinks(ctx, commit, l.target.at)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(links, func(g git.Gitlink) bool { return g.Name == "" && g.Old == "" })
	if i >= 0 {
		return &StrayGitlinkError{ID: l.s.ID, Path: links[i].Path}
	}
	return nil
}

// subjectLine returns the subject line of a generated commit message.
func (l *landing) summary() string {
	if n := l.entry.Record.InvocationName; n != "" {
		return fmt.Sprintf("Land %s (%s)", n, l.s.ID)
	}
	return "Land " + l.s.ID
}
