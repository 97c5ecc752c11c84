package hints

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// removeCommand returns the command that removes a path. The tree of an overlay exists for the commands of its sandbox only.
func removeCommand(path string) string {
	sandbox, rest, inTree := strings.Cut(path, "/tree/")
	if _, err := os.Lstat(path); err != nil && inTree && filepath.Base(filepath.Dir(sandbox)) == "sandboxes" {
		return "git agency exec " + filepath.Base(sandbox) + " -- rm -rf " + quote.Shell(rest)
	}
	return "rm -rf " + quote.Shell(path)
}

// uncommittedHints returns the commands that commit the work of a sandbox.
func uncommittedHints(e *gitagency.UncommittedError) []string {
	inside := "git agency exec " + e.ID + " -- git "
	if e.TrackedOnly {
		return []string{"commit it in the sandbox: " + inside + "commit -a -m '<message>'"}
	}
	if !slices.ContainsFunc(e.Files, func(path string) bool { return !slices.Contains(e.Unadded, path) }) {
		return unaddedHints(e, inside)
	}
	add, without := inside+"add -A", 0
	var first []string
	for _, l := range e.LeftOut {
		if slices.Contains(e.Unadded, l.Path) {
			continue // add -A adds its commit
		}
		if l.Reason == gitagency.LeftOutSubmodule {
			in := inside + "-C " + quote.Shell(l.Path) + " "
			first = append(first, "  "+in+"add -A", "  "+in+"commit -m '<message>'")
			continue
		}
		if without++; without == 1 {
			add += " -- ."
		}
		add += " " + quote.Shell(":(exclude,literal)"+l.Path)
	}
	const most = 10
	if without > most {
		add = inside + "add -u # and the new files that belong to it, by name"
	}
	lines := []string{"commit what belongs to it:", "  " + add, "  " + inside + "commit -m '<message>'"}
	if len(first) > 0 {
		return slices.Concat([]string{"commit what belongs to it, in submodules first:"}, first, lines[1:], []string{"or leave it in the trash: git agency land " + e.ID + " --leave"})
	}
	if e.CommitAll {
		return []string{
			"land it with the rest: git agency land " + e.ID + " --commit-all -m '<message>'", "or " + lines[0], lines[1], lines[2],
			"or leave it in the trash: git agency land " + e.ID + " --leave",
		}
	}
	return lines
}

// unaddedHints returns the commands that commit new commits of submodules, if nothing else is uncommitted.
func unaddedHints(e *gitagency.UncommittedError, inside string) []string {
	add := inside + "add --"
	for _, path := range e.Files {
		add += " " + quote.Shell(path)
	}
	return []string{
		"commit the new commits of submodules:", "  " + add, "  " + inside + "commit -m '<message>'",
		"or leave it in the trash: git agency land " + e.ID + " --leave",
	}
}
