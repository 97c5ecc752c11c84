package status

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
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
	OmitLeft       OmitReason = "left"       // uncommitted file that a landing leaves
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
	HasSpecial    bool          // there are pipes, sockets or devices
	cleanup       func() error  // removes the scratch git directory; nil when there is none

	SaveCache func() error // writes the index cache; nil when there is none
}

func (g WorktreeContents) Close() error {
	var err error
	if g.scan != nil {
		g.scan.watch.close()
		err = g.scan.tree.Close()
	}
	if g.cleanup == nil {
		return err
	}
	return errors.Join(err, g.cleanup())
}

// CollectWorktree reads the index of a worktree, scans its files, and hashes the changed ones. The trees, and most blobs,
// exist only in memory until StoreTrees writes them. The caller has to close the result, also after an error.
func CollectWorktree(ctx context.Context, r *git.Repo, s git.WorktreeSpec, head string) (g WorktreeContents, err error) {
	if r, err = r.WithConfigOf(ctx, s); err != nil {
		return g, err
	}
	scratch, remove := lazyScratchGitDir(r, s, head)
	g.cleanup = remove
	if !s.InUse { // a worktree in use has most often no changes, and needs no git process
		if _, err := scratch(); err != nil {
			return g, err
		}
	}
	began := fileClockNow(s.WriteDir())
	lower := readLowerFiles(s, object.FormatOf(cmp.Or(s.Onto, head)))
	staged, err := loadBaseIndex(ctx, r, scratch, s, head)
	if err != nil {
		return g, err
	}
	g.Format, g.Index = staged.Format, staged.File
	if s.Dir == "" {
		if modules := modulesDir(r, s); modules != "" && !s.InUse {
			return g, &NestedRepositoryError{Paths: []string{modules}}
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
	var found worktreeWalk
	if !s.InUse {
		if found, err = walkReadable(r, s); err != nil {
			return g, err
		}
	}
	tree, err := OpenTree(s)
	if err != nil {
		return g, err
	}
	g.scan = &worktreeScan{tree: tree, repo: r, spec: s, head: head, format: g.Format, scratch: scratch, startedAt: began, indexMtime: staged.Mtime, entries: staged.Entries, lowerFiles: lower}
	if !s.InUse {
		if err := g.scan.checkCapturable(found); err != nil {
			return g, err
		}
	}
	go indexTree() // in parallel with the scan
	changes, err := g.scan.worktreeChanges(ctx)
	if err != nil {
		return g, err
	}
	setStaged()
	sort.Slice(g.scan.leftOut, func(i, j int) bool { return g.scan.leftOut[i].Path < g.scan.leftOut[j].Path })
	g.HasSpecial = g.scan.result.hasSpecialFile
	g.Worktree, g.LeftOut, g.IgnoredDirs, g.WrittenBlobs, g.UnsyncedBlobs = indexTree().WithChanges(g.Format, changes), g.scan.leftOut, g.scan.ignoredDirs, g.scan.writtenBlobs, g.scan.unsyncedBlobs
	if s.IndexCache != "" {
		g.SaveCache = g.scan.saveIndexCache
	}
	return g, nil
}

// StoreTrees writes the collected trees and blobs. It skips objects of the tree known, which is already
// in the repository. The caller has to check RuleFiles before a commit keeps the trees.
func StoreTrees(ctx context.Context, r *git.Repo, t *git.CatFile, g WorktreeContents, known string) error {
	objects, err := g.NewObjects(t, known)
	if err != nil {
		return err
	}
	return r.WriteObjects(ctx, g.Format, objects, g.UnsyncedBlobs...)
}

// NewObjects lists the tree and blob objects to write. It verifies that every other new blob exists, because the index is
// not trusted: any process could have written it.
func (g WorktreeContents) NewObjects(t *git.CatFile, known string) ([]object.Raw, error) {
	base, err := hex.DecodeString(known)
	if err != nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	var objects, blobs []object.Raw
	var leaves, paths []string
	seen := map[string]bool{}
	for _, n := range []*object.BuiltTree{g.Staged, g.Worktree} {
		if n == nil {
			continue
		}
		if err := git.VisitNewEntries(n, t, base, func(path string, dir *object.BuiltTree, it object.TreeEntry) {
			oid := it.OID
			if dir != nil {
				oid = dir.OID
			}
			if seen[string(oid)] || dir == nil && it.Mode == object.ModeGitlink {
				return
			}
			seen[string(oid)] = true
			blob, inMemory := g.blob(oid)
			switch {
			case dir != nil:
				objects = append(objects, object.Raw{Kind: "tree", OID: dir.OID, Content: dir.Content})
			case inMemory:
				blobs = append(blobs, blob)
			default:
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
	blobs, err = g.missingBlobs(t, blobs)
	return append(blobs, objects...), err
}

// RuleFiles returns the files in the collected trees that fsck.CheckRuleFiles checks and the tree known does not have.
func (g WorktreeContents) RuleFiles(t *git.CatFile, known string) ([]fsck.RuleFile, error) {
	all := func(string) bool { return true }
	staged, err := g.ruleFilesIn(g.Staged, t, known, all)
	if err != nil {
		return nil, err
	}
	files, err := g.ruleFilesIn(g.Worktree, t, known, all)
	return append(staged, files...), err
}

// AttributeFiles returns the attribute files on disk that the tree known does not have.
func (g WorktreeContents) AttributeFiles(t *git.CatFile, known string) ([]fsck.RuleFile, error) {
	return g.ruleFilesIn(g.Worktree, t, known, isAttributesFile)
}

// ruleFilesIn returns the files of rules in a tree, which may be nil, that are wanted.
func (g WorktreeContents) ruleFilesIn(tree *object.BuiltTree, t *git.CatFile, known string, isWanted func(path string) bool) ([]fsck.RuleFile, error) {
	const limit = 100 << 20 // git fsck refuses larger ones
	files, err := fsck.FindRuleFiles(tree, t, known)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f fsck.RuleFile) bool { return !isWanted(f.Path) })
	for i := range files {
		f := &files[i]
		oid, err := hex.DecodeString(f.OID)
		if err != nil {
			return nil, err
		}
		blob, inMemory := g.blob(oid)
		if f.Content = blob.Content; !inMemory {
			if _, f.Content, err = t.Read(f.OID, "blob", limit); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// blob returns a blob that is in memory and not written yet.
func (g WorktreeContents) blob(oid []byte) (object.Raw, bool) {
	if g.scan == nil {
		return object.Raw{}, false
	}
	blob, ok := g.scan.blobs[string(oid)]
	return blob, ok
}

// missingBlobs leaves out the blobs that a temporary repository need not write, if there are so many that they would
// become a pack. To the real repository all of them are written: gc could be about to remove an old one.
func (g WorktreeContents) missingBlobs(t *git.CatFile, blobs []object.Raw) ([]object.Raw, error) {
	if len(blobs) <= git.MaxLooseObjects || !g.scan.repo.IsDryRun() {
		return blobs, nil
	}
	names := make([]string, len(blobs))
	for i, b := range blobs {
		names[i] = b.HexOID()
	}
	found, err := t.Lookup(names...)
	if err != nil {
		return nil, err
	}
	var missing []object.Raw
	for i, o := range found {
		if o.Type != "blob" {
			missing = append(missing, blobs[i])
		}
	}
	return missing, nil
}
