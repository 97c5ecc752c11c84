package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// checkout is the state of a worktree at the paths that change: its index entries and the files on disk.
type checkout struct {
	repo    *Repo
	spec    Update
	format  ObjectFormat
	index   *editableIndex
	changes []*pathChange // sorted by path

	changeByPath   map[string]*pathChange
	overlaps       map[string]string    // reason by path
	contentUnknown []*pathChange        // files whose stat data does not tell whether they changed
	removableDirs  map[string]dirRecord // directories that a file replaces, and those that may become empty
	dev            uint64               // device number of the worktree's root
}

// pathChange is a path that changes.
type pathChange struct {
	treeChange
	oldKind, newKind pathKind
	indexEntry       indexEntry // present index entry; zero: none
	diskStat         fileStat   // lstat of the path; zero: not there
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
	case modeGitlinkText:
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
	const lock = "index" + lockSuffix
	if _, err := os.Lstat(filepath.Join(gitDir, lock)); err == nil && !locked {
		return lock
	}
	return OperationIn(gitDir)
}

// requireBranch refuses a worktree that is on another branch.
func (r *Repo) requireBranch(u Update) error {
	var w Worktree
	if err := readHead(u.GitDir, &w); err != nil {
		return err
	}
	if w.Branch != u.Branch {
		return &WrongBranchError{Worktree: u.Worktree, Branch: u.Branch, Head: cmp.Or(w.Branch, w.Head)}
	}
	return nil
}

// inspectCheckout checks that index and worktree match the old commit at every path that changes, and that git may write
// there. locked: the index lock is ours.
func (r *Repo) inspectCheckout(ctx context.Context, u Update, locked bool) (*checkout, error) {
	if what := operationOrIndexLock(u.GitDir, locked); what != "" {
		return nil, &OperationInProgressError{Worktree: u.Worktree, Operation: what}
	}
	if err := r.requireBranch(u); err != nil {
		return nil, err
	}
	s, err := r.loadCheckout(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := s.checkFiles(); err != nil {
		return nil, err
	}
	if err := s.compareContents(ctx); err != nil {
		return nil, err
	}
	if err := s.overlapsError(ctx); err != nil {
		return nil, err
	}
	if err := s.checkWritable(); err != nil {
		return nil, err
	}
	return s, s.refuseUntrustedFilters(ctx)
}

// loadCheckout reads the index and the changes between the two commits, and checks the changed paths in the index.
func (r *Repo) loadCheckout(ctx context.Context, u Update) (*checkout, error) {
	s := &checkout{repo: r, spec: u, format: FormatOf(u.New), changeByPath: map[string]*pathChange{}, overlaps: map[string]string{}, removableDirs: map[string]dirRecord{}}
	index := proc.Async(func() (*editableIndex, error) {
		if x := u.merger.prefetchedIndexOf(u.GitDir); x != nil {
			return x, nil
		}
		return r.readEditableIndex(ctx, u.GitDir, s.format)
	})
	changes, err := r.diffCommits(ctx, u)
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
func (r *Repo) diffCommits(ctx context.Context, u Update) ([]treeChange, error) {
	if u.merger != nil {
		if changes, ok, err := u.merger.diffTrees(ctx, u.Old, u.New); err != nil || ok {
			return changes, err
		}
		if err := u.merger.flush(ctx); err != nil {
			return nil, err
		}
	}
	return r.treeChanges(ctx, runOptions{}, u.Old, u.New)
}

func (co *checkout) addChanges(changes []treeChange) error {
	for _, c := range changes {
		if c.status != 'D' {
			if why := pathProblem([]byte(c.path), 0, c.newMode == "120000"); why != "" {
				return &FsckError{Path: c.path, Why: why}
			}
		}
		t := &pathChange{treeChange: c, oldKind: kindOfMode(c.oldMode), newKind: kindOfMode(c.newMode)}
		co.changes, co.changeByPath[c.path] = append(co.changes, t), t
	}
	slices.SortFunc(co.changes, func(a, b *pathChange) int { return strings.Compare(a.path, b.path) })
	return nil
}

// checkIndex compares the index with the old commit at every path that changes; mismatches become overlaps.
func (co *checkout) checkIndex() error {
	if co.index.anyUnmerged() {
		return &OperationInProgressError{Worktree: co.spec.Worktree, Operation: "conflicts"}
	}
	for _, t := range co.changes {
		i, there := co.index.find(t.path)
		if there {
			t.indexEntry = co.index.entryAt(i)
		}
		switch {
		case t.oldKind == kindAbsent && there:
			co.addOverlap(t.path, OverlapStaged)
		case t.oldKind == kindAbsent:
			co.checkIndexAround(t)
		case !there || t.indexEntry.intentToAdd || string(t.indexEntry.oid) != string(mustHex(t.oldOID)) || t.oldMode != fmt.Sprintf("%06o", t.indexEntry.mode):
			co.addOverlap(t.path, OverlapStaged)
		}
	}
	return nil
}

// checkIndexAround adds an overlap for index entries at a parent directory of a new path, or below the path.
func (co *checkout) checkIndexAround(t *pathChange) {
	for at := path.Dir(t.path); at != "."; at = path.Dir(at) {
		if _, there := co.index.find(at); there && co.changeByPath[at] == nil {
			co.addOverlap(at, OverlapStaged)
		}
	}
	for i, _ := co.index.find(t.path + "/"); i < len(co.index.starts); i++ {
		name := string(co.index.entryAt(i).name)
		if !strings.HasPrefix(name, t.path+"/") {
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

// encodeEntries returns an index file with a few entries, given in any order.
func encodeEntries(format ObjectFormat, entries []indexEntry) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b indexEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	x := Index{format: format, count: len(entries)}
	for _, e := range entries {
		x.body = appendEntry(x.body, e.stat, e.oid, uint16(min(len(e.name), flagNameLengthMask)), 0, e.name)
	}
	return x.Encode()
}

// attributeEntries returns the index entries of the .gitattributes files that apply to changed paths. If coming, the new
// files, is not nil, it leaves out .gitattributes files that change themselves: coming has their new version, if any.
func (co *checkout) attributeEntries(coming []indexEntry) []indexEntry {
	const name = ".gitattributes"
	new := map[string]bool{}
	for _, e := range coming {
		new[string(e.name)] = true
	}
	var found []indexEntry
	for at := range co.parentDirs() {
		file := path.Join(at, name)
		if t := co.changeByPath[file]; new[file] || t != nil && coming != nil {
			continue
		}
		if i, there := co.index.find(file); there {
			e := co.index.entryAt(i)
			e.stat = statWithMode(e.mode)
			if e.mode != modeGitlink && !e.intentToAdd {
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
		for at := path.Dir(t.path); !around[at]; at = path.Dir(at) {
			around[at] = true
		}
	}
	return around
}

// overlapsError returns an *OverlapsError if there are overlaps.
func (co *checkout) overlapsError(ctx context.Context) error {
	if len(co.overlaps) == 0 {
		return nil
	}
	return co.repo.newOverlapsError(ctx, co.spec, co.overlaps)
}

// newOverlapsError returns an *OverlapsError, and asks git which of the untracked paths are ignored.
func (r *Repo) newOverlapsError(ctx context.Context, u Update, overlaps map[string]string) error {
	var unknown []string
	for name, why := range overlaps {
		if why == OverlapUntracked {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		p := runOptions{gitDir: u.GitDir, workTree: u.Worktree, stdin: strings.Join(unknown, "\x00") + "\x00"}
		out, err := r.runRead(ctx, p, "check-ignore", "-z", "--stdin")
		if err != nil && !exitedWith(err, 1, 128) { // 1: none is ignored; 128: a path beyond a symlink
			return err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if overlaps[name] != "" {
				overlaps[name] = OverlapIgnored
			}
		}
	}
	e := &OverlapsError{Worktree: u.Worktree}
	for _, name := range slices.Sorted(maps.Keys(overlaps)) {
		e.Paths = append(e.Paths, Overlap{Path: name, Reason: overlaps[name]})
	}
	return e
}

// refuseUntrustedFilters refuses new files that a smudge filter from untrusted config would write.
func (co *checkout) refuseUntrustedFilters(ctx context.Context) (err error) {
	own := co.repo.untrustedFilters(smudgeCommands)
	coming := co.newEntries()
	if co.spec.Trusted || len(own) == 0 || len(coming) == 0 {
		return nil
	}
	scratch, err := makeTempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	p, err := co.repo.checkoutRunOptions(co.spec, scratch.path, co.spec.Worktree)
	if err != nil {
		return err
	}
	index := filepath.Join(scratch.path, "index")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	if err := os.WriteFile(index, encodeEntries(co.format, slices.Concat(coming, co.attributeEntries(coming))), 0o600); err != nil {
		return err
	}
	var names []string
	for _, e := range coming {
		names = append(names, string(e.name))
	}
	// Ask with the attributes in the index first, as checkout does; then with those that are only on disk.
	for _, options := range [][]string{{"--cached"}, nil} {
		if err := co.repo.checkFilters(ctx, p, own, names, options...); err != nil {
			return err
		}
	}
	return nil
}

// newEntries returns index entries of all added and modified files, at the new commit.
func (co *checkout) newEntries() []indexEntry {
	return co.fileEntries(func(t *pathChange) (string, string) { return t.newMode, t.newOID })
}

// oldEntries returns index entries of all modified and deleted files, at the old commit.
func (co *checkout) oldEntries() []indexEntry {
	return co.fileEntries(func(t *pathChange) (string, string) { return t.oldMode, t.oldOID })
}

func (co *checkout) fileEntries(of func(*pathChange) (mode, oid string)) []indexEntry {
	var entries []indexEntry
	for _, t := range co.changes {
		text, oid := of(t)
		if kindOfMode(text) == kindFile {
			mode, _ := strconv.ParseUint(text, 8, 32)
			entries = append(entries, indexEntry{mode: uint32(mode), oid: mustHex(oid), name: []byte(t.path), stat: statWithMode(uint32(mode))})
		}
	}
	return entries
}
