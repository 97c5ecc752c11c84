package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Restoration takes a worktree from one frozen state to another: its files, its index, its branch and HEAD, and what
// git had under way. Nobody works in it meanwhile.
//
// The files go by git's own two-way merge, from an index that is exactly what is on disk, to the other state: so only
// what the first state holds is ever overwritten or removed. What else is there has to be out of the way: see InTheWay.
// Every part may be done again, from whatever state one that was killed has left.
type Restoration struct {
	From, To State
	Again    bool   // one that was killed may have left a lock on the branch; set by the caller
	Strayed  string // the branch that HEAD was on, when that is elsewhere now; HEAD is detached then
	Unstaged bool   // what was staged is not known; it is taken to be what HEAD has

	repo    *Repo
	s       Subject
	p       place // a git directory of our own, with an index of what is on disk
	under   Underway
	changes []treeChange
	trees   [2]string // from and to, without what is not checked out
	skipped []string  // which that is
	assumed []string  // what git does not look at
	closed  []string  // directories of the tree in which nothing can be written, and that are ours to open
	draft   *IndexDraft
}

// Restore prepares to take a worktree from the state that it is in, which was frozen a moment ago, to another, and
// changes nothing yet. It refuses when not all of it could be done.
func (r *Repo) Restore(ctx context.Context, s Subject, from, to State) (_ *Restoration, err error) {
	x := &Restoration{repo: r, s: s, From: from, To: to}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	if err := r.sound(ctx, to.Tree, from.Tree); err != nil {
		return nil, err
	}
	if to.Index != "" {
		if err := r.sound(ctx, to.Index, to.Tree); err != nil {
			return nil, err
		}
	}
	if x.under, err = r.ReadUnderway(ctx, to); err != nil {
		return nil, err
	}
	if x.changes, err = r.treeChanges(ctx, place{}, from.Tree, to.Tree); err != nil {
		return nil, err
	}
	if err := x.fill(ctx); err != nil {
		return nil, err
	}
	if err := x.filtered(ctx); err != nil {
		return nil, err
	}
	if err := x.writable(); err != nil {
		return nil, err
	}
	if err := x.merge(ctx, "--dry-run"); err != nil {
		return nil, err
	}
	return x, nil
}

// Stamp is what the index of a worktree looks like: as long as it does, nobody has staged anything.
func (r *Repo) Stamp(name string) string {
	fi, err := os.Lstat(filepath.Join(r.AdminDir(name), "index"))
	if err != nil {
		return ""
	}
	return durable.Stamp(fi)
}

// Lock keeps every git from writing the index until it is closed. The error is a *LockedError when one does, and a
// *ChangingError when somebody has staged or committed something since the index had that stamp, which was before the
// first state was frozen: that state would not hold it.
func (x *Restoration) Lock(ctx context.Context, stamp string) (err error) {
	r := x.repo
	if x.draft, err = r.DraftIndex(x.s.Name); err != nil {
		return err
	}
	if err := x.draft.Lock(); err != nil {
		return err
	}
	tip, err := r.Tip(ctx, x.s.Branch)
	if err != nil {
		return err
	}
	head, err := readSmall(r.AdminDir(x.s.Name), "HEAD")
	if err != nil {
		return err
	}
	at := strings.TrimSpace(string(head))
	if on, is := strings.CutPrefix(at, "ref: "); is {
		if at, err = r.Tip(ctx, on); err != nil {
			return err
		}
	}
	if tip != "" && tip != x.From.Tip || at != "" && at != x.From.Head || r.on(x.s) != x.From.On {
		return &ChangingError{Path: "HEAD"}
	}
	if r.Stamp(x.s.Name) == stamp {
		return nil
	}
	now, err := r.stagedNow(ctx, x.s, x.p)
	if err == nil && now != x.From.Index { // a git that only looks writes the index too
		err = &ChangingError{Path: "the index"}
	}
	return err
}

// stagedNow is the tree of what is staged; empty when none can be written.
func (r *Repo) stagedNow(ctx context.Context, s Subject, p place) (string, error) {
	dir := filepath.Join(p.gitDir, "now")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	_, err := r.fillScratch(s, "", dir) // what it returns is in p
	if err := errors.Join(err, r.copyIndex(s.Name, dir)); err != nil {
		return "", err
	}
	p.gitDir = dir
	tree, err := r.writeTree(ctx, p)
	if exitedWith(err, 128) {
		return "", nil
	}
	return tree, err
}

// Close takes away what was needed for it. Nothing of the worktree stays locked.
func (x *Restoration) Close() error {
	if x == nil {
		return nil
	}
	err := x.draft.Drop()
	if x.p.gitDir != "" {
		err = errors.Join(err, durable.RemoveTree(x.p.gitDir))
	}
	return err
}

// Changed says how many files are made, changed and removed.
func (x *Restoration) Changed() (added, changed, removed int) {
	for _, c := range x.changes {
		switch c.status {
		case 'A':
			added++
		case 'D':
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}

// fill makes the index of what is on disk. Of the worktree's own it has the times, so that git reads no file which it
// knows already.
func (x *Restoration) fill(ctx context.Context) error {
	r, dir := x.repo, filepath.Join(x.repo.ownDir(), capturePrefix+x.s.Name+"-back")
	if err := durable.RemoveTree(dir); err != nil { // of one that was killed
		return err
	}
	env, err := r.fillScratch(x.s, x.From.Head, dir)
	x.p = place{
		gitDir: dir, tree: x.s.Tree, env: env,
		config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false",
			"-c", "index.sparse=false", "-c", "core.sparseCheckout=false",
		},
	}
	if err := errors.Join(err, r.copyIndex(x.s.Name, dir)); err != nil {
		return err
	}
	entries, err := x.entries(ctx)
	if exitedWith(err, 128) { // nobody can read it
		entries, err = nil, durable.Remove(filepath.Join(dir, "index"))
	}
	if err != nil {
		return err
	}
	for name, tag := range entries {
		if tag >= 'a' && tag <= 'z' {
			x.assumed = append(x.assumed, name)
		}
		if tag|0x20 != 's' {
			continue
		}
		if _, err := os.Lstat(filepath.Join(x.s.Tree, name)); err != nil {
			x.skipped = append(x.skipped, name)
		}
	}
	if len(x.assumed) > 0 { // of what git takes for unchanged it would not take anything else
		p := x.p
		p.stdin = strings.Join(x.assumed, "\x00")
		if _, err := r.change(ctx, p, "update-index", "--no-assume-unchanged", "-z", "--stdin"); err != nil {
			return err
		}
	}
	stay, err := x.ignoredThere(ctx, entries)
	if err != nil {
		return err
	}
	x.trees = [2]string{x.From.Tree, x.To.Tree}
	if x.trees[0], err = x.load(ctx, x.p, x.From.Tree, slices.Concat(x.skipped, stay)); err != nil {
		return err
	}
	if len(x.skipped) > 0 {
		p := x.p
		p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+filepath.Join(dir, "to"))
		if x.trees[1], err = x.load(ctx, p, x.To.Tree, x.skipped); err != nil {
			return err
		}
	}
	if len(x.skipped)+len(stay) > 0 {
		if x.changes, err = r.treeChanges(ctx, x.p, x.trees[0], x.trees[1]); err != nil {
			return err
		}
	}
	return x.fresh(ctx)
}

// entries lists what is in the index, and what git was told of it: H, S for what it does not check out, lower case for
// what it takes for unchanged.
func (x *Restoration) entries(ctx context.Context) (map[string]byte, error) {
	if _, err := os.Lstat(filepath.Join(x.p.gitDir, "index")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := x.repo.read(ctx, x.p, "ls-files", "-v", "-z")
	if err != nil {
		return nil, err
	}
	entries := map[string]byte{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if len(line) > 2 {
			entries[line[2:]] = line[0]
		}
	}
	return entries, nil
}

// load reads a tree into an index and leaves some paths out; what it is then is returned.
func (x *Restoration) load(ctx context.Context, p place, tree string, without []string) (string, error) {
	if _, err := x.repo.change(ctx, p, "read-tree", "--reset", tree); err != nil || len(without) == 0 {
		return tree, err
	}
	away := p
	away.stdin = strings.Join(without, "\x00")
	if _, err := x.repo.change(ctx, away, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
		return "", err
	}
	return x.repo.writeTree(ctx, p)
}

// fresh makes sure that what is on disk is what the index says.
func (x *Restoration) fresh(ctx context.Context) error {
	out, err := x.repo.change(ctx, x.p, "update-index", "--ignore-submodules", "--really-refresh")
	if exitedWith(err, 1) {
		name, _, _ := strings.Cut(string(out), "\n")
		return &ChangingError{Path: strings.TrimSuffix(strings.TrimSuffix(name, ": needs update"), ": needs merge")}
	}
	return err
}

// ChangingError is a file that somebody changed while everything was to stay as it is.
type ChangingError struct{ Path string }

func (e *ChangingError) Error() string { return e.Path + " was changed meanwhile" }

// filtered refuses to read or write what needs a filter that does not run.
func (x *Restoration) filtered(ctx context.Context) error {
	var goes, comes []string
	for _, c := range x.changes {
		if c.status != 'A' {
			goes = append(goes, c.path)
		}
		if c.status != 'D' {
			comes = append(comes, c.path)
		}
	}
	if len(comes) > 0 {
		if err := x.repo.mayWrite(ctx, x.s, x.p, x.trees[1], comes); err != nil {
			return err
		}
	}
	return x.repo.mayRead(ctx, x.s, x.p, goes)
}

// writable looks for directories in which files have to change and cannot.
func (x *Restoration) writable() error {
	seen := map[string]bool{}
	for _, c := range x.changes {
		dir := x.realDir(c.path)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		at := filepath.Join(x.s.Tree, dir)
		if unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil {
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		if err != nil || int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IWUSR != 0 && st.Mode&unix.S_IXUSR != 0 {
			return &fs.PathError{Op: "write to", Path: at, Err: fs.ErrPermission}
		}
		x.closed = append(x.closed, dir)
	}
	return nil
}

// realDir is the directory in which something changes when a path does: the deepest on the way to it that is there,
// and that no link leads to.
func (x *Restoration) realDir(path string) string {
	dir := "."
	for part := range strings.SplitSeq(filepath.Dir(path), "/") {
		next := filepath.Join(dir, part)
		if fi, err := os.Lstat(filepath.Join(x.s.Tree, next)); err != nil || !fi.IsDir() {
			break
		}
		dir = next
	}
	return dir
}

// Files makes what is on disk that of the other state.
func (x *Restoration) Files(ctx context.Context) (err error) {
	if len(x.closed) > 0 {
		root, err := os.OpenRoot(x.s.Tree)
		if err != nil {
			return err
		}
		defer root.Close()
		for _, dir := range x.closed {
			fi, err := root.Lstat(dir)
			if err != nil || !fi.IsDir() {
				continue
			}
			if err := root.Chmod(dir, fi.Mode().Perm()|0o700); err != nil {
				return err
			}
			defer root.Chmod(dir, fi.Mode().Perm()) // unless it has gone
		}
	}
	if err := x.merge(ctx); err != nil {
		return err
	}
	// Of a file that it could not remove git says so, and goes on.
	for _, c := range x.changes {
		if c.status == 'D' && c.oldMode != submodule && x.stands(c.path) {
			return &fs.PathError{Op: "remove", Path: filepath.Join(x.s.Tree, c.path), Err: errors.New("it is still there")}
		}
	}
	return x.fresh(ctx)
}

// merge is git's: from the index, which is what is on disk, to the other state.
func (x *Restoration) merge(ctx context.Context, options ...string) error {
	p := x.p
	p.config = slices.Concat(p.config, x.repo.workers())
	args := slices.Concat([]string{"read-tree"}, options, []string{"-m", "-u", "--no-recurse-submodules", x.trees[0], x.trees[1]})
	_, err := x.repo.change(ctx, p, args...)
	return err
}

// stands reports whether there is a file at a path, and not behind a link on the way to it.
func (x *Restoration) stands(path string) bool {
	at := x.s.Tree
	parts := strings.Split(path, "/")
	for i, part := range parts {
		at = filepath.Join(at, part)
		fi, err := os.Lstat(at)
		if err != nil || i < len(parts)-1 && !fi.IsDir() {
			return false
		}
		if i == len(parts)-1 {
			return !fi.IsDir()
		}
	}
	return false
}

// Heads moves the branch of the worktree, and HEAD, to where they were. No other branch is ever moved: where HEAD was
// on one that is elsewhere now, or that somebody else has checked out, it is detached.
func (x *Restoration) Heads(ctx context.Context, who Identity, at time.Time, why string) error {
	r, to := x.repo, x.To
	tip, head := to.Tip, "ref: "+x.s.Branch
	switch to.On {
	case x.s.Branch, "":
		tip = to.Head
	case Detached:
		head = to.Head
	default:
		free, err := x.free(ctx, to.On)
		if err != nil {
			return err
		}
		if head = "ref: " + to.On; !free {
			head, x.Strayed = to.Head, to.On
		}
	}
	now, err := r.Tip(ctx, x.s.Branch)
	if err != nil {
		return err
	}
	if now != tip {
		if now != "" && now != x.From.Tip {
			return fmt.Errorf("branch %s was moved meanwhile", strings.TrimPrefix(x.s.Branch, "refs/heads/"))
		}
		old := now
		if old == "" {
			old = strings.Repeat("0", len(tip))
		}
		if x.Again {
			if err := r.SweepRef(ctx, x.s.Branch); err != nil {
				return err
			}
		}
		if err := r.MoveRef(ctx, x.s.Branch, tip, old, why); err != nil {
			return err
		}
	}
	if err := dropDraft(filepath.Join(r.AdminDir(x.s.Name), "HEAD")); err != nil {
		return err
	}
	was, _ := readSmall(r.AdminDir(x.s.Name), "HEAD")
	if strings.TrimSpace(string(was)) == head && x.From.Head == to.Head {
		return nil
	}
	if err := writeLocked(filepath.Join(r.AdminDir(x.s.Name), "HEAD"), []byte(head+"\n")); err != nil {
		return err
	}
	return r.LogHead(x.s.Name, x.From.Head, to.Head, who, at, why)
}

// free reports whether HEAD may be on a branch of somebody else's: it is where it was, and nobody works on it.
func (x *Restoration) free(ctx context.Context, branch string) (bool, error) {
	if tip, err := x.repo.Tip(ctx, branch); err != nil || tip != x.To.Head {
		return false, err
	}
	listing, err := x.repo.Worktrees(ctx)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(listing.Worktrees, func(w Worktree) bool { return w.Branch == branch && w.Path != x.s.Tree }), nil
}

// Underway lets the worktree's entry say what was under way, and nothing else.
func (x *Restoration) Underway() error {
	files := x.under.Files
	if LayeredEntry(x.s.Layer, x.s.Name) != "" { // where that is, is under way there
		files = x.under.Outside
	}
	return writeUnderway(x.repo.AdminDir(x.s.Name), files)
}

// Index stages what was staged. What is the same on disk has fresh times there; nothing is read again for it.
func (x *Restoration) Index(ctx context.Context) error {
	r, tree := x.repo, x.To.Index
	switch {
	case tree != "":
	case x.under.Rest != "":
		tree = x.under.Rest
	default:
		tree, x.Unstaged = x.To.Head+"^{tree}", true
	}
	if _, err := r.change(ctx, x.p, "read-tree", "-m", tree); err != nil {
		return err
	}
	if x.To.Index == "" && len(x.under.Conflicts) > 0 {
		p := x.p
		for _, c := range x.under.Conflicts {
			p.stdin += fmt.Sprintf("%s %s %s\t%s\x00", c.Mode, c.OID, c.Stage, c.Path)
		}
		if _, err := r.change(ctx, p, "update-index", "-z", "--index-info"); err != nil {
			return err
		}
	}
	if err := x.mark(ctx); err != nil {
		return err
	}
	at := filepath.Join(x.p.gitDir, "index")
	fi, err := os.Stat(at)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	if err := x.draft.WriteFile(data, fi.ModTime()); err != nil {
		return err
	}
	return x.draft.Publish()
}

// mark gives entries of the index back what git was told of them.
func (x *Restoration) mark(ctx context.Context) error {
	if len(x.skipped) == 0 && len(x.assumed) == 0 {
		return nil
	}
	there, err := x.entries(ctx)
	if err != nil {
		return err
	}
	for flag, paths := range map[string][]string{"--skip-worktree": x.skipped, "--assume-unchanged": x.assumed} {
		p := x.p
		p.stdin = strings.Join(slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return there[path] == 0 }), "\x00")
		if p.stdin == "" {
			continue
		}
		if _, err := x.repo.change(ctx, p, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}
