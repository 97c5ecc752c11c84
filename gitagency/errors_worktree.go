package gitagency

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// What keeps a directory from becoming, being or ceasing to be an integration worktree.

// NotIntegrationError is a tree that does not carry the integration marker.
type NotIntegrationError struct {
	Path     string
	Worktree string // its name, when there is a record that says it should
}

func (e *NotIntegrationError) Error() string {
	if e.Worktree != "" {
		return fmt.Sprintf("worktree %q has lost its marker, %s", e.Worktree, guard.Integration.Path(e.Path))
	}
	return fmt.Sprintf("%s is not in an integration worktree", e.Path)
}

// NotSandboxError is a tree in which nothing may run: it does not carry the sandbox marker, or carries the
// other one.
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

// OverlapError is a tree that would touch another one.
type OverlapError struct {
	Path     string
	Relation string // "is", "lies inside" or "contains"
	Other    string
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%s %s %s", e.Path, e.Relation, e.Other)
}

// InRepositoryError is a directory that belongs to a repository, and needs none of its own.
type InRepositoryError struct{ Path, Repository string }

func (e *InRepositoryError) Error() string {
	if e.Path == e.Repository {
		return e.Path + " is a repository; use that one"
	}
	return fmt.Sprintf("%s belongs to the repository at %s; use that one", e.Path, e.Repository)
}

// NotEmptyError is a directory that something was to be made in place of, and that has something in it.
type NotEmptyError struct{ Path string }

func (e *NotEmptyError) Error() string { return e.Path + " is not empty" }

// TrackedMarkerError is a commit, or what a checkout of it made, that has an .agency of its own.
type TrackedMarkerError struct {
	Commit string
}

func (e *TrackedMarkerError) Error() string {
	return fmt.Sprintf("commit %s brings its own %s, which is reserved for markers", e.Commit, guard.Dir)
}

// SandboxError is a sandbox where an integration worktree was wanted.
type SandboxError struct{ Path string }

func (e *SandboxError) Error() string { return e.Path + " is a sandbox" }

// NotWorktreeError is a path that is no worktree of the repository.
type NotWorktreeError struct{ Path string }

func (e *NotWorktreeError) Error() string {
	return e.Path + " is not in a worktree of this repository"
}

// NameTakenError is a name that a present worktree has already.
type NameTakenError struct {
	Name string
	ID   string
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("there is a worktree %q already (%s)", e.Name, e.ID)
}

// AdoptedError is a tree that is an integration worktree already.
type AdoptedError struct {
	Path string
	Name string
}

func (e *AdoptedError) Error() string {
	return fmt.Sprintf("%s is an integration worktree already, called %q", e.Path, e.Name)
}

// NoCommitError is a name that leads to no commit.
type NoCommitError struct {
	Name   string
	Unborn bool // the branch is there, but nothing was ever committed on it
}

func (e *NoCommitError) Error() string {
	if e.Unborn {
		return fmt.Sprintf("branch %q has no commits yet", e.Name)
	}
	return fmt.Sprintf("%q does not name a commit", e.Name)
}

// BranchInTheWayError is a branch called "agency", below which no other branch can exist.
type BranchInTheWayError struct{ Branch string }

func (e *BranchInTheWayError) Error() string {
	return fmt.Sprintf("a branch called %q is in the way of the branches %s/…", e.Branch, e.Branch)
}

// ArchivedError is a worktree that was archived.
type ArchivedError struct {
	Name   string
	ID     string
	Branch string // its own, which is still there; empty when it had none

	Invocation string // whose work was to land there, if that was asked for
}

func (e *ArchivedError) Error() string {
	return fmt.Sprintf("worktree %q (%s) is archived", e.Name, e.ID)
}

// DirtyError is a tree with work that is in no commit.
type DirtyError struct{ Path string }

func (e *DirtyError) Error() string { return e.Path + " has uncommitted or untracked files" }

// WorkedInError is a tree whose creation was never finished, and in which there is work all the same.
type WorkedInError struct{ Path string }

func (e *WorkedInError) Error() string {
	return e.Path + " was never finished, and still somebody worked in it"
}

// OffBranchError is a sandbox in which something else than its own branch is checked out.
type OffBranchError struct {
	ID     string
	On     string // a branch, or "detached"
	Branch string // its own
}

func (e *OffBranchError) Error() string {
	if e.On == git.Detached {
		return fmt.Sprintf("HEAD of sandbox %s is detached, and not on its branch, %s", e.ID, e.Branch)
	}
	return fmt.Sprintf("HEAD of sandbox %s is on %s, and not on its branch, %s", e.ID, e.On, e.Branch)
}

// StraysInTheWayError is files in a sandbox that git does not know, where a merge would put others.
type StraysInTheWayError struct {
	ID    string
	Path  string   // of the sandbox
	Files []string // in it
}

func (e *StraysInTheWayError) Error() string {
	return fmt.Sprintf("untracked files in %s are in the way of others:\n%s", e.Path, someOf(e.Files))
}
