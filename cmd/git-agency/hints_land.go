package main

import (
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// uncommittedHints returns the commands that commit the work in a sandbox, without the files that must not be
// committed.
func uncommittedHints(e *gitagency.UncommittedError) []string {
	inside := "git agency exec " + e.ID + " -- git "
	if e.TrackedOnly {
		return []string{"commit it in the sandbox: " + inside + "commit -a -m '<message>'"}
	}
	add, without := inside+"add -A", 0
	for _, l := range e.LeftOut {
		if l.Reason == gitagency.LeftOutSubmodule {
			continue
		}
		if without++; without == 1 {
			add += " -- ."
		}
		add += " " + quote.Shell(":(exclude,literal)"+l.Path)
	}
	const most = 10
	if without > most {
		add = inside + "add -u # and by their names the new ones that belong to it; not everything does"
	}
	hints := []string{"commit what belongs to it:", "  " + add, "  " + inside + "commit -m '<message>'"}
	if e.CommitAll {
		return append([]string{"land it with the rest: git agency land " + e.ID + " --commit-all -m '<message>'"}, "or "+hints[0], hints[1], hints[2])
	}
	return hints
}

// missingHeadHints says where to look for the commit that HEAD was at.
func missingHeadHints(e *gitagency.MissingHeadError) []string {
	if e.Ref == "" {
		return []string{"the log of HEAD says where it was: git reflog, in the sandbox"}
	}
	return []string{"see whether it is known where it was: git agency doctor"}
}

// gitInTree returns the start of a git command that has to be typed in the worktree where branch is checked out.
func gitInTree(tree, branch string) string {
	if tree == "" {
		return "; check out " + branch + " first, and type it there: git"
	}
	return ": git -C " + quote.Shell(tree)
}

// fsckHints returns the commands that replace the commits of the sandbox by one commit without the object that must
// not land. A later commit that removes it is not enough, since the history would land too.
func fsckHints(e *gitagency.InvalidObjectError) []string {
	inside := "git agency exec " + e.ID + " -- git "
	hints := []string{"it must be in no commit of the sandbox; this makes one of all that is staged there, without it:", "  " + inside + "reset --soft " + e.Base}
	// Git writes a malformed directory correctly when it commits again, and a path with ".." cannot be in the index.
	if e.Path != "" && !strings.HasSuffix(e.Path, "/") && !slices.Contains(strings.Split(e.Path, "/"), "..") {
		hints = append(hints, "  "+inside+"rm -r -f -q --cached --ignore-unmatch "+quote.Shell(":(top,literal)"+e.Path))
	}
	return append(hints, "  "+inside+"commit -m '<message>'")
}

// inProgressHints returns the commands that finish or abort an operation in progress in a sandbox. They need no
// editor, since no person may be there, and run on the side of the walls on which the operation was started.
func inProgressHints(e *gitagency.SandboxOperationError) []string {
	there := "git agency exec " + e.ID + " -- git "
	if e.Path != "" {
		there = "git -C " + quote.Shell(e.Path) + " "
	}
	finish := there + "-c core.editor=true " + e.What + " --continue"
	switch {
	case e.What == "bisect":
		return []string{"end it: " + there + "bisect reset"}
	case e.What == "conflicts":
		return []string{"decide on them, and then: " + there + "commit -a -m '<message>'", "or give it up: " + there + "reset --merge"}
	case e.What == "merge" && e.Unstaged: // finishing it would record that all of its changes were rejected
		return []string{"nothing of it is staged any more; forget it: " + there + "merge --quit", "or, if nothing of it is wanted, say so for good: " + finish}
	}
	return []string{"finish it, with what was in conflict decided on and added: " + finish, "or give it up: " + there + e.What + " --abort"}
}
