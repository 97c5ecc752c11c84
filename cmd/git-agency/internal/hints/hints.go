// Package hints knows what the command line does about an error of the library: its exit code, and the hints on what to
// type next. It matches types and reasons, never texts, and prints nothing.
package hints

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Exit codes, all of them except 128+n for an interrupt by signal n.
const (
	ExitFailed    = 1
	ExitConflict  = 2
	ExitNotFound  = 3
	ExitBroken    = 4
	ExitRefused   = 5
	ExitPreflight = 6
	ExitBlocked   = 7
	ExitLocked    = 75
	ExitSetup     = 125
	ExitFatal     = 128
	ExitUsage     = 129

	// of exec, as timeout(1), env(1) and shells use them, for a command that did not set its own
	ExitTimedOut        = 124
	ExitCannotExecute   = 126
	ExitCommandNotFound = 127
)

// ExitCode returns the exit code for an error of the library; ExitFailed for any other.
func ExitCode(err error) int {
	var state *gitagency.StateError
	var refused *gitagency.RefusedError
	var inside *gitagency.RequestError
	switch {
	case errors.As(err, &inside):
		return requestCodes[inside.Kind]
	case Is[*gitagency.NotPushedError](err), // first, because the landing succeeded, whatever the push failed with
		Is[*gitagency.VerifyError](err): // first, because any error may have ended the temporary sandbox of the verification
		return ExitFailed
	case Is[*gitagency.PreflightError](err):
		return ExitPreflight
	case Is[*gitagency.LockTimeoutError](err), Is[*gitagency.BusyError](err):
		return ExitLocked
	case Is[*gitagency.SetupError](err): // before the others, because it may wrap an error about a setting or a path
		return ExitSetup
	case Is[*gitagency.InvalidError](err):
		return ExitUsage
	case Is[*gitagency.NoRepositoryError](err), Is[*gitagency.NoCurrentDirError](err), Is[*gitagency.GitTooOldError](err), Is[*gitagency.RefStorageError](err):
		return ExitFatal
	case Is[*gitagency.MovedRepositoryError](err):
		return ExitBroken
	case Is[*gitagency.NotFoundError](err), Is[*gitagency.AmbiguousError](err):
		return ExitNotFound
	case Is[*gitagency.ConflictsError](err):
		return ExitConflict
	case Is[*gitagency.BrokenError](err), Is[*gitagency.CorruptEntryError](err), Is[*gitagency.FindingError](err), Is[*gitagency.DamagedError](err):
		return ExitBroken
	case Is[*gitagency.ConfinementError](err):
		return ExitRefused
	case errors.As(err, &refused):
		return reasons[refused.Reason].code
	case errors.As(err, &state):
		return reasons[state.Reason].code
	}
	return ExitFailed
}

// requestCodes are the exit codes of requests from inside of a sandbox that failed outside.
var requestCodes = map[gitagency.RequestErrorKind]int{
	"": ExitFailed, gitagency.RequestLocked: ExitLocked, gitagency.RequestBroken: ExitBroken, gitagency.RequestRefused: ExitRefused, gitagency.RequestInvalid: ExitUsage,
}

// For returns the hints for an error of the library: what to type next. retry is the command that failed.
func For(err error, retry Retry) []string {
	for _, find := range []func(error, Retry) []string{preflightHints, landingHints, reasonHints, dataHints, systemHints} {
		if lines := find(err, retry); lines != nil {
			return lines
		}
	}
	return nil
}

// reasonHints returns the hints of the first reason in the error that has any.
func reasonHints(err error, retry Retry) []string {
	var state *gitagency.StateError
	var refused *gitagency.RefusedError
	if errors.As(err, &refused) {
		state = (*gitagency.StateError)(refused)
	} else if !errors.As(err, &state) {
		return nil
	}
	if find := reasons[state.Reason].hints; find != nil {
		return find(state, retry)
	}
	return nil
}

// unresolvedHints returns hints for conflicts that an agent did not resolve, besides those on the conflicts.
func unresolvedHints(e *gitagency.UnresolvedError) []string {
	rollback := "git agency snapshot rollback " + e.ID + " "
	switch {
	case e.NoAgent:
		return []string{"name one with --resolve=<runner>"}
	case e.RestoreErr != nil:
		return []string{"to return the sandbox to its state before: " + rollback + e.Before}
	case e.Agent == "":
		return nil
	case e.Left != "":
		return []string{"'git agency logs " + e.ID + "' shows what the agent did; to continue with what it left: " + rollback + e.Left}
	}
	return []string{"'git agency logs " + e.ID + "' shows what the agent did"}
}

// landingHints returns hints for the errors of syncs and landings that have types of their own. They come first, since
// the cause of a failed verification or push may have hints for the user of a sandbox.
func landingHints(err error, retry Retry) []string {
	var (
		verify    *gitagency.VerifyError
		unsolved  *gitagency.UnresolvedError
		conflicts *gitagency.ConflictsError
		gone      *gitagency.NoLongerLandedError
		changes   *gitagency.LocalChangesError
		uncommit  *gitagency.UncommittedError
	)
	switch {
	case errors.As(err, &verify) && verify.TimedOut && verify.Limit > 0:
		return []string{
			fmt.Sprintf("the sandbox was started with --timeout %s, which also bounds its verification;", verify.Limit),
			"if you have checked the work yourself: " + retry.Command("", "-verify") + " --no-verify",
		}
	case errors.As(err, &verify) && verify.TimedOut:
		return []string{retry.moreTime()}
	case errors.As(err, &verify) && verify.Err == nil:
		return Walls("", verify.Result)
	case errors.As(err, &unsolved):
		onConflicts := landingHints(unsolved.Err, retry)
		return append(unresolvedHints(unsolved), onConflicts[:min(1, len(onConflicts))]...) // the second is --resolve, which was tried
	case errors.As(err, &conflicts) && conflicts.UnfinishedIn != "":
		return []string{continueHint("git agency exec "+conflicts.ID+" -- git ", "merge")} // sync prints the rollback that undoes it
	case errors.As(err, &conflicts) && conflicts.Worktree != "":
		return []string{"merge the parent branch there and resolve the conflicts, then finish again: git -C " + quote.Shell(conflicts.Tree) + " merge " + quote.Shell(conflicts.Branch)}
	case errors.As(err, &conflicts) && conflicts.Unlanding:
		return []string{"revert it by hand and resolve the paths above" + gitInTree(conflicts.Tree, conflicts.Branch) + " revert " + conflicts.RevertArgs}
	case errors.As(err, &conflicts) && conflicts.Directories:
		return []string{"to see the changes of the sandbox: git agency diff " + conflicts.ID}
	case errors.As(err, &conflicts):
		return []string{
			"'git agency sync " + conflicts.ID + "' merges the integration branch into the sandbox, to resolve the conflicts there",
			"to let the agent of the sandbox resolve them: git agency land " + conflicts.ID + " --resolve",
		}
	case errors.As(err, &gone) && gone.UnlandedBy != "":
		return []string{"this restores it" + gitInTree(gone.Tree, gone.Branch) + " revert " + gone.UnlandedBy}
	case errors.As(err, &gone) && gone.RestoreArgs != "":
		return []string{"this restores it" + gitInTree(gone.Tree, gone.Branch) + " " + gone.RestoreArgs}
	case errors.As(err, &gone) && gone.Ref != "":
		return []string{"its commits are kept, and this merges them again" + gitInTree(gone.Tree, gone.Branch) + " merge " + gone.RestoreCommit}
	case errors.As(err, &changes) && changes.AsStarted && len(changes.Paths) <= mostStashed:
		return stashLandedHints(changes, retry)
	case errors.As(err, &changes):
		return []string{"commit them, or stash them ('git -C " + quote.Shell(changes.Worktree) + " stash -u'; ignored files have to be moved), and try again"}
	case errors.As(err, &uncommit):
		return uncommittedHints(uncommit)
	}
	return nil
}

// dataHints returns hints for the other errors that have types of their own.
func dataHints(err error, _ Retry) []string {
	var (
		notFound *gitagency.NotFoundError
		invalid  *gitagency.InvalidError
		finding  *gitagency.FindingError
		nested   *gitagency.NestedRepositoryError
		ended    *gitagency.EndedError
		broken   *gitagency.BrokenError
		noRepo   *gitagency.NoRepositoryError
		moved    *gitagency.MovedRepositoryError
	)
	switch {
	case errors.As(err, &finding):
		return []string{"only you can decide; type:", "  " + finding.FixCommand}
	case errors.As(err, &moved):
		return []string{
			"'git agency doctor --fix " + moved.RepoID + "' moves its records and sandboxes here",
			"if this is a copy, and the original is not mounted, mount that first",
		}
	case errors.As(err, &notFound):
		return notFoundHints(notFound)
	case Is[*gitagency.DamagedError](err):
		return []string{
			"an object can be restored from another clone; first move its damaged file below .git/objects away:",
			"  git -C <clone> cat-file <kind> <object> | git hash-object -w -t <kind> --stdin",
			"'git fsck' checks the whole repository",
		}
	case errors.As(err, &invalid) && invalid.What == "worktree name":
		return []string{"name it, as in 'git agency worktree create payments' or 'git agency worktree adopt --name payments'"}
	case errors.As(err, &invalid) && argv.NearestWord(invalid.Value, invalid.Known) != "":
		return []string{fmt.Sprintf("did you mean %q?", argv.NearestWord(invalid.Value, invalid.Known))}
	case errors.As(err, &invalid) && invalid.ConfigKey != "":
		return invalidSettingHints(invalid)
	case Is[*gitagency.AmbiguousError](err):
		return []string{"type more of the id"}
	case Is[*gitagency.BusyError](err):
		return []string{"wait longer with --lock-timeout 5m, or end those processes first"}
	case errors.Is(err, gitagency.ErrBackground):
		return []string{"a command that reads from a terminal has to be in its foreground: type 'fg', or omit --stdin"}
	case Is[*gitagency.LockTimeoutError](err):
		return []string{"wait longer with --lock-timeout 5m, or for ever with --lock-timeout -1"}
	case errors.As(err, &nested):
		lines := []string{"push or move away what is worth keeping there, then remove it and try again:"}
		for _, path := range nested.Paths {
			lines = append(lines, "  "+removeCommand(path))
		}
		return lines
	case Is[*gitagency.CorruptEntryError](err):
		return []string{
			"an interrupted git left it behind; git cannot work with worktrees until it is gone",
			"'git agency doctor' says what to do about it",
		}
	case errors.As(err, &ended):
		kept := "its work is kept: 'git log -p -m --first-parent " + ended.Ref + "'"
		if ended.Ref == "" {
			kept = "'git agency snapshot ls " + ended.ID + "' lists what is kept of its work"
		}
		return []string{
			kept,
			"'git agency restore " + ended.ID + "' makes a sandbox of it again",
		}
	case errors.As(err, &broken):
		return brokenHints(broken)
	case Is[*gitagency.CleanupError](err):
		return []string{"when the cause is gone, run the same command again; 'git agency doctor' may know the cause"}
	case Is[*gitagency.RefStorageError](err):
		return []string{"convert them with git 2.46 or newer: git refs migrate --ref-format=files"}
	case Is[*gitagency.NoCurrentDirError](err):
		return []string{"change to a directory that exists, as with 'cd'"}
	case errors.As(err, &noRepo) && noRepo.GitDir != "":
		return []string{"if the repository was moved, run 'git agency doctor' in the directory where it is now"}
	case errors.As(err, &noRepo) && !strings.Contains(noRepo.Error(), "\n"): // otherwise git's message has several lines and says what to do
		return []string{
			"run it inside a repository, or name one with 'git -C <dir> agency …'",
			"or make a sandbox over a directory that is in no repository: git agency start --path <dir>",
		}
	}
	return nil
}

// raiseOpenFiles says what to do about a limit of open files that is too low.
const raiseOpenFiles = "raise the limit of open files, as with 'ulimit -n 1024'"

// systemHints returns hints for errors of the system, unless the message of a SetupError has said what to do.
func systemHints(err error, _ Retry) []string {
	switch {
	case Is[*gitagency.SetupError](err):
		return nil
	case errors.Is(err, syscall.EMFILE):
		return []string{raiseOpenFiles}
	case errors.Is(err, syscall.ENOSPC):
		return []string{"the disk is full; nothing of this attempt was kept"}
	case Is[*gitagency.ConfinementError](err):
		return []string{"nothing changed; paths are relative to the sandbox, and .git and .agency in it are reserved"}
	case errors.Is(err, fs.ErrPermission):
		return []string{"check the permissions of this path, and who owns the repository and the data directory"}
	}
	return nil
}

func notFoundHints(e *gitagency.NotFoundError) []string {
	if e.Archived != "" {
		return continueBranchHints(e.ArchivedBranch)
	}
	switch e.Kind {
	case "finding":
		return []string{"'git agency doctor' lists the findings with their ids"}
	case "worktree":
		return []string{"list the worktrees with 'git agency worktree ls --all', or make one with 'git agency worktree create <name>'"}
	case "snapshot":
		of := "<id>"
		if id, _, named := strings.Cut(e.Query, "/"); named && id != "" {
			of = quote.Shell(id)
		}
		return []string{"list the snapshots of an invocation with 'git agency snapshot ls " + of + "'; a snapshot is named by its commit or <id>/<n>"}
	}
	if len(e.Named) > 0 {
		return namedHints(e)
	}
	if strings.HasPrefix(e.Query, "@") {
		lines := []string{"'git agency ls --all' lists the ids, also of ended invocations, which @ does not name; 'git agency start' creates a sandbox"}
		if !isNewest().MatchString(e.Query) {
			lines = append(lines, "@ is the newest invocation that has not ended, @-1 the one before it, and so on")
		}
		return lines
	}
	return []string{"list the invocations with 'git agency ls --all'; names are not ids, and broken invocations need their full id"}
}

// isNewest matches the words that name an invocation by its age.
var isNewest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^@(-[0-9]+)?$`) })

// namedHints says which ids to type instead of a name.
func namedHints(e *gitagency.NotFoundError) []string {
	const most = 5
	lines := []string{}
	for _, id := range e.Named[:min(len(e.Named), most)] {
		lines = append(lines, fmt.Sprintf("%q is the name of %s; type %s", e.Query, id, gitagency.ShortID(id)))
	}
	if n := len(e.Named) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("and of %d more; 'git agency ls' lists them", n))
	}
	return lines
}

// gitInTree returns the start of a git command that has to be typed in the worktree where branch is checked out.
func gitInTree(tree, branch string) string {
	if tree == "" {
		return "; check out " + branch + " first, and there: git"
	}
	return ": git -C " + quote.Shell(tree)
}

// Is reports whether an error of type E is in the chain of err.
func Is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
