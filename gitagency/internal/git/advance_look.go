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

// seat is what a person has in a worktree, as far as it matters: the index, and what is on disk where something changes.
type seat struct {
	repo    *Repo
	a       Advance
	format  ObjectFormat
	index   *heldIndex
	touched []*touch // sorted by path

	by       map[string]*touch
	overlaps map[string]string
	unsure   []*touch       // those that only their content can tell
	gone     map[string]dir // directories that have to go, or may
	dev      uint64         // of the file system that the tree is on
}

// touch is a path that changes.
type touch struct {
	treeChange
	was, is kind
	entry   stagedEntry // that the index has; of a path that is new, none
	seen    stamp       // what is on disk, where something is that the index has
}

// kind is what there is at a path, in the eyes of somebody who has to put it there.
type kind uint8

const (
	noFile  kind = iota
	aFile        // or a link
	aModule      // a submodule, which is a directory, and no concern of ours but for that
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

// dir is a directory that was there.
type dir struct {
	Path []byte `json:"path"`
	Perm uint32 `json:"perm"`
	must bool   // something else comes in its place
}

// begun says what git has begun in a worktree. locked: the index is, by us.
func begun(gitDir string, locked bool) string {
	const lock = "index" + lockSuffix
	if _, err := os.Lstat(filepath.Join(gitDir, lock)); err == nil && !locked {
		return lock
	}
	return UnderwayIn(gitDir)
}

// onBranch refuses a worktree that is on another branch.
func (r *Repo) onBranch(a Advance) error {
	var w Worktree
	if err := readHead(a.GitDir, &w); err != nil {
		return err
	}
	if w.Branch != a.Branch {
		return &HeadElsewhereError{Tree: a.Tree, Branch: a.Branch, On: cmp.Or(w.Branch, w.Head)}
	}
	return nil
}

// look finds out whether everything that changes is, in the worktree, what the commit before has. locked: the index is, by
// us.
func (r *Repo) look(ctx context.Context, a Advance, locked bool) (*seat, error) {
	if what := begun(a.GitDir, locked); what != "" {
		return nil, &UnderWayError{Tree: a.Tree, What: what}
	}
	if err := r.onBranch(a); err != nil {
		return nil, err
	}
	s, err := r.take(ctx, a)
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

// take reads the index, and what of it changes.
func (r *Repo) take(ctx context.Context, a Advance) (*seat, error) {
	s := &seat{repo: r, a: a, format: FormatOf(a.New), by: map[string]*touch{}, overlaps: map[string]string{}, gone: map[string]dir{}}
	index := proc.Meanwhile(func() (*heldIndex, error) {
		if x := a.by.indexOf(a.GitDir); x != nil {
			return x, nil
		}
		return r.readHeld(ctx, a.GitDir, s.format)
	})
	changes, err := r.changesOf(ctx, a)
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

// changesOf lists what differs between the two commits.
func (r *Repo) changesOf(ctx context.Context, a Advance) ([]treeChange, error) {
	if a.by != nil {
		if changes, ok, err := a.by.changes(ctx, a.Old, a.New); err != nil || ok {
			return changes, err
		}
		if err := a.by.flush(ctx); err != nil {
			return nil, err
		}
	}
	return r.treeChanges(ctx, place{}, a.Old, a.New)
}

func (s *seat) touch(changes []treeChange) error {
	for _, c := range changes {
		if c.status != 'D' {
			if why := refusedName([]byte(c.path), 0, c.newMode == "120000"); why != "" {
				return &UnsoundError{Path: c.path, Why: why}
			}
		}
		t := &touch{treeChange: c, was: kindOfMode(c.oldMode), is: kindOfMode(c.newMode)}
		s.touched, s.by[c.path] = append(s.touched, t), t
	}
	slices.SortFunc(s.touched, func(a, b *touch) int { return strings.Compare(a.path, b.path) })
	return nil
}

// staged makes sure that the index has what the commit before has.
func (s *seat) staged() error {
	for i := range s.index.begin {
		if s.index.body[s.index.begin[i]+indexStat+s.format.size()]&(flagStage>>8) != 0 {
			return &UnderWayError{Tree: s.a.Tree, What: "conflicts"}
		}
	}
	for _, t := range s.touched {
		i, there := s.index.find(t.path)
		if there {
			t.entry = s.index.entry(i)
		}
		switch {
		case t.was == noFile && there:
			s.overlap(t.path, OverlapStaged)
		case t.was == noFile:
			s.stagedAround(t)
		case !there || t.entry.intended || string(t.entry.oid) != string(mustHex(t.oldOID)) || t.oldMode != fmt.Sprintf("%06o", t.entry.mode):
			s.overlap(t.path, OverlapStaged)
		}
	}
	return nil
}

// stagedAround looks for what is staged where a new path needs a directory, or below it.
func (s *seat) stagedAround(t *touch) {
	for at := path.Dir(t.path); at != "."; at = path.Dir(at) {
		if _, there := s.index.find(at); there && s.by[at] == nil {
			s.overlap(at, OverlapStaged)
		}
	}
	for i, _ := s.index.find(t.path + "/"); i < len(s.index.begin); i++ {
		name := string(s.index.entry(i).name)
		if !strings.HasPrefix(name, t.path+"/") {
			break
		}
		if s.by[name] == nil {
			s.overlap(name, OverlapStaged)
		}
	}
}

func (s *seat) overlap(path, why string) {
	if s.overlaps[path] == "" {
		s.overlaps[path] = why
	}
}

// smallIndex is an index file with a few entries, in any order.
func smallIndex(format ObjectFormat, entries []stagedEntry) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b stagedEntry) int { return strings.Compare(string(a.name), string(b.name)) })
	x := Index{format: format, count: len(entries)}
	for _, e := range entries {
		x.body = appendEntry(x.body, e.stat, e.oid, uint16(min(len(e.name), flagLength)), 0, e.name)
	}
	return x.Encode()
}

// attributes are the files that say how those that change are to be read and written: as the index has them, or, where
// they change themselves, as they will be if that is asked for.
func (s *seat) attributes(coming []stagedEntry) []stagedEntry {
	const name = ".gitattributes"
	new := map[string]bool{}
	for _, e := range coming {
		new[string(e.name)] = true
	}
	var found []stagedEntry
	for at := range s.around() {
		file := path.Join(at, name)
		if t := s.by[file]; new[file] || t != nil && coming != nil {
			continue
		}
		if i, there := s.index.find(file); there {
			e := s.index.entry(i)
			e.stat = unread(e.mode)
			if e.mode != modeGitlink && !e.intended {
				found = append(found, e)
			}
		}
	}
	return found
}

// around are the directories on the way to all that changes.
func (s *seat) around() map[string]bool {
	around := map[string]bool{".": true}
	for _, t := range s.touched {
		for at := path.Dir(t.path); !around[at]; at = path.Dir(at) {
			around[at] = true
		}
	}
	return around
}

// refuse says what overlaps, if anything does.
func (s *seat) refuse(ctx context.Context) error {
	if len(s.overlaps) == 0 {
		return nil
	}
	return s.repo.overlapping(ctx, s.a, s.overlaps)
}

// overlapping is an error that tells what is ignored from what is merely not tracked.
func (r *Repo) overlapping(ctx context.Context, a Advance, overlaps map[string]string) error {
	var unknown []string
	for name, why := range overlaps {
		if why == OverlapUntracked {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		p := place{gitDir: a.GitDir, tree: a.Tree, stdin: strings.Join(unknown, "\x00") + "\x00"}
		out, err := r.read(ctx, p, "check-ignore", "-z", "--stdin")
		if err != nil && !exitedWith(err, 1, 128) { // it refuses what lies behind a link
			return err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if overlaps[name] != "" {
				overlaps[name] = OverlapIgnored
			}
		}
	}
	e := &OverlapsError{Tree: a.Tree}
	for _, name := range slices.Sorted(maps.Keys(overlaps)) {
		e.Paths = append(e.Paths, Overlap{Path: name, Why: overlaps[name]})
	}
	return e
}

// trusted refuses files that would be written by a filter which is not to run.
func (s *seat) trusted(ctx context.Context) (err error) {
	own := s.repo.ownFilters(smudges)
	coming := s.coming()
	if s.a.Trusted || len(own) == 0 || len(coming) == 0 {
		return nil
	}
	scratch, err := tempDirectory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	p, err := s.repo.workshop(s.a, scratch.path, s.a.Tree)
	if err != nil {
		return err
	}
	index := filepath.Join(scratch.path, "index")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	if err := os.WriteFile(index, smallIndex(s.format, slices.Concat(coming, s.attributes(coming))), 0o600); err != nil {
		return err
	}
	var names []string
	for _, e := range coming {
		names = append(names, string(e.name))
	}
	// By what is in the index first, as when files are written; what is only on disk is asked after.
	for _, options := range [][]string{{"--cached"}, nil} {
		if err := s.repo.unfiltered(ctx, p, own, names, options...); err != nil {
			return err
		}
	}
	return nil
}

// coming are the files that are new, or other than they were.
func (s *seat) coming() []stagedEntry {
	return s.side(func(t *touch) (string, string) { return t.newMode, t.newOID })
}

// going are what these were.
func (s *seat) going() []stagedEntry {
	return s.side(func(t *touch) (string, string) { return t.oldMode, t.oldOID })
}

func (s *seat) side(of func(*touch) (mode, oid string)) []stagedEntry {
	var entries []stagedEntry
	for _, t := range s.touched {
		text, oid := of(t)
		if kindOfMode(text) == aFile {
			mode, _ := strconv.ParseUint(text, 8, 32)
			entries = append(entries, stagedEntry{mode: uint32(mode), oid: mustHex(oid), name: []byte(t.path), stat: unread(uint32(mode))})
		}
	}
	return entries
}
