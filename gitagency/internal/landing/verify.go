package landing

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// maxVerifications bounds how often a landing is verified while the branch keeps moving.
const maxVerifications = 5

// verifyCommand returns agency.verify; empty means no verification. Values from the repository's own configuration, which
// an agent can write, are ignored with a warning. A useless value from the user is an error: otherwise work would land
// unverified.
func verifyCommand(r *core.Repository) (string, error) {
	line, ignored, err := r.Settings.ShellCommand(settings.VerifyKey)
	if err != nil {
		return "", err
	}
	r.Settings.WarnIgnored(settings.VerifyKey, ignored)
	return line, nil
}

// verifyAndLand lands the work, after the verify command has succeeded on it if there is one. The command runs without the
// repository lock, in a temporary sandbox with exactly the files that would land. If the branch or the sandbox has moved
// by then, the command runs again; from then on it holds a per-worktree lock among the landings that have to verify again,
// because otherwise many of them would overtake each other for ever.
func verifyAndLand(ctx context.Context, r *core.Repository, job *landJob) (Result, error) {
	v := &verification{r: r, req: job.req}
	defer v.close()
	for {
		outcome, sandboxID, err := v.tryLand(ctx, job)
		c := outcome.needsVerify
		if err != nil || c == nil {
			landed := outcome.landed
			landed.Verified = landed.Commit != "" && !landed.Already && v.runs > 0
			landed.VerifyLog = v.logPath()
			return landed, err
		}
		if sandboxID == "" {
			if err := v.waitTurn(ctx, c.worktree); err != nil {
				return Result{}, err
			}
			continue
		}
		if v.runs > 0 {
			r.Warn("the files to land of %s changed while they were verified; verifying again", job.req.ID)
		}
		if err := v.runCommand(ctx, sandboxID, *c); err != nil {
			return Result{}, err
		}
		v.runs, v.verifiedTree = v.runs+1, c.tree
	}
}

// candidate is a commit that lands if the verify command succeeds on it.
type candidate struct {
	commit, tree  string
	worktree      string // id of the integration worktree it lands on
	trustedConfig bool   // only the user can have written the repository's configuration
}

// prepareCandidate writes the objects of the new commit to the repository, so that it can be verified, after a dry run has
// checked that it could land. It returns nil if nothing has to be verified, or its tree is the one that already was.
func (l *landAttempt) prepareCandidate(ctx context.Context, verifiedTree string) (*candidate, error) {
	if l.req.Verify == "" || l.newTip == "" {
		return nil, nil
	}
	if verifiedTree != "" {
		if same, err := l.merger.SameTree(ctx, l.newTip, verifiedTree); err != nil || same {
			return nil, err
		}
	}
	dry := *l
	dry.req.DryRun = true
	if _, err := dry.publishLanding(ctx); err != nil {
		return nil, err
	}
	if err := l.r.RunSteps(ctx, creation.VerifyVerb, []core.Step{{Name: "objects", Do: func() error { return l.merger.Persist(ctx) }}}); err != nil {
		return nil, err
	}
	found, err := l.repo.Lookup(ctx, l.newTip+"^{tree}")
	if err == nil && found[0].Missing() {
		err = &fault.NoCommitError{Name: l.newTip}
	}
	if err != nil {
		return nil, err
	}
	return &candidate{l.newTip, found[0].OID, l.target.Worktree.ID, l.merger.Trusted}, nil
}

// verification runs the verify command for one landing or one merge before a push.
type verification struct {
	r   *core.Repository
	req Request
	log *store.CommandLog // nil before the first run

	runs         int      // number of runs so far
	verifiedTree string   // tree of the last run that succeeded; empty before it
	aliveLock    *os.File // lock held while our temporary sandbox exists
	turnLock     *os.File // lock held by the one landing that may verify again
}

// tryLand lands the work, or returns the id of a temporary sandbox with the commit to verify. The id is empty if the
// commit has to be verified again and this landing does not hold the turn lock yet.
func (v *verification) tryLand(ctx context.Context, job *landJob) (outcome landOutcome, sandboxID string, err error) {
	repo, unlock, err := v.r.LockAndRecover(ctx)
	if err != nil {
		return landOutcome{}, "", err
	}
	defer unlock()
	if outcome, err = landLocked(ctx, v.r, repo, job, v.verifiedTree); err != nil || outcome.needsVerify == nil {
		return outcome, "", err
	}
	switch {
	case v.runs == maxVerifications:
		return landOutcome{}, "", &fault.KeepsMovingError{ID: v.req.ID, Branch: core.ShortBranch(outcome.branch), Times: v.runs, Verifying: true}
	case v.runs > 0 && v.turnLock == nil:
		return outcome, "", nil
	}
	// The branch of the sandbox protects the commit from gc.
	if sandboxID, err = v.startSandbox(ctx, repo, *outcome.needsVerify); err == nil {
		v.markAlive(ctx, sandboxID)
	}
	if err != nil && context.Cause(ctx) == nil {
		err = &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	return outcome, sandboxID, err
}

// waitTurn waits until no other landing verifies again for the same integration worktree.
func (v *verification) waitTurn(ctx context.Context, worktree string) (err error) {
	dir := v.r.Store.WorktreeDir(v.r.ID, worktree)
	if v.turnLock, err = lock.AcquireDirExclusive(ctx, dir, 0); fault.Is[*fault.LockTimeoutError](err) {
		v.r.Warn("waiting for another landing to be verified")
		v.turnLock, err = lock.AcquireDirExclusive(ctx, dir, -1)
	}
	return err
}

// startSandbox creates the temporary sandbox with the candidate's files, and the walls and limits of the landed sandbox.
func (v *verification) startSandbox(ctx context.Context, repo *git.Repo, c candidate) (string, error) {
	r, of := v.r, v.r.Store.Invocation(v.r.ID, v.req.ID, nil).Record
	from := creation.StartPoint{Base: c.commit}
	if !c.trustedConfig && (len(r.Git.UntrustedFilters()) > 0 || r.Git.ConfigVariesByWorktree()) {
		// attributes written by an agent must not select filters that an agent configured
		from.Snapshot, from.Head, from.UntrustedConfig = c.commit, c.commit, true
	}
	choice, err := creation.PlanVerify(ctx, r, creation.Request{
		Worktree: of.IntegrationWorktreeID, Name: creation.VerifyVerb + " " + v.req.ID, Runner: creation.VerifyVerb,
		Primitives: settings.FillLegacyPrimitives(of.Primitives), Limits: sandbox.LimitsFromRecord(of.Limits),
	}, v.req.ID, from)
	if err != nil {
		return "", err
	}
	inv, err := creation.StartLocked(ctx, r, repo, choice)
	return inv.ID, err
}

// markAlive locks a directory for the temporary sandbox while this process lives, so that doctor and prune leave the
// sandbox alone even when no command runs in it.
func (v *verification) markAlive(ctx context.Context, sandboxID string) {
	dir := v.r.Store.VerifyLockDir(v.r.ID, sandboxID)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		v.aliveLock, err = lock.AcquireDirShared(ctx, dir, 0)
	}
	if err != nil {
		v.r.Warn("sandbox %s could not be marked as in use, so that doctor and prune may remove it during the verification: %v", sandboxID, err)
	}
}

// runCommand runs the verify command in the temporary sandbox, and removes the sandbox whatever the result.
func (v *verification) runCommand(ctx context.Context, sandboxID string, c candidate) (err error) {
	defer func() {
		if left := v.removeSandbox(ctx, sandboxID); left != nil {
			v.r.Warn("%v", left)
		}
	}()
	v.openLog(c)
	var res sandbox.ExecResult
	err = v.r.RunSteps(ctx, creation.VerifyVerb, []core.Step{{Name: "run", Do: func() error {
		res, err = sandbox.Of(v.r, sandboxID).Exec(ctx, sandbox.ExecOptions{Argv: []string{"sh", "-c", v.req.Verify}, Stdout: v.log, Stderr: v.log, Force: v.req.Force})
		return err
	}}})
	v.r.AppendEvent(v.req.ID, verifyEvent{v.r.EventTime(), creation.VerifyVerb, v.req.Verify, c.tree, res.ExitCode, res.TimedOut, res.Duration.Milliseconds()})
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil || res.ExitCode != 0:
		return &VerifyError{ID: v.req.ID, Command: v.req.Verify, ExitCode: res.ExitCode, TimedOut: res.TimedOut, After: res.Duration, Limit: v.timeLimit(), Log: v.logPath(), Result: res, Err: err}
	}
	return nil
}

// timeLimit returns the command timeout of the landed sandbox; 0 if agency.operationTimeout is shorter.
func (v *verification) timeLimit() time.Duration {
	made := time.Duration(v.r.Store.Invocation(v.r.ID, v.req.ID, nil).Record.Limits.TimeoutMS) * time.Millisecond
	if most, err := v.r.Settings.OperationTimeout(); err == nil && most >= 0 && most < made {
		return 0
	}
	return made
}

type verifyEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Command  string    `json:"command"`
	Tree     string    `json:"tree"`
	ExitCode int       `json:"exit_code"`
	TimedOut bool      `json:"timed_out"`
	Duration int64     `json:"duration_ms"`
}

// openLog creates the log before the first run, and writes a header for the next run to it.
func (v *verification) openLog(c candidate) {
	if v.log == nil {
		v.log = store.OpenCommandLog(v.r.Store.VerifyLogPath(v.r.ID, v.req.ID), v.req.Output, v.r.Warn)
	}
	v.log.WriteFile(fmt.Appendf(nil, "# %s, on tree %s\n$ %s\n", v.r.Now().Format(time.RFC3339), c.tree, v.req.Verify))
}

// logPath returns the path of the log; empty before the first run, and if it could not be created.
func (v *verification) logPath() string {
	if v.log == nil {
		return ""
	}
	return v.log.Path
}

func (v *verification) unmarkAlive() {
	if v.aliveLock != nil {
		_ = v.aliveLock.Close()
	}
	v.aliveLock = nil
}

func (v *verification) close() {
	v.unmarkAlive()
	if v.turnLock != nil {
		_ = v.turnLock.Close()
	}
	if v.log != nil {
		v.log.Close()
	}
}

// cleanupLockTimeout bounds the wait for the repository lock to remove a temporary sandbox.
const cleanupLockTimeout = 2 * time.Minute

// removeSandbox removes the temporary sandbox and all of its records: it holds no work. It also runs after an
// interruption; Request.Force ends the wait for the lock.
func (v *verification) removeSandbox(ctx context.Context, sandboxID string) (err error) {
	ctx = context.WithoutCancel(ctx)
	defer v.unmarkAlive() // if the sandbox stays, doctor and prune may remove it
	defer func() {
		if err != nil {
			err = fmt.Errorf("sandbox %s, in which %s was verified, could not be removed: %w", sandboxID, v.req.ID, err)
		}
	}()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-v.req.Force:
			stop()
		case <-waiting.Done():
		}
	}()
	repo, unlock, err := v.r.LockWithTimeout(waiting, cleanupLockTimeout)
	if err != nil {
		return err
	}
	defer unlock()
	return discard.RemoveTemporary(ctx, v.r, repo, sandboxID)
}
