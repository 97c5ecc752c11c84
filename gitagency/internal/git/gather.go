package git

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// LeftOut is something in a tree that a capture does not hold.
type LeftOut struct {
	Path string
	Why  Omission
}

// Omission is why something is not held.
type Omission string

// The reasons there are.
const (
	Secret     Omission = "secret"     // an untracked file that looks like a credential
	Repository Omission = "repository" // of its own, which no commit can hold
	Submodule  Omission = "submodule"  // only which commit of it is staged is held
)

// UnsettledError is a tree in which files go on changing, so that it is never seen in one state.
type UnsettledError struct {
	Tree  string
	Paths []string

	unsure []string // directories of which it is not known what came and went there
}

func (e *UnsettledError) Error() string {
	const most = 5
	names := strings.Join(e.Paths[:min(len(e.Paths), most)], ", ")
	if len(e.Paths) > most {
		names += fmt.Sprintf(" and %d more", len(e.Paths)-most)
	}
	return fmt.Sprintf("%s goes on changing: %s", e.Tree, names)
}

// UnreadableError is a file that nobody may read, its owner included.
type UnreadableError struct{ Path string }

func (e *UnreadableError) Error() string { return e.Path + " cannot be read" }

func (e *UnreadableError) Unwrap() error { return fs.ErrPermission }

// UntakenError is a file that git does not take, for what it is called: it passes over it without an error.
type UntakenError struct{ Path string }

func (e *UntakenError) Error() string {
	return fmt.Sprintf("git takes no file like %s; remove it, or call it something else", e.Path)
}

// gathered is what is in a worktree: what is staged, and what is on disk.
type gathered struct {
	format  ObjectFormat
	index   Index
	staged  *node // nil when it cannot be written, as in the middle of a merge
	work    *node // nil when the tree is gone
	leftOut []LeftOut
	hashed  []string     // objects that git has written
	written []string     // those of them that are not sure to last yet
	view    *view        // of the tree; nil when that is gone
	done    func() error // takes away what looking needs; nil when there is nothing

	remember func() error // writes down what was read; nil when there is nothing to remember it in
}

// settle makes sure that it is one state: nil, or an *UnsettledError.
func (g gathered) settle(ctx context.Context) error {
	if g.view == nil {
		return nil
	}
	return g.view.again(ctx)
}

func (g gathered) close() error {
	if g.view != nil {
		g.view.watch.close()
	}
	if g.done == nil {
		return nil
	}
	return g.done()
}

// gather looks at a worktree and has git read what has changed in it. What only memory holds is written by keepTrees.
// What is gathered has to be closed, also where there is an error.
func (r *Repo) gather(ctx context.Context, s Subject, head string) (g gathered, err error) {
	p, done, err := r.scratch(s, head)
	if err != nil {
		return g, err
	}
	g.done = done
	began := stampClock(s.Tree)
	staged, err := r.baseIndex(ctx, p, s, head)
	if err != nil {
		return g, err
	}
	g.format, g.index = staged.format, staged.Index
	if !s.asIs {
		if err := r.survey(ctx, s, staged.entries); err != nil {
			return g, err
		}
	}
	if s.Tree == "" && staged.count == 0 {
		return g, nil
	}
	planted := sync.OnceValue(func() *node { return plant(staged.entries, g.format) })
	stage := func() {
		if len(staged.conflicts) == 0 && s.Memory == "" {
			g.staged = planted()
		}
	}
	if s.Tree == "" {
		stage()
		return g, nil
	}
	s.Also = slices.Concat(s.Also, slices.Compact(staged.conflicts)) // which may be called like what is ignored
	g.view = &view{r: r, s: s, format: g.format, p: p, began: began, young: staged.at, entries: staged.entries}
	changes, err := g.view.changes(ctx, func() { go planted() }) // while git reads
	if err != nil {
		return g, err
	}
	stage()
	slices.SortFunc(g.view.leftOut, func(a, b LeftOut) int { return strings.Compare(a.Path, b.Path) })
	g.work, g.leftOut, g.hashed, g.written = planted().amend(g.format, changes), g.view.leftOut, g.view.hashed, g.view.written
	if s.Memory != "" {
		g.remember = g.view.remember
	}
	return g, nil
}

// stagedTree is an index, and what it makes of a tree.
type stagedTree struct {
	Index
	at        time.Time     // since when it knows less than the files do
	entries   []stagedEntry // but for what is omitted, or in conflict
	conflicts []string
}

func (s Subject) treeOf(x Index, at time.Time) stagedTree {
	t := stagedTree{Index: x, at: at, entries: make([]stagedEntry, 0, x.count)}
	for e := range x.all() {
		switch {
		case s.Omit != "" && (string(e.name) == s.Omit || bytes.HasPrefix(e.name, []byte(s.Omit+"/"))):
		case e.stage != 0:
			t.conflicts = append(t.conflicts, string(e.name))
		default:
			t.entries = append(t.entries, e)
		}
	}
	return t
}

// baseIndex is the index that the tree is compared with. One that cannot be read is replaced by what HEAD has; and so is
// an empty one of a tree that is about to go, of which rather too much is kept.
func (r *Repo) baseIndex(ctx context.Context, p place, s Subject, head string) (stagedTree, error) {
	if s.ahead != nil {
		if t, err := s.ahead(); err == nil {
			return t, nil
		}
	}
	x, at, err := r.base(ctx, p, s, head)
	if err != nil {
		return stagedTree{}, err
	}
	return s.treeOf(x, at), nil
}

func (r *Repo) base(ctx context.Context, p place, s Subject, head string) (Index, time.Time, error) {
	from := cmp.Or(s.Onto, head)
	if s.Onto == "" && s.Memory == "" {
		x, at, err := r.stagedIndex(ctx, p, s, FormatOf(from))
		if err == nil && (x.count > 0 || s.asIs) || context.Cause(ctx) != nil {
			return x, at, err
		}
	}
	if from == "" {
		return Index{format: SHA1}, time.Time{}, nil
	}
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+filepath.Join(p.gitDir, "base"))
	if _, err := r.change(ctx, p, "read-tree", from); err != nil {
		return Index{}, time.Time{}, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "base"))
	if err != nil {
		return Index{}, time.Time{}, err
	}
	x, err := ReadIndex(data, FormatOf(from))
	return x, time.Time{}, err
}

// stagedIndex is the index of a worktree; where that is not a plain one, git makes a plain copy of it.
func (r *Repo) stagedIndex(ctx context.Context, p place, s Subject, format ObjectFormat) (Index, time.Time, error) {
	x, at, err := r.plainIndex(s.Name, format)
	if !errors.As(err, new(*NotPlainError)) {
		return x, at, err
	}
	if err := r.copyIndex(s.Name, p.gitDir); err != nil {
		return x, at, err
	}
	p.config = append(slices.Clone(p.config), "-c", "core.splitIndex=false", "-c", "index.sparse=false")
	if _, err := r.change(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return x, at, err
	}
	data, err := os.ReadFile(filepath.Join(p.gitDir, "index"))
	if err == nil {
		x, err = ReadIndex(data, format)
	}
	return x, at, err
}

// plainIndex reads the index of a worktree, and when it was written.
func (r *Repo) plainIndex(name string, format ObjectFormat) (x Index, at time.Time, err error) {
	f, fi, err := openRegular(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return x, at, err
	}
	defer f.Close()
	if fi.Size() > mostIndex {
		return x, at, fmt.Errorf("index: %d bytes", fi.Size())
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return x, at, err
	}
	x, err = ReadIndex(data, format)
	return x, fi.ModTime(), err
}

// keepTrees writes what was gathered, as far as a tree that is in the repository does not have it already.
func (r *Repo) keepTrees(ctx context.Context, t *teller, g gathered, known string) error {
	objects, err := g.objects(t, known)
	if err != nil {
		return err
	}
	return r.store(ctx, g.format, objects, g.written...)
}

// objects lists what has to be written. What was said to be staged has to be there: anybody could have written
// the index.
func (g gathered) objects(t *teller, known string) ([]object, error) {
	base, err := hex.DecodeString(known)
	if err != nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	var objects []object
	var leaves, paths []string
	seen := map[string]bool{}
	for _, n := range []*node{g.staged, g.work} {
		if n == nil {
			continue
		}
		if err := n.novel(t, base, func(path string, dir *node, it item) {
			switch {
			case dir != nil && !seen[string(dir.oid)]:
				seen[string(dir.oid)] = true
				objects = append(objects, object{"tree", dir.oid, dir.content})
			case dir == nil && it.mode != modeGitlink && !seen[string(it.oid)]:
				seen[string(it.oid)] = true
				leaves, paths = append(leaves, hex.EncodeToString(it.oid)), append(paths, path)
			}
		}); err != nil {
			return nil, err
		}
	}
	found, err := t.info(leaves...)
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

// view is a tree that is looked at once, and once more.
type view struct {
	r       *Repo
	s       Subject
	p       place
	format  ObjectFormat
	young   time.Time
	began   int64
	entries []stagedEntry

	first   *sight
	leftOut []LeftOut
	dirs    []string         // directories without an entry that are not ignored
	around  map[string]stamp // these, and all directories in them, before they were listed
	stray   []found          // files without an entry that belong to the state
	hashed  []string         // objects that git has written
	written []string         // those of them that are not sure to last yet
	listed  []string         // what git found in dirs
	known   memory           // of a directory that is no worktree

	watch *watch // of directories in which things come and go; nil when there are none

	told *proc.Conversation // a git that says what is ignored; nil when none is waiting
}

func (v *view) scanner() *scanner {
	return &scanner{
		omit: v.s.Omit, modes: v.r.boolean("core.filemode", true), symlinks: v.r.boolean("core.symlinks", true),
		empty: nameObject(v.format, "blob", nil), young: v.young, began: v.began,
	}
}

// changes is what distinguishes the tree from the index. When everything was looked at, and only git is at work, it
// calls meanwhile.
func (v *view) changes(ctx context.Context, meanwhile func()) ([]leaf, error) {
	asking := v.prepareToAsk(ctx)
	defer asking()
	v.watch = watchDirs(v.s.Tree, v.s.unsure)
	var err error
	if v.first, err = v.scanner().scan(ctx, v.s.Tree, v.entries); err != nil {
		return nil, err
	}
	meanwhile()
	for _, name := range v.first.opened {
		v.leftOut = append(v.leftOut, LeftOut{name, Submodule})
	}
	if err := v.strays(ctx); err != nil {
		return nil, err
	}
	read, seed := []string{}, []int{}
	var changes []leaf
	for i, f := range v.first.fates {
		switch {
		case f == changed:
			read, seed = append(read, string(v.entries[i].name)), append(seed, i)
		case f == absent && v.s.Onto == "":
			changes = append(changes, leaf{path: string(v.entries[i].name)})
		}
	}
	for _, f := range v.stray {
		read = append(read, f.name)
	}
	if err := v.hollow(read); err != nil {
		return nil, err
	}
	if err := v.rest(ctx, seed); err != nil {
		return nil, err
	}
	hashed, err := v.hash(ctx, read, seed)
	if err != nil {
		if moved := v.again(ctx); errors.As(moved, new(*UnsettledError)) {
			return nil, moved // which is why
		}
		for _, name := range read {
			if path := filepath.Join(v.s.Tree, name); v.stampNow(name).mode&unix.S_IFMT == unix.S_IFREG && errors.Is(unix.Access(path, unix.R_OK), unix.EACCES) {
				return nil, &UnreadableError{Path: path}
			}
		}
		return nil, err
	}
	for _, name := range read {
		l, there := hashed[name]
		if !there {
			if v.stampNow(name) != (stamp{}) {
				if moved := v.again(ctx); errors.As(moved, new(*UnsettledError)) {
					return nil, moved // it has come back
				}
				return nil, &UntakenError{Path: filepath.Join(v.s.Tree, name)}
			}
			l = leaf{path: name} // gone meanwhile, which the second look sees too
		}
		changes = append(changes, l)
	}
	return changes, nil
}

// rest waits until every file that git is about to read is old enough: a clock that has not moved on since a file
// was last changed would not tell when it is changed again.
func (v *view) rest(ctx context.Context, seed []int) error {
	const tick = 10 * time.Millisecond
	newest := int64(0)
	for _, i := range seed {
		newest = max(newest, v.first.stamps[i].ctime)
	}
	for _, f := range v.stray {
		newest = max(newest, f.stamp.ctime)
	}
	wait := time.Until(time.Unix(0, newest).Add(tick))
	if v.first.whole || wait <= 0 || wait > tick { // or the clock is wrong, and nothing can be told by it
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hollow refuses files that git would read for ever.
func (v *view) hollow(names []string) error {
	for _, name := range names {
		fi, err := os.Lstat(filepath.Join(v.s.Tree, name))
		if err == nil && fi.Mode().IsRegular() && isHollow(fi) {
			return &HollowError{Path: filepath.Join(v.s.Tree, name), Size: fi.Size()}
		}
	}
	return nil
}

// hash has git read files, with the filters that the user has, and write them. What the index had of them is
// given along: it counts for how line endings are converted.
func (v *view) hash(ctx context.Context, names []string, seed []int) (map[string]leaf, error) {
	hashed := map[string]leaf{}
	if len(names) == 0 {
		return hashed, nil
	}
	p := v.p
	index := filepath.Join(p.gitDir, "read")
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+index)
	p.stdin = strings.Join(names, "\x00") + "\x00"
	p.lightly = len(names) <= few // of more, git makes sure of all at once
	known := Index{format: v.format, count: len(seed)}
	had := map[string]uint32{}
	for _, i := range seed {
		e := v.entries[i]
		known.body = appendEntry(known.body, unread(e.mode), e.oid, uint16(min(len(e.name), flagLength)), 0, e.name)
		had[string(e.name)] = e.mode
	}
	if v.s.Memory != "" {
		if err := v.recall(index); err != nil {
			return nil, err
		}
	} else if err := os.WriteFile(index, known.Encode(), 0o600); err != nil {
		return nil, err
	}
	if err := v.r.mayRead(ctx, v.s, p, names); err != nil {
		return nil, err
	}
	if _, err := v.r.change(ctx, p, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	x, err := ReadIndex(data, known.format)
	if err != nil {
		return nil, err
	}
	for e := range x.all() {
		if e.mode == modeGitlink && had[string(e.name)] != modeGitlink { // somebody has just put a repository there
			return nil, &UnsettledError{Tree: v.s.Tree, Paths: []string{string(e.name)}}
		}
		hashed[string(e.name)] = leaf{mode: e.mode, oid: slices.Clone(e.oid), path: string(e.name)}
		if e.mode == modeGitlink {
			continue
		}
		if v.s.Memory == "" { // else they are those of all that is remembered
			v.hashed = append(v.hashed, hex.EncodeToString(e.oid))
		}
		if p.lightly {
			v.written = append(v.written, hex.EncodeToString(e.oid))
		}
	}
	if v.s.Memory != "" {
		err = v.note(x, index, names)
	}
	return hashed, err
}

// unread is what an index says of a file that git has not looked at yet.
func unread(mode uint32) []byte {
	stat := make([]byte, indexStat)
	stat[indexMode], stat[indexMode+1], stat[indexMode+2], stat[indexMode+3] = byte(mode>>24), byte(mode>>16), byte(mode>>8), byte(mode)
	return stat
}

// again makes sure that what was read is one state that the tree was in as a whole. Going by their times that is what
// it was when we began, if nothing has touched the files that were read since. Else everything is looked at a second
// time: when it is as it was, then the tree was in that state at the moment when the last file had been read.
func (v *view) again(ctx context.Context) error {
	if v.first.whole && v.untouched() {
		return nil
	}
	moved, unsure, err := v.scanner().recheck(ctx, v.first)
	if err != nil {
		return err
	}
	for _, f := range v.stray {
		if v.stampNow(f.name) != f.stamp {
			moved = append(moved, f.name)
		}
	}
	for dir, was := range v.around {
		if v.stampNow(dir) != was {
			unsure = append(unsure, dir)
		}
	}
	if len(moved) == 0 && len(unsure) == 0 {
		return nil
	}
	err = &UnsettledError{Tree: v.s.Tree, Paths: slices.Concat(moved, unsure), unsure: unsure}
	if len(moved) > 0 || !v.watch.covers(unsure) {
		return err
	}
	// What came and went there may be nothing but what is ignored.
	names, ok := v.watch.names()
	if !ok {
		return err
	}
	if moved, err = v.concerning(ctx, names); err != nil || len(moved) == 0 {
		return err
	}
	return &UnsettledError{Tree: v.s.Tree, Paths: moved, unsure: unsure}
}

// concerning lists those of some names that are part of a state: what has an entry, or lies around one, and what is not
// ignored.
func (v *view) concerning(ctx context.Context, names []string) (part []string, err error) {
	var asked []string
	for _, name := range names {
		at, tracked := slices.BinarySearchFunc(v.entries, name, func(e stagedEntry, name string) int { return strings.Compare(string(e.name), name) })
		if !tracked && at < len(v.entries) {
			tracked = strings.HasPrefix(string(v.entries[at].name), strings.TrimSuffix(name, "/")+"/")
		}
		top, _, _ := strings.Cut(name, "/")
		switch {
		case tracked:
			part = append(part, name)
		case !v.scanner().passOver(top):
			asked = append(asked, name)
		}
	}
	ignored, err := v.ignored(ctx, asked)
	if err != nil {
		return nil, err
	}
	return append(part, slices.DeleteFunc(asked, func(name string) bool { return ignored[name] })...), nil
}

// stampNow is what there is to be told of a file; nothing when it is gone.
func (v *view) stampNow(name string) stamp {
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(v.s.Tree, name), &st) != nil {
		return stamp{}
	}
	return stampOf(&st)
}

// boolean reads a setting of git's.
func (r *Repo) boolean(key string, otherwise bool) bool {
	s, set := r.Config.Last(key)
	if !set {
		return otherwise
	}
	return s.Bare || !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(s.Value))
}

// untouched reports whether what was read, and what lies in directories without an entry, is as it was when we began.
func (v *view) untouched() bool {
	still := func(name string, was stamp) bool { return was.ctime < v.began && v.stampNow(name) == was }
	for i, f := range v.first.fates {
		if f == changed && !still(string(v.entries[i].name), v.first.stamps[i]) {
			return false
		}
	}
	for _, f := range v.stray {
		if !still(f.name, f.stamp) {
			return false
		}
	}
	for dir, was := range v.around {
		if !still(dir, was) {
			return false
		}
	}
	return true
}
