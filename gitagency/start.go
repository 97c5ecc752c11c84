package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// StartRequest describes the sandbox to create.
type StartRequest struct {
	Worktree   string     // as for Repository.Worktree
	Name       string     // label for users; need not be unique
	Runner     string     // recorded, not used
	Mode       string     // "headed" or "headless"; default: "headless"; recorded, not used
	Primitives Primitives // empty fields come from the profile, then from the defaults
	Profile    string     // profile: settings agency.<profile>.* in git config
	Limits     Limits     // upper limits for its commands

	// FromSnapshot is a snapshot whose state the sandbox starts in: a commit, in full or as a unique prefix, or
	// "<invocation>/<number>". Worktree then defaults to that of its invocation.
	FromSnapshot string
}

// Start creates an invocation and its sandbox, or fails and leaves nothing. It runs nothing in the sandbox.
func (r *Repository) Start(ctx context.Context, req StartRequest) (Invocation, error) {
	choice, err := r.planStart(ctx, req)
	if err != nil {
		return Invocation{}, err
	}
	repo, unlock, err := r.lockAndRecover(ctx)
	if err != nil {
		return Invocation{}, err
	}
	defer unlock()
	return r.startLocked(ctx, repo, choice)
}

// startPlan is a checked StartRequest: everything that can be decided without the repository lock.
type startPlan struct {
	StartRequest
	prims      Primitives
	limits     RecordedLimits
	origin     startPoint
	worktreeID string // id of the integration worktree
	verifies   string // invocation whose landing is verified in this sandbox; empty for ordinary ones
}

// planStart refuses what cannot be built before it takes the repository lock.
func (r *Repository) planStart(ctx context.Context, req StartRequest) (startPlan, error) {
	plan, err := r.planPrimitives(ctx, req)
	if err != nil {
		return plan, err
	}
	if plan.origin, err = r.snapshotStartPoint(ctx, req.FromSnapshot); err != nil {
		return plan, err
	}
	return plan, r.planWorktree(&plan)
}

// planVerifyStart plans the temporary sandbox in which the landing of an invocation is verified.
func (r *Repository) planVerifyStart(ctx context.Context, req StartRequest, verifies string, origin startPoint) (startPlan, error) {
	plan, err := r.planPrimitives(ctx, req)
	if err != nil {
		return plan, err
	}
	plan.verifies, plan.origin = verifies, origin
	return plan, r.planWorktree(&plan)
}

// planPrimitives chooses the primitives and limits of a request, and refuses those that this machine cannot build.
func (r *Repository) planPrimitives(ctx context.Context, req StartRequest) (plan startPlan, err error) {
	if err := req.check(); err != nil {
		return plan, err
	}
	plan.StartRequest = req
	if plan.prims, err = r.choosePrimitives(req.Primitives, req.Profile); err != nil {
		return plan, err
	}
	if err := r.checkWalls(ctx, plan.prims); err != nil {
		return plan, err
	}
	plan.limits, err = r.enforceableLimits(ctx, req.Limits)
	return plan, err
}

// planWorktree finds the integration worktree of a plan.
func (r *Repository) planWorktree(plan *startPlan) error {
	wt, err := r.Worktree(cmp.Or(plan.Worktree, plan.origin.worktreeID))
	if err == nil {
		err = wt.checkUsable()
	}
	plan.worktreeID = wt.ID
	return err
}

// startLocked is Start for a caller that holds the repository lock.
func (r *Repository) startLocked(ctx context.Context, repo *git.Repo, req startPlan) (Invocation, error) {
	origin := req.origin
	wt := r.worktreeFromEntry(r.store.Worktree(r.ID, req.worktreeID, nil)) // may have changed while waiting for the lock
	if err := wt.checkUsable(); err != nil {
		return Invocation{}, err
	}
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return Invocation{}, err
	}
	if err := checkListingIntact(listing); err != nil {
		return Invocation{}, err
	}

	if origin.base == "" {
		if origin.base, err = r.sandboxStartRev(wt, listing); err != nil {
			return Invocation{}, err
		}
	}
	var point startPoint
	id, at, err := r.allocateID(ctx, func(id string) (taken string, err error) {
		if path, there := store.FirstExisting(r.store.InvocationDir(r.ID, id), r.store.SandboxDir(r.ID, id), repo.AdminDir(id)); there {
			return path, nil
		}
		point, taken, err = r.resolveStartPoint(ctx, repo, origin, sandboxRef(id))
		return taken, err
	})
	if err != nil {
		return Invocation{}, err
	}
	elapsed := r.opts.Now().Sub(at)
	tree := r.store.SandboxTreePath(r.ID, id)
	if err := r.checkPlacement(tree, listing); err != nil {
		return Invocation{}, err
	}

	home := r.store.InvocationDir(r.ID, id)
	verb := "start"
	if req.verifies != "" {
		verb = verbVerify
	}
	err = r.createTree(ctx, repo, creation{
		verb:          verb,
		recordDir:     home,
		makeRecordDir: func() error { return r.store.CreateInvocationDir(r.ID, id) },
		spec: changeset.Spec{
			ID: id, Tree: tree, Branch: sandboxRef(id), Base: point.base, Scratch: home, Reason: "agency: " + verb + " " + id,
			Tip: point.head, FilesCommit: point.snapshot, IndexTree: point.index, UntrustedConfig: point.untrustedConfig,
		},
		marker: guard.Sandbox,
		writeRecord: func() error {
			return r.store.WriteInvocationMeta(r.ID, store.InvocationMeta{
				SchemaVersion: store.SchemaVersion, InvocationID: id, InvocationName: req.Name,
				IntegrationWorktreeID: wt.ID, SandboxPath: tree, SandboxBranch: shortBranch(sandboxRef(id)),
				BaseCommit: point.base, FromSnapshot: point.snapshot, VerifiesInvocation: req.verifies,
				Runner: req.Runner, Mode: req.Mode, Status: "starting", StartedAt: at, StartedNS: max(0, elapsed.Nanoseconds()), Primitives: req.prims, Limits: req.limits,
			})
		},
	})
	if err != nil {
		return Invocation{}, fmt.Errorf("create sandbox %s: %w", id, err)
	}
	return invocationFromEntry(r.store.Invocation(r.ID, id, nil), map[string]string{wt.ID: wt.Name}), nil
}

func (req *StartRequest) check() error {
	if req.Mode == "" {
		req.Mode = "headless"
	}
	if req.Mode != "headed" && req.Mode != "headless" {
		return &InvalidError{What: "mode", Value: req.Mode, Want: "headed or headless"}
	}
	if err := checkLabel("name", req.Name); err != nil {
		return err
	}
	return checkLabel("runner", req.Runner)
}

// checkLabel refuses labels that cannot be printed on one line of a terminal.
func checkLabel(what, label string) error {
	const maxLen = 100
	if len(label) > maxLen || !utf8.ValidString(label) || strings.ContainsFunc(label, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return &InvalidError{What: what, Value: label, Want: fmt.Sprintf("at most %d bytes of printable text", maxLen)}
	}
	return nil
}

// startPoint is the initial state of a sandbox.
type startPoint struct {
	base                  string // base commit, which the sandbox is compared with later
	snapshot, head, index string // to start from a snapshot: its commit, the commit at HEAD and the tree of the index
	untrustedConfig       bool   // do not run programs that the configuration of the repository names
	worktreeID            string // id of the integration worktree of the snapshot, if known
}

// resolveStartPoint resolves the start point to object ids, once. The same git call checks for what would make the
// creation fail: a tracked .agency, a branch called "agency", and an existing branch with the name of the sandbox's
// branch, which it returns as taken.
func (r *Repository) resolveStartPoint(ctx context.Context, repo *git.Repo, from startPoint, branch string) (_ startPoint, taken string, err error) {
	names := []string{from.base + "^{commit}", headsPrefix + branchNamespace, branch}
	sources := []string{from.base}
	if from.snapshot != "" {
		names = append(names, from.head+"^{commit}")
		sources = []string{from.snapshot, from.head, cmp.Or(from.index, from.head)}
	}
	first := len(names)
	for _, source := range sources {
		names = append(names, source+":"+guard.AgencyDir)
	}
	found, err := repo.Lookup(ctx, names...)
	if err != nil {
		return startPoint{}, "", err
	}
	if found[0].Missing() {
		return startPoint{}, "", &NoCommitError{Name: shortBranch(from.base)}
	}
	from.base = found[0].OID
	if from.snapshot != "" && found[3].Missing() {
		return startPoint{}, "", &NoCommitError{Name: from.head}
	}
	for i, tracked := range found[first:] {
		if !tracked.Missing() {
			commit := from.base
			if from.snapshot != "" {
				commit = sources[i]
			}
			return startPoint{}, "", &TrackedMarkerError{Commit: commit}
		}
	}
	switch {
	case !found[1].Missing():
		return startPoint{}, "", &BranchInTheWayError{Branch: branchNamespace}
	case !found[2].Missing():
		taken = branch
	}
	return from, taken, nil
}
