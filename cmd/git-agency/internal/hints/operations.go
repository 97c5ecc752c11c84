package hints

import (
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// busyWorktreeHints returns the commands that end an operation in progress in an integration worktree.
func busyWorktreeHints(e *gitagency.StateError, _ Retry) []string {
	in := "git -C " + quote.Shell(e.Path) + " "
	switch e.Operation {
	case "index.lock":
		return []string{"wait for that git or, if none is running there, remove the file: rm \"$(" + in + "rev-parse --absolute-git-dir)/index.lock\""}
	case "conflicts":
		return []string{"resolve them there: " + in + "status"}
	case "bisect":
		return []string{"end it there: " + in + "bisect reset"}
	}
	return []string{"finish it there: " + in + e.Operation + " --continue", "or abort it: " + in + e.Operation + " --abort"}
}

// inProgressHints returns the commands that finish or abort an operation in progress in a sandbox. They need no editor,
// since no person may be there, and run on the side of the walls on which the operation was started.
func inProgressHints(e *gitagency.StateError, _ Retry) []string {
	there := gitInSandbox(e)
	switch e.Operation {
	case "bisect":
		return []string{"end it: " + there + "bisect reset"}
	case "conflicts":
		return []string{"resolve them, and then: " + there + "commit -a -m '<message>'", "or drop them: " + there + "reset --merge"}
	}
	return []string{continueHint(there, e.Operation), "or abort it: " + there + e.Operation + " --abort"}
}

// continueHint says how to finish an operation that stopped at conflicts. Both commands refuse files that were not added;
// that of a merge needs no editor even where GIT_EDITOR is set, which overrides core.editor.
func continueHint(there, operation string) string {
	finish := "-c core.editor=true " + operation + " --continue"
	if operation == "merge" {
		finish = "commit --no-edit"
	}
	return "resolve and add the conflicting files, and then: " + there + finish
}

// unstagedMergeHints is for a merge of which nothing is staged: finishing it would record that all of its changes were
// rejected.
func unstagedMergeHints(e *gitagency.StateError, _ Retry) []string {
	there := gitInSandbox(e)
	return []string{
		"nothing of it is staged any more; forget it: " + there + "merge --quit",
		"or, to record that all of its changes are rejected: " + there + "-c core.editor=true merge --continue",
	}
}

// gitInSandbox returns the start of a git command on the side of the walls on which an operation was started.
func gitInSandbox(e *gitagency.StateError) string {
	if e.Path != "" {
		return "git -C " + quote.Shell(e.Path) + " "
	}
	return "git agency exec " + e.ID + " -- git "
}

// mergedOutsideHints is for a merge behind the walls that a git outside of them has made as well.
func mergedOutsideHints(e *gitagency.StateError, _ Retry) []string {
	return []string{"end it: " + gitInSandbox(e) + "merge --quit"}
}

// committedOutsideHints is for a merge behind the walls whose conflicts were resolved by a commit outside of them.
func committedOutsideHints(e *gitagency.StateError, _ Retry) []string {
	return []string{
		"if that commit resolves the conflicts, record the merge: " + gitInSandbox(e) + "commit --no-edit",
		"if not, forget the merge, and then sync again: " + gitInSandbox(e) + "merge --quit",
	}
}
