package hints

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// row is what the command line does about a reason: its exit code, and the hints that it prints; nil for none.
type row struct {
	code  int
	hints func(e *gitagency.StateError, retry Retry) []string
}

// always returns hints that do not depend on the error.
func always(lines ...string) func(*gitagency.StateError, Retry) []string {
	return func(*gitagency.StateError, Retry) []string { return lines }
}

// reasons has one row for each reason of the library.
var reasons = map[reason.Reason]row{
	reason.CorruptRecord: {ExitFailed, nil},
	reason.Unsupported:   {ExitFailed, nil},
	reason.Limit: {ExitFailed, always(
		"--best-effort-limits enforces as much of the limit as this machine can, and warns",
		"a limit of the whole sandbox is loosened only by 'git agency start --best-effort-limits'",
	)},
	reason.OpenFiles:  {ExitFailed, always(raiseOpenFiles)},
	reason.NoFreeID:   {ExitFailed, nil},
	reason.NoIdentity: {ExitFailed, always("say who you are: git config --global user.name '<name>'; git config --global user.email '<email>'")},
	reason.InvalidDate: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"without it, commits get the current time: unset " + e.Name}
	}},
	reason.Output:    {ExitFailed, nil},
	reason.Timeout:   {ExitFailed, func(_ *gitagency.StateError, retry Retry) []string { return []string{retry.moreTime()} }},
	reason.TooLarge:  {ExitFailed, always("name some paths after --, or get an overview with --stat")},
	reason.ReadLimit: {ExitFailed, readLimitHints},
	reason.BehindWalls: {ExitRefused, always(
		"behind walls these work, for the sandbox itself: show, ls, path, diff, submit, ask, snapshot create, help and version",
	)},
	reason.NotInside:    {ExitFailed, always("an agent that runs in a sandbox asks its questions with this command; 'git agency exec' runs one there")},
	reason.InRepository: {ExitFailed, nil},
	reason.SetupFailed: {ExitSetup, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"to try it again: git agency exec " + e.ID + " -- sh -c " + quote.Shell(e.Name)}
	}},
	reason.MissingObject: {ExitFailed, always(
		"'git agency snapshot verify <snapshot>' lists all missing objects of a snapshot",
	)},
	reason.UnnamedGitlink: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"remove it from the commits, or add it as a submodule: " + gitAtWork(e) + "rm --cached " + quote.Shell(e.Path)}
	}},
	reason.SubmoduleKept:  {ExitFailed, submoduleHints},
	reason.SubmoduleGone:  {ExitFailed, submoduleHints},
	reason.SubmoduleNoGit: {ExitFailed, submoduleHints},
	reason.SubmoduleNew:   {ExitFailed, submoduleHints},
	reason.Unrelated:      {ExitFailed, nil},
	reason.NotEmpty:       {ExitFailed, always("name a directory that does not exist yet, or that is empty")},
	reason.NoCommit:       {ExitFailed, noCommitHints},
	reason.UnbornBranch:   {ExitFailed, always("make a first commit, for example with 'git commit --allow-empty -m start'")},
	reason.MissingBranch:  {ExitFailed, missingBranchHints},
	reason.BranchInTheWay: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{fmt.Sprintf("rename it with 'git branch -m %s <new name>'", quote.Shell(e.Name))}
	}},
	reason.GitLocked:  {ExitFailed, gitLockedHints},
	reason.Unreadable: {ExitFailed, always("make it readable with chmod, remove it, or have git ignore it")},
	reason.Changing: {ExitFailed, always(
		"a snapshot is one state: wait until the programs that write there have ended, or have git ignore files that always change",
	)},
	reason.Obstructed: {ExitFailed, nil},
	reason.MissingHead: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		if e.Branch == "" {
			return []string{"the reflog of HEAD lists its earlier commits: git reflog, in the sandbox"}
		}
		return []string{"'git agency doctor' looks for the last commit of the branch"}
	}},
	reason.Upstream: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"for " + e.Name + ": git config push.default upstream",
			"for " + e.Branch + ": git branch --unset-upstream " + quote.Shell(e.Branch),
		}
	}},
	reason.NoRemote:     {ExitFailed, noRemoteHints},
	reason.PushRejected: {ExitFailed, nil},
	reason.PushRace:     {ExitFailed, nil},

	reason.OtherModules: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"to land what is committed, and keep them in an archive: git agency land " + e.ID + " --leave"}
	}},
	reason.NoParent: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		if e.Branch == "" {
			return []string{"its work is on the branches that sandboxes were started from; 'git agency worktree rm " + quote.Shell(e.Name) + "' archives it"}
		}
		return []string{"merge its branch yourself, then 'git agency worktree rm " + quote.Shell(e.Name) + "': git merge " + quote.Shell(e.Branch)}
	}},
	reason.AllowInside: {ExitRefused, always("ask the person to run it in a terminal of their own")},
	reason.Grant: {ExitRefused, func(e *gitagency.StateError, _ Retry) []string {
		if e.Other == "" {
			return nil
		}
		return []string{e.Other}
	}},
	reason.NotInSandbox: {ExitRefused, always("'git agency path <id>' prints the directory of a sandbox")},
	reason.SandboxBranch: {ExitRefused, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"switch to a branch of your own first: git -C " + quote.Shell(e.Path) + " switch <branch>"}
	}},
	reason.NotWorktree: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		if e.Other != "" {
			return []string{"the worktree was moved, and git still has its former path; correct that first: git -C " + quote.Shell(e.Other) + " worktree repair"}
		}
		return []string{
			"name a directory in a worktree of this repository ('git worktree list' lists them), or make a new one with 'git agency worktree create <name>'",
			"to adopt a worktree of another repository: git -C <dir> agency worktree adopt",
		}
	}},
	reason.NameTaken: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"choose another name, or archive that one with 'git agency worktree rm " + e.ID + "'"}
	}},
	reason.Adopted: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency start " + quote.Shell(e.Name) + "' makes a sandbox for it"}
	}},
	reason.Archived: {ExitFailed, archivedHints},
	reason.Dirty: {ExitFailed, unlessFinishing("commit what is worth keeping, and remove the rest",
		"commit what is worth keeping, or archive it anyway with --force; a ref keeps a copy")},
	reason.ModifiedTree: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"copy what is worth keeping, remove it with 'rm -rf " + quote.Shell(e.Path) + "', and try again"}
	}},
	reason.LiveSandboxes: {ExitFailed, unlessFinishing("land or discard them first",
		"discard them first, or archive the worktree anyway with --force; they stay as they are")},
	reason.NoBranch: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		there := "git -C " + quote.Shell(e.Path) + " switch "
		return []string{"switch to the branch to land on: " + there + "<branch>", "or create one: " + there + "-c <branch>"}
	}},
	reason.WorktreeBusy: {ExitFailed, busyWorktreeHints},

	reason.NotImported: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"repair the commits in the sandbox; to list damaged objects: git agency exec " + e.ID + " -- git fsck",
			discardHint(e.ID),
		}
	}},
	reason.Running: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"wait until they have ended, or end them with 'git agency stop " + e.ID + "', and try again"}
	}},
	reason.NoRun: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency run' runs an agent in a new sandbox; 'git agency exec " + e.ID + " -- <command>' runs a command in this one"}
	}},
	reason.RunEnded: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency logs " + e.ID + "' shows its output; 'git agency resume " + e.ID + "' lets the agent go on"}
	}},
	reason.RunForeground: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"use that terminal, or end the run with 'git agency stop " + e.ID + "' and go on with 'git agency resume " + e.ID + " --detach'"}
	}},
	reason.RunDropped: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"to attach again: git agency attach " + e.ID}
	}},
	reason.NoQuestion: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"to give it a further task: git agency resume " + e.ID + " -p '<task>'"}
	}},
	reason.Unanswered:    {ExitFailed, answerHints},
	reason.OtherQuestion: {ExitFailed, answerHints},
	reason.NotWaiting: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency log " + e.ID + "' shows its questions and the answers that it was given; if it asks, answer when its run has ended: git agency wait " + e.ID}
	}},
	reason.NothingRuns: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"start the server with 'git agency exec " + e.ID + " -- <command>', and try again while it runs"}
	}},
	reason.SharedNetwork: {ExitFailed, always("only a sandbox that was started with --outputs none or --outputs hosts:… has ports of its own")},
	reason.PortTaken: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{fmt.Sprintf("give another port after a colon, as in %s:0 for any free one", e.Name)}
	}},
	reason.Inside: {ExitFailed, always("discard it from outside")},
	reason.Moved: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{fmt.Sprintf("move it back with 'git worktree move %s %s'", quote.Shell(e.Other), quote.Shell(e.Path))}
	}},
	reason.UnfinishedTransition: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"when the cause is gone, the next command in the sandbox finishes it, as 'git agency doctor --fix " + e.ID + "' does",
			"to return to the state before: 'git agency snapshot rollback " + e.ID + " " + e.Name + "'",
		}
	}},
	reason.LostRollback: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency doctor --fix " + e.ID + "' removes the journal of the rollback and leaves the sandbox as it is"}
	}},
	reason.OffBranch: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"to move its branch to what is checked out, and drop the branch's own commits: git agency exec " + e.ID + " -- git checkout -B " + quote.Shell(e.Branch),
			"to return to its branch, and leave commits made elsewhere behind: git agency exec " + e.ID + " -- git checkout " + quote.Shell(e.Branch),
		}
	}},
	reason.UntrackedInTheWay: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"commit them, move them away, or have git ignore them: git agency exec " + e.ID + " -- git status"}
	}},
	reason.OperationInProgress: {ExitFailed, inProgressHints},
	reason.OperationUnstaged:   {ExitFailed, unstagedMergeHints},
	reason.MergedOutside:       {ExitFailed, mergedOutsideHints},
	reason.CommittedOutside:    {ExitFailed, committedOutsideHints},
	reason.TrashTooLarge: {ExitFailed, func(e *gitagency.StateError, retry Retry) []string {
		return []string{
			"allow a larger archive: " + retry.Command("agency.trashLimit="+e.Name),
			"or lose what does not fit" + forcedDiscard(retry),
		}
	}},
	reason.TrashUnreadable: {ExitFailed, func(_ *gitagency.StateError, retry Retry) []string {
		return []string{"make it readable, or lose it" + forcedDiscard(retry)}
	}},
	reason.NotEnded: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency path " + e.ID + "' prints where it is", "'git agency ls --all' lists those that have ended; @ names none of them"}
	}},
	reason.TrashGone: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		if e.Name == "" {
			return []string{"if git gc has not removed its commits yet, 'git fsck --no-reflogs --unreachable' lists them"}
		}
		return []string{"what a commit can hold is in its trash ref: git log -p -m --first-parent " + e.Name}
	}},
	reason.UnfinishedDiscard: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"complete it first: git agency discard " + e.ID}
	}},

	reason.NotSubmitted: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string { return []string{"git agency submit " + e.ID} }},
	reason.NotInReview:  {ExitFailed, notInReviewHints},
	reason.BaseMoved: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"'git agency sync " + e.ID + "' merges the missing commits into the sandbox"}
	}},
	reason.HeadLacksBranch: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"check out the branch that is to land: git agency exec " + e.ID + " -- git switch " + quote.Shell(e.Branch)}
	}},
	reason.NothingToLand: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"nothing was committed in it yet; if nothing will be, 'git agency discard " + e.ID + "' ends it"}
	}},
	reason.NoNetChange: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"if no further commit will follow, 'git agency discard " + e.ID + "' ends it"}
	}},
	reason.NotLanded: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		if e.Other != "" {
			return []string{"its work landed before it was restored; to revert that landing: git agency unland " + e.Other}
		}
		return []string{"'git agency ls --all' lists what has landed; @ names only invocations that have not ended"}
	}},
	reason.StuckLanding: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"when the cause is gone, the next command finishes it, as 'git agency doctor --fix " + e.ID + "' does",
			"the planned changes are in " + e.Path,
		}
	}},
	reason.KeepsMoving: {ExitFailed, func(e *gitagency.StateError, retry Retry) []string {
		return []string{"try again when there are fewer commits to " + e.Branch + ": " + retry.Command("")}
	}},
	reason.Temporary: {ExitFailed, func(e *gitagency.StateError, _ Retry) []string {
		return []string{"land " + e.Other + " instead; if it is not being verified any more, 'git agency doctor --fix " + e.ID + "' removes this sandbox"}
	}},

	reason.NotIntegration: {ExitRefused, notIntegrationHints},
	reason.NoWorktree:     {ExitRefused, notIntegrationHints},
	reason.MarkerLost: {ExitRefused, func(e *gitagency.StateError, _ Retry) []string {
		return []string{
			"sandboxes start only from a worktree with the marker of an integration worktree",
			fmt.Sprintf("if this one is yours, mark it again with 'git agency worktree adopt %s'", quote.Shell(e.Path)),
		}
	}},
	reason.IsSandbox: {ExitRefused, always("name an integration worktree; 'git agency worktree ls' lists them")},
	reason.NotSandbox: {ExitRefused, always(
		"commands only run in a tree with the marker of a sandbox; 'git agency doctor' says how to write it again",
	)},
	reason.MarkedIntegration: {ExitRefused, always(
		"commands never run in a tree with the marker of an integration worktree",
		"if it is a sandbox, 'git agency doctor' says how to remove that marker",
	)},
	reason.Overlap: {ExitRefused, always(
		"sandboxes must lie outside of every worktree",
		"put the data directory elsewhere with AGENCY_DATA_DIR or 'git config --global agency.dataDir <dir>'",
	)},
	reason.UnsafePath:      {ExitRefused, nil},
	reason.TrackedMarker:   {ExitRefused, always("remove it from the branch with 'git rm -r --cached .agency' and a commit")},
	reason.InvalidObject:   {ExitRefused, nil},
	reason.InvalidWork:     {ExitRefused, invalidWorkHints},
	reason.UntrustedFilter: {ExitRefused, untrustedFilterHints},
	reason.UntrustedRemote: {ExitRefused, func(e *gitagency.StateError, retry Retry) []string {
		return []string{
			"nothing changed; if those hooks are yours, name the remote where no agent can write:",
			"  " + retry.Command("remote.trusted.url="+e.Other, "-remote") + " --remote trusted",
		}
	}},
}

// answerHints say how to answer the question that an agent asks now.
func answerHints(e *gitagency.StateError, _ Retry) []string {
	return []string{"'git agency questions' shows the question; to answer it: git agency resume " + e.ID + " --answer '<answer>'"}
}

func noRemoteHints(e *gitagency.StateError, _ Retry) []string {
	switch {
	case len(e.Others) > 0:
		return []string{"name one with --remote; there is " + strings.Join(e.Others, ", ") + "; nothing changed"}
	case e.Name != "":
		return []string{"add it with 'git remote add " + quote.Shell(e.Name) + " <url>', there is no other; nothing changed"}
	}
	return []string{"add one with 'git remote add origin <url>'; nothing changed"}
}

func archivedHints(e *gitagency.StateError, _ Retry) []string {
	if e.Other == "" {
		return continueBranchHints(e.Branch)
	}
	lines := []string{
		"its work is on a branch, which you can merge where you want it: git merge agency/sandbox-" + e.Other,
		"and then 'git agency discard " + e.Other + "' ends it",
	}
	if len(e.Others) > 0 {
		lines = append(lines, "or, as worktree "+e.Others[0]+" has its branch now, this makes a sandbox that lands there: git agency discard "+e.Other+" && git agency restore "+e.Other)
	}
	return lines
}

// continueBranchHints says how to continue the branch of an archived worktree.
func continueBranchHints(branch string) []string {
	if branch == "" { // it was adopted with a detached HEAD
		return []string{"'git agency worktree ls' lists the worktrees; 'git agency worktree create <name> --from <commit>' makes one"}
	}
	return []string{"to continue its branch in a new worktree: git agency worktree create <name> --from " + quote.Shell(branch)}
}

func untrustedFilterHints(e *gitagency.StateError, _ Retry) []string {
	where := "--local"
	if e.Other != "" {
		where = "--file " + quote.Shell(e.Other)
	}
	return []string{
		"if that filter is yours, configure it where no agent can write, with all of its commands, as in:",
		"  git config --global " + quote.Shell("filter."+e.Name+".clean") + " '<command>'",
		"if it is not, remove it from the repository's configuration:",
		"  git config " + where + " --remove-section " + quote.Shell("filter."+e.Name),
	}
}

// gitLockedHints says how to remove the lock of a killed git. doctor calls locks of packed-refs by their names.
func gitLockedHints(e *gitagency.StateError, _ Retry) []string {
	if name := filepath.Base(e.Path); strings.HasPrefix(name, "packed-refs.") {
		return []string{"another git is writing packed-refs; if none is any more: git agency doctor --fix " + name, "then run the same command again"}
	}
	return []string{"another git is writing there; if none is any more, 'git agency doctor' says how to remove the lock"}
}

// forcedDiscard ends a hint with the command that discards a sandbox without the files that cannot be kept.
func forcedDiscard(retry Retry) string {
	if at := slices.Index(retry.Args, "--fix"); at >= 0 && at+1 < len(retry.Args) { // of doctor
		return ", if the invocation has a record: git agency discard " + quote.Shell(retry.Args[at+1]) + " --force"
	}
	return ": " + retry.Command("") + " --force"
}

// readLimitHints says how to raise a limit of agency.readLimits.
func readLimitHints(e *gitagency.StateError, _ Retry) []string {
	example := map[string]string{"time": "time=10m", "memory": "memory=8g", "output": "output=2g", "inflated": "inflated=64g"}[e.Name]
	lines := []string{"if you expect such data there, raise the limit, and repeat other limits that you have set: git config agency.readLimits " + quote.Shell(example)}
	if e.ID != "" { // else it is no sandbox
		lines = append(lines, discardHint(e.ID))
	}
	return lines
}

// discardHint is the last resort against content of a sandbox that is refused.
func discardHint(id string) string {
	return "or end the sandbox, and keep all of it in the trash: git agency discard " + id
}

// unlessFinishing returns hints for 'worktree finish', and others for 'worktree rm'.
func unlessFinishing(finishing, archiving string) func(*gitagency.StateError, Retry) []string {
	return func(e *gitagency.StateError, _ Retry) []string {
		if e.Other == gitagency.Finishing {
			return []string{finishing}
		}
		return []string{archiving}
	}
}
