package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Prefetch starts to read, in the background, the objects needed to land tip on upstream, and the index of the worktree
// with git directory gitDir; empty: none. A range that passes its checks is not checked again; any error is ignored here
// and found again by the caller that needs the result.
func (m *Merger) Foresee(ctx context.Context, upstream, tip, gitDir string) {
	ctx, m.forget = context.WithCancel(ctx)
	if gitDir != "" {
		read := proc.Meanwhile(func() (*heldIndex, error) { return m.real.readHeld(ctx, gitDir, m.format) })
		m.ahead, m.aheadOf = read, gitDir
		m.foresight.Go(func() { _, _ = read() })
	}
	m.foresight.Go(func() {
		for _, oid := range []string{upstream, tip} {
			if tree, err := m.treeOf(ctx, oid); err != nil {
				return
			} else if _, err := m.twig(ctx, rawID(tree)); err != nil {
				return
			}
		}
		_ = m.SoundRange(ctx, upstream, tip)
	})
}

// prefetchedIndexOf returns the prefetched index of a worktree if the index file has not changed since; else nil.
func (m *Merger) indexOf(gitDir string) *heldIndex {
	if m == nil || m.aheadOf != gitDir || gitDir == "" {
		return nil
	}
	x, err := m.ahead()
	if err != nil {
		return nil // the caller reads it again and gets the error
	}
	if fi, err := os.Lstat(filepath.Join(gitDir, "index")); err != nil || durable.Stamp(fi) != x.stamp {
		return nil
	}
	return x
}

// StartCatFile starts git cat-file in the background, so that the first request does not wait for its start. If it fails,
// so does the first request.
func (m *Merger) Wake(ctx context.Context) {
	m.foresight.Go(func() { _ = m.asking(ctx, func(*teller) error { return nil }) })
}

// FsckRange checks the commits of upstream..tip. It refuses malformed commits, commits whose trees must not land, even if a
// later commit removes the offending file, as it stays in the history, and commits with missing or wrong objects: see
// checkComplete. It checks of each tree only what differs from the first parent's. A range that has passed is not checked
// again, and concurrent calls for one range share a check.
func (m *Merger) SoundRange(ctx context.Context, upstream, tip string) error {
	asked := [2]string{upstream, tip}
	for {
		m.talking.Lock()
		found := m.soundings[asked]
		own := &sounding{done: make(chan struct{})}
		if found == nil {
			m.soundings[asked] = own
		}
		m.talking.Unlock()
		if found == nil {
			return m.sound(ctx, asked, own)
		}
		select {
		case <-found.done:
			if found.sound {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rangeCheck is a check of a range of commits that several callers may wait for.
type sounding struct {
	done  chan struct{} // closed at the end
	sound bool          // result; valid after done is closed
}

// runRangeCheck checks a range for all callers that wait for it. It forgets a check that failed: its context may have been
// cancelled.
func (m *Merger) sound(ctx context.Context, asked [2]string, s *sounding) error {
	err := m.soundRange(ctx, asked[0], asked[1])
	if s.sound = err == nil; !s.sound {
		m.talking.Lock()
		delete(m.soundings, asked)
		m.talking.Unlock()
	}
	close(s.done)
	return err
}

func (m *Merger) soundRange(ctx context.Context, upstream, tip string) error {
	commits, err := m.between(ctx, upstream, tip)
	if err != nil {
		return err
	}
	for _, c := range commits {
		known := ""
		if len(c.parents) > 0 {
			known = c.parents[0]
		}
		if err := m.Sound(ctx, c.tree, known); err != nil {
			return fmt.Errorf("commit %.12s: %w", c.oid, err)
		}
	}
	return m.whole(ctx, commits)
}
