package update

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
)

// Recover finishes an Update that was killed, or undoes it: done says which. If the branch is at the new commit or a
// descendant of it, the update is finished; else it is undone, wherever the branch is. The caller must hold the lock
// under which the update was made, and may call Recover at any time, also when nothing is left to do.
//
// The error is a *git.LockedError if another process holds the index lock: then nothing was changed. It is a
// *ConcurrentChangeError if another process has written to a path, or has committed a new file; such paths are left as
// they are, and everything else is undone.
func Recover(ctx context.Context, r *git.Repo, u Update) (done bool, err error) {
	ctx = context.WithoutCancel(ctx)
	if u.GitDir != "" {
		if r, err = r.WithWorktreeConfig(ctx, u.GitDir, u.Trusted); err != nil {
			return false, err
		}
	}
	m := u.decisiveMove()
	tip, err := r.Tip(ctx, m.Ref)
	if err != nil {
		return false, err
	}
	done = git.RefIsAt(tip, m.New)
	if !done && tip != "" && tip != m.Old && !git.IsZeroOID(m.New) {
		// gc may have pruned a new commit that no ref reaches.
		found, err := r.Lookup(ctx, m.New)
		if err != nil {
			return false, err
		}
		if done, err = r.IsAncestor(ctx, found[0].OID, tip); err != nil {
			return false, err
		}
	}
	left, err := findInterrupted(r, u)
	if err != nil {
		return false, err
	}
	switch {
	case left.isEmpty():
	case left.lockedByOther && (left.staging != nil || done && left.hasDraft):
		return false, &git.LockedError{Path: u.indexPath() + index.LockSuffix}
	case done:
		if err := rollForward(ctx, r, u, left); err != nil {
			return false, err
		}
	case !git.RefIsAt(tip, m.Old) && left.staging != nil:
		if err := left.staging.excludeStagedPaths(ctx); err != nil {
			return false, err
		}
	}
	if done {
		if err := removeStaleRefLocks(r, u, left); err != nil {
			return true, err
		}
		return true, errors.Join(deleteRemainingRefs(ctx, r, u), removeKeepFiles(r, u))
	}
	return false, rollBack(ctx, r, u, left)
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

func findInterrupted(r *git.Repo, u Update) (*interrupted, error) {
	l := &interrupted{}
	if u.GitDir == "" {
		return l, nil
	}
	for _, dir := range stagingDirs(r, u) {
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
			if l.staging, err = readStagingDir(r, u, dir); err != nil {
				return nil, err
			}
		}
	}
	draft, err := os.Lstat(u.indexPath() + index.DraftSuffix)
	l.hasDraft = err == nil
	lock, err := os.Lstat(u.indexPath() + index.LockSuffix)
	l.lockedByUs = err == nil && l.hasDraft && os.SameFile(draft, lock)
	l.lockedByOther = err == nil && !l.lockedByUs
	return l, nil
}

// readStagingDir reads the plan and the index of a staging directory; nil without a plan: then no file was moved.
func readStagingDir(r *git.Repo, u Update, dir string) (*stagingDir, error) {
	data, err := durable.ReadFile(filepath.Join(dir, "plan"), index.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &stagingDir{repo: r, spec: u, dir: dir, mayBeTorn: true, entries: map[string]index.Entry{}}
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
	x, err := index.ParseEditable(data, object.FormatOf(u.New))
	if err != nil {
		return nil, err
	}
	for e := range x.AllEntries() {
		g.entries[string(e.Name)] = e
	}
	return g, nil
}

// rollForward publishes the index and removes the staging directories. Only the index itself shows whether it was
// published, so it is checked whenever there is a draft or a plan.
func rollForward(ctx context.Context, r *git.Repo, u Update, left *interrupted) error {
	if left.hasDraft || left.staging != nil {
		if err := publishDraft(ctx, r, u, left); err != nil {
			return err
		}
	}
	return removeStagingDirs(r, left)
}

func publishDraft(ctx context.Context, r *git.Repo, u Update, left *interrupted) error {
	draft, err := os.Lstat(u.indexPath() + index.DraftSuffix)
	now, nowErr := os.Lstat(u.indexPath())
	if err == nil && nowErr == nil && os.SameFile(draft, now) {
		return os.Remove(u.indexPath() + index.DraftSuffix) // already published
	}
	if !left.lockedByUs || !isDraftComplete(u) {
		return recomposeIndex(ctx, r, u, left)
	}
	if err := os.Rename(u.indexPath()+index.LockSuffix, u.indexPath()); err != nil {
		return err
	}
	return errors.Join(os.Remove(u.indexPath()+index.DraftSuffix), durable.SyncDir(u.GitDir))
}

// isDraftComplete reports whether the draft is a completely written index.
func isDraftComplete(u Update) bool {
	data, err := durable.ReadFile(u.indexPath()+index.DraftSuffix, index.MaxSize)
	if err != nil {
		return false
	}
	_, err = index.ParseEditable(data, object.FormatOf(u.New))
	return err == nil
}

// recomposeIndex composes the new index again from the present one: our lock was removed, and other changes may have
// been staged since. The draft is kept empty and serves only as the lock, so a kill leaves nothing that looks like a
// complete index.
func recomposeIndex(ctx context.Context, r *git.Repo, u Update, left *interrupted) (err error) {
	file, err := os.OpenFile(u.indexPath()+index.DraftSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	draft := &git.IndexDraft{Index: u.indexPath(), File: file}
	if !left.lockedByUs {
		if err := draft.Lock(); err != nil {
			return errors.Join(err, draft.Close())
		}
	}
	defer func() {
		if err == nil {
			_ = os.Remove(u.indexPath() + index.RewriteSuffix) // of a recovery that was killed
			err = draft.Drop()
			return
		}
		// The remaining draft tells the next Recover that the index is not published.
		err = errors.Join(err, draft.Close())
		if draft.IsLocked() {
			err = errors.Join(err, os.Remove(u.indexPath()+index.LockSuffix))
		}
	}()
	if err := requireBranch(r, u); errors.As(err, new(*WrongBranchError)) {
		return nil // the index belongs to another branch
	} else if err != nil {
		return err
	}
	x := &Transaction{repo: r, spec: u, staging: left.staging, committed: true}
	if x.staging == nil { // removed as well: the entries get no stat data, so git reads the new files
		x.staging = &stagingDir{}
	}
	if x.checkout, err = loadCheckout(ctx, r, u); err != nil {
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
	return index.Replace(u.indexPath())
}

// keepUnpublished drops all changes but those whose index entry is still that of the old commit. The other entries
// already match the branch, or were staged since.
func (co *checkout) keepUnpublished(ctx context.Context) error {
	tip, err := co.repo.Tip(ctx, co.spec.Branch)
	if err != nil {
		return err
	}
	since, err := co.repo.TreeChanges(ctx, git.RunOptions{}, co.spec.New, tip)
	if err != nil {
		return err
	}
	now := map[string]git.TreeChange{}
	for _, c := range since {
		now[c.Path] = c
	}
	co.changes = slices.DeleteFunc(co.changes, func(t *pathChange) bool {
		mode, oid := t.NewMode, t.NewOID
		if c, changed := now[t.Path]; changed {
			mode, oid = c.NewMode, c.NewOID
		}
		return co.indexHas(t.Path, mode, oid) || !co.indexHas(t.Path, t.OldMode, t.OldOID)
	})
	co.changeByPath, co.overlaps = map[string]*pathChange{}, map[string]string{}
	for _, t := range co.changes {
		co.changeByPath[t.Path] = t
	}
	return co.checkIndex()
}

// indexHas reports whether the index entry of a path has a mode and object; mode 000000 means that there is no entry.
func (co *checkout) indexHas(name, mode, oid string) bool {
	i, there := co.index.Find(name)
	if !there || kindOfMode(mode) == kindAbsent {
		return !there && kindOfMode(mode) == kindAbsent
	}
	e := co.index.EntryAt(i)
	return !e.IntentToAdd && string(e.OID) == string(object.MustHex(oid)) && fmt.Sprintf("%06o", e.Mode) == mode
}

// removeStagingDirs removes all staging directories of an interrupted update.
func removeStagingDirs(r *git.Repo, left *interrupted) error {
	var err error
	for _, dir := range left.stagingDirs {
		err = errors.Join(err, (&stagingDir{repo: r, dir: dir}).remove())
	}
	return err
}

// rollBack restores files, refs and the index to the state before the update.
func rollBack(ctx context.Context, r *git.Repo, u Update, left *interrupted) error {
	var stranded error
	if left.staging != nil {
		err := left.staging.undoMoves(ctx)
		if err != nil && !errors.As(err, new(*ConcurrentChangeError)) {
			return err
		}
		stranded = err
	}
	err := errors.Join(removeStagingDirs(r, left), removeStaleRefLocks(r, u, left), restoreOtherRefs(ctx, r, u), removeKeepFiles(r, u))
	trimReflogs(r, u)
	if err == nil && u.GitDir != "" {
		err = git.RemoveDraft(u.indexPath())
	}
	return errors.Join(err, stranded)
}

// restoreOtherRefs moves the other refs back: some may have moved before the branch. A ref that is not at its new value
// was moved by another process, and stays.
func restoreOtherRefs(ctx context.Context, r *git.Repo, u Update) (err error) {
	for _, m := range u.OtherRefs {
		now, lookErr := r.Tip(ctx, m.Ref)
		switch {
		case lookErr != nil:
			err = errors.Join(err, lookErr)
		case m.Old == m.New:
		case git.IsZeroOID(m.Old):
			if now == "" || now == m.New { // empty: a killed git may have left a lock or a reflog of the new ref
				err = errors.Join(err, r.DeleteOwnedRef(ctx, m.Ref, m.New))
			}
		case git.RefIsAt(now, m.New):
			err = errors.Join(err, r.MoveRef(ctx, m.Ref, m.Old, m.New, u.Reason))
		}
	}
	return err
}

// trimReflogs removes the reflog entry that a killed git wrote before it moved the branch, from the logs of the branch
// and of HEAD.
func trimReflogs(r *git.Repo, u Update) {
	gitDir := u.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	head := filepath.Join(gitDir, "HEAD")
	for ref, log := range map[string]string{r.RefPath(u.Branch): r.ReflogPath(u.Branch), head: filepath.Join(gitDir, "logs", "HEAD")} {
		data, err := durable.ReadFile(log, git.MaxPackedRefs)
		last := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte{'\n'}), '\n') + 1
		if err != nil || !bytes.HasPrefix(data[last:], []byte(u.Old+" "+u.New+" ")) {
			continue
		}
		// git locks the ref while it writes the reflog. If the ref is locked now, leave the entry: a reflog is a
		// convenience.
		lock, err := os.OpenFile(ref+index.LockSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
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
func removeStaleRefLocks(r *git.Repo, u Update, left *interrupted) error {
	for path, content := range u.refLocks(r) {
		if err := repair.RemoveStaleRefLock(path, content, left.startTime); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(u.OtherRefs, func(m RefMove) bool { return git.IsZeroOID(m.New) }) {
		return removeStalePackedRefsLock(r, left.startTime)
	}
	return nil
}

// refLocks maps the lock files that git creates to move the refs to the value that it writes to each; the lock of HEAD,
// whose reflog gets an entry, stays empty.
func (u Update) refLocks(r *git.Repo) map[string]string {
	locks := map[string]string{filepath.Join(cmp.Or(u.GitDir, r.CommonDir), "HEAD") + index.LockSuffix: ""}
	for _, m := range u.refMoves() {
		locks[r.RefPath(m.Ref)+index.LockSuffix] = m.New
	}
	return locks
}

// removeStalePackedRefsLock removes packed-refs.lock, which git holds from locking refs to delete until they are
// deleted. Its content does not tell which process made it, and it may be held for long: it is removed only if no git
// is running.
func removeStalePackedRefsLock(r *git.Repo, since time.Time) error {
	path := filepath.Join(r.CommonDir, "packed-refs") + index.LockSuffix
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	return repair.RemoveLockIfIdle(r, path, fi)
}
