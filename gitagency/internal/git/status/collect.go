package status

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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

// WorktreeContents is the state of a worktree: the index, and the files on disk.
type WorktreeContents struct {
	Format        object.Format
	Index         index.File
	Staged        *object.BuiltTree // tree of the index; nil when it cannot be written, as in the middle of a merge
	Worktree      *object.BuiltTree // tree of the files on disk; nil when the worktree is gone
	LeftOut       []LeftOut
	IgnoredDirs   []string      // ignored directories
	WrittenBlobs  []string      // blobs that git has written
	UnsyncedBlobs []string      // those of them that are not synced to disk yet
	scan          *worktreeScan // scan of the files; nil when the worktree is gone
	cleanup       func() error  // removes the scratch git directory; nil when there is none

	SaveCache func() error // writes the index cache; nil when there is none
}

func (g WorktreeContents) Close() error {
	if g.scan != nil {
		g.scan.watch.close()
	}
	if g.cleanup == nil {
		return nil
	}
	return g.cleanup()
}

// CollectWorktree reads the index of a worktree, scans its files, and has git hash the changed ones. The trees exist
// only in memory until StoreTrees writes them. The caller has to close the result, also after an error.
func CollectWorktree(ctx context.Context, r *git.Repo, s git.WorktreeSpec, head string) (g WorktreeContents, err error) {
	if r, err = r.WithConfigOf(ctx, s); err != nil {
		return g, err
	}
	var done func() error
	scratch := sync.OnceValues(func() (p git.RunOptions, err error) {
		p, done, err = r.MakeScratchGitDir(s, head)
		return p, err
	})
	g.cleanup = func() error {
		if done == nil {
			return nil
		}
		return done()
	}
	if !s.InUse { // a worktree in use has most often no changes, and needs no git process
		if _, err := scratch(); err != nil {
			return g, err
		}
	}
	began := fileClockNow(s.Dir)
	staged, err := loadBaseIndex(ctx, r, scratch, s, head)
	if err != nil {
		return g, err
	}
	g.Format, g.Index = staged.Format, staged.File
	if !s.InUse {
		if err := checkCapturable(ctx, r, s, staged.Entries); err != nil {
			return g, err
		}
	}
	if s.Dir == "" && staged.Count == 0 {
		return g, nil
	}
	indexTree := sync.OnceValue(func() *object.BuiltTree { return index.BuildTree(staged.Entries, g.Format) })
	setStaged := func() {
		if len(staged.Conflicts) == 0 && s.IndexCache == "" {
			g.Staged = indexTree()
		}
	}
	if s.Dir == "" {
		setStaged()
		return g, nil
	}
	// Conflicting paths belong to the state even if a rule ignores them.
	s.ForcedPaths = slices.Concat(s.ForcedPaths, slices.Compact(staged.Conflicts))
	g.scan = &worktreeScan{repo: r, spec: s, format: g.Format, scratch: scratch, startedAt: began, indexMtime: staged.Mtime, entries: staged.Entries}
	go indexTree() // in parallel with the scan
	changes, err := g.scan.worktreeChanges(ctx)
	if err != nil {
		return g, err
	}
	setStaged()
	sort.Slice(g.scan.leftOut, func(i, j int) bool { return g.scan.leftOut[i].Path < g.scan.leftOut[j].Path })
	g.Worktree, g.LeftOut, g.IgnoredDirs, g.WrittenBlobs, g.UnsyncedBlobs = indexTree().WithChanges(g.Format, changes), g.scan.leftOut, g.scan.ignoredDirs, g.scan.writtenBlobs, g.scan.unsyncedBlobs
	if s.IndexCache != "" {
		g.SaveCache = g.scan.saveIndexCache
	}
	return g, nil
}

// StoreTrees writes the collected trees and syncs the new blobs. It skips objects of the tree known, which is already
// in the repository.
func StoreTrees(ctx context.Context, r *git.Repo, t *git.CatFile, g WorktreeContents, known string) error {
	objects, err := g.NewObjects(t, known)
	if err != nil {
		return err
	}
	return r.WriteObjects(ctx, g.Format, objects, g.UnsyncedBlobs...)
}

// NewObjects lists the tree objects to write. It verifies that every new blob exists, because the index is not
// trusted: any process could have written it.
func (g WorktreeContents) NewObjects(t *git.CatFile, known string) ([]object.Raw, error) {
	base, err := hex.DecodeString(known)
	if err != nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	var objects []object.Raw
	var leaves, paths []string
	seen := map[string]bool{}
	for _, n := range []*object.BuiltTree{g.Staged, g.Worktree} {
		if n == nil {
			continue
		}
		if err := git.VisitNewEntries(n, t, base, func(path string, dir *object.BuiltTree, it object.TreeEntry) {
			switch {
			case dir != nil && !seen[string(dir.OID)]:
				seen[string(dir.OID)] = true
				objects = append(objects, object.Raw{Kind: "tree", OID: dir.OID, Content: dir.Content})
			case dir == nil && it.Mode != object.ModeGitlink && !seen[string(it.OID)]:
				seen[string(it.OID)] = true
				leaves, paths = append(leaves, hex.EncodeToString(it.OID)), append(paths, path)
			}
		}); err != nil {
			return nil, err
		}
	}
	found, err := t.Lookup(leaves...)
	if err != nil {
		return nil, err
	}
	for i, o := range found {
		if o.Type != "blob" {
			return nil, fmt.Errorf("%s: %w", paths[i], &object.IncompleteError{OID: leaves[i], Want: "blob", Have: o.Type})
		}
	}
	return objects, nil
}
