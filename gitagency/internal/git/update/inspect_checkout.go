package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// checkout is the state of a worktree at the paths that change: its index entries and the files on disk.
type checkout struct {
	repo    *git.Repo
	spec    Update
	format  object.Format
	index   *index.Editable
	changes []*pathChange // sorted by path

	changeByPath   map[string]*pathChange
	overlaps       map[string]string    // reason by path
	contentUnknown []*pathChange        // files whose stat data does not tell whether they changed
	removableDirs  map[string]dirRecord // directories that a file replaces, and those that may become empty
	dev            uint64               // device number of the worktree's root
}

// pathChange is a path that changes.
type pathChange struct {
	git.TreeChange
	oldKind, newKind pathKind
	indexEntry       index.Entry  // present index entry; zero: none
	diskStat         git.FileStat // lstat of the path; zero: not there
}

// pathKind is the kind of entry that a tree has at a path.
type pathKind uint8

const (
	kindAbsent    pathKind = iota
	kindFile               // regular file or symlink
	kindSubmodule          // submodule: only its directory is created or removed
)

func kindOfMode(mode string) pathKind {
	switch mode {
	case "000000":
		return kindAbsent
	case object.ModeGitlinkText:
		return kindSubmodule
	}
	return kindFile
}

// dirRecord is a directory of the worktree, with the permissions to make it again.
type dirRecord struct {
	Path     []byte `json:"path"`
	Perm     uint32 `json:"perm"`
	replaced bool   // a file takes its place
}

// operationOrIndexLock returns "index.lock" if another process holds the index lock, else the git operation in progress,
// if any. locked: the index lock is ours.
func operationOrIndexLock(gitDir string, locked bool) string {
	const lock = "index" + index.LockSuffix
	if _, err := os.Lstat(filepath.Join(gitDir, lock)); err == nil && !locked {
		return lock
	}
	return git.OperationIn(gitDir)
}

// requireBranch refuses a worktree that is on another branch.
func requireBranch(r *git.Repo, u Update) error {
	head, err := git.ReadHead(u.GitDir)
	if err != nil {
		return err
	}
	if head.Branch != u.Branch {
		return &WrongBranchError{Worktree: u.Worktree, Branch: u.Branch, Head: cmp.Or(head.Branch, head.Commit)}
	}
	return nil
}

// inspectCheckout checks that index and worktree match the old commit at every path that changes, and that git may write
// there. locked: the index lock is ours.
func inspectCheckout(ctx context.Context, r *git.Repo, u Update, locked bool) (*checkout, error) {
	if what := operationOrIndexLock(u.GitDir, locked); what != "" {
		return nil, &OperationInProgressError{Worktree: u.Worktree, Operation: what}
	}
	if err := requireBranch(r, u); err != nil {
		return nil, err
	}
	s, err := loadCheckout(ctx, r, u)
	if err != nil {
		return nil, err
	}
	if err := s.checkFiles(); err != nil {
		return nil, err
	}
	if err := s.compareContents(ctx); err != nil {
		return nil, err
	}
	if err := s.localChangesError(ctx); err != nil {
		return nil, err
	}
	if err := s.checkWritable(); err != nil {
		return nil, err
	}
	return s, s.refuseUntrustedFilters(ctx)
}

// loadCheckout reads the index and the changes between the two commits, and checks the changed paths in the index.
func loadCheckout(ctx context.Context, r *git.Repo, u Update) (*checkout, error) {
	s := &checkout{repo: r, spec: u, format: object.FormatOf(u.New), changeByPath: map[string]*pathChange{}, overlaps: map[string]string{}, removableDirs: map[string]dirRecord{}}
	index := proc.Async(func() (*index.Editable, error) {
		if x := u.merger.PrefetchedIndexOf(u.GitDir); x != nil {
			return x, nil
		}
		return r.ReadEditableIndex(ctx, u.GitDir, s.format)
	})
	changes, err := diffCommits(ctx, r, u)
	x, indexErr := index()
	if err := errors.Join(err, indexErr); err != nil {
		return nil, err
	}
	s.index = x
	if err := s.addChanges(changes); err != nil {
		return nil, err
	}
	return s, s.checkIndex()
}

// diffCommits lists the changes between the two commits, in memory if the merger can do that.
func diffCommits(ctx context.Context, r *git.Repo, u Update) ([]git.TreeChange, error) {
	if u.merger != nil {
		if changes, ok, err := u.merger.DiffTrees(ctx, u.Old, u.New); err != nil || ok {
			return changes, err
		}
		if err := u.merger.Flush(ctx); err != nil {
			return nil, err
		}
	}
	return r.TreeChanges(ctx, git.RunOptions{}, u.Old, u.New)
}

func (co *checkout) addChanges(changes []git.TreeChange) error {
	for _, c := range changes {
		if c.Status != 'D' {
			if why := index.PathProblem([]byte(c.Path), 0, c.NewMode == "120000"); why != "" {
				return &fsck.Error{Path: c.Path, Why: why}
			}
		}
		t := &pathChange{TreeChange: c, oldKind: kindOfMode(c.OldMode), newKind: kindOfMode(c.NewMode)}
		co.changes, co.changeByPath[c.Path] = append(co.changes, t), t
	}
	slices.SortFunc(co.changes, func(a, b *pathChange) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// checkIndex compares the index with the old commit at every path that changes; mismatches become overlaps.
func (co *checkout) checkIndex() error {
	if co.index.AnyUnmerged() {
		return &OperationInProgressError{Worktree: co.spec.Worktree, Operation: "conflicts"}
	}
	for _, t := range co.changes {
		i, there := co.index.Find(t.Path)
		if there {
			t.indexEntry = co.index.EntryAt(i)
		}
		switch {
		case t.oldKind == kindAbsent && there:
			co.addOverlap(t.Path, OverlapStaged)
		case t.oldKind == kindAbsent:
			co.checkIndexAround(t)
		case !there || t.indexEntry.IntentToAdd || string(t.indexEntry.OID) != string(object.MustHex(t.OldOID)) || t.OldMode != fmt.Sprintf("%06o", t.indexEntry.Mode):
			co.addOverlap(t.Path, OverlapStaged)
		}
	}
	return nil
}

// checkIndexAround adds an overlap for index entries at a parent directory of a new path, or below the path.
func (co *checkout) checkIndexAround(t *pathChange) {
	for at := path.Dir(t.Path); at != "."; at = path.Dir(at) {
		if _, there := co.index.Find(at); there && co.changeByPath[at] == nil {
			co.addOverlap(at, OverlapStaged)
		}
	}
	for i, _ := co.index.Find(t.Path + "/"); i < len(co.index.Starts); i++ {
		name := string(co.index.EntryAt(i).Name)
		if !strings.HasPrefix(name, t.Path+"/") {
			break
		}
		if co.changeByPath[name] == nil {
			co.addOverlap(name, OverlapStaged)
		}
	}
}

func (co *checkout) addOverlap(path, why string) {
	if co.overlaps[path] == "" {
		co.overlaps[path] = why
	}
}

// attributeEntries returns the index entries of the .gitattributes files that apply to changed paths. If coming, the new
// files, is not nil, it leaves out .gitattributes files that change themselves: coming has their new version, if any.
func (co *checkout) attributeEntries(coming []index.Entry) []index.Entry {
	const name = ".gitattributes"
	new := map[string]bool{}
	for _, e := range coming {
		new[string(e.Name)] = true
	}
	var found []index.Entry
	for at := range co.parentDirs() {
		file := path.Join(at, name)
		if t := co.changeByPath[file]; new[file] || t != nil && coming != nil {
			continue
		}
		if i, there := co.index.Find(file); there {
			e := co.index.EntryAt(i)
			e.Stat = index.StatWithMode(e.Mode)
			if e.Mode != object.ModeGitlink && !e.IntentToAdd {
				found = append(found, e)
			}
		}
	}
	return found
}

// parentDirs returns all parent directories of the changed paths, "." included.
func (co *checkout) parentDirs() map[string]bool {
	around := map[string]bool{".": true}
	for _, t := range co.changes {
		for at := path.Dir(t.Path); !around[at]; at = path.Dir(at) {
			around[at] = true
		}
	}
	return around
}

// refuseUntrustedFilters refuses new files that a smudge filter from untrusted config would write.
func (co *checkout) refuseUntrustedFilters(ctx context.Context) (err error) {
	own := co.repo.UntrustedFiltersWith(git.SmudgeCommands)
	coming := co.newEntries()
	if co.spec.Trusted || len(own) == 0 || len(coming) == 0 {
		return nil
	}
	scratch, err := git.MakeTempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	p, err := checkoutRunOptions(co.repo, co.spec, scratch.Path, co.spec.Worktree)
	if err != nil {
		return err
	}
	idx := filepath.Join(scratch.Path, "index")
	p.Env = append(p.Env, "GIT_INDEX_FILE="+idx)
	if err := os.WriteFile(idx, index.EncodeEntries(co.format, slices.Concat(coming, co.attributeEntries(coming))), 0o600); err != nil {
		return err
	}
	var names []string
	for _, e := range coming {
		names = append(names, string(e.Name))
	}
	// Ask with the attributes in the index first, as checkout does; then with those that are only on disk.
	for _, options := range [][]string{{"--cached"}, nil} {
		if err := co.repo.CheckFilters(ctx, p, own, names, options...); err != nil {
			return err
		}
	}
	return nil
}

// newEntries returns index entries of all added and modified files, at the new commit.
func (co *checkout) newEntries() []index.Entry {
	return co.fileEntries(func(t *pathChange) (string, string) { return t.NewMode, t.NewOID })
}

// oldEntries returns index entries of all modified and deleted files, at the old commit.
func (co *checkout) oldEntries() []index.Entry {
	return co.fileEntries(func(t *pathChange) (string, string) { return t.OldMode, t.OldOID })
}

func (co *checkout) fileEntries(of func(*pathChange) (mode, oid string)) []index.Entry {
	var entries []index.Entry
	for _, t := range co.changes {
		text, oid := of(t)
		if kindOfMode(text) == kindFile {
			mode, _ := strconv.ParseUint(text, 8, 32)
			entries = append(entries, index.Entry{Mode: uint32(mode), OID: object.MustHex(oid), Name: []byte(t.Path), Stat: index.StatWithMode(uint32(mode))})
		}
	}
	return entries
}
