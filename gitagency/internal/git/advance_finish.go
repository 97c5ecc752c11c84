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

// FinishAdvance finishes an Advance that was killed, or undoes it: done says which. If the branch is where it was to go,
// or has gone on from there, all of it is done; else nothing is, wherever the branch is. It may be called at any time by
// whoever holds the lock that the Advance was made under, also when nothing is left to do.
//
// The error is a *LockedError where somebody else has locked the index: then nothing was changed. It is a *StrandedError
// where somebody else has written to a path, or has committed what had come there; that was left as it is, and everything
// else is undone.
func (r *Repo) FinishAdvance(ctx context.Context, a Advance) (done bool, err error) {
	ctx = context.WithoutCancel(ctx)
	if a.GitDir != "" {
		if r, err = r.in(ctx, a.GitDir, a.Trusted); err != nil {
			return false, err
		}
	}
	m := a.decisive()
	tip, err := r.Tip(ctx, m.Ref)
	if err != nil {
		return false, err
	}
	done = isAt(tip, m.New)
	if !done && tip != "" && tip != m.Old && !isNowhere(m.New) {
		// A commit that nothing leads to may have been tidied up.
		found, err := r.Lookup(ctx, m.New)
		if err != nil {
			return false, err
		}
		if done, err = r.IsAncestor(ctx, found[0].OID, tip); err != nil {
			return false, err
		}
	}
	left, err := r.left(a)
	if err != nil {
		return false, err
	}
	switch {
	case left.nothing():
	case left.foreign && (left.stage != nil || done && left.draft):
		return false, &LockedError{Path: a.index() + lockSuffix}
	case done:
		if err := r.forward(ctx, a, left); err != nil {
			return false, err
		}
	case !isAt(tip, m.Old) && left.stage != nil:
		if err := left.stage.spare(ctx); err != nil {
			return false, err
		}
	}
	if done {
		if err := r.sweepLocks(a, left); err != nil {
			return true, err
		}
		return true, errors.Join(r.deleteRest(ctx, a), r.letGo(a))
	}
	return false, r.backward(ctx, a, left)
}

// leftover is what there is of an Advance that was killed.
type leftover struct {
	stage   *stage // whose plan was made; nil when nothing was moved
	dirs    []string
	draft   bool // there is one
	locked  bool // the index is, by us
	foreign bool // the index is, by somebody else
	since   time.Time
}

func (l *leftover) nothing() bool { return l.stage == nil && !l.draft && len(l.dirs) == 0 }

func (r *Repo) left(a Advance) (*leftover, error) {
	l := &leftover{}
	if a.GitDir == "" {
		return l, nil
	}
	for _, dir := range r.stageDirs(a) {
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		l.dirs = append(l.dirs, dir)
		for _, name := range []string{"objects", "begun"} { // the first is what versions before had instead
			if fi, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				l.since = fi.ModTime()
			}
		}
		if l.stage == nil {
			var err error
			if l.stage, err = r.readStage(a, dir); err != nil {
				return nil, err
			}
		}
	}
	draft, err := os.Lstat(a.index() + draftSuffix)
	l.draft = err == nil
	lock, err := os.Lstat(a.index() + lockSuffix)
	l.locked = err == nil && l.draft && os.SameFile(draft, lock)
	l.foreign = err == nil && !l.locked
	return l, nil
}

// readStage reads the plan of one that was killed; there is none when nothing was moved.
func (r *Repo) readStage(a Advance, dir string) (*stage, error) {
	data, err := durable.ReadFile(filepath.Join(dir, "plan"), mostIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &stage{repo: r, a: a, dir: dir, torn: true, entries: map[string]stagedEntry{}}
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
	x, err := parseHeld(data, FormatOf(a.New))
	if err != nil {
		return nil, err
	}
	for e := range x.all() {
		g.entries[string(e.name)] = e
	}
	return g, nil
}

// forward publishes the index. Only the index itself can say that it was: where there is a plan it is looked at.
func (r *Repo) forward(ctx context.Context, a Advance, l *leftover) error {
	if l.draft || l.stage != nil {
		if err := r.publishLeft(ctx, a, l); err != nil {
			return err
		}
	}
	return r.removeLeft(l)
}

func (r *Repo) publishLeft(ctx context.Context, a Advance, l *leftover) error {
	draft, err := os.Lstat(a.index() + draftSuffix)
	now, nowErr := os.Lstat(a.index())
	if err == nil && nowErr == nil && os.SameFile(draft, now) {
		return os.Remove(a.index() + draftSuffix) // it is published
	}
	if !l.locked || !wholeDraft(a) {
		return r.composeAgain(ctx, a, l)
	}
	if err := os.Rename(a.index()+lockSuffix, a.index()); err != nil {
		return err
	}
	return errors.Join(os.Remove(a.index()+draftSuffix), durable.SyncDir(a.GitDir))
}

// wholeDraft reports whether the new index was written.
func wholeDraft(a Advance) bool {
	data, err := durable.ReadFile(a.index()+draftSuffix, mostIndex)
	if err != nil {
		return false
	}
	_, err = parseHeld(data, FormatOf(a.New))
	return err == nil
}

// composeAgain makes the index again from the one that is there: somebody has taken our lock away, and may have staged
// something since. The draft is empty meanwhile, and only stands for the lock: who is killed leaves nothing that looks
// like an index.
func (r *Repo) composeAgain(ctx context.Context, a Advance, l *leftover) (err error) {
	file, err := os.OpenFile(a.index()+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	draft := &IndexDraft{index: a.index(), file: file}
	if !l.locked {
		if err := draft.Lock(); err != nil {
			return errors.Join(err, draft.close())
		}
	}
	defer func() {
		if err == nil {
			_ = os.Remove(a.index() + againSuffix) // of one that was killed
			err = draft.Drop()
			return
		}
		// What is left of the draft tells the next one that there is something to do.
		err = errors.Join(err, draft.close())
		if draft.locked() {
			err = errors.Join(err, os.Remove(a.index()+lockSuffix))
		}
	}()
	if err := r.onBranch(a); errors.As(err, new(*HeadElsewhereError)) {
		return nil // the index is that of another
	} else if err != nil {
		return err
	}
	x := &Advancing{repo: r, a: a, stage: l.stage, done: true}
	if x.stage == nil { // somebody has taken that away too; git has to read what is new
		x.stage = &stage{}
	}
	if x.seat, err = r.take(ctx, a); err != nil {
		return err
	}
	if err := x.seat.unpublished(ctx); err != nil || len(x.seat.touched) == 0 {
		return err
	}
	if len(x.seat.overlaps) > 0 {
		return &StrandedError{Tree: a.Tree, Paths: slices.Sorted(maps.Keys(x.seat.overlaps))}
	}
	index, err := x.index()
	if err != nil {
		return err
	}
	return index.replace(a.index())
}

// againSuffix names an index that is made again.
const againSuffix = draftSuffix + "-again"

// replace writes it beside an index that is locked, and then puts it in its place.
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

// unpublished leaves of what is touched only that of which the index still has what it had. All else is as the branch has
// it now, or is what somebody has staged since.
func (s *seat) unpublished(ctx context.Context) error {
	tip, err := s.repo.Tip(ctx, s.a.Branch)
	if err != nil {
		return err
	}
	since, err := s.repo.treeChanges(ctx, place{}, s.a.New, tip)
	if err != nil {
		return err
	}
	now := map[string]treeChange{}
	for _, c := range since {
		now[c.path] = c
	}
	s.touched = slices.DeleteFunc(s.touched, func(t *touch) bool {
		mode, oid := t.newMode, t.newOID
		if c, changed := now[t.path]; changed {
			mode, oid = c.newMode, c.newOID
		}
		return s.has(t.path, mode, oid) || !s.has(t.path, t.oldMode, t.oldOID)
	})
	s.by, s.overlaps = map[string]*touch{}, map[string]string{}
	for _, t := range s.touched {
		s.by[t.path] = t
	}
	return s.staged()
}

// has reports whether the index has just that at a path.
func (s *seat) has(name, mode, oid string) bool {
	i, there := s.index.find(name)
	if !there || kindOfMode(mode) == noFile {
		return !there && kindOfMode(mode) == noFile
	}
	e := s.index.entry(i)
	return !e.intended && string(e.oid) == string(mustHex(oid)) && fmt.Sprintf("%06o", e.mode) == mode
}

// removeLeft takes away what is not needed any more.
func (r *Repo) removeLeft(l *leftover) error {
	var err error
	for _, dir := range l.dirs {
		err = errors.Join(err, (&stage{repo: r, dir: dir}).remove())
	}
	return err
}

// backward puts everything back as it was.
func (r *Repo) backward(ctx context.Context, a Advance, l *leftover) error {
	var stranded error
	if l.stage != nil {
		err := l.stage.undo(ctx)
		if err != nil && !errors.As(err, new(*StrandedError)) {
			return err
		}
		stranded = err
	}
	err := errors.Join(r.removeLeft(l), r.sweepLocks(a, l), r.retract(ctx, a), r.letGo(a))
	r.unlog(a)
	if err == nil && a.GitDir != "" {
		err = dropDraft(a.index())
	}
	return errors.Join(err, stranded)
}

// retract puts the other refs back, of which some may have moved before the branch was to. One that is somewhere else is
// somebody's.
func (r *Repo) retract(ctx context.Context, a Advance) (err error) {
	for _, m := range a.Also {
		now, lookErr := r.Tip(ctx, m.Ref)
		switch {
		case lookErr != nil:
			err = errors.Join(err, lookErr)
		case m.Old == m.New:
		case isNowhere(m.Old):
			if now == "" || now == m.New { // also what is left of one that never came
				err = errors.Join(err, r.RemoveRef(ctx, m.Ref, m.New))
			}
		case isAt(now, m.New):
			err = errors.Join(err, r.MoveRef(ctx, m.Ref, m.Old, m.New, a.Reason))
		}
	}
	return err
}

// unlog takes from the logs what git wrote there before it was killed, and before the branch had moved.
func (r *Repo) unlog(a Advance) {
	gitDir := a.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	head := filepath.Join(gitDir, "HEAD")
	for ref, log := range map[string]string{r.RefPath(a.Branch): r.LogPath(a.Branch), head: filepath.Join(gitDir, "logs", "HEAD")} {
		data, err := durable.ReadFile(log, mostPacked)
		last := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte{'\n'}), '\n') + 1
		if err != nil || !bytes.HasPrefix(data[last:], []byte(a.Old+" "+a.New+" ")) {
			continue
		}
		// Whoever writes a log has locked its ref; who has it locked now may be about to. A log is a convenience.
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

// sweepLocks removes the locks of refs that a killed git has left: those that say where the ref was to go, and such as say
// nothing, if they came after we began and stand there for a while. A git that works has written its own long before.
func (r *Repo) sweepLocks(a Advance, l *leftover) error {
	gitDir := a.GitDir
	if gitDir == "" {
		gitDir = r.CommonDir
	}
	locks := map[string]string{filepath.Join(gitDir, "HEAD") + lockSuffix: ""}
	for _, m := range a.moves() {
		locks[r.RefPath(m.Ref)+lockSuffix] = m.New
	}
	for path, content := range locks {
		if err := sweepLock(path, content, l.since); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(a.Also, func(m RefMove) bool { return isNowhere(m.New) }) {
		return r.sweepPackedLock(l.since)
	}
	return nil
}

// sweepPackedLock removes the lock that git holds from when refs that are to go are locked until they are gone. Nothing in
// it says whose it is, and it may be held for long: it goes when no git is at work.
func (r *Repo) sweepPackedLock(since time.Time) error {
	path := filepath.Join(r.CommonDir, "packed-refs") + lockSuffix
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	return r.removeIdle(path, fi)
}

// removeIdle removes a lock unless a git is at work in any of the worktrees.
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
			return nil // it is somebody's who is at work
		case content != "" && strings.TrimSuffix(string(data), "\n") == content:
			return os.Remove(path)
		case len(data) > 0 && !strings.HasPrefix(content, string(data)):
			return nil
		case time.Since(began) > patience:
			return os.Remove(path)
		}
	}
}
