package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency"
)

// Exit codes, all of them except 128+n for an interrupt by signal n.
const (
	exitFailed   = 1
	exitConflict = 2
	exitNotFound = 3
	exitBroken   = 4
	exitRefused  = 5
	exitLocked   = 75
	exitSetup    = 125
	exitFatal    = 128
	exitUsage    = 129
)

// interruptedError is the signal that interrupted this program.
type interruptedError struct{ signal syscall.Signal }

func (e interruptedError) Error() string {
	if e.signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted (%s)", e.signal)
}

// reportError prints an error as git does, with hints on what to type next, and returns its exit code.
func (t *tool) reportError(err error) int {
	if err == nil {
		return 0
	}
	code := exitCode(err)
	var child *childError
	if errors.As(err, &child) && child.err == nil {
		return code // the command has printed its own message
	}
	severity := "error"
	if code == exitFatal {
		severity = "fatal"
	}
	fmt.Fprintf(t.stderr, "%s: %s\n", severity, strings.ReplaceAll(printable(err.Error()), "\n", "\n       "))
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(t.stderr, "usage: %s\n", usage.usage)
	}
	for _, hint := range hintsFor(err) {
		fmt.Fprintf(t.stderr, "%s %s\n", t.paintPrefix("hint:"), printable(hint))
	}
	return code
}

// exitCode maps an error to its exit code.
func exitCode(err error) int {
	var interrupted interruptedError
	var child *childError
	var queue *landQueueError
	switch {
	case errors.As(err, &child):
		return child.code
	case errors.As(err, &interrupted):
		return 128 + int(interrupted.signal)
	case is[*gitagency.NotPushedError](err), // first, because the landing succeeded, whatever the push failed with
		is[*gitagency.VerifyError](err): // first, because any error may have ended the temporary sandbox of the verification
		return exitFailed
	case is[*gitagency.LockTimeoutError](err), is[*gitagency.BusyError](err):
		return exitLocked
	case is[*gitagency.SetupError](err): // before the others, because it may wrap an error about a setting or a path
		return exitSetup
	case is[*usageError](err), is[*gitagency.InvalidError](err):
		return exitUsage
	case is[*gitagency.NoRepositoryError](err), is[*gitagency.GitTooOldError](err):
		return exitFatal
	case is[*gitagency.NotFoundError](err), is[*gitagency.AmbiguousError](err):
		return exitNotFound
	case is[*gitagency.ConflictsError](err), errors.As(err, &queue) && queue.failed == 0:
		return exitConflict
	case is[*gitagency.BrokenError](err), is[*gitagency.CorruptEntryError](err), is[*gitagency.FindingError](err), is[*findingsError](err),
		is[*gitagency.DamagedError](err):
		return exitBroken
	case is[*gitagency.NotIntegrationError](err), is[*gitagency.OverlapError](err), is[*gitagency.UnsafePathError](err),
		is[*gitagency.TrackedMarkerError](err), is[*gitagency.SandboxError](err), is[*gitagency.NotSandboxError](err),
		is[*gitagency.ConfinementError](err), is[*gitagency.UntrustedFilterError](err),
		is[*gitagency.InvalidTreeError](err), is[*gitagency.InvalidCommitError](err), is[*gitagency.UntrustedRemoteError](err):
		return exitRefused
	}
	return exitFailed
}

// hintsFor returns the hints on an error: what to type next.
func hintsFor(err error) []string {
	var (
		notFound  *gitagency.NotFoundError
		noCommit  *gitagency.NoCommitError
		unmarked  *gitagency.NotIntegrationError
		nested    *gitagency.NestedRepositoryError
		corrupt   *gitagency.CorruptEntryError
		ended     *gitagency.EndedError
		broken    *gitagency.BrokenError
		inTheWay  *gitagency.BranchInTheWayError
		live      *gitagency.LiveSandboxesError
		overlap   *gitagency.OverlapError
		cleanup   *gitagency.CleanupError
		nameTaken *gitagency.NameTakenError
		moved     *gitagency.MovedError
		noRepo    *gitagency.NoRepositoryError
		invalid   *gitagency.InvalidError
		usage     *usageError
		workedIn  *gitagency.ModifiedTreeError
		finding   *gitagency.FindingError
		findings  *findingsError
		noSandbox *gitagency.NotSandboxError
		link      *linkError
		idle      *gitagency.NothingRunsError
		lost      *gitagency.LostRollbackError
		halfWay   *gitagency.UnfinishedTransitionError
		taken     *gitagency.PortTakenError
		child     *childError
		conflicts *gitagency.ConflictsError
		behind    *gitagency.BaseMovedError
		gone      *gitagency.NoLongerLandedError
		overlaps  *gitagency.LocalChangesError
		busyTree  *gitagency.WorktreeBusyError
		elsewhere *gitagency.HeadLacksBranchError
		noBranch  *gitagency.NoBranchError
		gitlink   *gitagency.UnnamedGitlinkError
		underWay  *gitagency.SandboxOperationError
		stuck     *gitagency.StuckLandingError
		date      *gitagency.DateError
		lostHead  *gitagency.MissingHeadError
		uncommit  *gitagency.UncommittedError
		nothing   *gitagency.NothingToLandError
		unsubmit  *gitagency.NotSubmittedError
		unasked   *gitagency.NotInReviewError
		unproven  *gitagency.VerifyError
		throwAway *gitagency.TemporarySandboxError
		unsound   *gitagency.InvalidObjectError

		off    *gitagency.OffBranchError
		strays *gitagency.UntrackedInTheWayError

		distrusted *gitagency.UntrustedFilterError

		notPushed *gitagency.NotPushedError
		noRemote  *gitagency.NoRemoteError
		upstream  *gitagency.UpstreamError
		hooked    *gitagency.UntrustedRemoteError
		queue     *landQueueError
		archived  *gitagency.ArchivedError
		moving    *gitagency.KeepsMovingError
	)
	switch {
	case errors.As(err, &notPushed):
		all := notPushedHints(err, notPushed)
		if errors.As(err, &queue) {
			all = append(all, queue.hints()...)
		}
		return all
	case errors.As(err, &queue):
		return queue.hints()
	case errors.As(err, &noRemote) && len(noRemote.Remotes) == 0 && noRemote.Remote == "":
		return []string{"add one with 'git remote add origin <url>'; nothing changed"}
	case errors.As(err, &noRemote) && len(noRemote.Remotes) == 0:
		return []string{"add it with 'git remote add " + gitagency.ShellQuote(noRemote.Remote) + " <url>', there is no other; nothing changed"}
	case errors.As(err, &noRemote):
		return []string{"name one with --remote; there is " + strings.Join(noRemote.Remotes, ", ") + "; nothing changed"}
	case errors.As(err, &upstream):
		return []string{
			"for " + upstream.Upstream + ": git config push.default upstream",
			"for " + upstream.Branch + ": git branch --unset-upstream " + gitagency.ShellQuote(upstream.Branch),
		}
	case errors.As(err, &hooked):
		return []string{
			"nothing changed; if those are yours, say where no agent can that you push there:",
			"  " + retryCommand(err, "remote.trusted.url="+hooked.URL, "-remote") + " --remote trusted",
		}
	case errors.As(err, &unproven) && unproven.TimedOut && unproven.Limit > 0:
		return []string{
			fmt.Sprintf("its sandbox was started with --timeout %s, which binds what verifies it too;", unproven.Limit),
			"where you have seen for yourself that it is good: " + retryCommand(err, "", "-verify") + " --no-verify",
		}
	case errors.As(err, &unproven) && unproven.TimedOut:
		return []string{moreTimeHint(err)}
	case errors.As(err, &unproven) && unproven.Err == nil:
		return wallHints("", unproven.Result)
	case errors.As(err, &moving):
		return []string{"try again when fewer commit to " + moving.Branch + ": " + retryCommand(err, "")}
	case errors.As(err, &archived) && archived.Invocation != "":
		return []string{
			"its work is on a branch, which you can merge where you want it: git merge agency/sandbox-" + archived.Invocation,
			"and then 'git agency discard " + archived.Invocation + "' ends it",
		}
	case errors.As(err, &archived) && archived.Branch != "":
		return []string{"this makes another worktree that goes on from its branch: git agency worktree create <name> --from " + gitagency.ShellQuote(archived.Branch)}
	case errors.As(err, &throwAway):
		return []string{"land " + throwAway.Verifies + " instead; if nothing verifies it any more, 'git agency doctor --fix " + throwAway.ID + "' takes this one away"}
	case errors.As(err, &child) && child.shellLine != "":
		return []string{"no shell reads the command; for one, type: -- sh -c " + gitagency.ShellQuote(child.shellLine)}
	case errors.As(err, &finding):
		return []string{"only you can know; type:", "  " + finding.Finding.FixCommand}
	case errors.As(err, &findings) && findings.fixable:
		return []string{"'git agency doctor --fix <id>' mends what goes by that id"}
	case errors.As(err, &notFound) && notFound.Kind == "finding":
		return []string{"'git agency doctor' lists what is wrong, with ids"}
	case is[*formatError](err):
		return []string{"the fields are " + strings.Join(atomNames(), ", ")}
	case errors.As(err, &notFound) && notFound.Kind == "worktree":
		return []string{"list the worktrees with 'git agency worktree ls --all', or make one with 'git agency worktree create <name>'"}
	case errors.As(err, &notFound) && notFound.Kind == "snapshot":
		return []string{"list the snapshots of an invocation with 'git agency snapshot ls <id>'; one is called by its commit or <id>/<n>"}
	case is[*gitagency.DamagedError](err):
		return []string{
			"where another clone has such an object, this brings it back; a damaged file of it below .git/objects has to be moved away first:",
			"  git -C <clone> cat-file <kind> <object> | git hash-object -w -t <kind> --stdin",
			"'git fsck' looks at the whole repository",
		}
	case errors.As(err, &notFound):
		return []string{"list the invocations with 'git agency ls --all'; names do not count, and broken ones need their full id"}
	case errors.As(err, &usage) && usage.hint != "":
		return []string{usage.hint}
	case errors.As(err, &usage) && usage.group != "":
		return []string{"'" + usage.group + " -h' lists the commands"}
	case errors.As(err, &invalid) && invalid.What == "worktree name":
		return []string{"say what to call it, as in 'git agency worktree create payments' or 'git agency worktree adopt --name payments'"}
	case is[*gitagency.AmbiguousError](err):
		return []string{"type more of the id"}
	case errors.As(err, &noCommit) && noCommit.Unborn:
		return []string{"make a first commit, for example with 'git commit --allow-empty -m start'"}
	case errors.As(err, &unmarked) && unmarked.Worktree != "":
		return []string{
			"agents only start from a worktree that is marked as a person's own",
			fmt.Sprintf("if this one is yours, mark it again with 'git agency worktree adopt %s'", gitagency.ShellQuote(unmarked.Path)),
		}
	case errors.As(err, &unmarked):
		return []string{
			"name a worktree (see 'git agency worktree ls'), or make this one an integration worktree with 'git agency worktree adopt',",
			"or make a new one with 'git agency worktree create <name>'",
		}
	case errors.As(err, &noSandbox) && noSandbox.Integration:
		return []string{
			"nothing ever runs in a tree that is marked as a person's own",
			"if it is none, 'git agency doctor' says how that marker goes",
		}
	case errors.As(err, &noSandbox):
		return []string{"nothing runs in a tree that is not marked as a sandbox; 'git agency doctor' says how it gets its marker back"}
	case is[*gitagency.SandboxError](err):
		return []string{"name an integration worktree; 'git agency worktree ls' lists them"}
	case errors.As(err, &distrusted):
		where := "--local"
		if distrusted.File != "" {
			where = "--file " + gitagency.ShellQuote(distrusted.File)
		}
		return []string{
			"if that filter is yours, say so where no agent can, and it runs; all that it needs, as in:",
			"  git config --global " + gitagency.ShellQuote("filter."+distrusted.Filter+".clean") + " '<command>'",
			"if it is not, take it out of the repository's configuration:",
			"  git config " + where + " --remove-section " + gitagency.ShellQuote("filter."+distrusted.Filter),
		}
	case is[*gitagency.NotEmptyError](err), is[*snapshotCheckoutError](err) && errors.Is(err, syscall.ENOTDIR):
		return []string{"name a directory that is not there yet, or that is empty"}
	case is[*snapshotCheckoutError](err) && errors.Is(err, fs.ErrNotExist):
		return []string{"the directory that it is to lie in has to be there, and a link has to lead somewhere; 'mkdir -p' makes directories"}
	case is[*snapshotCheckoutError](err) && errors.As(err, &overlap):
		return []string{"name a directory outside of every worktree, sandbox and git directory, such as ../copy beside the repository"}
	case errors.As(err, &overlap):
		return []string{
			"sandboxes must lie outside of every worktree",
			"put the data directory elsewhere with AGENCY_DATA_DIR or 'git config --global agency.dataDir <dir>'",
		}
	case is[*gitagency.TrackedMarkerError](err):
		return []string{"remove it from the branch with 'git rm -r --cached .agency' and a commit"}
	case errors.As(err, &inTheWay):
		return []string{fmt.Sprintf("rename it with 'git branch -m %s <new name>'", inTheWay.Branch)}
	case errors.As(err, &nameTaken):
		return []string{"choose another name, or archive that one with 'git agency worktree rm " + nameTaken.ID + "'"}
	case is[*gitagency.UnenforceableError](err):
		return []string{
			"with --best-effort-limits it is done without that limit, and says so",
			"where it was 'git agency start' that set the limit, --best-effort-limits belongs there",
		}
	case is[*gitagency.BusyError](err):
		return []string{"wait longer with --lock-timeout 5m, or end what is at work there first"}
	case errors.As(err, &lost):
		return []string{"'git agency doctor --fix " + lost.ID + "' leaves the sandbox as it is"}
	case errors.As(err, &halfWay):
		return []string{
			"when the cause is gone, the next command that works in the sandbox finishes it, as 'git agency doctor --fix " + halfWay.ID + "' does",
			"to go back to where it was: 'git agency snapshot rollback " + halfWay.ID + " " + halfWay.LeftSnapshot + "'",
		}
	case errors.As(err, &conflicts) && conflicts.UnfinishedIn != "":
		inside := "git agency exec " + conflicts.ID + " -- git "
		return []string{
			"edit the files there, and then: " + inside + "commit -a --no-edit",
			"or give it up: " + inside + "merge --abort",
		}
	case errors.As(err, &stuck):
		return []string{
			"when the cause is gone, the next command finishes it, as 'git agency doctor --fix " + stuck.ID + "' does",
			"what it was about to do is in " + stuck.Path,
		}
	case errors.As(err, &gone) && gone.UnlandedBy != "":
		return []string{"this brings it back" + gitInTree(gone.Tree, gone.Branch) + " revert " + gone.UnlandedBy}
	case errors.As(err, &gone) && gone.RestoreArgs != "":
		return []string{"this brings it back" + gitInTree(gone.Tree, gone.Branch) + " " + gone.RestoreArgs}
	case errors.As(err, &gone) && gone.Ref != "":
		return []string{"its commits are kept, and this brings them back" + gitInTree(gone.Tree, gone.Branch) + " merge " + gone.RestoreCommit}
	case errors.As(err, &overlaps):
		return []string{"commit it, stash it ('git -C " + gitagency.ShellQuote(overlaps.Worktree) + " stash -u'; what is ignored has to be moved), and try again"}
	case errors.As(err, &busyTree) && busyTree.Operation == "index.lock":
		return []string{"wait for that git, or, if none is at work there, remove the file: rm \"$(git -C " + gitagency.ShellQuote(busyTree.Worktree) + " rev-parse --absolute-git-dir)/index.lock\""}
	case errors.As(err, &busyTree):
		in := "git -C " + gitagency.ShellQuote(busyTree.Worktree) + " "
		switch busyTree.Operation {
		case "conflicts":
			return []string{"resolve them there: " + in + "status"}
		case "bisect":
			return []string{"end it there: " + in + "bisect reset"}
		}
		return []string{"finish it there: " + in + busyTree.Operation + " --continue", "or give it up: " + in + busyTree.Operation + " --abort"}
	case errors.As(err, &unsound):
		return fsckHints(unsound)
	case errors.As(err, &behind):
		return []string{"'git agency sync " + behind.ID + "' brings what it lacks into the sandbox"}
	case errors.As(err, &elsewhere):
		return []string{"check out the branch whose work is to land, or merge one into the other: git agency exec " + elsewhere.ID + " -- git switch " + elsewhere.Branch}
	case errors.As(err, &noBranch):
		return []string{"make one there: git -C " + gitagency.ShellQuote(noBranch.Path) + " switch -c <name>"}
	case errors.As(err, &gitlink):
		return []string{"take it out of the commits, or add it as a submodule: git agency exec " + gitlink.ID + " -- git rm --cached " + gitagency.ShellQuote(gitlink.Path)}
	case errors.As(err, &underWay):
		return inProgressHints(underWay)
	case errors.As(err, &conflicts) && conflicts.Unlanding:
		return []string{"revert it by hand, with the paths above to decide on" + gitInTree(conflicts.Tree, conflicts.Branch) + " revert " + conflicts.RevertArgs}
	case errors.As(err, &conflicts):
		return []string{"'git agency sync " + conflicts.ID + "' brings what they conflict with into the sandbox, to be resolved there"}
	case errors.As(err, &off):
		return []string{
			"if its branch is to have what is checked out, and nothing else, this puts it there: git agency exec " + off.ID + " -- git checkout -B " + gitagency.ShellQuote(off.Branch),
			"this goes back to its branch, and leaves commits that were made elsewhere behind: git agency exec " + off.ID + " -- git checkout " + gitagency.ShellQuote(off.Branch),
		}
	case errors.As(err, &strays):
		return []string{"commit them, move them away, or have git ignore them: git agency exec " + strays.ID + " -- git status"}
	case is[*gitagency.NoIdentityError](err):
		return []string{"say who you are: git config --global user.name '<name>'; git config --global user.email '<email>'"}
	case errors.As(err, &date):
		return []string{"without it, commits are of now: unset " + date.Variable}
	case errors.As(err, &lostHead):
		return missingHeadHints(lostHead)
	case errors.As(err, &uncommit):
		return uncommittedHints(uncommit)
	case errors.As(err, &nothing) && nothing.NoNetChange:
		return []string{"if no commit will follow that does, 'git agency discard " + nothing.ID + "' ends it"}
	case errors.As(err, &nothing):
		return []string{"nothing was changed and committed in it yet; if nothing will be, 'git agency discard " + nothing.ID + "' ends it"}
	case errors.As(err, &unsubmit):
		return []string{"git agency submit " + unsubmit.ID}
	case errors.As(err, &unasked) && (unasked.State == "" || unasked.State == "rejected"):
		return []string{"only what was submitted can be rejected; 'git agency discard " + unasked.ID + "' ends it"}
	case is[*gitagency.RunningError](err):
		return []string{"wait until they have ended, or end them, and try again"}
	case is[*gitagency.GitLockedError](err):
		return []string{"another git writes there; if none does any more, 'git agency doctor' says how the lock goes"}
	case errors.As(err, &idle):
		return []string{"start what listens there with 'git agency exec " + idle.ID + " -- <command>', and try again while that runs"}
	case is[*gitagency.SharedNetworkError](err):
		return []string{"only a sandbox that was started with --outputs none or --outputs hosts:… has ports of its own"}
	case errors.As(err, &taken):
		return []string{fmt.Sprintf("give another behind a colon, as in %d:0, which is any that is free", taken.Port.Inside)}
	case is[*gitagency.InsideError](err):
		return []string{"discard it from outside"}
	case errors.Is(err, gitagency.ErrBackground):
		return []string{"a command that reads from a terminal has to be in its foreground: type 'fg', or leave out --stdin"}
	case is[*gitagency.LockTimeoutError](err):
		return []string{"wait longer with --lock-timeout 5m, or for ever with --lock-timeout -1"}
	case errors.As(err, &nested):
		hints := []string{"push or move away what is worth keeping there, then remove it and try again:"}
		for _, path := range nested.Paths {
			hints = append(hints, "  rm -rf "+gitagency.ShellQuote(path))
		}
		return hints
	case is[*gitagency.UnreadableError](err):
		return []string{"make it readable with chmod, remove it, or have git ignore it"}
	case is[*gitagency.IncompleteError](err):
		return []string{"'git agency snapshot verify <snapshot>' names everything that is missing of a snapshot"}
	case is[*gitagency.StillChangingError](err):
		return []string{"a snapshot is one state, so wait until whoever writes there is done, or have git ignore what is always written"}
	case errors.As(err, &moved):
		return []string{fmt.Sprintf("move it back with 'git worktree move %s %s'", gitagency.ShellQuote(moved.To), gitagency.ShellQuote(moved.From))}
	case is[*outputError](err):
		return []string{"what was created is shown by 'git agency ls' and 'git agency worktree ls'"}
	case errors.As(err, &corrupt):
		return []string{
			"git left it behind when it was interrupted, and cannot work with worktrees before it is gone",
			"'git agency doctor' says what to do about it",
		}
	case errors.As(err, &ended):
		return []string{"its work is kept: 'git log -p -m --first-parent " + ended.Ref + "'"}
	case errors.As(err, &broken):
		return brokenHints(broken)
	case errors.As(err, &live):
		return []string{"discard them first, or archive the worktree anyway with --force; they stay as they are"}
	case errors.As(err, &workedIn):
		return []string{"take away what is worth keeping, remove it with 'rm -rf " + gitagency.ShellQuote(workedIn.Path) + "', and try again"}
	case is[*gitagency.ForeignFileError](err):
		return []string{"move it away and try again, or install elsewhere with --prefix"}
	case is[*gitagency.DirtyError](err):
		return []string{"commit what is worth keeping, or archive it anyway with --force; a ref keeps a copy"}
	case errors.As(err, &cleanup):
		return []string{"when the cause is gone, run the same command again; 'git agency doctor' may know the cause"}
	case errors.As(err, &noRepo) && !strings.Contains(noRepo.Error(), "\n"): // otherwise git's message has several lines and says what to do
		return []string{"run it inside a repository, or name one with 'git -C <dir> agency …'"}
	case is[*gitagency.SetupError](err):
		return nil // the message says what to do
	case errors.Is(err, syscall.ENOSPC):
		return []string{"the disk is full; nothing of this attempt was kept"}
	case errors.As(err, &link) && link.source != "":
		return []string{
			"a link is put as a link, so it must be relative and stay inside of the sandbox",
			fmt.Sprintf("to put what it leads to, name that: \"$(realpath %s)\"", gitagency.ShellQuote(link.source)),
		}
	case errors.As(err, &link):
		return []string{
			"a link is put as a link, so it must be relative and stay inside of the sandbox",
			"to put what it leads to, make a copy without links first: 'cp -rL'",
		}
	case is[*sourceError](err):
		return nil // the message says all there is
	case is[*gitagency.ConfinementError](err):
		return []string{"nothing was done; paths are relative to the sandbox, and .git and .agency are out of bounds in it"}
	case is[*gitagency.TooLargeError](err):
		return []string{"name some paths behind --, or see how much there is with --stat"}
	case is[*gitagency.OperationTimeoutError](err):
		return []string{moreTimeHint(err)}
	case errors.Is(err, fs.ErrPermission) && is[*putError](err):
		return []string{"it is the sandbox where that is not allowed; 'git agency exec <id> -- chmod u+rwx <directory>' allows it"}
	case errors.Is(err, fs.ErrPermission) && is[*snapshotCheckoutError](err):
		return []string{"name a directory where you may write"}
	case errors.Is(err, fs.ErrPermission) && is[*installError](err):
		return []string{"run it as a user who may write there, or install elsewhere with --prefix"}
	case errors.Is(err, fs.ErrPermission):
		return []string{"check who owns the repository and the data directory"}
	}
	return nil
}

// notPushedHints returns the commands that push a landed branch.
func notPushedHints(err error, e *gitagency.NotPushedError) []string {
	to := gitagency.ShellQuote(e.Address)
	if len(e.Conflicts) > 0 {
		in := "git"
		if e.Tree != "" {
			in += " -C " + gitagency.ShellQuote(e.Tree)
		}
		return []string{
			"merge it yourself where " + e.Branch + " is checked out, and push that:",
			"  " + in + " pull --no-rebase " + to + " " + gitagency.ShellQuote(e.RemoteBranch),
			"  " + in + " push " + to + " " + gitagency.ShellQuote(e.Branch+":"+e.RemoteBranch),
		}
	}
	if is[*gitagency.OperationTimeoutError](e.Err) {
		return []string{moreTimeHint(err)}
	}
	cause, typed := e.Err, &argvError{}
	if errors.As(err, &typed) {
		cause = &argvError{cause, typed.args, typed.hasConfigArgs}
	}
	all := hintsFor(cause) // the cause gets the hints that it gets in a landing
	var unpushed *pushError
	if errors.As(err, &unpushed) {
		all = append(all, "this tries again"+unpushed.retry)
	}
	return all
}

func brokenHints(b *gitagency.BrokenError) []string {
	list := "git agency ls --all"
	if b.Kind == "worktree" {
		list = "git agency worktree ls --all"
	}
	return []string{
		"'" + list + "' shows every broken one",
		"'git agency doctor' says what is wrong with each, 'git agency doctor --fix " + b.ID + "' mends this one",
	}
}

func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
