package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// LeftOut is a path in a worktree that a capture does not contain.
type LeftOut struct {
	Path   string
	Reason OmitReason
}

// OmitReason is the reason why a capture does not contain a path.
type OmitReason string

// The reasons for leaving out a path.
const (
	OmitSecret     OmitReason = "secret"     // an untracked file that looks like a credential
	OmitRepository OmitReason = "repository" // nested repository, which no commit can hold
	OmitSubmodule  OmitReason = "submodule"  // checked-out submodule, of which only the staged commit id is captured
)

// worktreeContents is the state of a worktree: the index, and the files on disk.
type worktreeContents struct {
	format        ObjectFormat
	index         Index
	staged        *builtTree // tree of the index; nil when it cannot be written, as in the middle of a merge
	worktree      *builtTree // tree of the files on disk; nil when the worktree is gone
	leftOut       []LeftOut
	ignoredDirs   []string      // ignored directories
	writtenBlobs  []string      // blobs that git has written
	unsyncedBlobs []string      // those of them that are not synced to disk yet
	scan          *worktreeScan // scan of the files; nil when the worktree is gone
	cleanup       func() error  // removes the scratch git directory; nil when there is none

	saveCache func() error // writes the index cache; nil when there is none
}

func (g worktreeContents) close() error {
	if g.scan != nil {
		g.scan.watch.close()
	}
	if g.cleanup == nil {
		return nil
	}
	return g.cleanup()
}

// collectWorktree reads the index of a worktree, scans its files, and has git hash the changed ones. The trees exist
// only in memory until storeTrees writes them. The caller has to close the result, also after an error.
func (r *Repo) collectWorktree(ctx context.Context, s WorktreeSpec, head string) (g worktreeContents, err error) {
	if r, err = r.withConfigOf(ctx, s); err != nil {
		return g, err
	}
	var done func() error
	scratch := sync.OnceValues(func() (p runOptions, err error) {
		p, done, err = r.makeScratchGitDir(s, head)
		return p, err
	})
	g.cleanup = func() error {
		if done == nil {
			return nil
		}
		return done()
	}
	if !s.inUse { // a worktree in use has most often no changes, and needs no git process
		if _, err := scratch(); err != nil {
			return g, err
		}
	}
	began := fileClockNow(s.Dir)
	staged, err := r.loadBaseIndex(ctx, scratch, s, head)
	if err != nil {
		return g, err
	}
	g.format, g.index = staged.format, staged.Index
	if !s.inUse {
		if err := r.checkCapturable(ctx, s, staged.entries); err != nil {
			return g, err
		}
	}
	if s.Dir == "" && staged.count == 0 {
		return g, nil
	}
	indexTree := sync.OnceValue(func() *builtTree { return buildTree(staged.entries, g.format) })
	setStaged := func() {
		if len(staged.conflicts) == 0 && s.IndexCache == "" {
			g.staged = indexTree()
		}
	}
	if s.Dir == "" {
		setStaged()
		return g, nil
	}
	// Conflicting paths belong to the state even if a rule ignores them.
	s.ForcedPaths = slices.Concat(s.ForcedPaths, slices.Compact(staged.conflicts))
	g.scan = &worktreeScan{repo: r, spec: s, format: g.format, scratch: scratch, startedAt: began, indexMtime: staged.mtime, entries: staged.entries}
	go indexTree() // in parallel with the scan
	changes, err := g.scan.worktreeChanges(ctx)
	if err != nil {
		return g, err
	}
	setStaged()
	slices.SortFunc(g.scan.leftOut, func(a, b LeftOut) int { return strings.Compare(a.Path, b.Path) })
	g.worktree, g.leftOut, g.ignoredDirs, g.writtenBlobs, g.unsyncedBlobs = indexTree().withChanges(g.format, changes), g.scan.leftOut, g.scan.ignoredDirs, g.scan.writtenBlobs, g.scan.unsyncedBlobs
	if s.IndexCache != "" {
		g.saveCache = g.scan.saveIndexCache
	}
	return g, nil
}

// storeTrees writes the collected trees and syncs the new blobs. It skips objects of the tree known, which is already
// in the repository.
func (r *Repo) storeTrees(ctx context.Context, t *catFile, g worktreeContents, known string) error {
	objects, err := g.newObjects(t, known)
	if err != nil {
		return err
	}
	return r.writeObjects(ctx, g.format, objects, g.unsyncedBlobs...)
}

// newObjects lists the tree objects to write. It verifies that every new blob exists, because the index is not
// trusted: any process could have written it.
func (g worktreeContents) newObjects(t *catFile, known string) ([]rawObject, error) {
	base, err := hex.DecodeString(known)
	if err != nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	var objects []rawObject
	var leaves, paths []string
	seen := map[string]bool{}
	for _, n := range []*builtTree{g.staged, g.worktree} {
		if n == nil {
			continue
		}
		if err := n.visitNew(t, base, func(path string, dir *builtTree, it treeEntry) {
			switch {
			case dir != nil && !seen[string(dir.oid)]:
				seen[string(dir.oid)] = true
				objects = append(objects, rawObject{"tree", dir.oid, dir.content})
			case dir == nil && it.mode != modeGitlink && !seen[string(it.oid)]:
				seen[string(it.oid)] = true
				leaves, paths = append(leaves, hex.EncodeToString(it.oid)), append(paths, path)
			}
		}); err != nil {
			return nil, err
		}
	}
	found, err := t.lookup(leaves...)
	if err != nil {
		return nil, err
	}
	for i, o := range found {
		if o.Type != "blob" {
			return nil, fmt.Errorf("%s: %w", paths[i], &IncompleteError{OID: leaves[i], Want: "blob", Have: o.Type})
		}
	}
	return objects, nil
}
