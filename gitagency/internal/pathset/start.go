package pathset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// StartRequest describes a sandbox over plain directories.
type StartRequest struct {
	Paths      []string         // required: directories, absolute or relative to the directory of the caller
	Name       string           // label for users; need not be unique
	Runner     string           // agent that it is for; empty for none
	Mode       string           // one of the modes of store; default: ModeHeadless
	Primitives store.Primitives // empty fields come from the profile, then from the defaults; the changeset is always an overlay
	Profile    string
	Limits     confine.Limits // upper limits for its commands
}

// Start creates a sandbox over plain directories, or fails and leaves no sandbox. r is the repository that Open returned. It reads all
// files of the directories, writes nothing there, and runs nothing.
func Start(ctx context.Context, r *core.Repository, req StartRequest) (core.Invocation, error) {
	plan, err := planStart(ctx, r, req)
	if plan.image != nil {
		defer plan.image.Close()
	}
	if err != nil {
		return core.Invocation{}, err
	}
	if err := ensureRepositories(r); err != nil {
		return core.Invocation{}, err
	}
	plan.copies.repo = r
	defer plan.copies.close()
	if plan.fields.PathsBase, err = captureBase(ctx, r, plan.fields.Paths, &plan.copies); err != nil {
		return core.Invocation{}, err
	}
	lock, err := r.HoldLock(ctx)
	if err != nil {
		return core.Invocation{}, err
	}
	defer lock.Close()
	return plan.create(ctx, r, lock.Repo)
}

// startPlan is a checked request: everything that can be decided without the lock.
type startPlan struct {
	StartRequest
	prims  store.Primitives
	limits store.Limits
	fields store.PathsFields
	copies copySet

	image    io.Closer      // keeps the image of its software until the record names it
	allowed  *store.Allowed // of a restored sandbox
	restored *keptWork      // changes of a restored sandbox; nil for others
}

func planStart(ctx context.Context, r *core.Repository, req StartRequest) (plan startPlan, err error) {
	check := creation.Request{Name: req.Name, Runner: req.Runner, Mode: req.Mode}
	if err := creation.CheckLabels(r, &check); err != nil {
		return plan, err
	}
	req.Mode = check.Mode
	plan.StartRequest = req
	if plan.prims, err = choosePrimitives(r, req); err != nil {
		return plan, err
	}
	if plan.limits, err = sandbox.EnforceableLimits(ctx, r, req.Limits); err != nil {
		return plan, err
	}
	if plan.fields.Paths, err = resolvePaths(r, req.Paths); err != nil {
		return plan, err
	}
	if plan.image, err = sandbox.UseImage(ctx, r, &plan.prims); err != nil {
		return plan, err
	}
	return plan, checkOverlays(ctx, r, plan)
}

// choosePrimitives fills the primitives of a request. The changeset is an overlay, which needs walls: without them, nothing would keep
// commands from writing to the directories themselves.
func choosePrimitives(r *core.Repository, req StartRequest) (store.Primitives, error) {
	switch asked := req.Primitives.Changeset; asked {
	case "", settings.ChangesetOverlay, settings.ChangesetAuto:
		req.Primitives.Changeset = settings.ChangesetOverlay
	default:
		return store.Primitives{}, &fault.UnsupportedError{Primitive: "changeset", Value: asked, Why: "a sandbox over plain directories is an overlay of each"}
	}
	prims, err := r.Settings.ChoosePrimitives(req.Primitives, req.Profile)
	if err == nil && !prims.IsLocal() {
		return prims, &fault.UnsupportedError{
			Primitive: "platform", Value: prims.Platform, Why: "a sandbox over plain directories is used on this machine; use --platform " + settings.PlatformLocal,
		}
	}
	if err == nil && prims.Isolation != settings.IsolationOS {
		err = &fault.UnsupportedError{
			Primitive: "isolation", Value: prims.Isolation,
			Why: "without walls, commands could write to the directories themselves; use --isolation " + settings.IsolationOS,
		}
	}
	return prims, err
}

// checkOverlays refuses walls that this machine cannot build, and marks the directories on which it cannot mount an overlay.
func checkOverlays(ctx context.Context, r *core.Repository, plan startPlan) error {
	if why := confine.WhyNoOverlay(existingParent(r.DataDir)); why != "" {
		return &fault.UnsupportedError{Primitive: "changeset", Value: settings.ChangesetOverlay, Why: r.DataDir + ": " + why}
	}
	if err := sandbox.CheckWalls(ctx, r, plan.prims); err != nil {
		return err
	}
	for {
		m := store.InvocationMeta{PathsFields: plan.fields, Allowed: plan.allowed}
		_, err := sandbox.Placeholder(r).PlanWalls(sandbox.WallsRequest{Primitives: plan.prims, Runner: plan.Runner, Allowed: m.WallGrants(), Trial: true})
		if !markCopied(plan.fields.Paths, err) {
			return explainRefusal(plan.fields.Paths, sandbox.AttributeToSetting(r, err))
		}
	}
}

// markCopied marks the directory for which walls were refused as one of which commands see a copy, and reports whether that helps.
func markCopied(paths []store.PathMeta, err error) bool {
	var refused *walls.RefusedError
	if !errors.As(err, &refused) || !refused.NoOverlay {
		return false
	}
	for i := range paths {
		if p := &paths[i]; refused.Path == store.PrivatePrefix+p.Path && p.Copied == "" {
			p.Copied = refused.Why
			return true
		}
	}
	return false
}

// existingParent returns the innermost directory at or above a path that exists.
func existingParent(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// explainRefusal names the directory for which walls cannot be planned, instead of the grant that stands for it.
func explainRefusal(paths []store.PathMeta, err error) error {
	var refused *walls.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	for _, p := range paths {
		if refused.Path == store.PrivatePrefix+p.Path {
			return &fault.UnsafePathError{Path: p.Path, Why: "no overlay can be mounted on it: " + refused.Why}
		}
	}
	return err
}

// captureBase copies the directories of which commands see a copy, and writes the state of all of them as a commit, which no ref keeps
// yet. It marks the directories with a file that cannot be changed through an overlay, too.
func captureBase(ctx context.Context, r *core.Repository, paths []store.PathMeta, copies *copySet) (commit string, err error) {
	repo := States(r).Git
	s := &scanner{blobs: newBlobWriter(repo), tree: Tree{}}
	for n := range paths {
		p := &paths[n]
		err := s.captureDirectory(ctx, n, p, copies)
		switch {
		case fault.Is[*fault.UnsafePathError](err): // it names the directory
			return "", err
		case err != nil:
			return "", fmt.Errorf("read %s: %w", p.Given, err)
		}
	}
	if err := s.blobs.flush(ctx); err != nil {
		return "", err
	}
	tree, err := s.tree.Write(ctx, repo, nil)
	if err != nil {
		return "", err
	}
	return repo.CommitTree(ctx, git.WorktreeSpec{Author: core.ToolIdentity}, tree, nil, "agency: directories at the start of a sandbox")
}

// captureDirectory reads the directory n, or the copy of it that it makes.
func (s *scanner) captureDirectory(ctx context.Context, n int, p *store.PathMeta, copies *copySet) error {
	if p.Copied == "" {
		s.checkOwners, s.omit = true, nil
		err := s.scanTop(ctx, n, p.Path)
		var foreign *ownerError
		if !errors.As(err, &foreign) {
			return err
		}
		s.removeDirectory(n)
		p.Copied = strings.TrimSuffix(p.Path+strings.TrimPrefix(foreign.path, strconv.Itoa(n)), "/") + " " + foreign.why
	}
	omit, err := copies.add(ctx, n, *p)
	if err != nil {
		return err
	}
	s.checkOwners, s.omit = false, omit
	return s.scanTop(ctx, n, copies.path(n))
}

// scanTop reads all files of the directory n, which is at a path.
func (s *scanner) scanTop(ctx context.Context, n int, at string) error {
	dir, err := beneath.OpenDeep(at)
	if err != nil {
		return err
	}
	return errors.Join(s.scanDirectory(ctx, n, dir), dir.Close())
}

// create is the transaction. Its commit point is the record; before it everything is undone on failure.
func (p *startPlan) create(ctx context.Context, r *core.Repository, repo *git.Repo) (core.Invocation, error) {
	empty, err := emptyCommit(ctx, repo)
	if err != nil {
		return core.Invocation{}, err
	}
	id, at, err := allocateID(ctx, r, repo)
	if err != nil {
		return core.Invocation{}, err
	}
	elapsed := r.Opts.Now().Sub(at)
	tree, states := r.Store.SandboxTreePath(r.ID, id), States(r).Git
	err = r.CreateTree(ctx, repo, core.Creation{
		Verb: "start", RecordDir: r.Store.InvocationDir(r.ID, id),
		MakeRecordDir: func() error { return r.Store.CreateInvocationDir(r.ID, id) },
		Backend:       core.WorktreeBackend(repo),
		Spec: changeset.Spec{
			ID: id, Tree: tree, OverlayDir: r.Store.OverlayDir(r.ID, id), Branch: core.SandboxRef(id), Base: empty.commit, BaseTree: empty.tree,
			Scratch: r.Store.InvocationDir(r.ID, id), Reason: "agency: start " + id,
		},
		Marker: guard.Sandbox,
		FillTree: func() error {
			if err := p.copies.moveTo(id, p.fields.Paths); err != nil {
				return err
			}
			if p.restored != nil {
				if err := p.restored.write(ctx, r, id, p.fields.Paths); err != nil {
					return err
				}
			}
			if err := states.CreateRef(ctx, changeset.BaseRef(id), p.fields.PathsBase, "agency: start "+id); err != nil {
				return err
			}
			return states.SyncRef(changeset.BaseRef(id))
		},
		UndoFill: func() error {
			return errors.Join(durable.RemoveTree(r.Store.WallsDir(r.ID, id)), changeset.RemoveRef(context.WithoutCancel(ctx), states, changeset.BaseRef(id)))
		},
		WriteRecord: func() error {
			return r.Store.WriteInvocationMeta(r.ID, store.InvocationMeta{
				SchemaVersion: store.SchemaVersion, InvocationID: id, InvocationName: p.Name, SandboxPath: tree,
				SandboxBranch: core.ShortBranch(core.SandboxRef(id)), BaseCommit: empty.commit, Runner: p.Runner, Mode: p.Mode,
				Status: store.StatusStarting, StartedAt: at, StartedNS: max(0, elapsed.Nanoseconds()), Primitives: p.prims, Limits: p.limits, Allowed: p.allowed, PathsFields: p.fields,
			})
		},
	})
	if err != nil {
		return core.Invocation{}, fmt.Errorf("create sandbox %s: %w", id, err)
	}
	sandbox.SaveWallsTrial(r, p.prims)
	return core.InvocationFromEntry(r.Store.Invocation(r.ID, id, nil), nil), nil
}

// empty is a commit without files, on which the trees of all sandboxes are based: their files are in the directories.
type empty struct{ commit, tree string }

func emptyCommit(ctx context.Context, repo *git.Repo) (e empty, err error) {
	const epoch = "0 +0000" // so that there is only one
	none := &object.BuiltTree{}
	none.Encode(format)
	top := object.Raw{Kind: "tree", OID: none.OID, Content: []byte{}}
	who := object.Signature{Identity: core.ToolIdentity, When: epoch}.String()
	c := object.Commit{Tree: top.HexOID(), Author: who, Committer: who, Message: "agency: sandboxes over plain directories have their files elsewhere\n"}
	made := c.Encode(format)
	return empty{made.HexOID(), top.HexOID()}, repo.WriteObjects(ctx, format, []object.Raw{top, made})
}

// allocateID allocates an id that nothing uses.
func allocateID(ctx context.Context, r *core.Repository, repo *git.Repo) (id string, at time.Time, err error) {
	taken, err := r.ShortIDCheck()
	if err != nil {
		return "", at, err
	}
	return r.AllocateID(ctx, func(id string) (string, error) {
		if other := taken(id); other != "" {
			return other, nil
		}
		path, _ := store.FirstExisting(r.Store.InvocationDir(r.ID, id), r.Store.SandboxDir(r.ID, id), repo.AdminDir(id), repo.RefPath(core.SandboxRef(id)))
		return path, nil
	})
}
