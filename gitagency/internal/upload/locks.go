package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Target is a tree to put files into.
type Target struct {
	Tree *guard.Tree

	// LockDir is the directory of the locks, which exists only while they are used; its parent must exist. It is not in
	// the tree: programs that work there could take every lock on a file that they can open.
	//
	//	<LockDir>          locked while a put moves files, so that no two puts do that at the same time
	//	<LockDir>/<key>    locked as long as the put with this key lives; its stages in the tree have the key in their names
	LockDir string

	LockTimeout time.Duration // how long Put waits for another put to move its files; 0: one attempt; negative: no limit
}

// lockMoves waits until no other put moves files in the tree.
func (p *putOp) lockMoves(ctx context.Context, timeout time.Duration) error {
	for started, left := time.Now(), timeout; ; {
		if err := os.Mkdir(p.lockDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		held, err := lock.AcquireDirExclusive(ctx, p.lockDir, left)
		switch {
		case err == nil:
			p.moveLock = held
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("wait for another put: %w", err)
		}
		// The last user has removed the directory.
		if timeout > 0 {
			left = max(0, timeout-time.Since(started))
		}
	}
}

// tryLockMoves is lockMoves that does not wait and creates nothing: without the directory there is no lock, and no put
// that moves files.
func (p *putOp) tryLockMoves(ctx context.Context) (err error) {
	p.moveLock, err = lock.AcquireDirExclusive(ctx, p.lockDir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unlockMoves also removes the directory of the locks, unless other puts use it.
func (p *putOp) unlockMoves() error {
	_ = os.Remove(p.lockDir) // fails if locks of puts are in it
	err := p.moveLock.Close()
	p.moveLock = nil
	return err
}

// unlockAll ends this put for others.
func (p *putOp) unlockAll() error {
	var err error
	if p.stageLock != nil {
		err = errors.Join(os.Remove(p.stageLock.Name()), p.stageLock.Close())
		p.stageLock = nil
		if p.moveLock == nil {
			_ = p.tryLockMoves(context.Background()) // to remove the directory; on failure another put has the lock, and does
		}
	}
	if p.moveLock != nil {
		err = errors.Join(err, p.unlockMoves())
	}
	return err
}

// lockStage creates and takes the lock that tells this put from a killed one. The caller holds the lock of moves.
func (p *putOp) lockStage(ctx context.Context, key string) (err error) {
	dir := filepath.Join(p.lockDir, key)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	p.stageLock, err = lock.AcquireDirExclusive(ctx, dir, 0)
	return err
}

// stageNamePattern matches the names of stages that a put creates. Its group is the key.
var stageNamePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^(?:" + stagePrefix + "|" + gonePrefix + ")([a-z2-7]{16})(?:-[a-z2-7]{16})?$")
})

// lockDeadStage takes the lock of the put that owned a stage; alive reports that the put holds it. Without a lock, the
// put has ended, or the stage was forged: then held is nil.
func (p *putOp) lockDeadStage(ctx context.Context, name string) (held *os.File, alive bool, err error) {
	match := stageNamePattern().FindStringSubmatch(name)
	if match == nil {
		return nil, false, nil
	}
	held, err = lock.AcquireDirExclusive(ctx, filepath.Join(p.lockDir, match[1]), 0)
	var timeout *lock.TimeoutError
	switch {
	case errors.As(err, &timeout):
		return nil, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	}
	return held, false, err
}

// removeStaleLocks removes the locks of killed puts. The caller holds the lock of moves, so no put is between creating
// and taking its lock.
func (p *putOp) removeStaleLocks(ctx context.Context) error {
	entries, err := os.ReadDir(p.lockDir)
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(p.lockDir, e.Name())
		held, err := lock.AcquireDirExclusive(ctx, path, 0)
		if err == nil {
			errs = append(errs, os.Remove(path), held.Close())
			continue
		}
		var alive *lock.TimeoutError
		if !errors.As(err, &alive) && !errors.Is(err, fs.ErrNotExist) { // gone: its put has just ended
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
