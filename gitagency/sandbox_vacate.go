package gitagency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// vacate ends the commands that run in a sandbox, waits for whoever else is at work there, and lets nobody
// in until what it returns is closed. Nil is an invocation of which there is nothing to occupy.
func (r *Repository) vacate(ctx context.Context, id string) (held *os.File, commands int, err error) {
	timeout, err := r.lockTimeout()
	if err != nil {
		return nil, 0, err
	}
	home := r.store.InvocationDir(r.ID, id)
	began, asked := time.Now(), map[int]time.Time{}
	for wait := time.Duration(0); ; wait = 50 * time.Millisecond {
		held, err := lock.Clear(ctx, home, wait)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, len(asked), nil
		case !is[*LockTimeoutError](err):
			return held, len(asked), err
		}
		// Commands may still begin while we wait, so we look again every time.
		for _, pid := range proc.Supervisors(home) {
			last, before := asked[pid]
			if before && time.Since(last) < DefaultGrace {
				continue
			}
			asked[pid] = time.Now()
			if err := proc.Stop(pid); err != nil {
				return nil, len(asked), fmt.Errorf("end a command in %s: %w", id, err)
			}
		}
		// Whoever is asked a second time does not wait for anybody any more.
		if patience := max(timeout, 0) + 2*DefaultGrace; timeout >= 0 && time.Since(began) > patience {
			return nil, len(asked), &BusyError{ID: id, Waited: time.Since(began)}
		}
	}
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

// Teardown ends the sandbox as Discard does: its commands are ended, everything that was in it is kept
// under a ref, and it goes. Doing it again is fine, and so is that some or all of it is gone already.
func (s *Sandbox) Teardown(ctx context.Context) error {
	_, err := s.repo.Discard(ctx, s.ID)
	if is[*BrokenError](err) { // a part is missing; the rest is kept, and goes too
		if _, err := s.repo.Fix(ctx, s.ID); err != nil && !is[*NotFoundError](err) {
			return err
		}
		_, err = s.repo.Discard(ctx, s.ID)
	}
	if is[*NotFoundError](err) || is[*EndedError](err) {
		return nil
	}
	return err
}
