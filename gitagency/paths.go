package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/pathland"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Reasons why a path of a sandbox over plain directories is left out of its changes.
const (
	LeftOutGit        = pathset.LeftOutGit        // part of a git directory, whose configuration and hooks never land
	LeftOutSpecial    = pathset.LeftOutSpecial    // neither a file, a symbolic link nor a directory
	LeftOutUnreadable = pathset.LeftOutUnreadable // the user may not read it
	LeftOutDeep       = pathset.LeftOutDeep       // a directory in too many others
	LeftOutUnknown    = pathset.LeftOutUnknown    // removed, but it was left out of the state at the start
)

// StartPathsRequest describes a sandbox over plain directories.
type StartPathsRequest struct {
	Paths      []string   // required: directories, absolute or relative to Options.Dir; symlinks are followed
	Name       string     // label for users; need not be unique
	Runner     string     // as in StartRequest
	Mode       string     // as in StartRequest
	Primitives Primitives // as in StartRequest; the changeset is an overlay of each directory, and the isolation must be os
	Profile    string     // as in StartRequest
	Limits     Limits     // upper limits for its commands
}

// StartPaths creates a sandbox over plain directories, in git or not, or fails and leaves no sandbox. Commands in it see each directory
// at its own path, and change an overlay of it, or a copy if no overlay can be mounted on it (Invocation.CopiedPaths). Land applies the
// changes to the directories, all of them or none; until then the directories stay as they are. It needs no repository. A directory must
// not overlap another one, the data directory, an integration tree or a sandbox, by any spelling (reason.UnsafePath).
func StartPaths(ctx context.Context, req StartPathsRequest, opts Options) (Invocation, error) {
	r, err := pathset.Open(ctx, opts.pathsOptions())
	if err != nil {
		return Invocation{}, publicError(err)
	}
	i, err := pathset.Start(ctx, r, pathset.StartRequest{
		Paths: req.Paths, Name: req.Name, Runner: req.Runner, Mode: req.Mode, Primitives: store.Primitives(req.Primitives), Profile: req.Profile,
		Limits: req.Limits.internal(),
	})
	return newInvocation(i), publicError(err)
}

// OpenPaths opens the sandboxes over plain directories, wherever the caller is. Of the methods of Repository, those that list, show,
// run commands, compare, land, discard, restore, diagnose and prune apply to them, and those that list and check out snapshots; there are no
// integration worktrees. The error is a *NotFoundError if no such sandbox was ever started.
func OpenPaths(ctx context.Context, opts Options) (*Repository, error) {
	r, err := pathset.Open(ctx, opts.pathsOptions())
	if err == nil && !pathset.Exists(r) {
		err = &fault.NotFoundError{Kind: "sandbox over plain directories", Query: r.CommonDir}
	}
	if err != nil {
		return nil, publicError(err)
	}
	return newRepository(r), nil
}

func (o Options) pathsOptions() core.Options {
	internal := o.internal()
	internal.Recover = pathland.Recover
	return internal
}

// IsPaths reports whether the repository is that of the sandboxes over plain directories: see OpenPaths.
func (r *Repository) IsPaths() bool { return r.core.IsPaths() }

// landPaths is Land for a sandbox over plain directories.
func (r *Repository) landPaths(ctx context.Context, req LandRequest) (LandResult, error) {
	for _, option := range []struct {
		flag  string
		isSet bool
	}{
		{"--strategy", req.Strategy != ""},
		{"--commit-all", req.CommitAll},
		{"--leave", req.Leave},
		{"--message", req.Message != ""},
		{"--require-base", req.RequireBase},
		{"--verify", req.Verify != ""},
		{"--resolve", req.Resolve != nil},
	} {
		if option.isSet {
			return LandResult{}, publicError(notForPaths(option.flag))
		}
	}
	res, err := pathland.Land(ctx, r.core, req.ID, req.DryRun)
	if res.Invocation == "" {
		return LandResult{}, publicError(err)
	}
	result := LandResult{Invocation: res.Invocation, Commit: res.Snapshot, Already: res.Already, DryRun: res.DryRun, Files: res.Files, LeftOut: []LeftOut{}}
	for _, l := range res.LeftOut {
		result.LeftOut = append(result.LeftOut, newLeftOut(snapshots.LeftOut(l)))
	}
	return result, publicError(err)
}

// notForPaths refuses an option of a landing that sandboxes over plain directories do not have.
func notForPaths(flag string) error {
	return &fault.InvalidError{What: "option", Value: flag, Want: "none: a sandbox over plain directories has no commits"}
}

// statesRepository returns the repository that holds snapshots: of sandboxes over plain directories, it is another one.
func (r *Repository) statesRepository() *core.Repository {
	if r.IsPaths() {
		return pathset.States(r.core)
	}
	return r.core
}
