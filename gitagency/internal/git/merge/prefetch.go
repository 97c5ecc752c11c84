package merge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Prefetch starts to read, in the background, the objects needed to land tip on upstream, and the index of the worktree
// with git directory gitDir; empty: none. A range that passes its checks is not checked again; any error is ignored
// here and found again by the caller that needs the result.
func (m *Merger) Prefetch(ctx context.Context, upstream, tip, gitDir string) {
	ctx, m.cancelPrefetch = context.WithCancel(ctx)
	if gitDir != "" {
		read := proc.Async(func() (*index.Editable, error) { return m.realRepo.ReadEditableIndex(ctx, gitDir, m.format) })
		m.prefetchedIndex, m.prefetchedGitDir = read, gitDir
		m.prefetching.Go(func() { _, _ = read() })
	}
	m.prefetching.Go(func() {
		for _, oid := range []string{upstream, tip} {
			if tree, err := m.treeOf(ctx, oid); err != nil {
				return
			} else if _, err := m.readTree(ctx, object.RawOID(tree)); err != nil {
				return
			}
		}
		_ = m.FsckRange(ctx, upstream, tip)
	})
}

// PrefetchedIndexOf returns the prefetched index of a worktree if the index file has not changed since; else nil.
func (m *Merger) PrefetchedIndexOf(gitDir string) *index.Editable {
	if m == nil || m.prefetchedGitDir != gitDir || gitDir == "" {
		return nil
	}
	x, err := m.prefetchedIndex()
	if err != nil {
		return nil // the caller reads it again and gets the error
	}
	if fi, err := os.Lstat(filepath.Join(gitDir, "index")); err != nil || durable.StatFingerprint(fi) != x.Stamp {
		return nil
	}
	return x
}

// StartCatFile starts git cat-file in the background, so that the first request does not wait for its start. If it
// fails, so does the first request.
func (m *Merger) StartCatFile(ctx context.Context) {
	m.prefetching.Go(func() { _ = m.WithCatFile(ctx, func(*git.CatFile) error { return nil }) })
}

// FsckRange checks the commits of upstream..tip. It refuses malformed commits (*object.InvalidCommitError), commits
// whose trees must not land (*fsck.Error), even if a later commit removes the offending file, as it stays in the
// history, and commits with missing or wrong objects: see checkComplete. It checks of each tree only what differs from
// the first parent's. A range that has passed is not checked again, and concurrent calls for one range share a check.
func (m *Merger) FsckRange(ctx context.Context, upstream, tip string) error {
	asked := [2]string{upstream, tip}
	for {
		m.mu.Lock()
		found := m.rangeChecks[asked]
		own := &rangeCheck{done: make(chan struct{})}
		if found == nil {
			m.rangeChecks[asked] = own
		}
		m.mu.Unlock()
		if found == nil {
			return m.runRangeCheck(ctx, asked, own)
		}
		select {
		case <-found.done:
			if found.passed {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rangeCheck is a check of a range of commits that several callers may wait for.
type rangeCheck struct {
	done   chan struct{} // closed at the end
	passed bool          // result; valid after done is closed
}

// runRangeCheck checks a range for all callers that wait for it. It forgets a check that failed: its context may have
// been cancelled.
func (m *Merger) runRangeCheck(ctx context.Context, asked [2]string, s *rangeCheck) error {
	err := m.fsckCommits(ctx, asked[0], asked[1])
	if s.passed = err == nil; !s.passed {
		m.mu.Lock()
		delete(m.rangeChecks, asked)
		m.mu.Unlock()
	}
	close(s.done)
	return err
}

func (m *Merger) fsckCommits(ctx context.Context, upstream, tip string) error {
	commits, err := m.listBetween(ctx, upstream, tip)
	if err != nil {
		return err
	}
	for _, c := range commits {
		known := ""
		if len(c.Parents) > 0 {
			known = c.Parents[0]
		}
		if err := m.FsckTree(ctx, c.Tree, known); err != nil {
			return fmt.Errorf("commit %.12s: %w", c.OID, err)
		}
	}
	return m.checkComplete(ctx, commits)
}
