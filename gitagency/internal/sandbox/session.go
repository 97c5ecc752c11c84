package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// nsSession is this process's use of the namespaces of a sandbox.
type nsSession struct {
	sandbox   *Sandbox
	walls     Walls
	ns        *proc.Namespace
	handoff   *handoff.Exchange
	treeDir   *os.File  // tree of the sandbox
	image     io.Closer // keeps the image of its software
	stopProxy func()    // stops the proxy
	refused   refusedTargets

	relayFailures   *os.File             // file with the failures of the relays; nil without relays
	failuresAtStart outlet.RelayFailures // its content when this command began

	setupLock *os.File // held by the creator of the namespaces until git state is exchanged; nil when joined

	exclusive     bool          // the caller holds the repository lock and runs the imports itself
	quiet         bool          // no warning about an import that fails: the caller reports it
	importTimeout time.Duration // limit of each import; 0 is none
	importPending bool          // the upper directory has changes that were not imported
	failedUpper   string        // fingerprint of the upper directory when the last import failed; else empty
	importErr     error         // error of that import
}

// enterNamespace builds the walls of the sandbox or joins existing ones, then exchanges git state in both directions.
// If any wall cannot be built, it fails and nothing is run.
func (s *Sandbox) enterNamespace(ctx context.Context, h *Handle) (*nsSession, error) {
	in, err := s.prepareNamespace(ctx, h)
	if err == nil {
		err = in.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// prepareNamespace does the part of enterNamespace that does not need finished walls; they are built meanwhile.
func (s *Sandbox) prepareNamespace(ctx context.Context, h *Handle) (_ *nsSession, err error) {
	in := &nsSession{sandbox: s, stopProxy: func() {}, exclusive: h.lockedRepo != nil}
	defer func() {
		if err != nil {
			err = in.abortEnter(ctx, err)
		}
	}()
	pinned := h.Prims.SoftwareImage
	if in.image, err = UseImage(ctx, s.Repo, &h.Prims); err == nil && h.Prims.SoftwareImage != pinned {
		err = s.pinImage(h.Prims)
	}
	if err != nil {
		return nil, err
	}
	if h.overlay == nil { // else it exists only when the walls do
		if in.treeDir, _, err = h.OpenWorkDir("."); err != nil {
			return nil, err
		}
	}
	if err = in.attach(ctx, h); err != nil {
		return nil, err
	}
	if in.walls.plan.NetworkOnly {
		return in, nil
	}
	if in.handoff, err = handoff.Open(s.Repo, s.ID, func() []string { return s.helperEnvironment(in.walls) }); err != nil {
		return nil, err
	}
	if in.exclusive {
		in.handoff.LockedRepo, in.handoff.ScriptTimeout = h.lockedRepo, discardGitTimeout
	}
	if in.setupLock != nil { // otherwise other commands are using both sides
		in.importPending, err = in.handoff.HasPendingImport()
	}
	return in, err
}

// enter waits for the walls and exchanges git state.
func (in *nsSession) enter(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = in.abortEnter(ctx, err)
		}
	}()
	if err := in.ns.WaitReady(ctx); err != nil {
		return err
	}
	if in.treeDir == nil {
		if in.treeDir, err = in.ns.OpenDir(ctx, in.sandbox.Tree); err != nil {
			return err
		}
	}
	if in.exclusive { // the caller imports everything itself
		return nil
	}
	if in.setupLock != nil {
		in.sandbox.importOutsideOrWarn(ctx)
		if in.importPending { // by a command whose git-agency process was killed
			in.tryImport(ctx)
		}
		if in.failedUpper == "" { // an export would overwrite an index that is not imported
			if err := in.handoff.Export(ctx, in.ns, in.treeDir); err != nil {
				if context.Cause(ctx) != nil { // the export may be incomplete; the next process repeats it
					return err
				}
				in.sandbox.Repo.Warn("sandbox %s: changes made outside the walls are not visible inside: %v", in.sandbox.ID, err)
			}
		}
	}
	if err := in.startRelays(ctx); err != nil {
		return err
	}
	if in.ns.Created {
		if err := errors.Join(in.ns.AllowJoin(), in.releaseSetupLock()); err != nil {
			return err
		}
	}
	in.stopProxy, err = in.sandbox.serveProxy(ctx, in.ns, &in.walls, &in.refused)
	return err
}

// abortEnter releases everything after a failure and returns err as a *SetupError.
func (in *nsSession) abortEnter(ctx context.Context, err error) error {
	in.warnNotImported()
	err = errors.Join(err, in.close())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if fault.Is[*proc.WallError](err) {
		err = errors.New(explainWallError(ctx, in.sandbox.Repo, err))
	}
	return &fault.SetupError{ID: in.sandbox.ID, Err: err}
}

// importPending imports git state of a sandbox that was not imported yet: of commands that still run, or whose git-agency
// process was killed, and of a git that was run in the tree of a clone. A warning names what cannot be imported.
func (s *Sandbox) importPending(ctx context.Context) error { return s.importNow(ctx, false) }

// ImportPending is importPending that fails if something cannot be imported. Use it where an incomplete state must not
// be taken for the current one.
func (s *Sandbox) ImportPending(ctx context.Context) error { return s.importNow(ctx, true) }

func (s *Sandbox) importNow(ctx context.Context, mustSucceed bool) error {
	h, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	if !mustSucceed {
		s.importOutsideOrWarn(ctx)
	} else if err := s.importOutside(ctx, nil); err != nil {
		return err
	}
	if pending, err := s.hasPendingImport(h.Prims); err != nil || !pending {
		return err
	}
	in, err := s.enterForOwn(ctx, h)
	if err != nil {
		return withoutSetupError(err)
	}
	in.quiet = mustSucceed
	in.leave(ctx, ctx.Done()) // imports before it leaves
	switch {
	case in.importErr == nil || !mustSucceed:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	}
	return in.handoff.NewImportError(in.importErr)
}

// ImportUnlocked imports pending git state of a sandbox in which nothing runs, before the caller takes the repository
// lock and imports the rest: checking what an agent wrote may take long, and no other command should wait for it. A
// failure is left to that second import, which remembers a refusal.
func (s *Sandbox) ImportUnlocked(ctx context.Context) {
	entry := s.Repo.Store.Invocation(s.Repo.ID, s.ID, nil)
	if entry.Defect != store.NoDefect || entry.Record.HasEnded() {
		return
	}
	_ = s.importOutside(ctx, nil)
	if pending, err := s.hasPendingImport(entry.Record.Primitives); err != nil || !pending || len(proc.FindSupervisors(s.Repo.Store.InvocationDir(s.Repo.ID, s.ID))) > 0 {
		return
	}
	h, err := s.open(ctx)
	if err != nil {
		return
	}
	defer h.Close()
	h.Prims = s.ownPrimitives(h.Prims)
	in, err := s.prepareNamespace(ctx, h)
	if err != nil {
		return
	}
	in.quiet = true
	if err := in.enter(ctx); err == nil {
		in.leave(ctx, ctx.Done())
	}
}

// hasPendingImport reports whether git state behind the walls was not imported yet.
func (s *Sandbox) hasPendingImport(prims store.Primitives) (bool, error) {
	if prims.Isolation != settings.IsolationOS {
		return false, nil
	}
	d, err := handoff.Open(s.Repo, s.ID, nil)
	if err != nil {
		return false, err
	}
	return d.HasPendingImport()
}

// withoutSetupError rewrites a *SetupError: no command was asked for, only an import.
func withoutSetupError(err error) error {
	var setup *fault.SetupError
	if errors.As(err, &setup) {
		return fmt.Errorf("import git state from behind the walls: %w", setup.Err)
	}
	return err
}

// tryImport imports git state. Anything that cannot be imported stays in the upper directory; leave warns about it,
// unless a command has repaired it by then.
func (in *nsSession) tryImport(ctx context.Context) {
	before, _ := in.handoff.FingerprintUpper() // on error it is empty, and the import is tried again
	// A discard ends the namespaces while it holds the repository lock and waits for us: stop the import then.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in.importTimeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, in.importTimeout, fmt.Errorf("this took longer than %s", in.importTimeout))
		defer stop()
	}
	ns := in.ns
	go func() {
		for ctx.Err() == nil {
			if ns.EndedWithin(50 * time.Millisecond) {
				cancel()
			}
		}
	}()
	err := guard.RestoreAccess(in.treeDir) // the command may have removed it
	if err == nil {
		err = in.handoff.Import(ctx, in.ns, in.treeDir)
	}
	in.failedUpper, in.importErr = "", nil
	if err != nil && !fault.Is[*fault.EndedError](err) && !in.ns.EndedWithin(0) { // else a discard does the import
		in.failedUpper, in.importErr = before, err
	}
}

// warnNotImported warns about git state that could not be imported.
func (in *nsSession) warnNotImported() {
	if in.importErr != nil && !in.quiet {
		in.sandbox.warnNotImported(in.importErr, in.handoff.Place())
	}
}

// warnNotImported warns about git state at a place that could not be imported.
func (s *Sandbox) warnNotImported(err error, place string) {
	var failed *fault.ImportError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	what := "commits"
	if fault.Is[*git.LockedError](err) { // of the index, which is imported last
		what = "staged changes"
	}
	if fault.Is[*fault.ReadLimitError](err) {
		err = fmt.Errorf("%w; raise %s to import them, or end the sandbox: git agency discard %s", err, settings.ReadLimitsKey, s.ID)
	}
	s.Repo.Warn("sandbox %s: %s %s are not imported yet: %v", s.ID, what, place, err)
}

// leave imports git state and leaves the namespaces. If force is closed it stops; the next command then does the
// import.
func (in *nsSession) leave(ctx context.Context, force <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-force:
			cancel()
		case <-done:
		}
	}()
	if in.handoff != nil {
		now, err := in.handoff.FingerprintUpper()
		if err != nil {
			in.sandbox.Repo.Warn("sandbox %s: %v", in.sandbox.ID, err)
		}
		if err != nil || now != in.handoff.Agreed.UpperFingerprint && (in.failedUpper == "" || now != in.failedUpper) {
			in.tryImport(ctx)
		}
		in.warnNotImported()
		in.sandbox.exportOutsideOrWarn(ctx)
	}
	if err := in.close(); err != nil {
		in.sandbox.Repo.Warn("sandbox %s: %v", in.sandbox.ID, err)
	}
}

// close leaves the namespaces. The setup lock is released last, so that no other process joins and keeps namespaces
// alive in which the git state was not exchanged.
func (in *nsSession) close() (err error) {
	if in.stopProxy != nil {
		in.stopProxy()
	}
	in.warnFailedRelays()
	if in.treeDir != nil {
		err = in.treeDir.Close()
	}
	err = errors.Join(err, in.closeNamespace(), in.releaseSetupLock())
	if in.image != nil {
		err = errors.Join(err, in.image.Close())
	}
	return err
}

// discardGitTimeout bounds one script while the repository lock is held.
const discardGitTimeout = 5 * time.Second
