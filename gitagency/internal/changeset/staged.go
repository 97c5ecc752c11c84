package changeset

import (
	"bytes"
	"context"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// StagedRef returns the ref of a commit that keeps the objects that were staged in a tree whose entry git does not list: git does not
// read the index of that entry when it prunes objects. An object is kept until the sandbox ends, also if it is not staged any more: the
// sandbox may have commits that borrow it.
func StagedRef(id string) string { return "refs/agency/index/" + id }

// Staged is a set of objects to keep.
type Staged struct {
	Blobs   []string // ids
	Trees   []string // ids
	Commits []string // ids
	Base    string   // commit whose tree has some of the blobs and trees, which are then not kept a second time; empty if none is known
}

// StagedBlobs returns the blobs of indexes as a set, without those that a commit has.
func StagedBlobs(commit string, indexes ...index.File) Staged {
	blobs := map[string]bool{}
	for _, x := range indexes {
		for e := range x.AllEntries() {
			if e.Mode != object.ModeGitlink && !object.IsZero(e.OID) {
				blobs[hex.EncodeToString(e.OID)] = true
			}
		}
	}
	return Staged{Blobs: slices.Sorted(maps.Keys(blobs)), Base: commit}
}

// IsUnlisted reports whether a tree has an entry that git does not list.
func (b Worktree) IsUnlisted(id string) bool {
	return b.Repo.AdminDir(id) == b.Repo.UnlistedAdminDir(id)
}

// KeepIndex keeps the objects that the index of an unlisted entry needs, and a commit on its branch does not have, from being pruned.
// For other entries it does nothing.
func (b Worktree) KeepIndex(ctx context.Context, id, commit string) error {
	if !b.IsUnlisted(id) {
		return nil
	}
	x, err := b.Repo.ReadEditableIndex(ctx, b.Repo.AdminDir(id), object.FormatOf(commit))
	if err != nil {
		return err
	}
	return b.KeepStaged(ctx, id, StagedBlobs(commit, x.File))
}

// KeepStaged keeps objects from being pruned until the sandbox ends. Those that do not exist are left out: a ref to them would keep git
// from collecting garbage.
func (b Worktree) KeepStaged(ctx context.Context, id string, s Staged) error {
	oids := slices.Concat(s.Blobs, s.Trees, s.Commits)
	if len(oids) == 0 {
		return nil
	}
	ref, format := StagedRef(id), object.FormatOf(oids[0])
	old, err := b.Repo.Tip(ctx, ref)
	if err != nil {
		return err
	}
	kept, err := b.readKept(ctx, format, old, s)
	if err != nil || !kept.changed {
		return err
	}
	tree := &object.BuiltTree{Entries: slices.SortedFunc(maps.Values(kept.entries), func(a, b object.TreeEntry) int { return bytes.Compare(a.Name, b.Name) })}
	tree.Encode(format)
	// A commit, since "git gc" reports an error for each ref to a tree.
	commit := object.EncodeCommit(format, b.Author, tree.HexOID(), kept.commits, "agency: objects that were staged in sandbox "+id)
	if err := b.Repo.WriteObjects(ctx, format, []object.Raw{{Kind: "tree", OID: tree.OID, Content: tree.Content}, commit}); err != nil {
		return err
	}
	if err := repair.RemoveAbandonedLock(ctx, b.Repo, b.Repo.RefPath(ref)+index.LockSuffix); err != nil {
		return err
	}
	const reason = "agency: staged"
	if old == "" {
		err = b.Repo.CreateRef(ctx, ref, commit.HexOID(), reason)
	} else {
		err = b.Repo.MoveRef(ctx, ref, commit.HexOID(), old, reason)
	}
	if err != nil {
		return err
	}
	return b.Repo.SyncRef(ref)
}

// keptObjects is the content of StagedRef.
type keptObjects struct {
	entries map[string]object.TreeEntry // of the tree, by name, which is the id of the object
	commits []string                    // parents
	changed bool                        // it has more than before
}

// readKept returns the objects that a commit, whose id may be empty, keeps, and those of a set that exist.
func (b Worktree) readKept(ctx context.Context, format object.Format, old string, s Staged) (keptObjects, error) {
	t, err := b.Repo.OpenCatFile(ctx)
	if err != nil {
		return keptObjects{}, err
	}
	defer t.Close()
	kept := keptObjects{entries: map[string]object.TreeEntry{}}
	if old != "" {
		if kept, err = readKeptCommit(t, old, format); err != nil {
			return kept, err
		}
	}
	root := ""
	if s.Base != "" {
		found, err := t.Lookup(s.Base + "^{tree}")
		if err != nil {
			return kept, err
		}
		root = found[0].OID
	}
	wanted := map[string]bool{}
	for _, oid := range s.Blobs {
		if kept.entries[oid].OID == nil {
			wanted[oid] = true
		}
	}
	if err := removeReachable(t, root, wanted); err != nil {
		return kept, err
	}
	for kind, oids := range map[string][]string{"blob": slices.Collect(maps.Keys(wanted)), "tree": s.Trees, "commit": s.Commits} {
		found, err := t.Lookup(oids...)
		if err != nil {
			return kept, err
		}
		for _, o := range found {
			if o.Type == kind && o.OID != root { // objects of another type may be incomplete
				kept.add(o)
			}
		}
	}
	return kept, nil
}

// readKeptCommit reads the commit of StagedRef. One that is damaged keeps nothing.
func readKeptCommit(t *git.CatFile, commit string, format object.Format) (keptObjects, error) {
	kept := keptObjects{entries: map[string]object.TreeEntry{}}
	data, err := t.Contents(commit, "commit")
	if err != nil || data == nil {
		return kept, err
	}
	parsed, err := object.ParseCommit(string(data))
	if err != nil {
		return kept, nil
	}
	if data, err = t.Contents(parsed.Tree, "tree"); err != nil {
		return kept, err
	}
	tree, err := object.ParseTree(data, format.IDSize())
	if err != nil {
		return kept, nil
	}
	kept.commits = parsed.Parents
	for _, e := range tree.Entries {
		kept.entries[string(e.Name)] = e
	}
	return kept, nil
}

// add adds an object.
func (k *keptObjects) add(o git.Object) {
	oid, err := hex.DecodeString(o.OID)
	if err != nil || k.entries[o.OID].OID != nil || slices.Contains(k.commits, o.OID) {
		return
	}
	k.changed = true
	switch o.Type {
	case "commit":
		k.commits = append(k.commits, o.OID)
	case "tree":
		k.entries[o.OID] = object.TreeEntry{Mode: object.ModeTree, Name: []byte(o.OID), OID: oid}
	default:
		k.entries[o.OID] = object.TreeEntry{Mode: object.ModeFile, Name: []byte(o.OID), OID: oid}
	}
}

// removeReachable removes the blobs that a tree has from a set. It reads each subtree once, however often it occurs.
func removeReachable(t *git.CatFile, root string, wanted map[string]bool) error {
	if root == "" {
		return nil
	}
	todo, seen := []string{root}, map[string]bool{root: true}
	for len(todo) > 0 && len(wanted) > 0 {
		content, err := t.Contents(todo[len(todo)-1], "tree")
		if err != nil {
			return err
		}
		todo = todo[:len(todo)-1]
		for len(content) > 0 {
			e, rest, ok := object.NextTreeEntry(content, len(root)/2)
			if content = rest; !ok {
				break // a damaged tree; its blobs are kept
			}
			oid := hex.EncodeToString(e.OID)
			switch {
			case !e.IsTree():
				delete(wanted, oid)
			case !seen[oid]:
				seen[oid], todo = true, append(todo, oid)
			}
		}
	}
	return nil
}

// keepIndexTree adds the step "staged" to the transaction, which keeps the tree that is staged in a new unlisted tree, unless it is the
// tree of its commit.
func (b Worktree) keepIndexTree(ctx context.Context, tx *undo.Tx, s Spec) error {
	if s.IndexTree == "" {
		return nil
	}
	return tx.Step(ctx, "staged", func() error {
		tx.Undo("staged", func(ctx context.Context) error { return RemoveRef(ctx, b.Repo, StagedRef(s.ID)) })
		return b.KeepStaged(ctx, s.ID, Staged{Trees: []string{s.IndexTree}, Base: s.StartCommit()})
	})
}

// PinnedRefs returns the refs that keep objects for a sandbox, by name: BaseRef and StagedRef, as far as they exist.
func (b Worktree) PinnedRefs(ctx context.Context, id string) (map[string]string, error) {
	refs := map[string]string{}
	for _, ref := range []string{BaseRef(id), StagedRef(id)} {
		at, err := b.Repo.Tip(ctx, ref)
		if err != nil {
			return nil, err
		}
		if at != "" {
			refs[ref] = at
		}
	}
	return refs, nil
}

// Unpin deletes the refs of PinnedRefs, and the locks that a killed git left.
func (b Worktree) Unpin(ctx context.Context, id string) error {
	for _, ref := range []string{BaseRef(id), StagedRef(id)} {
		if err := RemoveRef(ctx, b.Repo, ref); err != nil {
			return err
		}
	}
	return nil
}

// RemoveRef deletes a ref that keeps objects for a sandbox and the leftovers of a killed git. A ref that does
// not exist is fine.
func RemoveRef(ctx context.Context, repo *git.Repo, ref string) error {
	at, err := repo.Tip(ctx, ref)
	if err != nil {
		return err
	}
	if at == "" {
		return repo.RemoveRefLeftovers(ctx, ref)
	}
	return repo.DeleteOwnedRef(ctx, ref, at)
}
