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
func (r *Repo) Recover(ctx context.Context, u Update) (done bool, err error) {
	ctx = context.WithoutCancel(ctx)
	if u.GitDir != "" {
		if r, err = r.withWorktreeConfig(ctx, u.GitDir, u.Trusted); err != nil {
			return false, err
		}
	}
	m := u.decisiveMove()
	tip, err := r.Tip(ctx, m.Ref)
	if err != nil {
		return false, err
	}
	done = refIsAt(tip, m.New)
	if !done && tip != "" && tip != m.Old && !isZeroOID(m.New) {
		// gc may have pruned a new commit that no ref reaches.
		found, err := r.Lookup(ctx, m.New)
		if err != nil {
			return false, err
		}
		if done, err = r.IsAncestor(ctx, found[0].OID, tip); err != nil {
			return false, err
		}
	}
	left, err := r.findInterrupted(u)
	if err != nil {
		return false, err
	}
	switch {
	case left.isEmpty():
	case left.lockedByOther && (left.staging != nil || done && left.hasDraft):
		return false, &LockedError{Path: u.indexPath() + lockSuffix}
	case done:
		if err := r.rollForward(ctx, u, left); err != nil {
			return false, err
		}
	case !refIsAt(tip, m.Old) && left.staging != nil:
		if err := left.staging.excludeStagedPaths(ctx); err != nil {
			return false, err
		}
	}
	if done {
		if err := r.removeStaleRefLocks(u, left); err != nil {
			return true, err
		}
		return true, errors.Join(r.deleteRemainingRefs(ctx, u), r.removeKeepFiles(u))
	}
	return false, r.rollBack(ctx, u, left)
}

// interrupted is the state on disk of an Update that was killed.
type interrupted struct {
	staging       *stagingDir // staging directory that has a plan; nil: no file was moved
	stagingDirs   []string    // all staging directories
	hasDraft      bool        // a draft of the index exists
	lockedByUs    bool        // the draft is also index.lock
	lockedByOther bool        // another process holds index.lock
	startTime     time.Time   // start of the update
}

func (left *interrupted) isEmpty() bool {
	return left.staging == nil && !left.hasDraft && len(left.stagingDirs) == 0
}

func (r *Repo) findInterrupted(u Update) (*interrupted, error) {
	l := &interrupted{}
	if u.GitDir == "" {
		return l, nil
	}
	for _, dir := range r.stagingDirs(u) {
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		l.stagingDirs = append(l.stagingDirs, dir)
		for _, name := range []string{"objects", "begun"} { // older versions wrote only "objects"
			if fi, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				l.startTime = fi.ModTime()
			}
		}
		if l.staging == nil {
			var err error
			if l.staging, err = r.readStagingDir(u, dir); err != nil {
				return nil, err
			}
		}
	}
	draft, err := os.Lstat(u.indexPath() + draftSuffix)
	l.hasDraft = err == nil
	lock, err := os.Lstat(u.indexPath() + lockSuffix)
	l.lockedByUs = err == nil && l.hasDraft && os.SameFile(draft, lock)
	l.lockedByOther = err == nil && !l.lockedByUs
	return l, nil
}

// readStagingDir reads the plan and the index of a staging directory; nil without a plan: then no file was moved.
func (r *Repo) readStagingDir(u Update, dir string) (*stagingDir, error) {
	data, err := durable.ReadFile(filepath.Join(dir, "plan"), maxIndexSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &stagingDir{repo: r, spec: u, dir: dir, mayBeTorn: true, entries: map[string]indexEntry{}}
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
	x, err := parseEditableIndex(data, FormatOf(u.New))
	if err != nil {
		return nil, err
	}
	for e := range x.allEntries() {
		g.entries[string(e.name)] = e
	}
	return g, nil
}

// rollForward publishes the index and removes the staging directories. Only the index itself shows whether it was
// published, so it is checked whenever there is a draft or a plan.
func (r *Repo) rollForward(ctx context.Context, u Update, left *interrupted) error {
	if left.hasDraft || left.staging != nil {
		if err := r.publishDraft(ctx, u, left); err != nil {
			return err
		}
	}
	return r.removeStagingDirs(left)
}

func (r *Repo) publishDraft(ctx context.Context, u Update, left *interrupted) error {
	draft, err := os.Lstat(u.indexPath() + draftSuffix)
	now, nowErr := os.Lstat(u.indexPath())
	if err == nil && nowErr == nil && os.SameFile(draft, now) {
		return os.Remove(u.indexPath() + draftSuffix) // already published
	}
	if !left.lockedByUs || !isDraftComplete(u) {
		return r.recomposeIndex(ctx, u, left)
	}
	if err := os.Rename(u.indexPath()+lockSuffix, u.indexPath()); err != nil {
		return err
	}
	return errors.Join(os.Remove(u.indexPath()+draftSuffix), durable.SyncDir(u.GitDir))
}

// isDraftComplete reports whether the draft is a completely written index.
func isDraftComplete(u Update) bool {
	data, err := durable.ReadFile(u.indexPath()+draftSuffix, maxIndexSize)
	if err != nil {
		return false
	}
	_, err = parseEditableIndex(data, FormatOf(u.New))
	return err == nil
}

// recomposeIndex composes the new index again from the present one: our lock was removed, and other changes may have been
// staged since. The draft is kept empty and serves only as the lock, so a kill leaves nothing that looks like a complete
// index.
func (r *Repo) recomposeIndex(ctx context.Context, u Update, left *interrupted) (err error) {
	file, err := os.OpenFile(u.indexPath()+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	draft := &IndexDraft{index: u.indexPath(), file: file}
	if !left.lockedByUs {
		if err := draft.Lock(); err != nil {
			return errors.Join(err, draft.close())
		}
	}
	defer func() {
		if err == nil {
			_ = os.Remove(u.indexPath() + rewriteSuffix) // of a recovery that was killed
			err = draft.Drop()
			return
		}
		// The remaining draft tells the next Recover that the index is not published.
		err = errors.Join(err, draft.close())
		if draft.isLocked() {
			err = errors.Join(err, os.Remove(u.indexPath()+lockSuffix))
		}
	}()
	if err := r.requireBranch(u); errors.As(err, new(*WrongBranchError)) {
		return nil // the index belongs to another branch
	} else if err != nil {
		return err
	}
	x := &Transaction{repo: r, spec: u, staging: left.staging, committed: true}
	if x.staging == nil { // removed as well: the entries get no stat data, so git reads the new files
		x.staging = &stagingDir{}
	}
	if x.checkout, err = r.loadCheckout(ctx, u); err != nil {
		return err
	}
	if err := x.checkout.keepUnpublished(ctx); err != nil || len(x.checkout.changes) == 0 {
		return err
	}
	if len(x.checkout.overlaps) > 0 {
		return &ConcurrentChangeError{Worktree: u.Worktree, Paths: slices.Sorted(maps.Keys(x.checkout.overlaps))}
	}
	index, err := x.composeIndex()
	if err != nil {
		return err
	}
	return index.replaceIndex(u.indexPath())
}

// rewriteSuffix names the file in which recomposeIndex writes the index.
const rewriteSuffix = draftSuffix + "-again"

// replaceIndex writes the revision beside a locked index, and then renames it into place.
func (y *editedIndex) replaceIndex(index string) (err error) {
	name := index + rewriteSuffix
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if y.perm != 0 {
		err = f.Chmod(y.perm)
	}
	if err == nil {
		err = y.writeSynced(f)
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
func (co *checkout) keepUnpublished(ctx context.Context) error {
	tip, err := co.repo.Tip(ctx, co.spec.Branch)
	if err != nil {
		return err
	}
	since, err := co.repo.treeChanges(ctx, runOptions{}, co.spec.New, tip)
	if err != nil {
		return err
	}
	now := map[string]treeChange{}
	for _, c := range since {
		now[c.path] = c
	}
	co.changes = slices.DeleteFunc(co.changes, func(t *pathChange) bool {
		mode, oid := t.newMode, t.newOID
		if c, changed := now[t.path]; changed {
			mode, oid = c.newMode, c.newOID
		}
		return co.indexHas(t.path, mode, oid) || !co.indexHas(t.path, t.oldMode, t.oldOID)
	})
	co.changeByPath, co.overlaps = map[string]*pathChange{}, map[string]string{}
	for _, t := range co.changes {
		co.changeByPath[t.path] = t
	}
	return co.checkIndex()
}

// indexHas reports whether the index entry of a path has a mode and object; mode 000000 means that there is no entry.
func (co *checkout) indexHas(name, mode, oid string) bool {
	i, there := co.index.find(name)
	if !there || kindOfMode(mode) == kindAbsent {
		return !there && kindOfMode(mode) == kindAbsent
	}
	e := co.index.entryAt(i)
	return !e.intentToAdd && string(e.oid) == string(mustHex(oid)) && fmt.Sprintf("%06o", e.mode) == mode
}

// removeStagingDirs removes all staging directories of an interrupted update.
func (r *Repo) removeStagingDirs(left *interrupted) error {
	var err error
	for _, dir := range left.stagingDirs {
		err = errors.Join(err, (&stagingDir{repo: r, dir: dir}).remove())
	}
	return err
}

// rollBack restores files, refs and the index to the state before the update.
func (r *Repo) rollBack(ctx context.Context, u Update, left *interrupted) error {
	var stranded error
	if left.staging != nil {
		err := left.staging.undoMoves(ctx)
		if err != nil && !errors.As(err, new(*ConcurrentChangeError)) {
			return err
		}
		stranded = err
	}
	err := errors.Join(r.removeStagingDirs(left), r.removeStaleRefLocks(u, left), r.restoreOtherRefs(ctx, u), r.removeKeepFiles(u))
	r.trimReflogs(u)
	if err == nil && u.GitDir != "" {
		err = removeDraft(u.indexPath())
	}
	return errors.Join(err, stranded)
}

// restoreOtherRefs moves the other refs back: some may have moved before the branch. A ref that is not at its new value
// was moved by another process, and stays.
func (r *Repo) restoreOtherRefs(ctx context.Context, u Update) (err error) {
	for _, m := range u.OtherRefs {
		now, lookErr := r.Tip(ctx, m.Ref)
		switch {
		case lookErr != nil:
			err = errors.Join(err, lookErr)
		case m.Old == m.New:
		case isZeroOID(m.Old):
			if now == "" || now == m.New { // empty: a killed git may have left a lock or a reflog of the new ref
				err = errors.Join(err, r.DeleteOwnedRef(ctx, m.Ref, m.New))
			}
		case refIsAt(now, m.New):
			err = errors.Join(err, r.MoveRef(ctx, m.Ref, m.Old, m.New, u.Reason))
		}
	}
	return err
}

// trimReflogs removes the reflog entry that a killed git wrote before it moved the branch, from the logs of the branch and
// of HEAD.
func (r *Repo) trimReflogs(u Update) {
	gitDir := u.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	head := filepath.Join(gitDir, "HEAD")
	for ref, log := range map[string]string{r.RefPath(u.Branch): r.ReflogPath(u.Branch), head: filepath.Join(gitDir, "logs", "HEAD")} {
		data, err := durable.ReadFile(log, maxPackedRefs)
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
func (r *Repo) removeStaleRefLocks(u Update, left *interrupted) error {
	gitDir := u.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	locks := map[string]string{filepath.Join(gitDir, "HEAD") + lockSuffix: ""}
	for _, m := range u.refMoves() {
		locks[r.RefPath(m.Ref)+lockSuffix] = m.New
	}
	for path, content := range locks {
		if err := removeStaleLock(path, content, left.startTime); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(u.OtherRefs, func(m RefMove) bool { return isZeroOID(m.New) }) {
		return r.removeStalePackedRefsLock(left.startTime)
	}
	return nil
}

// removeStalePackedRefsLock removes packed-refs.lock, which git holds from locking refs to delete until they are deleted.
// Its content does not tell which process made it, and it may be held for long: it is removed only if no git is running.
func (r *Repo) removeStalePackedRefsLock(since time.Time) error {
	path := filepath.Join(r.CommonDir, "packed-refs") + lockSuffix
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	return r.removeLockIfIdle(path, fi)
}

// removeLockIfIdle removes a lock unless a git is running in any of the worktrees.
func (r *Repo) removeLockIfIdle(path string, seen fs.FileInfo) error {
	entries, err := r.WorktreeEntries()
	if err != nil {
		return err
	}
	var trees []string
	for _, e := range entries {
		trees = append(trees, e.Path)
	}
	if r.RunningGit(trees, []string{path}) != "" {
		return nil
	}
	rel, err := filepath.Rel(r.CommonDir, path)
	if err != nil {
		return err
	}
	return r.RemoveLockFile(LockFile{RelPath: rel, info: seen})
}

// removeStaleLock removes a ref lock younger than since that holds content, or that stays empty or a part of content for
// 500 ms. A lock with other content belongs to a running process and stays.
func removeStaleLock(path, content string, since time.Time) error {
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
