package fault

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Errors of creating, adopting, using and removing integration worktrees.

// NotIntegrationError reports a tree without the integration marker.
type NotIntegrationError struct {
	Path     string
	Worktree string // name of the worktree, if a record says that the tree is one
	NoTree   bool   // Path is in no worktree of git, as in a bare repository
}

func (e *NotIntegrationError) Error() string {
	if e.Worktree != "" {
		return fmt.Sprintf("worktree %q has lost its marker, %s", e.Worktree, guard.Integration.Path(e.Path))
	}
	return fmt.Sprintf("%s is not in an integration worktree", e.Path)
}

// NotSandboxError reports a tree in which nothing may run: it lacks the sandbox marker, or has the integration
// marker.
type NotSandboxError struct {
	Path        string
	Integration bool
}

func (e *NotSandboxError) Error() string {
	if e.Integration {
		return fmt.Sprintf("%s carries the marker of an integration worktree, %s", e.Path, guard.Integration.Path(e.Path))
	}
	return fmt.Sprintf("%s does not carry the marker of a sandbox, %s", e.Path, guard.Sandbox.Path(e.Path))
}

// OverlapError reports a tree that would equal, contain or lie inside another one.
type OverlapError struct {
	Path     string
	Relation string // "is", "lies inside" or "contains"
	Other    string
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%s %s %s", e.Path, e.Relation, e.Other)
}

// InRepositoryError refuses a directory that belongs to a repository, and so needs none of its own.
type InRepositoryError struct{ Path, Repository string }

func (e *InRepositoryError) Error() string {
	if e.Path == e.Repository {
		return e.Path + " is a repository; use that one"
	}
	return fmt.Sprintf("%s belongs to the repository at %s; use that one", e.Path, e.Repository)
}

// NotEmptyError reports a target directory that is not empty.
type NotEmptyError struct{ Path string }

func (e *NotEmptyError) Error() string { return e.Path + " is not empty" }

// TrackedMarkerError reports a commit that contains .agency, or whose checkout has written it.
type TrackedMarkerError struct {
	Commit string
}

func (e *TrackedMarkerError) Error() string {
	return fmt.Sprintf("commit %s contains %s, which is reserved for markers", e.Commit, guard.AgencyDir)
}

// IsSandboxError reports a sandbox where an integration worktree is required.
type IsSandboxError struct{ Path string }

func (e *IsSandboxError) Error() string { return e.Path + " is a sandbox" }

// NotWorktreeError reports a path that is in no worktree of the repository.
type NotWorktreeError struct {
	Path     string
	Unlinked string // the linked worktree around Path that was moved without git, so that its entry names another path; else empty
}

func (e *NotWorktreeError) Error() string {
	return e.Path + " is not in a worktree of this repository"
}

// SandboxBranchError reports an integration worktree that has the branch of a sandbox checked out, on which no other work
// may land.
type SandboxBranchError struct{ Path, Branch string }

func (e *SandboxBranchError) Error() string {
	return fmt.Sprintf("%s has %s checked out, the branch of a sandbox", e.Path, e.Branch)
}

// NotInSandboxError reports a current directory that is in no sandbox, where no invocation is named.
type NotInSandboxError struct{ Path string }

func (e *NotInSandboxError) Error() string { return e.Path + " is in no sandbox" }

// NotInsideError reports a process that does not run in a sandbox.
type NotInsideError struct{}

func (e *NotInsideError) Error() string { return "this process does not run in a sandbox" }

// NoParentError reports an integration worktree that was not created from a branch, so that its work cannot be merged into
// one.
type NoParentError struct {
	Name, Path string
	Branch     string // its branch; empty for an adopted worktree, which follows its HEAD
}

func (e *NoParentError) Error() string {
	if e.Branch == "" {
		return fmt.Sprintf("worktree %q was adopted, and has no parent branch", e.Name)
	}
	return fmt.Sprintf("worktree %q was not created from a branch", e.Name)
}

// NameTakenError reports a name that a present worktree has already.
type NameTakenError struct {
	Name string
	ID   string
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("there is a worktree %q already (%s)", e.Name, e.ID)
}

// AdoptedError reports a tree that is an integration worktree already.
type AdoptedError struct {
	Path string
	Name string
}

func (e *AdoptedError) Error() string {
	return fmt.Sprintf("%s is an integration worktree already, called %q", e.Path, e.Name)
}

// NoCommitError reports a revision that does not lead to a commit.
type NoCommitError struct {
	Name   string
	Unborn bool // HEAD is on this branch, which has no commits yet
}

func (e *NoCommitError) Error() string {
	if e.Unborn {
		return fmt.Sprintf("branch %q has no commits yet", e.Name)
	}
	return fmt.Sprintf("%q does not name a commit", e.Name)
}

// MissingBranchError reports that the branch does not exist any more that work is to be merged into or reverted on.
type MissingBranchError struct {
	ID        string // invocation whose sandbox lands there; empty if there is no sandbox
	Worktree  string // id of the integration worktree whose own branch it is; else empty
	Branch    string // short name
	RenamedTo string // short name that git has renamed the branch to; empty if none is known
	Commit    string // last commit of the branch that the sandbox is known to have

	Operation string           // git command that does the same on another branch: merge or revert; may be empty
	Arguments string           // its arguments: a branch, or revisions
	Finished  FinishedWorktree // the worktree that was to be finished
}

func (e *MissingBranchError) Error() string {
	if e.RenamedTo != "" {
		return fmt.Sprintf("branch %q was renamed to %q", e.Branch, e.RenamedTo)
	}
	return fmt.Sprintf("branch %q does not exist any more", e.Branch)
}

// BranchInTheWayError reports a branch called "agency", which keeps git from creating branches agency/….
type BranchInTheWayError struct{ Branch string }

func (e *BranchInTheWayError) Error() string {
	return fmt.Sprintf("a branch called %q exists, so git cannot create the branches %s/…", e.Branch, e.Branch)
}

// ArchivedError reports a worktree that was archived.
type ArchivedError struct {
	Name   string
	ID     string
	Branch string // the worktree's branch, which still exists; empty if it had none

	Invocation string // id of the invocation that was to land there, if any
	Successor  string // name of a usable worktree of the branch that the invocation lands on; empty if there is none
}

func (e *ArchivedError) Error() string {
	return fmt.Sprintf("worktree %q (%s) is archived", e.Name, e.ID)
}

// DirtyError reports a tree with uncommitted or untracked files.
type DirtyError struct {
	Path      string
	Finishing bool // it cannot be finished; else it cannot be archived
}

func (e *DirtyError) Error() string { return e.Path + " has uncommitted or untracked files" }

// ModifiedTreeError reports a tree that was changed although its creation never finished.
type ModifiedTreeError struct{ Path string }

func (e *ModifiedTreeError) Error() string {
	return e.Path + " was not created completely, and its files have been changed since"
}

// LiveSandboxesError reports a worktree that still has live sandboxes.
type LiveSandboxesError struct {
	Name        string
	Invocations []string
	Finishing   bool // it cannot be finished; else it cannot be archived
}

func (e *LiveSandboxesError) Error() string {
	return fmt.Sprintf("worktree %q still has sandboxes: %s", e.Name, strings.Join(e.Invocations, ", "))
}

// NoBranchError reports an integration worktree with a detached HEAD, so that there is no branch to land on.
type NoBranchError struct{ Worktree, Path string }

func (e *NoBranchError) Error() string {
	return fmt.Sprintf("HEAD of worktree %q is detached; there is no branch to land on", e.Worktree)
}

// MovedRepositoryError reports a repository whose records are still those of the path where it was before. Until they are
// moved, it has neither worktrees nor sandboxes.
type MovedRepositoryError struct {
	From   string // git directory at the former path; empty if it is unknown
	RepoID string // id of the records
}

func (e *MovedRepositoryError) Error() string {
	return "the repository was moved; its records are still those of " + cmp.Or(e.From, "its old path")
}
