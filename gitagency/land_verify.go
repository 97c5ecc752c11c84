package gitagency

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

const (
	verbVerify = "verify"
)

// maxVerifications bounds how often a landing is verified while the branch keeps moving.
const mostVerifications = 5

// verifyCommand returns agency.verify; empty means no verification. Values from the repository's own configuration, which
// an agent can write, are ignored with a warning. A useless value from the user is an error: otherwise work would land
// unverified.
func (r *Repository) verifyLine() (string, error) {
	setting, set, others := r.git.Config.Trusted(canonical(verifyKey), nil)
	for _, o := range others {
		if o.Trusted() { // a key without a value, which names no program
			return "", misconfigured(verifyKey, o, wantLine)
		}
	}
	r.unbelieved.Do(func() {
		for _, o := range others {
			r.warn("ignoring %s = %q (%s): %s", verifyKey, o.Value, o.Origin, noCommand(o))
		}
	})
	if set && checkLine(setting.Value) != nil {
		return "", misconfigured(verifyKey, setting, wantLine)
	}
	return setting.Value, nil
}

const wantLine = "a command"

// checkCommand refuses a blank command: a shell would run nothing and succeed.
func checkLine(line string) error {
	if line != "" && strings.TrimSpace(line) == "" {
		return &InvalidError{What: "command", Value: line, Want: wantLine}
	}
	return nil
}

// verifyAndLand lands the work, after the verify command has succeeded on it if there is one. The command runs without the
// repository lock, in a temporary sandbox with exactly the files that would land. If the branch or the sandbox has moved
// by then, the command runs again; from then on it holds a per-worktree lock among the landings that have to verify again,
// because otherwise many of them would overtake each other for ever.
func (r *Repository) landVerified(ctx context.Context, req LandRequest) (Landed, error) {
	v := &verification{r: r, req: req}
	defer v.close()
	for {
		landed, sandboxID, err := v.turn(ctx)
		if err != nil || landed.candidate == nil {
			landed.Verified = landed.Commit != "" && !landed.Already && v.times > 0
			landed.VerifyLog = v.path
			return landed, err
		}
		if sandboxID == "" {
			if err := v.queue(ctx, landed.candidate.worktree); err != nil {
				return Landed{}, err
			}
			continue
		}
		if v.times > 0 {
			r.warn("what would land of %s is not what was verified any more; it is verified again", req.ID)
		}
		if err := v.run(ctx, sandboxID, *landed.candidate); err != nil {
			return Landed{}, err
		}
		v.times, v.req.verified = v.times+1, landed.candidate.tree
	}
}

// candidate is a commit that lands if the verify command succeeds on it.
type candidate struct {
	commit, tree string
	worktree     string // id of the integration worktree it lands on
	trusted      bool   // only the user can have written the repository's configuration
}

// prepareCandidate writes the objects of the new commit to the repository, so that it can be verified, after a dry run has
// checked that it could land. It returns nil if nothing has to be verified, or this tree already was.
func (l *landing) candidate(ctx context.Context) (*candidate, error) {
	if l.req.Verify == "" || l.result == "" {
		return nil, nil
	}
	if l.req.verified != "" {
		if same, err := l.merger.SameTree(ctx, l.result, l.req.verified); err != nil || same {
			return nil, err
		}
	}
	dry := *l
	dry.req.DryRun = true
	if _, err := dry.publish(ctx); err != nil {
		return nil, err
	}
	if err := l.r.forward(ctx, verbVerify, []step{{"objects", func() error { return l.merger.Keep(ctx) }}}); err != nil {
		return nil, err
	}
	found, err := l.repo.Lookup(ctx, l.result+"^{tree}")
	if err == nil && found[0].Missing() {
		err = &NoCommitError{Name: l.result}
	}
	if err != nil {
		return nil, err
	}
	return &candidate{l.result, found[0].OID, l.target.worktree.ID, l.merger.Trusted}, nil
}

// verification runs the verify command for one landing or one merge before a push.
type verification struct {
	r    *Repository
	req  LandRequest
	path string // path of the log; empty before the first run
	log  *verifyLog

	times int      // number of runs so far
	alive *os.File // lock held while our temporary sandbox exists
	turns *os.File // lock held by the one landing that may verify again
}

// tryLand lands the work, or returns a temporary sandbox with the candidate to verify. The sandbox is empty if the
// candidate has to be verified again and another landing holds the turn.
func (v *verification) turn(ctx context.Context) (landed Landed, sandboxID string, err error) {
	repo, unlock, err := v.r.lock(ctx)
	if err != nil {
		return Landed{}, "", err
	}
	defer unlock()
	if landed, err = v.r.land(ctx, repo, v.req); err != nil || landed.candidate == nil {
		return landed, "", err
	}
	switch {
	case v.times == mostVerifications:
		return Landed{}, "", &MovingError{ID: v.req.ID, Branch: landed.Branch, Times: v.times, Verifying: true}
	case v.times > 0 && v.turns == nil:
		return landed, "", nil
	}
	// The branch of the sandbox protects the commit from gc.
	if sandboxID, err = v.start(ctx, repo, *landed.candidate); err == nil {
		v.claim(ctx, sandboxID)
	}
	if err != nil && context.Cause(ctx) == nil {
		err = &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	return landed, sandboxID, err
}

// waitTurn waits until no other landing verifies again for the same integration worktree.
func (v *verification) queue(ctx context.Context, worktree string) (err error) {
	dir := v.r.store.WorktreeDir(v.r.ID, worktree)
	if v.turns, err = lock.Clear(ctx, dir, 0); is[*LockTimeoutError](err) {
		v.r.warn("waiting for another landing to be verified")
		v.turns, err = lock.Clear(ctx, dir, -1)
	}
	return err
}

// startSandbox creates the temporary sandbox with the candidate's files, and the walls and limits of the landed sandbox.
func (v *verification) start(ctx context.Context, repo *git.Repo, c candidate) (string, error) {
	r, of := v.r, v.r.store.Invocation(v.r.ID, v.req.ID, nil).Record
	from := beginning{base: c.commit}
	if !c.trusted && (len(r.git.OwnFilters()) > 0 || r.git.Varies()) {
		// attributes written by an agent must not select filters that an agent configured
		from.snapshot, from.tip, from.distrust = c.commit, c.commit, true
	}
	choice, err := r.choose(ctx, StartRequest{
		Worktree: of.IntegrationWorktreeID, Name: verbVerify + " " + v.req.ID, Runner: verbVerify,
		Primitives: sinceWalls(of.Primitives), Limits: limitsMade(of.Limits), verifies: v.req.ID, from: from,
	})
	if err != nil {
		return "", err
	}
	inv, err := r.start(ctx, repo, choice)
	return inv.ID, err
}

// markAlive locks a directory for the temporary sandbox while this process lives, so that doctor and prune leave the
// sandbox alone even when no command runs in it.
func (v *verification) claim(ctx context.Context, sandboxID string) {
	dir := v.r.store.VerifyingDir(v.r.ID, sandboxID)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		v.alive, err = lock.Occupy(ctx, dir, 0)
	}
	if err != nil {
		v.r.warn("sandbox %s looks as if nothing were verified in it: %v", sandboxID, err)
	}
}

// runCommand runs the verify command in the temporary sandbox, and removes the sandbox whatever the result.
func (v *verification) run(ctx context.Context, sandboxID string, c candidate) (err error) {
	defer func() {
		if left := v.throwAway(ctx, sandboxID); left != nil {
			v.r.warn("%v", left)
		}
	}()
	v.open(c)
	var res ExecResult
	err = v.r.forward(ctx, verbVerify, []step{{"run", func() error {
		res, err = v.r.sandboxOf(sandboxID).Exec(ctx, ExecOptions{Argv: []string{"sh", "-c", v.req.Verify}, Stdout: v.log, Stderr: v.log, Hurry: v.req.Hurry})
		return err
	}}})
	v.r.record(v.req.ID, verifyEvent{v.r.now(), verbVerify, v.req.Verify, c.tree, res.ExitCode, res.TimedOut, res.Duration.Milliseconds()})
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil || res.ExitCode != 0:
		return &VerifyError{ID: v.req.ID, Command: v.req.Verify, ExitCode: res.ExitCode, TimedOut: res.TimedOut, After: res.Duration, Limit: v.limit(), Log: v.path, Result: res, Err: err}
	}
	return nil
}

// timeLimit returns the command timeout of the landed sandbox; 0 if agency.operationTimeout is shorter.
func (v *verification) limit() time.Duration {
	made := time.Duration(v.r.store.Invocation(v.r.ID, v.req.ID, nil).Record.Limits.TimeoutMS) * time.Millisecond
	if most, err := v.r.OperationTimeout(); err == nil && most >= 0 && most < made {
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
func (v *verification) open(c candidate) {
	if v.log == nil {
		v.log = &verifyLog{shown: v.req.Output, warn: v.r.warn}
		if f, err := v.r.store.CreateVerifyLog(v.r.ID, v.req.ID); err == nil {
			v.log.file, v.log.room, v.path = f, mostVerifyLog, f.Name()
		} else {
			v.r.warn("what verifies %s writes is not kept: %v", v.req.ID, err)
		}
	}
	v.log.keep(fmt.Appendf(nil, "# %s, on tree %s\n$ %s\n", v.r.now().Format(time.RFC3339), c.tree, v.req.Verify))
}

func (v *verification) disclaim() {
	if v.alive != nil {
		_ = v.alive.Close()
	}
	v.alive = nil
}

func (v *verification) close() {
	v.disclaim()
	if v.turns != nil {
		_ = v.turns.Close()
	}
	if v.log != nil && v.log.file != nil {
		_ = v.log.file.Close() // write errors were reported already
	}
}

// cleanupLockTimeout bounds the wait for the repository lock to remove a temporary sandbox.
const patienceWithOthers = 2 * time.Minute

// removeSandbox removes the temporary sandbox and all of its records: it holds no work. It also runs after an
// interruption; LandRequest.Force ends the wait for the lock.
func (v *verification) throwAway(ctx context.Context, sandboxID string) (err error) {
	ctx = context.WithoutCancel(ctx)
	defer v.disclaim() // if the sandbox stays, doctor and prune may remove it
	defer func() {
		if err != nil {
			err = fmt.Errorf("sandbox %s, in which %s was verified, is still there: %w", sandboxID, v.req.ID, err)
		}
	}()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-v.req.Hurry:
			stop()
		case <-waiting.Done():
		}
	}()
	repo, unlock, err := v.r.lockWithin(waiting, patienceWithOthers)
	if err != nil {
		return err
	}
	defer unlock()
	return v.r.throwAway(ctx, repo, sandboxID)
}
