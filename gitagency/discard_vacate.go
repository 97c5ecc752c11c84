package gitagency

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// vacancy is a sandbox in which nobody is at work, and which nobody enters before it is closed.
type vacancy struct {
	held     []*os.File
	inside   *os.File // of these, the one that keeps others out while something runs there for us
	commands int      // that were ended for it
}

func (v *vacancy) close() {
	for _, f := range v.held {
		_ = f.Close()
	}
}

// vacate ends the commands that run in a sandbox and waits for whoever else is at work there. What would
// stop us from ending the sandbox must have been looked for before: those commands do not come back.
func (r *Repository) vacate(ctx context.Context, id string) (v vacancy, err error) {
	timeout, err := r.lockTimeout()
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil {
			v.close()
			if v.commands > 0 {
				r.warn("commands that ran in %s were ended: %d", id, v.commands)
			}
		}
	}()
	// First the door, which one passes on the way in: else there would always be somebody inside.
	door, err := lock.Clear(ctx, r.store.SandboxDir(r.ID, id), timeout)
	switch {
	case err == nil:
		v.held = append(v.held, door)
	case !errors.Is(err, fs.ErrNotExist): // without a tree there is nothing to enter
		return v, err
	}
	home := r.store.InvocationDir(r.ID, id)
	inside, err := lock.Clear(ctx, home, 0)
	if is[*LockTimeoutError](err) || errors.Is(err, fs.ErrNotExist) && len(proc.Supervisors(home)) > 0 {
		inside, err = r.clearOut(ctx, id, home, timeout, &v.commands)
	}
	switch {
	case err == nil && inside != nil:
		v.held, v.inside = append(v.held, inside), inside
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return v, err
	}
	confine.RemoveCgroups(id) // which a command left whose tool was killed
	return v, nil
}

// clearOut asks everybody inside to leave, and then asks again.
func (r *Repository) clearOut(ctx context.Context, id, home string, timeout time.Duration, commands *int) (*os.File, error) {
	type outcome struct {
		held *os.File
		err  error
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	left := make(chan outcome, 1)
	go func() {
		held, err := lock.Clear(waiting, home, -1)
		for errors.Is(err, fs.ErrNotExist) && len(proc.Supervisors(home)) > 0 && waiting.Err() == nil {
			time.Sleep(10 * time.Millisecond) // a record that is gone cannot be locked, only looked at
		}
		left <- outcome{held, err}
	}()
	began, asked := time.Now(), map[int]time.Time{}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		// Who has only just come in may not have a supervisor yet, so we look again every time; who is
		// asked a second time does not wait for anybody any more.
		for _, pid := range proc.Supervisors(home) {
			if last, before := asked[pid]; before && time.Since(last) < DefaultGrace {
				continue
			} else if !before {
				*commands += proc.Overseen(pid)
			}
			asked[pid] = time.Now()
			if err := proc.Stop(pid); err != nil {
				r.warn("end a command in %s: %v", id, err)
			}
		}
		select {
		case o := <-left:
			return o.held, o.err
		case <-again.C:
		}
		if timeout >= 0 && time.Since(began) > timeout+2*DefaultGrace {
			stop()
			if o := <-left; o.err == nil {
				return o.held, nil
			}
			return nil, &BusyError{ID: id, Waited: time.Since(began), Holders: proc.Holders(home)}
		}
	}
}

// mayVacate looks, where commands run, for what would stop us from ending the sandbox afterwards.
func (r *Repository) mayVacate(ctx context.Context, repo *git.Repo, s git.Subject) error {
	held, err := lock.Clear(ctx, r.store.InvocationDir(r.ID, s.Name), 0)
	if !is[*LockTimeoutError](err) {
		if held != nil {
			err = held.Close()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if inside := proc.Variable(r.opts.Env, invocationVariable); inside != "" {
		return &InsideError{ID: s.Name, Inside: inside}
	}
	_, err = r.rehearse(ctx, repo, s)
	return err
}

// settle takes back what a killed put left half done in a sandbox that is about to be captured: what it had
// set aside lies where no capture looks. Nothing that is in a sandbox keeps it from being discarded, so what
// goes wrong is only said; files that cannot go back to where they were are moved to where they are captured.
func (r *Repository) settle(ctx context.Context, id string) {
	path := r.store.SandboxTreePath(r.ID, id)
	if !store.IsDir(path) {
		return
	}
	tree, err := guard.OpenTree(path)
	if err != nil {
		r.warn("sandbox %s: %v", id, err)
		return
	}
	timeout, err := r.lockTimeout()
	if err == nil {
		err = upload.Recover(ctx, tree, timeout)
	}
	if is[*upload.LeftError](err) {
		r.warn("sandbox %s: %v", id, err)
		var kept int
		var dirs []string
		kept, dirs, err = upload.Rescue(ctx, tree)
		if kept > 0 {
			r.warn("sandbox %s: files that an interrupted put replaced are kept in %s (%d)", id, strings.Join(dirs, ", "), kept)
		}
	}
	if err := errors.Join(err, tree.Close()); err != nil {
		r.warn("sandbox %s: %v", id, err)
	}
}
