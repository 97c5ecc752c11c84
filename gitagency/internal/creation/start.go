// Package creation makes sandboxes: new ones, and new ones with the content of one that has ended. It is all or nothing, and
// runs nothing in the sandbox.
package creation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Request describes the sandbox to create.
type Request struct {
	Worktree    string           // as for Repository.Worktree
	Name        string           // label for users; need not be unique
	QuietAuto   bool             // do not say what the changeset auto has become
	PreferredID string           // id that the invocation gets if no other one has it; empty for a new one
	Runner      string           // a known or configured agent, whose login a private home shows; empty for none
	Mode        string           // one of the modes of store; default: ModeHeadless
	Primitives  store.Primitives // empty fields come from the profile, then from the defaults
	Profile     string           // profile: settings agency.<profile>.* in git config
	Limits      confine.Limits   // upper limits for its commands

	// FromSnapshot is a snapshot whose state the sandbox starts in: a commit, in full or as a unique prefix, or
	// "<invocation>/<number>". Worktree then defaults to that of its invocation.
	FromSnapshot string

	Run  store.RunFields // what a run records in advance; empty for a sandbox without a run
	Task []byte          // task of the run, kept in a file beside the record; nil for none

	CloneSource string // source of a clone: the name of a remote, or clone.ThisRepository; empty for the default

	From        string // commit-ish to start from instead of the integration branch, on which the work lands all the same
	WithChanges bool   // start with the uncommitted work in the tree of the integration worktree

	Progress func(CopyProgress) // called as files of agency.copy are copied, never concurrently; may be nil
}

// Start creates an invocation and its sandbox, or fails and leaves nothing. It runs nothing in the sandbox.
func Start(ctx context.Context, r *core.Repository, req Request) (core.Invocation, error) {
	choice, err := planStart(ctx, r, req)
	defer choice.releaseImage()
	defer func() { _ = choice.waitForWalls() }() // if something fails before the result is needed
	if err != nil {
		return core.Invocation{}, err
	}
	countLeft, waitForCount := beginCountLeftBehind(ctx, r, choice)
	defer waitForCount()
	lock, err := r.HoldLock(ctx)
	if err != nil {
		return core.Invocation{}, err
	}
	defer lock.Close()
	inv, err := start(ctx, r, lock.Repo, choice, lock)
	if err != nil {
		return inv, err
	}
	if choice.wallsChecked != nil {
		sandbox.SaveWallsTrial(r, choice.prims)
	}
	n, err := countLeft(inv.Entry.Record.Primitives.Changeset, *choice.baseTree)
	if err != nil {
		r.Warn("uncommitted work in the integration worktree could not be counted: %v", err)
	} else if n > 0 {
		r.Warn("the sandbox does not have the uncommitted work in the integration worktree (paths: %d); --with-changes takes it along", n)
	}
	return inv, nil
}

// Plan is a checked Request: everything that can be decided without the repository lock.
type Plan struct {
	Request
	prims      store.Primitives
	limits     store.Limits
	allowed    *store.Allowed // of a restored sandbox
	origin     StartPoint
	worktreeID string  // id of the integration worktree
	baseTree   *string // set to the tree of the base commit when that is known; nil if it is not of interest

	wallsChecked func() error // of BeginCheckWalls; nil if none was begun
	verifies     string       // invocation whose landing is verified in this sandbox; empty for ordinary ones
	restores     string       // ended invocation whose sandbox is restored; empty for ordinary ones
	image        io.Closer    // keeps the image of its software until the record names it; may be nil
}

// planStart refuses what cannot be built before it takes the repository lock.
func planStart(ctx context.Context, r *core.Repository, req Request) (Plan, error) {
	if err := checkRunner(r, req.Runner); err != nil {
		return Plan{}, err
	}
	plan, err := planPrimitives(ctx, r, req)
	if err != nil {
		return plan, err
	}
	plan.baseTree = new(string)
	if local := plan.prims.IsLocal(); !local && req.Run.SessionID == "" {
		return plan, &fault.UnsupportedError{Primitive: "platform", Value: plan.prims.Platform, Why: "only a run is executed there, and start runs nothing: use 'git agency run'"}
	} else if local { // the software and the walls of another machine are there
		if plan.image, err = sandbox.UseImage(ctx, r, &plan.prims); err != nil {
			return plan, err
		}
		plan.wallsChecked = sandbox.BeginCheckWalls(ctx, r, plan.prims)
	}
	if plan.origin, err = requestedOrigin(ctx, r, req); err != nil {
		return plan, err
	}
	return plan, planWorktree(r, &plan)
}

// PlanVerify plans the temporary sandbox in which the landing of an invocation is verified.
func PlanVerify(ctx context.Context, r *core.Repository, req Request, verifies string, origin StartPoint) (Plan, error) {
	plan, err := planPrimitives(ctx, r, req)
	if err == nil {
		err = sandbox.CheckWalls(ctx, r, plan.prims)
	}
	if err != nil {
		return plan, err
	}
	plan.verifies, plan.origin = verifies, origin
	return plan, planWorktree(r, &plan)
}

// planPrimitives chooses the primitives and limits of a request, and refuses limits that this machine cannot enforce.
func planPrimitives(ctx context.Context, r *core.Repository, req Request) (plan Plan, err error) {
	if err := req.check(); err != nil {
		return plan, err
	}
	plan.Request = req
	if plan.prims, err = r.Settings.ChoosePrimitives(req.Primitives, req.Profile); err != nil {
		return plan, err
	}
	if !plan.prims.IsLocal() {
		plan.limits, err = sandbox.ValidLimits(req.Limits)
		return plan, err
	}
	plan.limits, err = sandbox.EnforceableLimits(ctx, r, req.Limits)
	return plan, err
}

// planWorktree finds the integration worktree of a plan.
func planWorktree(r *core.Repository, plan *Plan) error {
	wt, err := r.Worktree(cmp.Or(plan.Worktree, plan.origin.worktreeID))
	if err == nil {
		err = wt.CheckUsable()
	}
	if plan.worktreeID = wt.ID; plan.worktreeID != plan.origin.worktreeID {
		plan.origin.branch = ""
	}
	return err
}

// VerifyVerb is the verb of steps, events and records of a verification.
const VerifyVerb = "verify"

// waitForWalls waits for the check that this machine can build the walls, if one was begun.
func (p Plan) waitForWalls() error {
	if p.wallsChecked == nil {
		return nil
	}
	return p.wallsChecked()
}

// releaseImage lets the image be pruned if no record names it.
func (p Plan) releaseImage() {
	if p.image != nil {
		_ = p.image.Close() // a descriptor that is only locked
	}
}

// verb returns the verb of the steps of a creation.
func (p Plan) verb() string {
	switch {
	case p.verifies != "":
		return VerifyVerb
	case p.restores != "":
		return restoreVerb
	}
	return "start"
}

// StartLocked is Start for a caller that holds the repository lock, and goes on to do so.
func StartLocked(ctx context.Context, r *core.Repository, repo *git.Repo, req Plan) (core.Invocation, error) {
	return start(ctx, r, repo, req, nil)
}

// start creates the sandbox of a plan under the repository lock, and releases lock meanwhile unless it is nil.
func start(ctx context.Context, r *core.Repository, repo *git.Repo, req Plan, lock *core.HeldLock) (core.Invocation, error) {
	wt := r.WorktreeFromEntry(r.Store.Worktree(r.ID, req.worktreeID, nil)) // may have changed while waiting for the lock
	if err := wt.CheckUsable(); err != nil {
		return core.Invocation{}, err
	}
	listing, err := listWorktrees(ctx, r, repo, req.WithChanges)
	if err != nil {
		return core.Invocation{}, err
	}

	origin, err := findOrigin(ctx, r, repo, req, wt, listing)
	if err != nil {
		return core.Invocation{}, err
	}
	id, at, point, err := allocateStart(ctx, r, repo, origin, req.PreferredID)
	if err != nil {
		return core.Invocation{}, explainMissingBranch(ctx, r, repo, wt, origin, err)
	}
	backend, err := chooseChangeset(ctx, r, repo, &req, point)
	if err != nil {
		return core.Invocation{}, err
	}
	if req.baseTree != nil {
		*req.baseTree = point.baseTree
	}
	elapsed := r.Opts.Now().Sub(at)
	tree := r.Store.SandboxTreePath(r.ID, id)
	if err := cmp.Or(r.CheckPlacement(tree, listing), req.waitForWalls()); err != nil {
		return core.Invocation{}, err
	}

	home, verb := r.Store.InvocationDir(r.ID, id), req.verb()
	copyFiles, stopCopy, err := prepareCopy(ctx, r, repo, req, wt, id)
	if err != nil {
		return core.Invocation{}, err
	}
	defer stopCopy()
	snapshot, changes := point.Snapshot, ""
	if req.WithChanges {
		snapshot, changes = "", point.Snapshot // no ref keeps it
	}
	err = r.CreateTree(ctx, repo, core.Creation{
		Verb:          verb,
		RecordDir:     home,
		MakeRecordDir: func() error { return r.Store.CreateInvocationDir(r.ID, id) },
		Backend:       backend,
		Spec:          point.spec(r, id, "agency: "+verb+" "+id),
		SourceTree:    wt.TreePath,
		SourceID:      wt.ID,
		Marker:        guard.Sandbox,
		Lock:          lock,
		Recheck:       func() error { return r.WorktreeFromEntry(r.Store.Worktree(r.ID, wt.ID, nil)).CheckUsable() },
		FillTree:      func() error { return fillSandbox(ctx, repo, sandbox.Of(r, id), req) },
		UndoFill:      func() error { return durable.RemoveTree(r.Store.WallsDir(r.ID, id)) },
		CopyFiles:     copyFiles,
		WriteRecord: func() error {
			return r.Store.WriteInvocationMeta(r.ID, store.InvocationMeta{
				SchemaVersion: store.SchemaVersion, InvocationID: id, InvocationName: req.Name,
				IntegrationWorktreeID: wt.ID, SandboxPath: tree, SandboxBranch: core.ShortBranch(core.SandboxRef(id)),
				BaseCommit: point.Base, IntegrationBranch: point.branch, FromSnapshot: snapshot, StartChanges: changes, VerifiesInvocation: req.verifies, CloneSource: req.CloneSource,
				Runner: req.Runner, Mode: req.Mode, Status: store.StatusStarting, StartedAt: at, StartedNS: max(0, elapsed.Nanoseconds()), Primitives: req.prims, Limits: req.limits, Allowed: req.allowed, RunFields: req.Run,
			})
		},
	})
	if err != nil {
		return core.Invocation{}, fmt.Errorf("create sandbox %s: %w", id, err)
	}
	return core.InvocationFromEntry(r.Store.Invocation(r.ID, id, nil), map[string]store.WorktreeMeta{wt.ID: wt.Entry.Record}), nil
}

// fillSandbox writes what a new sandbox has besides the files of its commit.
func fillSandbox(ctx context.Context, repo *git.Repo, s *sandbox.Sandbox, req Plan) error {
	if req.prims.Changeset == settings.ChangesetClone {
		if err := sandbox.BeginClone(ctx, s.Repo, s.ID, req.prims); err != nil {
			return err
		}
	}
	if req.restores != "" {
		return fillRestored(ctx, repo, s, req)
	}
	if req.Task != nil {
		if err := durable.WriteFile(s.Repo.Store.TaskPath(s.Repo.ID, s.ID), req.Task, 0o600); err != nil {
			return err
		}
	}
	return populateSubmodules(ctx, s.Repo, repo, s.ID, "")
}

// listWorktrees lists the worktrees that a new sandbox could start from or overlap. Their commits are needed only to take
// uncommitted work along.
func listWorktrees(ctx context.Context, r *core.Repository, repo *git.Repo, withCommits bool) (listing worktree.Listing, err error) {
	if withCommits {
		listing, err = worktree.List(ctx, repo)
	} else {
		listing, err = r.ListIntegration(repo)
	}
	if err != nil {
		return listing, err
	}
	return listing, core.CheckListingIntact(listing)
}

// findOrigin completes the start point of a plan with the state of its worktree.
func findOrigin(ctx context.Context, r *core.Repository, repo *git.Repo, req Plan, wt core.Worktree, listing worktree.Listing) (StartPoint, error) {
	origin := req.origin
	if origin.branch != "" || req.verifies != "" {
		return origin, nil
	}
	start, err := r.FindSandboxStart(wt, listing)
	if err == nil && req.WithChanges && start.Rev != start.Head && start.HeadBranch != start.Rev {
		return origin, &fault.UnsafePathError{Path: wt.TreePath, Why: "it does not have its branch checked out, so that its uncommitted work belongs to other commits"}
	}
	if err == nil && req.WithChanges {
		origin, err = changesStartPoint(ctx, r, repo, wt, start.Head)
	}
	if err == nil {
		r.WarnDetached(wt, start)
	}
	origin.Base, origin.branch = cmp.Or(origin.Base, start.Rev), start.Branch
	return origin, err
}

// allocateStart allocates an id for a sandbox, the preferred one if that is free, and resolves its start point.
func allocateStart(ctx context.Context, r *core.Repository, repo *git.Repo, origin StartPoint, preferred string) (id string, at time.Time, point StartPoint, err error) {
	shortIDTaken, err := r.ShortIDCheck()
	if err != nil {
		return "", at, point, err
	}
	check := func(id string) (taken string, err error) {
		if other := shortIDTaken(id); other != "" {
			return other, nil
		}
		if path, there := store.FirstExisting(r.Store.InvocationDir(r.ID, id), r.Store.SandboxDir(r.ID, id), repo.AdminDir(id)); there {
			return path, nil
		}
		point, taken, err = resolveStartPoint(ctx, r, repo, origin, core.SandboxRef(id))
		return taken, err
	}
	if ids.Valid(preferred) {
		if taken, err := check(preferred); err != nil || taken == "" {
			return preferred, r.Now(), point, err
		}
	}
	id, at, err = r.AllocateID(ctx, check)
	return id, at, point, err
}

// CheckLabels refuses invalid labels of a request, and fills in its mode.
func CheckLabels(r *core.Repository, req *Request) error {
	if err := checkRunner(r, req.Runner); err != nil {
		return err
	}
	return req.check()
}

func (req *Request) check() error {
	if req.Mode == "" {
		req.Mode = store.ModeHeadless
	}
	if req.Mode != store.ModeHeaded && req.Mode != store.ModeHeadless {
		return &fault.InvalidError{What: "mode", Value: req.Mode, Want: "headed or headless"}
	}
	given := []string{}
	for flag, set := range map[string]bool{"--from": req.From != "", "--from-snapshot": req.FromSnapshot != "", "--with-changes": req.WithChanges} {
		if set {
			given = append(given, flag)
		}
	}
	if slices.Sort(given); len(given) > 1 {
		return &fault.InvalidError{What: "combination", Value: strings.Join(given, " "), Want: "only one of these options"}
	}
	if err := checkLabel("name", req.Name); err != nil {
		return err
	}
	if core.IsIDForm(req.Name) {
		return &fault.InvalidError{What: "name", Value: req.Name, Want: "a name that does not look like an id: neither @, @-1, four hexadecimal digits nor a full id"}
	}
	return checkLabel("runner", req.Runner)
}

// checkLabel refuses labels that cannot be printed on one line of a terminal.
func checkLabel(what, label string) error {
	const maxLen = 100
	if len(label) > maxLen || !utf8.ValidString(label) || strings.ContainsFunc(label, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return &fault.InvalidError{What: what, Value: label, Want: fmt.Sprintf("at most %d bytes of printable text", maxLen)}
	}
	return nil
}
