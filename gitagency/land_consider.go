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

// consider finds out what would land where, and refuses what must not. Nothing changes, but that what was done behind
// walls comes out of them, as any command that looks at a sandbox makes it.
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
	l.merger, err = merger() // also where it is only to be closed
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

// find finds where it would land, and enters the sandbox.
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

// enter makes sure that nobody is at work in the sandbox, and that nothing in it is half done.
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

// look finds the tip that lands: HEAD of the sandbox, or a commit on top of it with all that was not committed.
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

// checkWork refuses to land a part of what is in the sandbox.
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

// commitAll makes a commit of what is not committed. It is on no branch: the sandbox stays as it is until all has landed,
// and then goes.
func (l *landing) commitAll(ctx context.Context) (string, error) {
	author, committer, err := l.r.landingIdentity(ctx)
	if err != nil {
		return "", err
	}
	return l.merger.Commit(ctx, git.NewCommit{
		Tree: l.looked.Work, Parents: []string{l.looked.Head}, Author: author, Committer: committer, Message: l.req.Message,
	})
}

// checkBranch refuses a sandbox whose own branch has commits that HEAD has not: they would be forgotten.
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

// checkNested refuses to take away repositories in the sandbox, of which nothing would be kept, and objects that others need.
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

// checkRange refuses to land nothing, and what was not to be merged.
func (l *landing) checkRange(ctx context.Context) error {
	base, err := l.r.baseOf(ctx, invocation(l.entry, nil))
	if err != nil {
		return err
	}
	if len(l.commits) == 0 {
		before, err := l.repo.IsAncestor(ctx, l.tip, base)
		if err != nil || !before {
			return err // it is all there: somebody has merged it
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

// checkCommits refuses commits with trees that no person should have, also where a later one is fine.
func (l *landing) checkCommits(ctx context.Context) error {
	return l.unsound(ctx, l.merger.SoundRange(ctx, l.target.at, l.tip))
}

func (l *landing) unsound(ctx context.Context, err error) error {
	return unsound(ctx, l.merger, l.entry, [2]string{l.target.at, l.tip}, err)
}

// unsound adds to an error about what must not land what one has to know to get rid of it. ask are the branch that it would
// land on, and what would.
func unsound(ctx context.Context, merger *git.Merger, entry store.Entry[store.InvocationMeta], ask [2]string, err error) error {
	var tree *UnsoundError
	if !errors.As(err, &tree) && !is[*UnsoundCommitError](err) {
		return err
	}
	found := &UnsoundWorkError{ID: entry.ID, Base: entry.Record.BaseCommit, Err: err}
	if tree != nil {
		found.Path = tree.Path
	}
	bases, basesErr := merger.Bases(ctx, [][2]string{ask})
	if common := bases[ask]; basesErr == nil && len(common) == 1 { // else what it started from does as well
		found.Base = common[0]
	}
	return found
}

// checkTree refuses a tree that no person should have on disk. Whoever works in a sandbox can make any object there is.
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

// summary is a line or more on what lands.
func (l *landing) summary() string {
	if n := l.entry.Record.InvocationName; n != "" {
		return fmt.Sprintf("Land %s (%s)", n, l.s.ID)
	}
	return "Land " + l.s.ID
}
