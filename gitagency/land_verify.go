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

// mostVerifications is how often a landing is verified when something else has landed every time.
const mostVerifications = 5

// verifyLine is agency.verify; empty is none. What a repository says is not believed, and said to be so. What the user
// says and cannot mean is refused: else what was to be verified would land as it is.
func (r *Repository) verifyLine() (string, error) {
	setting, set, others := r.git.Config.Trusted(canonical(verifyKey), nil)
	for _, o := range others {
		if o.Trusted() { // the key alone, which names no program
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

// checkLine refuses what a shell would find nothing in, and call good.
func checkLine(line string) error {
	if line != "" && strings.TrimSpace(line) == "" {
		return &InvalidError{What: "command", Value: line, Want: wantLine}
	}
	return nil
}

// landVerified lands what a command has found to be good, if there is to be one. It runs while nobody has to wait for us:
// in a sandbox of its own, with exactly the files that would land. What would land by then may be something else; then it
// runs again, and from then on no other landing that is in this position runs its own: else of many none would ever be
// done first.
func (r *Repository) landVerified(ctx context.Context, req LandRequest) (Landed, error) {
	v := &verification{r: r, req: req}
	defer v.close()
	for {
		landed, box, err := v.turn(ctx)
		if err != nil || landed.candidate == nil {
			landed.Verified = landed.Commit != "" && !landed.Already && v.times > 0
			landed.VerifyLog = v.path
			return landed, err
		}
		if box == "" {
			if err := v.queue(ctx, landed.candidate.worktree); err != nil {
				return Landed{}, err
			}
			continue
		}
		if v.times > 0 {
			r.warn("what would land of %s is not what was verified any more; it is verified again", req.ID)
		}
		if err := v.run(ctx, box, *landed.candidate); err != nil {
			return Landed{}, err
		}
		v.times, v.req.verified = v.times+1, landed.candidate.tree
	}
}

// candidate is a commit that would land, if a command found it to be good.
type candidate struct {
	commit, tree string
	worktree     string // where it would land, by its id
	trusted      bool   // the repository's own settings can only be the user's
}

// candidate makes what would land part of the repository, so that it can be verified, and refuses what could not land
// however that ends. There is none when nothing is to be verified, or when it was.
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

// verification is a command that decides whether something lands.
type verification struct {
	r    *Repository
	req  LandRequest
	path string // of the log; empty before anything was run
	log  *verifyLog

	times int      // that it was run
	alive *os.File // held while there is a sandbox of ours
	turns *os.File // held by the one of those who had to do it again whose turn it is
}

// turn lands, or comes back with a sandbox that has what would land; without one when it is not our turn to run it again.
func (v *verification) turn(ctx context.Context) (landed Landed, box string, err error) {
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
	// Its branch keeps the commit from being collected.
	if box, err = v.start(ctx, repo, *landed.candidate); err == nil {
		v.claim(ctx, box)
	}
	if err != nil && context.Cause(ctx) == nil {
		err = &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	return landed, box, err
}

// queue waits until nobody else verifies again what is to land in the same place.
func (v *verification) queue(ctx context.Context, worktree string) (err error) {
	dir := v.r.store.WorktreeDir(v.r.ID, worktree)
	if v.turns, err = lock.Clear(ctx, dir, 0); is[*LockTimeoutError](err) {
		v.r.warn("waiting for another landing to be verified")
		v.turns, err = lock.Clear(ctx, dir, -1)
	}
	return err
}

// start makes the sandbox: with the walls and the limits of the one that the work is from, and the files of the candidate.
func (v *verification) start(ctx context.Context, repo *git.Repo, c candidate) (string, error) {
	r, of := v.r, v.r.store.Invocation(v.r.ID, v.req.ID, nil).Record
	from := beginning{base: c.commit}
	if !c.trusted && (len(r.git.OwnFilters()) > 0 || r.git.Varies()) { // attributes that an agent wrote must not choose what it configured
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

// claim has doctor and prune know, as long as we live, that the sandbox is ours: also while nothing runs in it.
func (v *verification) claim(ctx context.Context, box string) {
	dir := v.r.store.VerifyingDir(v.r.ID, box)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		v.alive, err = lock.Occupy(ctx, dir, 0)
	}
	if err != nil {
		v.r.warn("sandbox %s looks as if nothing were verified in it: %v", box, err)
	}
}

// run runs the command in the sandbox that was made for it, which goes whatever comes of that.
func (v *verification) run(ctx context.Context, box string, c candidate) (err error) {
	defer func() {
		if left := v.throwAway(ctx, box); left != nil {
			v.r.warn("%v", left)
		}
	}()
	v.open(c)
	var res ExecResult
	err = v.r.forward(ctx, verbVerify, []step{{"run", func() error {
		res, err = v.r.sandboxOf(box).Exec(ctx, ExecOptions{Argv: []string{"sh", "-c", v.req.Verify}, Stdout: v.log, Stderr: v.log, Hurry: v.req.Hurry})
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

// limit is how long the sandbox that the work is from lets a command take, where that is less than anything may; else zero.
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

// open opens the log, the first time, and says in it what follows.
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
		_ = v.log.file.Close() // what could not be written was said
	}
}

// patienceWithOthers is how long it may take to get hold of the lock to take away what nobody needs any more.
const patienceWithOthers = 2 * time.Minute

// throwAway takes the sandbox away and leaves no trace of it: nothing that was in it is anybody's work. It does so also
// when we were interrupted; who is in a hurry does not wait for the lock.
func (v *verification) throwAway(ctx context.Context, box string) (err error) {
	ctx = context.WithoutCancel(ctx)
	defer v.disclaim() // one that stays all the same is somebody else's to take away
	defer func() {
		if err != nil {
			err = fmt.Errorf("sandbox %s, in which %s was verified, is still there: %w", box, v.req.ID, err)
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
	return v.r.throwAway(ctx, repo, box)
}
