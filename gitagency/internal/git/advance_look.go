package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
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
	index := proc.Meanwhile(func() (*heldIndex, error) { return r.readHeld(ctx, a.GitDir, s.format) })
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

// onDisk makes sure that what is on disk is what the index has, where that goes, and nothing where something comes.
func (s *seat) onDisk() error {
	w, err := openWalker(s.a.Tree)
	if err != nil {
		return err
	}
	defer w.close()
	s.dev = w.dev
	scan := &scanner{
		modes: s.repo.boolean("core.filemode", true), symlinks: s.repo.boolean("core.symlinks", true),
		empty: nameObject(s.format, "blob", nil), young: s.index.at,
	}
	looked := map[string]bool{}
	for _, t := range s.touched {
		if s.overlaps[t.path] != "" {
			continue
		}
		fd, err := w.open(path.Dir(t.path))
		var blocked *blockedError
		var st unix.Stat_t
		switch {
		case errors.As(err, &blocked):
			s.blocked(t, blocked.at)
			continue
		case err != nil && !nothingThere(err):
			return err
		case err == nil && w.dev != s.dev:
			return &fs.PathError{Op: "replace", Path: filepath.Join(s.a.Tree, t.path), Err: errors.New("it is on another file system")}
		case err == nil:
			err = unix.Fstatat(fd, path.Base(t.path), &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil && !nothingThere(err) {
			return &fs.PathError{Op: "stat", Path: filepath.Join(s.a.Tree, t.path), Err: err}
		}
		there := err == nil
		if t.was != aFile {
			s.repositoryAround(t.path, looked)
		}
		if there {
			t.seen = stampOf(&st)
		}
		if err := s.compare(t, there, &st, scan); err != nil {
			return err
		}
		if there && t.was == aFile && t.is != aFile {
			s.mayGo(t.path)
		}
	}
	return nil
}

// compare decides about one path.
func (s *seat) compare(t *touch, there bool, st *unix.Stat_t, scan *scanner) error {
	isDir := there && st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch t.was {
	case noFile:
		switch {
		case !there:
			return nil
		case isDir && t.is == aModule:
			return s.moduleOver(t)
		case isDir:
			return s.empty(t.path, OverlapUntracked)
		}
		s.overlap(t.path, OverlapUntracked)
	case aModule:
		switch {
		case !there || t.is == aModule:
			return nil
		case !isDir:
			s.overlap(t.path, OverlapDirty)
		case t.is == aFile:
			return s.empty(t.path, OverlapSubmodule)
		default: // one that is populated stays, as git leaves it
			s.gone[t.path] = dir{Path: []byte(t.path), Perm: uint32(st.Mode) & 0o7777}
		}
	case aFile:
		switch {
		case !there && (t.entry.skipped || t.is == noFile):
			return nil // it is not checked out, or went already
		case !there || isDir:
			s.overlap(t.path, OverlapDirty)
		case !scan.asStaged(&t.entry, st):
			s.unsure = append(s.unsure, t)
		}
	}
	return nil
}

// moduleOver: a submodule takes a directory that is empty, or a repository already.
func (s *seat) moduleOver(t *touch) error {
	if _, err := os.Lstat(filepath.Join(s.a.Tree, t.path, ".git")); err == nil {
		return nil
	}
	before := maps.Clone(s.gone)
	err := s.empty(t.path, OverlapUntracked)
	s.gone = before // it stays
	return err
}

// blocked: on the way to a path there is something that is no directory.
func (s *seat) blocked(t *touch, at string) {
	around := s.by[at]
	switch {
	case t.was == noFile && around != nil && around.was == aFile:
		return // it goes, if it is what it should be
	case t.was == aFile && (t.entry.skipped || t.is == noFile), t.was == aModule && t.is != aFile:
		return // nothing of ours is there; what is stays
	case t.was == aFile:
		s.overlap(t.path, OverlapDirty)
	}
	s.overlap(at, OverlapUntracked)
}

// empty makes sure that nothing is in a directory where a file has to be, but for what goes.
func (s *seat) empty(at, why string) error {
	full := filepath.Join(s.a.Tree, at)
	fi, err := os.Lstat(full)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := at + "/" + e.Name()
		switch known := s.by[name]; {
		case e.Name() == ".git":
			if why == OverlapUntracked {
				why = OverlapRepository
			}
			s.overlap(at, why)
			return nil
		case known != nil && known.was == aFile && !e.IsDir():
		case known != nil && known.was == aModule && e.IsDir():
			if err := s.empty(name, OverlapSubmodule); err != nil {
				return err
			}
		case e.IsDir():
			if err := s.empty(name, why); err != nil {
				return err
			}
		default:
			s.overlap(name, why)
		}
	}
	s.gone[at] = dir{Path: []byte(at), Perm: permOf(fi), must: true}
	return nil
}

func permOf(fi fs.FileInfo) uint32 {
	perm := uint32(fi.Mode().Perm())
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if fi.Mode()&is != 0 {
			perm |= bit
		}
	}
	return perm
}

// repositoryAround: into a repository of its own nothing is written.
func (s *seat) repositoryAround(name string, looked map[string]bool) {
	for at := path.Dir(name); at != "." && !looked[at]; at = path.Dir(at) {
		looked[at] = true
		if _, err := os.Lstat(filepath.Join(s.a.Tree, at, ".git")); err != nil {
			continue
		}
		why := OverlapRepository
		if known := s.by[at]; known != nil && known.was == aModule {
			why = OverlapSubmodule
		}
		s.overlap(at, why)
	}
}

// mayGo notes the directories that a file which goes may leave empty.
func (s *seat) mayGo(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, known := s.gone[at]; known {
			continue
		}
		if fi, err := os.Lstat(filepath.Join(s.a.Tree, at)); err == nil && fi.IsDir() {
			s.gone[at] = dir{Path: []byte(at), Perm: permOf(fi)}
		}
	}
}

// read has git read the files of which times and sizes do not tell whether they are what the index has.
func (s *seat) read(ctx context.Context) (err error) {
	if len(s.unsure) == 0 {
		return nil
	}
	same, err := s.repo.unchanged(ctx, s.a, s.unsure, s.attributes(nil))
	if err != nil {
		return err
	}
	for _, t := range s.unsure {
		if !same[t.path] {
			s.overlap(t.path, OverlapDirty)
		}
	}
	return nil
}

// unchanged has git read files, with the filters that there are, and says which of them are what the index has.
func (r *Repo) unchanged(ctx context.Context, a Advance, files []*touch, attributes []stagedEntry) (_ map[string]bool, err error) {
	scratch, err := tempDirectory()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(scratch)) }()
	p, err := r.workshop(a, scratch, a.Tree)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	entries := slices.Clone(attributes)
	var names []string
	for _, t := range files {
		known[t.path] = true
		names = append(names, t.path)
	}
	entries = slices.DeleteFunc(entries, func(e stagedEntry) bool { return known[string(e.name)] })
	for _, t := range files {
		e := t.entry
		e.stat = unread(e.mode)
		entries = append(entries, e)
	}
	index := filepath.Join(scratch, "index")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	p.lightly = true
	if err := os.WriteFile(index, smallIndex(FormatOf(a.New), entries), 0o600); err != nil {
		return nil, err
	}
	if err := r.mayRead(ctx, Subject{Trusted: a.Trusted}, p, names); err != nil {
		return nil, err
	}
	if _, err := r.change(ctx, p, "update-index", "-q", "--ignore-submodules", "--really-refresh"); err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	x, err := parseHeld(data, FormatOf(a.New))
	if err != nil {
		return nil, err
	}
	same := map[string]bool{}
	for e := range x.all() {
		if known[string(e.name)] && !zero(e.stat[:indexMode]) {
			same[string(e.name)] = true
		}
	}
	return same, nil
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

// writable looks for directories in which something has to change and cannot.
func (s *seat) writable() error {
	seen := map[string]bool{}
	for _, t := range s.touched {
		if t.was == aModule && t.is == aModule {
			continue
		}
		at := path.Dir(t.path)
		for !seen[at] {
			fi, err := os.Lstat(filepath.Join(s.a.Tree, at))
			if err == nil && fi.IsDir() {
				break
			}
			seen[at] = true
			at = path.Dir(at)
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		full := filepath.Join(s.a.Tree, at)
		if unix.Faccessat(unix.AT_FDCWD, full, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
			return &fs.PathError{Op: "write to", Path: full, Err: fs.ErrPermission}
		}
	}
	if unix.Faccessat(unix.AT_FDCWD, s.a.GitDir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return &fs.PathError{Op: "write to", Path: s.a.GitDir, Err: fs.ErrPermission}
	}
	return nil
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
	defer func() { err = errors.Join(err, durable.RemoveTree(scratch)) }()
	p, err := s.repo.workshop(s.a, scratch, s.a.Tree)
	if err != nil {
		return err
	}
	index := filepath.Join(scratch, "index")
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
