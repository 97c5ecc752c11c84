package pathland

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// ChangedMeanwhileError reports a path that another program changed while a landing was under way. Nothing has changed.
type ChangedMeanwhileError struct{ Path string }

func (e *ChangedMeanwhileError) Error() string {
	return "another program changed " + e.Path + " during the landing; nothing has landed, and 'git agency land' can be repeated"
}

// apply carries out the moves of a journal: all of them, or none. The blobs of the new files are in repo.
func apply(ctx context.Context, r *core.Repository, repo *git.Repo, j *journal, targets []*target) (err error) {
	tx := r.BeginTx("land")
	defer func() {
		if err == nil || j.Phase == done {
			return
		}
		if undone := undoJournal(context.WithoutCancel(ctx), r, j); undone != nil {
			err = errors.Join(err, fmt.Errorf("the landing is not undone yet; the next command tries it again: %w", undone))
		}
	}()
	// 1. Name the staging directories in the journal.
	if err := tx.Step(ctx, "journal", func() error { return j.write(r) }); err != nil {
		return err
	}
	// 2. Write the new files beside the old ones, on the same file system.
	if err := tx.Step(ctx, "stage", func() error { return stage(ctx, repo, j, targets) }); err != nil {
		return err
	}
	// 3. Add the inodes of the new files to the journal. From here on files in the directories change.
	if err := tx.Step(ctx, "moving", func() error {
		j.Phase = moving
		return j.write(r)
	}); err != nil {
		return err
	}
	// 4. Move.
	if err := moveAll(ctx, tx, j, targets); err != nil {
		return err
	}
	// 5. Commit point.
	return tx.Step(ctx, "done", func() error {
		j.Phase = done
		err := j.write(r)
		if err != nil { // the journal may say "done" all the same: its name is replaced before it is synced
			j.Phase = moving
			err = errors.Join(err, j.write(r))
		}
		return err
	})
}

// moveAll does the moves, and makes them durable.
func moveAll(ctx context.Context, tx *undo.Tx, j *journal, targets []*target) error {
	for i, m := range j.Moves {
		if err := tx.Step(ctx, fmt.Sprintf("move-%d", i+1), func() error { return m.do(ctx, targets[m.Dir]) }); err != nil {
			return err
		}
	}
	return tx.Step(ctx, "sync", func() error { return j.syncParents(targets) })
}

// syncParents makes the names durable that moves have changed.
func (j *journal) syncParents(targets []*target) error {
	type parent struct {
		dir  int
		path string
	}
	synced := map[parent]bool{}
	for _, m := range j.Moves {
		t, at := targets[m.Dir], parent{m.Dir, path.Dir(string(m.Path))}
		if synced[at] {
			continue
		}
		synced[at] = true
		err := t.inParent(string(m.Path), func(dir int, _ string) error { return unix.Fsync(dir) })
		if err != nil && !beneath.IsGone(err) { // else the directory was taken away as well
			return err
		}
	}
	for _, t := range targets {
		if t.staging != nil {
			if err := t.staging.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}

// do does one move, and checks that the file or directory that it took away is the one that was merged.
func (m moveOp) do(ctx context.Context, t *target) error {
	err := t.inParent(string(m.Path), func(dir int, base string) error {
		switch m.Kind {
		case take:
			return move(dir, base, t.stagingFD(), m.Slot)
		case put:
			return move(t.stagingFD(), m.Slot, dir, base)
		default:
			return exchange(t.stagingFD(), m.Slot, dir, base)
		}
	})
	changed := &ChangedMeanwhileError{Path: filepath.Join(t.path, string(m.Path))}
	if errors.Is(err, unix.EEXIST) || beneath.IsGone(err) {
		return changed
	}
	if err != nil || m.Kind == put {
		return err
	}
	if m.IsDir {
		if empty, err := isEmptyDir(t.stagingFD(), m.Slot); err != nil || empty {
			return err
		}
		return changed
	}
	leaf, ok, err := readSlot(ctx, t, m.Slot)
	if err == nil && (!ok || leaf != m.Old) {
		err = changed
	}
	return err
}

// readSlot returns the file in a slot of the staging directory.
func readSlot(ctx context.Context, t *target, slot string) (pathset.Leaf, bool, error) {
	return pathset.ReadLeaf(ctx, t.read, filepath.Base(t.staging.Name())+"/"+slot)
}

// stage writes the new files and directories to the staging directories, and notes their inodes.
func stage(ctx context.Context, repo *git.Repo, j *journal, targets []*target) (err error) {
	cat, err := repo.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer cat.Close()
	for i, t := range targets {
		if !j.changes(i) { // it may be read-only
			continue
		}
		if err := t.openStaging(j.Staging, true); err != nil {
			return err
		}
		if err := probe(t); err != nil {
			return err
		}
	}
	for i := range j.Moves {
		m := &j.Moves[i]
		if m.Kind == take {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		t := targets[m.Dir]
		if err := stageOne(ctx, repo, cat, t, m); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(t.path, string(m.Path)), err)
		}
		if m.Kind == put {
			if err := inheritGroup(t, m); err != nil {
				return fmt.Errorf("set the group of %s: %w", filepath.Join(t.path, string(m.Path)), err)
			}
		}
		if m.Inode, err = inodeAt(t.stagingFD(), m.Slot); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if t.staging == nil {
			continue
		}
		if err := errors.Join(t.staging.Sync(), t.root.Sync()); err != nil {
			return err
		}
	}
	return nil
}

// stageOne writes one new file, symbolic link or directory.
func stageOne(ctx context.Context, repo *git.Repo, cat *git.CatFile, t *target, m *moveOp) error {
	switch {
	case m.IsDir:
		return unix.Mkdirat(t.stagingFD(), m.Slot, 0o777)
	case m.New.Mode == object.ModeSymlink:
		link, err := pathset.ReadBlob(cat, m.New.OID)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(link), t.stagingFD(), m.Slot)
	}
	perm := uint32(0o666)
	if m.New.Mode == object.ModeExecutable {
		perm = 0o777
	}
	fd, err := unix.Openat(t.stagingFD(), m.Slot, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), m.Slot)
	err = pathset.WriteBlob(ctx, repo, cat, m.New.OID, f)
	if err == nil && m.Kind == swap {
		err = copyAttributes(t, m, f)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// copyAttributes gives a new file the permissions of the file that it replaces, and its owner as far as that is possible. Whether it is
// executable is a property of the new one.
func copyAttributes(t *target, m *moveOp, f *os.File) error {
	var st unix.Stat_t
	if err := t.read.Lstat(string(m.Path), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	err := unix.Fchown(int(f.Fd()), int(st.Uid), int(st.Gid))
	if errors.Is(err, unix.EPERM) { // the file of another user, perhaps of a group that both are in
		err = unix.Fchown(int(f.Fd()), -1, int(st.Gid))
	}
	if err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return f.Chmod(pathset.PermLike(fs.FileMode(st.Mode).Perm(), m.New.Mode))
}

// inheritGroup gives a new file or directory the group that it would have if it was made where it is moved to: that of a set-group-ID
// directory. Directories pass on that property, too.
func inheritGroup(t *target, m *moveOp) error {
	var parent unix.Stat_t
	for dir := path.Dir(string(m.Path)); ; dir = path.Dir(dir) { // the innermost one that exists
		err := t.read.Lstat(dir, &parent)
		if err == nil && parent.Mode&unix.S_IFMT == unix.S_IFDIR {
			break
		}
		if err != nil && !beneath.IsGone(err) {
			return err
		}
		if dir == "." {
			return nil
		}
	}
	if parent.Mode&unix.S_ISGID == 0 {
		return nil
	}
	err := unix.Fchownat(t.stagingFD(), m.Slot, -1, int(parent.Gid), unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EPERM) { // the user is not in that group
		return nil
	}
	if err != nil || !m.IsDir {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(t.stagingFD(), m.Slot, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(t.stagingFD(), m.Slot, uint32(st.Mode)&0o7777|unix.S_ISGID, 0)
}

// probe tries whether the file system can exchange files, which it must before anything changes.
func probe(t *target) error {
	const a, b = "probe-a", "probe-b"
	for _, name := range []string{a, b} {
		if err := unix.Mkdirat(t.stagingFD(), name, 0o700); err != nil {
			return &fs.PathError{Op: "mkdir", Path: t.staging.Name(), Err: err}
		}
	}
	err := exchange(t.stagingFD(), a, t.stagingFD(), b)
	if errors.Is(err, errors.ErrUnsupported) {
		err = errors.New("its file system cannot exchange files, so that a landing could not be undone")
	}
	for _, name := range []string{a, b} {
		err = errors.Join(err, unix.Unlinkat(t.stagingFD(), name, unix.AT_REMOVEDIR))
	}
	if err != nil {
		return &fs.PathError{Op: "land in", Path: t.path, Err: err}
	}
	return nil
}

// isEmptyDir reports whether a directory is empty.
func isEmptyDir(dir int, name string) (bool, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return len(names) == 0, err
}
