package status

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// CountRequest says what to compare a worktree with.
type CountRequest struct {
	Head     string // required: commit of HEAD
	HeadTree string // required: its tree

	// Submodules lists paths that count as changed, whatever the index has for them. It is called only if the index has
	// submodules; nil means none.
	Submodules func() ([]string, error)

	Clock     FileClock // of the file system of the worktree; without it, more is read
	Worktrees *os.File  // directory of the worktree entries, in which files are found faster; may be nil
}

// CountChanges counts the files of a worktree that differ from HEAD, on disk or in the index, and the untracked ones, as
// "git status --untracked-files=all --no-renames" lists them; a nested repository counts as one.
//
// It reads only files whose stat data differ from the index, so it takes the time of an lstat of every file. Where git
// converts files, one whose size has changed counts as changed, although git might convert it to the committed content.
func CountChanges(ctx context.Context, r *git.Repo, s git.WorktreeSpec, req CountRequest) (count int, err error) {
	s.InUse = true
	if IsUntouchedOverlay(r, s, req.HeadTree) {
		return 0, nil
	}
	if r, err = r.WithConfigOf(ctx, s); err != nil {
		return 0, err
	}
	format := object.FormatOf(req.Head)
	v := &worktreeScan{repo: r, spec: s, head: req.Head, format: format, startedAt: req.Clock.now(), lowerFiles: readLowerFiles(s, format)}
	dir, path := unix.AT_FDCWD, r.AdminDir(s.Name)+"/index"
	if req.Worktrees != nil {
		dir, path = int(req.Worktrees.Fd()), s.Name+"/index"
	}
	x, mtime, err := readIndexIn(dir, path, format)
	if err != nil && !errors.As(err, new(*index.NotPlainError)) {
		return 0, err
	}
	return v.countIndexChanges(ctx, req, x, mtime, err)
}

// countIndexChanges is CountChanges for a worktree whose index was read, with the mtime of that, and with an error if git has
// to read it.
func (v *worktreeScan) countIndexChanges(ctx context.Context, req CountRequest, x index.File, mtime time.Time, notPlain error) (count int, err error) {
	scratch, remove := lazyScratchGitDir(v.repo, v.spec, v.head)
	defer func() { err = errors.Join(err, remove()) }()
	v.scratch = scratch
	if notPlain != nil {
		if x, err = readConvertedIndex(ctx, v.repo, scratch, v.spec, v.format); err != nil {
			return 0, err
		}
	}
	staged := selectEntries(v.spec, x, mtime)
	v.indexMtime, v.entries = staged.Mtime, staged.Entries
	indexTree := proc.Async(func() (*object.BuiltTree, error) { return index.BuildTree(v.entries, v.format), nil }) // in parallel with the scan
	var submodules []string
	if req.Submodules != nil && slices.ContainsFunc(staged.Entries, func(e index.Entry) bool { return e.Mode == object.ModeGitlink }) {
		if submodules, err = req.Submodules(); err != nil {
			return 0, err
		}
	}
	if v.tree, err = OpenTree(v.spec); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.tree.Close()) }()
	changed := map[string]bool{}
	for _, name := range slices.Concat(staged.Conflicts, submodules) {
		changed[name] = true
	}
	if err := v.addDiskChanges(ctx, changed); err != nil {
		return 0, err
	}
	built, err := indexTree()
	if err != nil {
		return 0, err
	}
	err = v.addStagedChanges(ctx, built, req.HeadTree, changed)
	return len(changed), err
}

// IsClean reports whether the stat data of all files of a directory match an index, which was written at mtime, and no file is
// untracked. It reads no file: one that only looks changed counts as changed.
func IsClean(ctx context.Context, r *git.Repo, dir string, x index.File, mtime time.Time) (_ bool, err error) {
	s := git.WorktreeSpec{Dir: dir, Omit: ".git", IndexCache: "none", InUse: true, TrustConfig: true}
	staged := selectEntries(s, x, mtime)
	tree, err := beneath.Open(dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	v := &worktreeScan{tree: tree, repo: r, spec: s, format: x.Format, indexMtime: staged.Mtime, entries: staged.Entries}
	if v.result, err = v.newScanner().scan(ctx, dir, v.entries); err != nil {
		return false, err
	}
	changed := func(s entryStatus) bool { return s == entryMissing || s == entryModified }
	if len(staged.Conflicts) > 0 || slices.ContainsFunc(v.result.statuses, changed) {
		return false, nil
	}
	err = v.classifyUntracked(ctx)
	return len(v.untrackedFiles)+len(v.leftOut) == 0, err
}

// HasDiskChanges reports whether files of a directory differ from an index, which was written at mtime, or are untracked. The
// directory is the checkout of a submodule: r is the repository around it, whose settings say how files are compared.
func HasDiskChanges(ctx context.Context, r *git.Repo, dir string, x index.File, mtime time.Time, format object.Format) (_ bool, err error) {
	s := git.WorktreeSpec{Dir: dir, Omit: ".git", IndexCache: "none", InUse: true}
	scratch, remove := lazyScratchGitDir(r, s, "")
	defer func() { err = errors.Join(err, remove()) }()
	began := fileClockNow(dir)
	staged := selectEntries(s, x, mtime)
	tree, err := beneath.Open(dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	v := &worktreeScan{tree: tree, repo: r, spec: s, format: format, scratch: scratch, startedAt: began, indexMtime: staged.Mtime, entries: staged.Entries}
	changed := map[string]bool{}
	err = v.addDiskChanges(ctx, changed)
	return len(changed)+len(staged.Conflicts) > 0, err
}

// addDiskChanges adds the files that differ from their index entries, and those without an entry.
func (v *worktreeScan) addDiskChanges(ctx context.Context, changed map[string]bool) (err error) {
	if v.result, err = v.scanFiles(ctx); err != nil {
		return err
	}
	if err := v.knownIgnoreVerdict(); err != nil {
		return err
	}
	if err := v.classifyUntracked(ctx); err != nil {
		return v.rememberIgnoreVerdict(err)
	}
	for _, f := range v.untrackedFiles {
		changed[f.name] = true
	}
	for _, l := range v.leftOut {
		changed[l.Path] = true
	}
	var doubtful []int
	for i, f := range v.result.statuses {
		switch name := string(v.entries[i].Name); {
		case f == entryMissing, f == entryModified && v.hasOtherSize(i):
			changed[name] = true
		case f == entryModified:
			doubtful = append(doubtful, i)
		}
	}
	return v.addChangedContent(ctx, doubtful, changed)
}

// hasOtherSize reports whether a file has another size than when its index entry was written. Git sets the size of an entry
// to 0 if it has to read the file.
func (v *worktreeScan) hasOtherSize(i int) bool {
	const sizeWord = 9
	size := binary.BigEndian.Uint32(v.entries[i].Stat[sizeWord*4:])
	return size != 0 && uint32(v.result.stats[i].Size) != size
}

// TooMuchToReadError reports a worktree of which too many files would have to be read to count its changes.
type TooMuchToReadError struct{ Dir string }

func (e *TooMuchToReadError) Error() string {
	return fmt.Sprintf("more than %d MiB would have to be read to find the changed files of %s", maxMemoryBytes>>20, e.Dir)
}

// addChangedContent reads the files of some index entries and adds those whose mode or content differs. Git is asked only
// about files that it may convert and that are not, as they are, what the entry says.
func (v *worktreeScan) addChangedContent(ctx context.Context, doubtful []int, changed map[string]bool) error {
	if len(doubtful) == 0 {
		return nil
	}
	var names []string
	total := int64(0)
	for _, i := range doubtful {
		names, total = append(names, string(v.entries[i].Name)), total+v.result.stats[i].Size
	}
	if total > maxMemoryBytes {
		return &TooMuchToReadError{Dir: v.spec.Dir}
	}
	leaves, err := v.hashUnconverted(ctx, names, doubtful)
	if err != nil {
		return err
	}
	var convertible []string
	var seed []int
	for n, i := range doubtful {
		switch leaf, there := leaves[names[n]]; {
		case isLeaf(v.entries[i], leaf):
		case there && leaf.Mode == v.entries[i].Mode && v.mayConvert(names[n]):
			convertible, seed = append(convertible, names[n]), append(seed, i)
		default:
			changed[names[n]] = true
		}
	}
	if len(convertible) == 0 {
		return nil
	}
	if leaves, err = v.hashFiles(ctx, convertible, seed); err != nil {
		return err
	}
	for n, i := range seed {
		if !isLeaf(v.entries[i], leaves[convertible[n]]) {
			changed[convertible[n]] = true
		}
	}
	return nil
}

// isLeaf reports whether an index entry has the mode and the content of a file.
func isLeaf(e index.Entry, leaf object.LeafChange) bool {
	return leaf.Mode == e.Mode && bytes.Equal(leaf.OID, e.OID) && !e.IntentToAdd
}

// addStagedChanges adds the files whose index entries, of which built is the tree, differ from HEAD.
func (v *worktreeScan) addStagedChanges(ctx context.Context, built *object.BuiltTree, headTree string, changed map[string]bool) error {
	if built.HexOID() == headTree {
		return nil
	}
	known, err := hex.DecodeString(headTree)
	if err != nil {
		return err
	}
	t, err := v.repo.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	return addTreeChanges(ctx, t, "", object.TreeEntry{Mode: object.ModeTree, OID: built.OID, Subtree: built}, object.TreeEntry{Mode: object.ModeTree, OID: known}, changed)
}

// addTreeChanges adds the files below path that two entries do not have in common. The first is of a tree in memory, the
// second of one in the repository; either may be empty.
func addTreeChanges(ctx context.Context, t *git.CatFile, path string, ours, theirs object.TreeEntry, changed map[string]bool) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if ours.Mode == theirs.Mode && bytes.Equal(ours.OID, theirs.OID) {
		return nil
	}
	for _, it := range []object.TreeEntry{ours, theirs} {
		if it.OID != nil && !it.IsTree() {
			changed[path] = true
		}
	}
	var built object.BuiltTree
	if ours.Subtree != nil {
		built = *ours.Subtree
	}
	var stored *object.Tree
	if theirs.OID != nil && theirs.IsTree() {
		var err error
		if stored, err = t.ReadTree(theirs.OID); err != nil {
			return err
		}
	}
	below := path
	if below != "" {
		below += "/"
	}
	names := map[string]bool{}
	for _, it := range built.Entries {
		names[string(it.Name)] = true
		had, _ := stored.Find(string(it.Name))
		if err := addTreeChanges(ctx, t, below+string(it.Name), it, had, changed); err != nil {
			return err
		}
	}
	if stored == nil {
		return nil
	}
	for _, it := range stored.Entries {
		if names[string(it.Name)] {
			continue
		}
		if err := addTreeChanges(ctx, t, below+string(it.Name), object.TreeEntry{}, it, changed); err != nil {
			return err
		}
	}
	return nil
}
