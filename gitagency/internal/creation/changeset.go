package creation

import (
	"context"
	"errors"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// chooseChangeset decides how the tree of a plan is made, once the commit that it starts from is known, and returns the backend.
// An overlay or a clone that was asked for and is not possible is refused; with auto, a worktree takes the place of an overlay. It
// says what it chose.
func chooseChangeset(ctx context.Context, r *core.Repository, repo *git.Repo, req *Plan, point StartPoint) (changeset.Backend, error) {
	asked := req.prims.Changeset
	if req.CloneSource != "" && asked != settings.ChangesetClone {
		return nil, &fault.InvalidError{What: "--clone-source", Value: req.CloneSource, Want: "--changeset clone"}
	}
	if asked == settings.ChangesetClone {
		return chooseClone(ctx, r, repo, req, point)
	}
	if asked != settings.ChangesetOverlay && asked != settings.ChangesetAuto {
		return core.WorktreeBackend(repo), nil
	}
	why, err := whyNoOverlay(ctx, r, repo, req, point)
	switch {
	case err != nil:
		return nil, err
	case why == "":
		if req.prims.Changeset = settings.ChangesetOverlay; asked == settings.ChangesetAuto {
			req.warnAuto(r, "the changeset of this sandbox is overlay: its files exist only for commands in it")
		}
		return r.OverlayBackend(repo), nil
	case asked == settings.ChangesetAuto:
		req.warnAuto(r, "the changeset of this sandbox is worktree, since an overlay is not possible: "+why)
		req.prims.Changeset = settings.ChangesetWorktree
		return core.WorktreeBackend(repo), nil
	}
	return nil, &fault.UnsupportedError{Primitive: "changeset", Value: asked, Why: why + "; --changeset worktree works"}
}

// warnAuto says what the changeset auto has become.
func (p *Plan) warnAuto(r *core.Repository, message string) {
	if !p.QuietAuto {
		r.Warn("%s", message)
	}
}

// whyNoOverlay returns the reason why the tree of a plan cannot be an overlay; empty if it can.
func whyNoOverlay(ctx context.Context, r *core.Repository, repo *git.Repo, req *Plan, point StartPoint) (string, error) {
	switch {
	case req.prims.Isolation != settings.IsolationOS:
		return "an overlay exists only behind walls, and --isolation " + req.prims.Isolation + " has none", nil
	case worktree.EntrySetting(repo) != "":
		return explainEntrySetting(repo), nil
	case point.hasSubmodules:
		return "the commit has submodules", nil
	}
	if why := confine.WhyNoOverlay(r.DataDir); why != "" {
		return r.DataDir + ": " + why, nil
	}
	return "", context.Cause(ctx)
}

// explainEntrySetting says why neither an overlay nor a clone is possible.
func explainEntrySetting(repo *git.Repo) string {
	return "the repository has the setting " + worktree.EntrySetting(repo) + ", which only a worktree follows"
}

// chooseClone returns the backend for a clone, or refuses it.
func chooseClone(ctx context.Context, r *core.Repository, repo *git.Repo, req *Plan, point StartPoint) (changeset.Backend, error) {
	hardlinks, err := r.Settings.CloneHardlinks()
	if err != nil {
		return nil, err
	}
	refuse := func(why string) (changeset.Backend, error) {
		return nil, &fault.UnsupportedError{Primitive: "changeset", Value: settings.ChangesetClone, Why: why}
	}
	switch {
	case worktree.EntrySetting(repo) != "":
		return refuse(explainEntrySetting(repo) + "; --changeset worktree works")
	case point.hasSubmodules:
		return refuse("the commit has submodules; --changeset worktree works")
	case hardlinks && req.prims.Isolation == settings.IsolationOS:
		return refuse("with agency.clone.hardlinks a command could change the objects of the repository through its links; to borrow them instead: git config agency.clone.hardlinks false")
	}
	find := clone.FindSource
	if req.restores != "" { // the remote may have been removed since that sandbox started
		find = clone.FindSourceOrDefault
	}
	source, err := find(ctx, repo, req.CloneSource)
	var missing *clone.NoRemoteError
	if errors.As(err, &missing) {
		return nil, &fault.InvalidError{What: "--clone-source", Value: missing.Name, Want: "the name of a remote" + listRemotes(missing.Remotes) + ", or . for this repository"}
	}
	if err != nil {
		return nil, err
	}
	req.CloneSource = source.Name
	return changeset.Clone{Worktree: core.WorktreeBackend(repo), Source: source, Without: []string{core.SandboxHeads}, Hardlinks: hardlinks}, nil
}

// listRemotes returns a list of remotes in parentheses, for a message; empty if there are none.
func listRemotes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
