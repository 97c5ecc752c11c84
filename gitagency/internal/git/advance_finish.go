package git

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Recover finishes an Update that was killed, or undoes it: done says which. If the branch is at the new commit or a
// descendant of it, the update is finished; else it is undone, wherever the branch is. The caller must hold the lock under
// which the update was made, and may call Recover at any time, also when nothing is left to do.
//
// The error is a *LockedError if another process holds the index lock: then nothing was changed. It is a
// *ConcurrentChangeError if another process has written to a path, or has committed a new file; such paths are left as
// they are, and everything else is undone.
func (r *Repo) FinishAdvance(ctx context.Context, u Advance) (done bool, err error) {
	ctx = context.WithoutCancel(ctx)
	if u.GitDir != "" {
		if r, err = r.in(ctx, u.GitDir, u.Trusted); err != nil {
			return false, err
		}
	}
	m := u.decisive()
	tip, err := r.Tip(ctx, m.Ref)
	if err != nil {
		return false, err
	}
	done = isAt(tip, m.New)
	if !done && tip != "" && tip != m.Old && !isNowhere(m.New) {
		// gc may have pruned a new commit that no ref reaches.
		found, err := r.Lookup(ctx, m.New)
		if err != nil {
			return false, err
		}
		if done, err = r.IsAncestor(ctx, found[0].OID, tip); err != nil {
			return false, err
		}
	}
	left, err := r.left(u)
	if err != nil {
		return false, err
	}
	switch {
	case left.nothing():
	case left.foreign && (left.stage != nil || done && left.draft):
		return false, &LockedError{Path: u.index() + lockSuffix}
	case done:
		if err := r.forward(ctx, u, left); err != nil {
			return false, err
		}
	case !isAt(tip, m.Old) && left.stage != nil:
		if err := left.stage.spare(ctx); err != nil {
			return false, err
		}
	}
	if done {
		if err := r.sweepLocks(u, left); err != nil {
			return true, err
		}
		return true, errors.Join(r.deleteRest(ctx, u), r.letGo(u))
	}
	return false, r.backward(ctx, u, left)
}

// interrupted is the state on disk of an Update that was killed.
type leftover struct {
	stage   *stage    // staging directory that has a plan; nil: no file was moved
	dirs    []string  // all staging directories
	draft   bool      // a draft of the index exists
	locked  bool      // the draft is also index.lock
	foreign bool      // another process holds index.lock
	since   time.Time // start of the update
}

func (left *leftover) nothing() bool { return left.stage == nil && !left.draft && len(left.dirs) == 0 }

func (r *Repo) left(u Advance) (*leftover, error) {
	l := &leftover{}
	if u.GitDir == "" {
		return l, nil
	}
	for _, dir := range r.stageDirs(u) {
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		l.dirs = append(l.dirs, dir)
		for _, name := range []string{"objects", "begun"} { // older versions wrote only "objects"
			if fi, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				l.since = fi.ModTime()
			}
		}
		if l.stage == nil {
			var err error
			if l.stage, err = r.readStage(u, dir); err != nil {
				return nil, err
			}
		}
	}
	draft, err := os.Lstat(u.index() + draftSuffix)
	l.draft = err == nil
	lock, err := os.Lstat(u.index() + lockSuffix)
	l.locked = err == nil && l.draft && os.SameFile(draft, lock)
	l.foreign = err == nil && !l.locked
	return l, nil
}

// readStagingDir reads the plan and the index of a staging directory; nil without a plan: then no file was moved.
func (r *Repo) readStage(u Advance, dir string) (*stage, error) {
	data, err := durable.ReadFile(filepath.Join(dir, "plan"), mostIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &stage{repo: r, a: u, dir: dir, torn: true, entries: map[string]stagedEntry{}}
	if err := json.Unmarshal(data, &g.plan); err != nil {
		return nil, err
	}
	data, err = os.ReadFile(filepath.Join(dir, "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	x, err := parseHeld(data, FormatOf(u.New))
	if err != nil {
		return nil, err
	}
	for e := range x.all() {
		g.entries[string(e.name)] = e
	}
	return g, nil
}

// rollForward publishes the index and removes the staging directories. Only the index itself shows whether it was
// published, so it is checked whenever there is a draft or a plan.
func (r *Repo) forward(ctx context.Context, u Advance, left *leftover) error {
	if left.draft || left.stage != nil {
		if err := r.publishLeft(ctx, u, left); err != nil {
			return err
		}
	}
	return r.removeLeft(left)
}

func (r *Repo) publishLeft(ctx context.Context, u Advance, left *leftover) error {
	draft, err := os.Lstat(u.index() + draftSuffix)
	now, nowErr := os.Lstat(u.index())
	if err == nil && nowErr == nil && os.SameFile(draft, now) {
		return os.Remove(u.index() + draftSuffix) // already published
	}
	if !left.locked || !wholeDraft(u) {
		return r.composeAgain(ctx, u, left)
	}
	if err := os.Rename(u.index()+lockSuffix, u.index()); err != nil {
		return err
	}
	return errors.Join(os.Remove(u.index()+draftSuffix), durable.SyncDir(u.GitDir))
}

// isDraftComplete reports whether the draft is a completely written index.
func wholeDraft(u Advance) bool {
	data, err := durable.ReadFile(u.index()+draftSuffix, mostIndex)
	if err != nil {
		return false
	}
	_, err = parseHeld(data, FormatOf(u.New))
	return err == nil
}

// recomposeIndex composes the new index again from the present one: our lock was removed, and other changes may have been
// staged since. The draft is kept empty and serves only as the lock, so a kill leaves nothing that looks like a complete
// index.
func (r *Repo) composeAgain(ctx context.Context, u Advance, left *leftover) (err error) {
	file, err := os.OpenFile(u.index()+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	draft := &IndexDraft{index: u.index(), file: file}
	if !left.locked {
		if err := draft.Lock(); err != nil {
			return errors.Join(err, draft.close())
		}
	}
	defer func() {
		if err == nil {
			_ = os.Remove(u.index() + againSuffix) // of a recovery that was killed
			err = draft.Drop()
			return
		}
		// The remaining draft tells the next Recover that the index is not published.
		err = errors.Join(err, draft.close())
		if draft.locked() {
			err = errors.Join(err, os.Remove(u.index()+lockSuffix))
		}
	}()
	if err := r.onBranch(u); errors.As(err, new(*HeadElsewhereError)) {
		return nil // the index belongs to another branch
	} else if err != nil {
		return err
	}
	x := &Advancing{repo: r, a: u, stage: left.stage, done: true}
	if x.stage == nil { // removed as well: the entries get no stat data, so git reads the new files
		x.stage = &stage{}
	}
	if x.seat, err = r.take(ctx, u); err != nil {
		return err
	}
	if err := x.seat.unpublished(ctx); err != nil || len(x.seat.touched) == 0 {
		return err
	}
	if len(x.seat.overlaps) > 0 {
		return &StrandedError{Tree: u.Tree, Paths: slices.Sorted(maps.Keys(x.seat.overlaps))}
	}
	index, err := x.index()
	if err != nil {
		return err
	}
	return index.replace(u.index())
}

// rewriteSuffix names the file in which recomposeIndex writes the index.
const againSuffix = draftSuffix + "-again"

// replaceIndex writes the revision beside a locked index, and then renames it into place.
func (y *revision) replace(index string) (err error) {
	name := index + againSuffix
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if y.perm != 0 {
		err = f.Chmod(y.perm)
	}
	if err == nil {
		err = y.writeOut(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	if err := os.Rename(name, index); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(index))
}

// keepUnpublished drops all changes but those whose index entry is still that of the old commit. The other entries already
// match the branch, or were staged since.
func (co *seat) unpublished(ctx context.Context) error {
	tip, err := co.repo.Tip(ctx, co.a.Branch)
	if err != nil {
		return err
	}
	since, err := co.repo.treeChanges(ctx, place{}, co.a.New, tip)
	if err != nil {
		return err
	}
	now := map[string]treeChange{}
	for _, c := range since {
		now[c.path] = c
	}
	co.touched = slices.DeleteFunc(co.touched, func(t *touch) bool {
		mode, oid := t.newMode, t.newOID
		if c, changed := now[t.path]; changed {
			mode, oid = c.newMode, c.newOID
		}
		return co.has(t.path, mode, oid) || !co.has(t.path, t.oldMode, t.oldOID)
	})
	co.by, co.overlaps = map[string]*touch{}, map[string]string{}
	for _, t := range co.touched {
		co.by[t.path] = t
	}
	return co.staged()
}

// indexHas reports whether the index entry of a path has a mode and object; mode 000000 means that there is no entry.
func (co *seat) has(name, mode, oid string) bool {
	i, there := co.index.find(name)
	if !there || kindOfMode(mode) == noFile {
		return !there && kindOfMode(mode) == noFile
	}
	e := co.index.entry(i)
	return !e.intended && string(e.oid) == string(mustHex(oid)) && fmt.Sprintf("%06o", e.mode) == mode
}

// removeStagingDirs removes all staging directories of an interrupted update.
func (r *Repo) removeLeft(left *leftover) error {
	var err error
	for _, dir := range left.dirs {
		err = errors.Join(err, (&stage{repo: r, dir: dir}).remove())
	}
	return err
}

// rollBack restores files, refs and the index to the state before the update.
func (r *Repo) backward(ctx context.Context, u Advance, left *leftover) error {
	var stranded error
	if left.stage != nil {
		err := left.stage.undo(ctx)
		if err != nil && !errors.As(err, new(*StrandedError)) {
			return err
		}
		stranded = err
	}
	err := errors.Join(r.removeLeft(left), r.sweepLocks(u, left), r.retract(ctx, u), r.letGo(u))
	r.unlog(u)
	if err == nil && u.GitDir != "" {
		err = dropDraft(u.index())
	}
	return errors.Join(err, stranded)
}

// restoreOtherRefs moves the other refs back: some may have moved before the branch. A ref that is not at its new value
// was moved by another process, and stays.
func (r *Repo) retract(ctx context.Context, u Advance) (err error) {
	for _, m := range u.Also {
		now, lookErr := r.Tip(ctx, m.Ref)
		switch {
		case lookErr != nil:
			err = errors.Join(err, lookErr)
		case m.Old == m.New:
		case isNowhere(m.Old):
			if now == "" || now == m.New { // empty: a killed git may have left a lock or a reflog of the new ref
				err = errors.Join(err, r.RemoveRef(ctx, m.Ref, m.New))
			}
		case isAt(now, m.New):
			err = errors.Join(err, r.MoveRef(ctx, m.Ref, m.Old, m.New, u.Reason))
		}
	}
	return err
}

// trimReflogs removes the reflog entry that a killed git wrote before it moved the branch, from the logs of the branch and
// of HEAD.
func (r *Repo) unlog(u Advance) {
	gitDir := u.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	head := filepath.Join(gitDir, "HEAD")
	for ref, log := range map[string]string{r.RefPath(u.Branch): r.LogPath(u.Branch), head: filepath.Join(gitDir, "logs", "HEAD")} {
		data, err := durable.ReadFile(log, mostPacked)
		last := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte{'\n'}), '\n') + 1
		if err != nil || !bytes.HasPrefix(data[last:], []byte(u.Old+" "+u.New+" ")) {
			continue
		}
		// git locks the ref while it writes the reflog. If the ref is locked now, leave the entry: a reflog is a convenience.
		lock, err := os.OpenFile(ref+lockSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			continue
		}
		if fi, err := os.Lstat(log); err == nil && fi.Size() == int64(len(data)) {
			_ = os.Truncate(log, int64(last))
		}
		_ = errors.Join(lock.Close(), os.Remove(lock.Name()))
	}
}

// removeStaleRefLocks removes ref locks that a killed git has left: those that hold the new value of the ref, and those
// that stay empty for a while, if they are younger than the update. A running git writes its lock file much sooner.
func (r *Repo) sweepLocks(u Advance, left *leftover) error {
	gitDir := u.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	locks := map[string]string{filepath.Join(gitDir, "HEAD") + lockSuffix: ""}
	for _, m := range u.moves() {
		locks[r.RefPath(m.Ref)+lockSuffix] = m.New
	}
	for path, content := range locks {
		if err := sweepLock(path, content, left.since); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(u.Also, func(m RefMove) bool { return isNowhere(m.New) }) {
		return r.sweepPackedLock(left.since)
	}
	return nil
}

// removeStalePackedRefsLock removes packed-refs.lock, which git holds from locking refs to delete until they are deleted.
// Its content does not tell which process made it, and it may be held for long: it is removed only if no git is running.
func (r *Repo) sweepPackedLock(since time.Time) error {
	path := filepath.Join(r.CommonDir, "packed-refs") + lockSuffix
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	return r.removeIdle(path, fi)
}

// removeLockIfIdle removes a lock unless a git is running in any of the worktrees.
func (r *Repo) removeIdle(path string, seen fs.FileInfo) error {
	entries, err := r.Entries()
	if err != nil {
		return err
	}
	var trees []string
	for _, e := range entries {
		trees = append(trees, e.Path)
	}
	if r.AtWork(trees, []string{path}) != "" {
		return nil
	}
	rel, err := filepath.Rel(r.CommonDir, path)
	if err != nil {
		return err
	}
	return r.RemoveLock(Lock{Rel: rel, seen: seen})
}

// removeStaleLock removes a ref lock younger than since that holds content, or that stays empty or a part of content for
// 500 ms. A lock with other content belongs to a running process and stays.
func sweepLock(path, content string, since time.Time) error {
	const patience, pause = 500 * time.Millisecond, 10 * time.Millisecond
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	for began := time.Now(); ; time.Sleep(pause) {
		data, err := durable.ReadFile(path, 1<<10)
		now, statErr := os.Lstat(path)
		switch {
		case err != nil || statErr != nil || !os.SameFile(fi, now):
			return nil // replaced: another process is running
		case content != "" && strings.TrimSuffix(string(data), "\n") == content:
			return os.Remove(path)
		case len(data) > 0 && !strings.HasPrefix(content, string(data)):
			return nil
		case time.Since(began) > patience:
			return os.Remove(path)
		}
	}
}
