package main

import (
	"github.com/git-agency/git-agency/gitagency"
)

// uncommittedHints say how work gets into a commit, and nothing else.
func uncommittedHints(e *gitagency.UncommittedError) []string {
	inside := "git agency exec " + e.ID + " -- git "
	if e.Tracked {
		return []string{"commit it in the sandbox: " + inside + "commit -a -m '<message>'"}
	}
	add, without := inside+"add -A", 0
	for _, l := range e.LeftOut {
		if l.Why == gitagency.LeftSubmodule {
			continue
		}
		if without++; without == 1 {
			add += " -- ."
		}
		add += " " + gitagency.ShellWord(":(exclude,literal)"+l.Path)
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

// lostHints say who may know where HEAD was.
func lostHints(e *gitagency.LostHeadError) []string {
	if e.Name == "" {
		return []string{"the log of HEAD says where it was: git reflog, in the sandbox"}
	}
	return []string{"see whether it is known where it was: git agency doctor"}
}

// inTree begins a command of git that has to be typed where a branch is checked out.
func inTree(tree, branch string) string {
	if tree == "" {
		return "; check out " + branch + " first, and type it there: git"
	}
	return ": git -C " + gitagency.ShellWord(tree)
}
