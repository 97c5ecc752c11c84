package landing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// prepare determines which commits would land on which branch, and refuses the ones that must not. It changes nothing
// except that it imports the git state of the sandbox, as every command that reads a sandbox does.
func (l *landAttempt) prepare(ctx context.Context) (err error) {
	r := l.r
	merger := proc.Async(func() (*merge.Merger, error) {
		merger, err := merge.NewMerger(l.repo, l.entry.Record.BaseCommit)
		if err == nil {
			merger.StartCatFile(ctx)
		}
		return merger, err
	})
	notFound := l.resolveTarget(ctx)
	l.merger, err = merger() // also on error, so that close can close the merger
	if err := errors.Join(notFound, err); err != nil {
		return err
	}
	l.merger.Trusted = r.TrustsRepoConfig(l.s.ID)
	if err := l.scanSandbox(ctx); err != nil {
		return err
	}
	if l.commits, err = l.merger.CommitsBetween(ctx, l.target.Commit, l.tip); err != nil {
		return l.fsckError(ctx, err)
	}
	for _, check := range []func(context.Context) error{l.fsckCommits, l.checkUncommitted, l.checkSandboxBranch, l.checkCommitRange, l.checkNestedRepositories} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return checkReviewed(r, l.entry, l.tip)
}

// resolveTarget finds the integration branch and the current trash commit, and locks the sandbox.
func (l *landAttempt) resolveTarget(ctx context.Context) (err error) {
	if l.target, err = l.r.FindIntegrationTarget(ctx, l.repo, core.InvocationFromEntry(l.entry, nil)); err != nil {
		return err
	}
	if err := l.lockSandbox(ctx); err != nil {
		return err
	}
	l.oldTrash, err = l.r.TrashCommit(ctx, l.repo, l.s.ID)
	return err
}

// lockSandbox locks the sandbox exclusively, finishes an interrupted rollback or sync, imports the git state from behind
// the walls, undoes killed uploads and blocks new ones.
func (l *landAttempt) lockSandbox(ctx context.Context) (err error) {
	if err := l.s.CheckNoOpenJob(); err != nil {
		return err
	}
	h, leave, err := l.s.OpenExclusive(ctx)
	if err != nil {
		return err
	}
	l.handle, l.releases = h, append(l.releases, leave)
	if err := l.s.ResumeRollback(ctx, l.repo, h); err != nil {
		return err
	}
	if err := l.s.ImportPendingExclusive(ctx, l.repo, h); err != nil {
		return err
	}
	if err := l.s.ImportSubmodules(ctx, l.repo, h); err != nil {
		return err
	}
	resume, err := l.s.PauseUploads(ctx, h)
	if err != nil {
		return err
	}
	l.releases = append(l.releases, resume)
	return nil
}

// scanSandbox finds the tip that lands: HEAD of the sandbox, or a new commit on top of it with all uncommitted work.
func (l *landAttempt) scanSandbox(ctx context.Context) error {
	subject, err := l.r.PrepareCapture(l.s.SnapshotSubject(l.handle.Base, ""))
	if err != nil {
		return err
	}
	if subject, err = l.r.WithKeptSubmodules(ctx, l.repo, subject); err != nil {
		return err
	}
	l.submodules = subject.KeptSubmodules
	if subject, err = withLeftPatterns(l.r, subject); err != nil {
		return err
	}
	if head, ok := l.repo.HeadFromFiles(subject); ok {
		l.merger.Prefetch(ctx, l.target.Commit, head, l.target.CheckoutGitDir)
	}
	l.scanStart = time.Now()
	l.scanResult, err = l.merger.Inspect(ctx, subject)
	if err := l.r.SaveFilesRefusal(l.s.ID, err, false); err != nil {
		return err
	}
	if l.tip = l.scanResult.Head; len(l.scanResult.Uncommitted) > 0 && l.req.CommitAll && l.scanResult.InProgress.Command == "" {
		l.tip, err = l.commitUncommitted(ctx)
	}
	return err
}

// withLeftPatterns adds the patterns of untracked files that do not land.
func withLeftPatterns(r *core.Repository, subject git.WorktreeSpec) (_ git.WorktreeSpec, err error) {
	if subject.SecretPatterns, err = r.Settings.SecretPatterns(); err != nil {
		return subject, err
	}
	subject.LeavePatterns, err = r.Settings.LeavePatterns()
	return subject, err
}

// checkUncommitted refuses a sandbox with a git operation in progress, or with uncommitted work unless CommitAll is set:
// only a part of the work would land.
func (l *landAttempt) checkUncommitted(ctx context.Context) error {
	switch k := l.scanResult; {
	case k.InProgress.Command != "":
		return l.s.OperationError(ctx, k.InProgress, l.handle.Prims)
	case l.req.Leave:
		l.leaveUncommitted()
	case len(k.Uncommitted) > 0 && !l.req.CommitAll:
		return l.uncommittedError(ctx, k.Uncommitted)
	}
	return nil
}

// leaveUncommitted lists the uncommitted work as left out.
func (l *landAttempt) leaveUncommitted() {
	k := &l.scanResult
	for i, o := range k.LeftOut {
		if o.Reason != status.OmitSecret {
			k.LeftOut[i].Reason = status.OmitLeft
		}
	}
	for _, path := range k.Uncommitted {
		if !slices.ContainsFunc(k.LeftOut, func(o status.LeftOut) bool { return o.Path == path }) {
			k.LeftOut = append(k.LeftOut, status.LeftOut{Path: path, Reason: status.OmitLeft})
		}
	}
	slices.SortFunc(k.LeftOut, func(a, b status.LeftOut) int { return strings.Compare(a.Path, b.Path) })
}

func (l *landAttempt) uncommittedError(ctx context.Context, files []string) error {
	required, err := l.r.Settings.Bool(settings.RequireReviewKey, false)
	return &sandbox.UncommittedError{
		ID: l.s.ID, Path: l.s.Tree, Files: files, LeftOut: snapshots.ToLeftOut(l.scanResult.LeftOut), CommitAll: err == nil && !required,
		Unadded: unaddedSubmodules(ctx, l.r, l.repo, l.s, l.scanResult),
	}
}

// commitUncommitted creates a commit of the uncommitted work. No branch points at it: the sandbox stays unchanged until
// the work has landed, and is removed then.
func (l *landAttempt) commitUncommitted(ctx context.Context) (string, error) {
	if err := l.r.SaveFilesRefusal(l.s.ID, l.merger.CheckUncommitted(ctx, l.scanResult), true); err != nil {
		return "", err
	}
	author, committer, err := l.r.LandingSignatures(ctx)
	if err != nil {
		return "", err
	}
	return l.merger.CreateCommit(ctx, merge.CommitRequest{
		Tree: l.scanResult.DiskTree, Parents: []string{l.scanResult.Head}, Author: author, Committer: committer, Message: l.req.Message,
	})
}

// checkSandboxBranch refuses a sandbox whose own branch has commits that HEAD lacks: they would be lost.
func (l *landAttempt) checkSandboxBranch(ctx context.Context) error {
	k := l.scanResult
	if k.BranchTip == "" || k.BranchTip == k.Head || k.Branch == core.SandboxRef(l.s.ID) {
		return nil
	}
	held, err := l.repo.IsAncestor(ctx, k.BranchTip, k.Head)
	if err != nil || held {
		return err
	}
	return &fault.HeadLacksBranchError{ID: l.s.ID, On: core.ShortBranch(k.Branch), Branch: core.ShortBranch(core.SandboxRef(l.s.ID))}
}

// checkNestedRepositories refuses to remove a sandbox that contains nested repositories, which the trash does not keep, or
// objects that the repository borrows through objects/info/alternates.
func (l *landAttempt) checkNestedRepositories(ctx context.Context) error {
	borrowed, err := l.repo.AlternateWithin(l.s.Tree)
	if err == nil && borrowed != "" {
		err = &fault.UnsafePathError{Path: borrowed, Why: "the repository borrows objects from here through objects/info/alternates, and they would be removed with the sandbox; run 'git repack -a -d', then remove the line from that file"}
	}
	if err != nil {
		return err
	}
	subject := l.s.SnapshotSubject(l.handle.Base, "")
	if l.lostModules, err = l.r.LostModules(ctx, l.repo, subject); err != nil || l.req.Leave { // then they go to an archive
		return err
	}
	if err := status.CheckNested(subject, l.scanResult); err != nil {
		return err
	}
	if len(l.lostModules) > 0 {
		return &fault.OtherModulesError{ID: l.s.ID, Names: l.lostModules}
	}
	return nil
}

// checkCommitRange refuses a sandbox without any change and, if RequireBase is set, one that lacks commits of the
// integration branch.
func (l *landAttempt) checkCommitRange(ctx context.Context) error {
	base, err := sandbox.WorkBase(ctx, l.r, core.InvocationFromEntry(l.entry, nil))
	if err != nil {
		return err
	}
	if err := l.checkNotUnlanded(ctx, base); err != nil {
		return err
	}
	if len(l.commits) == 0 {
		before, err := l.repo.IsAncestor(ctx, l.tip, base)
		if err != nil || !before {
			return err // the branch has all of the commits: they were merged by hand
		}
		if err := l.checkSubmodules(ctx); err != nil && !l.req.Leave { // there will be something to land
			return err
		}
		return &NothingToLandError{ID: l.s.ID, LeftOut: snapshots.ToLeftOut(l.scanResult.LeftOut)}
	}
	switch same, err := l.merger.SameTree(ctx, l.tip, base); {
	case err != nil:
		return err
	case same:
		// Commits that the sandbox was started with, by start --from, can land too, unless the branch has them.
		if has, err := l.merger.IsAncestor(ctx, base, l.target.Commit); err != nil || has {
			return cmp.Or(err, error(&NothingToLandError{ID: l.s.ID, NoNetChange: true, LeftOut: snapshots.ToLeftOut(l.scanResult.LeftOut)}))
		}
	}
	if l.req.RequireBase {
		has, err := l.merger.IsAncestor(ctx, l.target.Commit, l.tip)
		if err != nil {
			return err
		}
		if !has {
			return &fault.BaseMovedError{ID: l.s.ID, Branch: core.ShortBranch(l.target.Branch), Base: base, At: l.target.Commit}
		}
	}
	return nil
}

// checkNotUnlanded refuses a sandbox with the commits of a landing that unland has reverted, as restore makes one: the branch
// has those commits, so that merging them again would not bring the work back. Commits of the base were there before.
func (l *landAttempt) checkNotUnlanded(ctx context.Context, base string) error {
	if l.entry.Record.FromSnapshot == "" {
		return nil // it began at the branch
	}
	all, err := l.r.Store.Invocations(l.r.ID, nil)
	if err != nil {
		return err
	}
	for _, e := range all {
		m := e.Record
		if e.Defect != store.NoDefect || m.UnlandedCommit == "" || m.LandedTip == "" || core.HeadsPrefix+m.LandedBranch != l.target.Branch {
			continue
		}
		concerned := true
		for _, in := range []struct {
			commit string
			want   bool
		}{{l.tip, true}, {l.target.Commit, true}, {base, false}} {
			has, err := l.merger.IsAncestor(ctx, m.LandedTip, in.commit)
			if err != nil {
				return err
			}
			concerned = concerned && has == in.want
		}
		if !concerned {
			continue
		}
		gone := &fault.NoLongerLandedError{ID: e.ID, Commit: m.LandedCommit, Branch: m.LandedBranch, Ref: core.TrashRef(e.ID), RestoreCommit: m.LandedTip}
		if _, err := stillOnBranch(ctx, l.r, l.repo, m, gone); err != nil {
			return err
		}
	}
	return nil
}

// fsckCommits refuses commits with invalid or unsafe trees, even if a later commit removes the problem: the history lands
// too.
func (l *landAttempt) fsckCommits(ctx context.Context) error {
	return l.fsckError(ctx, l.merger.FsckRange(ctx, l.target.Commit, l.tip))
}

func (l *landAttempt) fsckError(ctx context.Context, err error) error {
	return addFsckContext(ctx, l.merger, l.entry, [2]string{l.target.Commit, l.tip}, err)
}

// addFsckContext wraps an error about an unsafe object with the data needed to rework the commits: the path, and a commit
// to start over from. commits is the pair of the target branch's commit and the tip that would land.
func addFsckContext(ctx context.Context, merger *merge.Merger, entry store.Entry[store.InvocationMeta], commits [2]string, err error) error {
	var tree *fault.InvalidTreeError
	if !errors.As(err, &tree) && !fault.Is[*fault.InvalidCommitError](err) {
		return err
	}
	found := &fault.InvalidObjectError{ID: entry.ID, Base: entry.Record.BaseCommit, Err: err}
	if tree != nil {
		found.Path = tree.Path
	}
	bases, basesErr := merge.MergeBases(ctx, merger.Mirror, [][2]string{commits})
	if common := bases[commits]; basesErr == nil && len(common) == 1 { // otherwise the base commit of the sandbox serves
		found.Base = common[0]
	}
	return found
}

// fsckTree refuses a commit whose tree is unsafe to check out, or that adds a gitlink which .gitmodules does not name.
// An agent can create any object in its sandbox.
func (l *landAttempt) fsckTree(ctx context.Context, commit string) error {
	if err := l.merger.FsckTree(ctx, commit, l.target.Commit); err != nil {
		return l.fsckError(ctx, err)
	}
	links, err := l.merger.ChangedGitlinks(ctx, commit, l.target.Commit)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(links, func(g merge.Gitlink) bool { return g.Name == "" && g.Old == "" })
	if i >= 0 {
		return &fault.UnnamedGitlinkError{ID: l.s.ID, Path: links[i].Path}
	}
	l.gitlinks = links
	return l.checkGitlinks(ctx, links)
}

// subjectLine returns the subject line of a generated commit message.
func (l *landAttempt) subjectLine() string {
	if l.finishes != nil {
		return fmt.Sprintf("Merge worktree %s", l.finishes.Name)
	}
	if about := cmp.Or(l.entry.Record.InvocationName, clipTask(l.entry.Record.Task)); about != "" {
		return fmt.Sprintf("Land %s (%s)", about, l.s.ID)
	}
	return "Land " + l.s.ID
}

// clipTask returns the first line of a task, as a record has it, for a subject line.
func clipTask(line string) string {
	const most = 50 // bytes; subjects are mostly shown on one line of a terminal
	return quote.Shorten(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, line), most)
}
