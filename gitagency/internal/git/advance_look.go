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
type seat struct {
	repo    *Repo
	a       Advance
	format  ObjectFormat
	index   *heldIndex
	touched []*touch // sorted by path

	by       map[string]*touch
	overlaps map[string]string // reason by path
	unsure   []*touch          // files whose stat data does not tell whether they changed
	gone     map[string]dir    // directories that a file replaces, and those that may become empty
	dev      uint64            // device number of the worktree's root
}

// pathChange is a path that changes.
type touch struct {
	treeChange
	was, is kind
	entry   stagedEntry // present index entry; zero: none
	seen    stamp       // lstat of the path; zero: not there
}

// pathKind is the kind of entry that a tree has at a path.
type kind uint8

const (
	noFile  kind = iota
	aFile        // regular file or symlink
	aModule      // submodule: only its directory is created or removed
)

func kindOfMode(mode string) kind {
	switch mode {
	case "000000":
		return noFile
	case submodule:
		return aModule
	}
	return aFile
}

// dirRecord is a directory of the worktree, with the permissions to make it again.
type dir struct {
	Path []byte `json:"path"`
	Perm uint32 `json:"perm"`
	must bool   // a file takes its place
}

// operationOrIndexLock returns "index.lock" if another process holds the index lock, else the git operation in progress,
// if any. locked: the index lock is ours.
func begun(gitDir string, locked bool) string {
	const lock = "index" + lockSuffix
	if _, err := os.Lstat(filepath.Join(gitDir, lock)); err == nil && !locked {
		return lock
	}
	return UnderwayIn(gitDir)
}

// requireBranch refuses a worktree that is on another branch.
func (r *Repo) onBranch(u Advance) error {
	var w Worktree
	if err := readHead(u.GitDir, &w); err != nil {
		return err
	}
	if w.Branch != u.Branch {
		return &HeadElsewhereError{Tree: u.Tree, Branch: u.Branch, On: cmp.Or(w.Branch, w.Head)}
	}
	return nil
}

// inspectCheckout checks that index and worktree match the old commit at every path that changes, and that git may write
// there. locked: the index lock is ours.
func (r *Repo) look(ctx context.Context, u Advance, locked bool) (*seat, error) {
	if what := begun(u.GitDir, locked); what != "" {
		return nil, &UnderWayError{Tree: u.Tree, What: what}
	}
	if err := r.onBranch(u); err != nil {
		return nil, err
	}
	s, err := r.take(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := s.onDisk(); err != nil {
		return nil, err
	}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	if err := s.writable(); err != nil {
		return nil, err
	}
	return s, s.trusted(ctx)
}

// loadCheckout reads the index and the changes between the two commits, and checks the changed paths in the index.
func (r *Repo) take(ctx context.Context, u Advance) (*seat, error) {
	s := &seat{repo: r, a: u, format: FormatOf(u.New), by: map[string]*touch{}, overlaps: map[string]string{}, gone: map[string]dir{}}
	index := proc.Meanwhile(func() (*heldIndex, error) {
		if x := u.by.indexOf(u.GitDir); x != nil {
			return x, nil
		}
		return r.readHeld(ctx, u.GitDir, s.format)
	})
	changes, err := r.changesOf(ctx, u)
	x, indexErr := index()
	if err := errors.Join(err, indexErr); err != nil {
		return nil, err
	}
	s.index = x
	if err := s.touch(changes); err != nil {
		return nil, err
	}
	return s, s.staged()
}

// diffCommits lists the changes between the two commits, in memory if the merger can do that.
func (r *Repo) changesOf(ctx context.Context, u Advance) ([]treeChange, error) {
	if u.by != nil {
		if changes, ok, err := u.by.changes(ctx, u.Old, u.New); err != nil || ok {
			return changes, err
		}
		if err := u.by.flush(ctx); err != nil {
			return nil, err
		}
	}
	return r.treeChanges(ctx, place{}, u.Old, u.New)
}

func (co *seat) touch(changes []treeChange) error {
	for _, c := range changes {
		if c.status != 'D' {
			if why := refusedName([]byte(c.path), 0, c.newMode == "120000"); why != "" {
				return &UnsoundError{Path: c.path, Why: why}
			}
		}
		t := &touch{treeChange: c, was: kindOfMode(c.oldMode), is: kindOfMode(c.newMode)}
		co.touched, co.by[c.path] = append(co.touched, t), t
	}
	slices.SortFunc(co.touched, func(a, b *touch) int { return strings.Compare(a.path, b.path) })
	return nil
}

// checkIndex compares the index with the old commit at every path that changes; mismatches become overlaps.
func (co *seat) staged() error {
	if co.index.anyUnmerged() {
		return &UnderWayError{Tree: co.a.Tree, What: "conflicts"}
	}
	for _, t := range co.touched {
		i, there := co.index.find(t.path)
		if there {
			t.entry = co.index.entry(i)
		}
		switch {
		case t.was == noFile && there:
			co.overlap(t.path, OverlapStaged)
		case t.was == noFile:
			co.stagedAround(t)
		case !there || t.entry.intended || string(t.entry.oid) != string(mustHex(t.oldOID)) || t.oldMode != fmt.Sprintf("%06o", t.entry.mode):
			co.overlap(t.path, OverlapStaged)
		}
	}
	return nil
}

// checkIndexAround adds an overlap for index entries at a parent directory of a new path, or below the path.
func (co *seat) stagedAround(t *touch) {
	for at := path.Dir(t.path); at != "."; at = path.Dir(at) {
		if _, there := co.index.find(at); there && co.by[at] == nil {
			co.overlap(at, OverlapStaged)
		}
	}
	for i, _ := co.index.find(t.path + "/"); i < len(co.index.begin); i++ {
		name := string(co.index.entry(i).name)
		if !strings.HasPrefix(name, t.path+"/") {
			break
		}
		if co.by[name] == nil {
			co.overlap(name, OverlapStaged)
		}
	}
}

func (co *seat) overlap(path, why string) {
	if co.overlaps[path] == "" {
		co.overlaps[path] = why
	}
}

// encodeEntries returns an index file with a few entries, given in any order.
func smallIndex(format ObjectFormat, entries []stagedEntry) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b stagedEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	x := Index{format: format, count: len(entries)}
	for _, e := range entries {
		x.body = appendEntry(x.body, e.stat, e.oid, uint16(min(len(e.name), flagLength)), 0, e.name)
	}
	return x.Encode()
}

// attributeEntries returns the index entries of the .gitattributes files that apply to changed paths. If coming, the new
// files, is not nil, it leaves out .gitattributes files that change themselves: coming has their new version, if any.
func (co *seat) attributes(coming []stagedEntry) []stagedEntry {
	const name = ".gitattributes"
	new := map[string]bool{}
	for _, e := range coming {
		new[string(e.name)] = true
	}
	var found []stagedEntry
	for at := range co.around() {
		file := path.Join(at, name)
		if t := co.by[file]; new[file] || t != nil && coming != nil {
			continue
		}
		if i, there := co.index.find(file); there {
			e := co.index.entry(i)
			e.stat = unread(e.mode)
			if e.mode != modeGitlink && !e.intended {
				found = append(found, e)
			}
		}
	}
	return found
}

// parentDirs returns all parent directories of the changed paths, "." included.
func (co *seat) around() map[string]bool {
	around := map[string]bool{".": true}
	for _, t := range co.touched {
		for at := path.Dir(t.path); !around[at]; at = path.Dir(at) {
			around[at] = true
		}
	}
	return around
}

// overlapsError returns an *OverlapsError if there are overlaps.
func (co *seat) refuse(ctx context.Context) error {
	if len(co.overlaps) == 0 {
		return nil
	}
	return co.repo.overlapping(ctx, co.a, co.overlaps)
}

// newOverlapsError returns an *OverlapsError, and asks git which of the untracked paths are ignored.
func (r *Repo) overlapping(ctx context.Context, u Advance, overlaps map[string]string) error {
	var unknown []string
	for name, why := range overlaps {
		if why == OverlapUntracked {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		p := place{gitDir: u.GitDir, tree: u.Tree, stdin: strings.Join(unknown, "\x00") + "\x00"}
		out, err := r.read(ctx, p, "check-ignore", "-z", "--stdin")
		if err != nil && !exitedWith(err, 1, 128) { // 1: none is ignored; 128: a path beyond a symlink
			return err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if overlaps[name] != "" {
				overlaps[name] = OverlapIgnored
			}
		}
	}
	e := &OverlapsError{Tree: u.Tree}
	for _, name := range slices.Sorted(maps.Keys(overlaps)) {
		e.Paths = append(e.Paths, Overlap{Path: name, Why: overlaps[name]})
	}
	return e
}

// refuseUntrustedFilters refuses new files that a smudge filter from untrusted config would write.
func (co *seat) trusted(ctx context.Context) (err error) {
	own := co.repo.ownFilters(smudges)
	coming := co.coming()
	if co.a.Trusted || len(own) == 0 || len(coming) == 0 {
		return nil
	}
	scratch, err := tempDirectory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	p, err := co.repo.workshop(co.a, scratch.path, co.a.Tree)
	if err != nil {
		return err
	}
	index := filepath.Join(scratch.path, "index")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	if err := os.WriteFile(index, smallIndex(co.format, slices.Concat(coming, co.attributes(coming))), 0o600); err != nil {
		return err
	}
	var names []string
	for _, e := range coming {
		names = append(names, string(e.name))
	}
	// Ask with the attributes in the index first, as checkout does; then with those that are only on disk.
	for _, options := range [][]string{{"--cached"}, nil} {
		if err := co.repo.unfiltered(ctx, p, own, names, options...); err != nil {
			return err
		}
	}
	return nil
}

// newEntries returns index entries of all added and modified files, at the new commit.
func (co *seat) coming() []stagedEntry {
	return co.side(func(t *touch) (string, string) { return t.newMode, t.newOID })
}

// oldEntries returns index entries of all modified and deleted files, at the old commit.
func (co *seat) going() []stagedEntry {
	return co.side(func(t *touch) (string, string) { return t.oldMode, t.oldOID })
}

func (co *seat) side(of func(*touch) (mode, oid string)) []stagedEntry {
	var entries []stagedEntry
	for _, t := range co.touched {
		text, oid := of(t)
		if kindOfMode(text) == aFile {
			mode, _ := strconv.ParseUint(text, 8, 32)
			entries = append(entries, stagedEntry{mode: uint32(mode), oid: mustHex(oid), name: []byte(t.path), stat: unread(uint32(mode))})
		}
	}
	return entries
}
