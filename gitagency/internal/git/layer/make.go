package layer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// maker makes one layer.
type maker struct {
	Request
	repo *git.Repo // with the settings of new worktrees
	name string    // of the layer
}

func newMaker(ctx context.Context, r *git.Repo, req Request) (*maker, error) {
	r, err := withSharedConfig(ctx, r, true)
	if err != nil {
		return nil, err
	}
	digest, err := settingsDigest(ctx, r, req.SkipLFS)
	return &maker{Request: req, repo: r, name: req.Tree + "-" + digest}, err
}

// make makes the layer and gives it its name. It reports false where another process has just done so, or has removed what was
// begun: then the caller tries again.
func (m *maker) make(ctx context.Context) (made bool, err error) {
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return false, err
	}
	_ = removeRemains(ctx, m.Dir) // the next process tries again
	dir, final := filepath.Join(m.Dir, newPrefix+m.name), filepath.Join(m.Dir, m.name)
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) { // a prune removed the last layer, and the directory of all
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	held, err := lock.AcquireDirExclusive(ctx, dir, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if durable.IsDir(final) {
		return false, os.Remove(dir)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveTree(dir))
		}
	}()
	base, heldBase, err := m.findBase(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closeIfOpen(heldBase)) }() // after the layer has its name: from then on it needs its base
	if err := m.fill(ctx, dir, held, base); err != nil {
		return false, err
	}
	// While a prune looks for the layers that others need, no layer gets its name.
	dirLock, err := lock.AcquireDirShared(ctx, m.Dir, -1)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dirLock.Close()) }()
	if err := os.Rename(dir, final); err != nil {
		return false, err
	}
	return true, durable.SyncDir(m.Dir)
}

// fill writes the parts of the layer durably into dir, which held locks. The layer is a delta if there is a base.
func (m *maker) fill(ctx context.Context, dir string, held *os.File, base Layer) error {
	remains, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range remains { // of a killed process
		if err := durable.RemoveTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	// A git that outlives this process keeps the lock until it ends, so that it never writes to what another process makes.
	r := *m.repo
	r.Inherit = append(slices.Clone(r.Inherit), held)
	if err := os.Mkdir(filepath.Join(dir, treeName), 0o755); err != nil {
		return err
	}
	rec := record{Base: base.Name}
	if base.Name == "" {
		rec.Entries, err = m.fillFull(ctx, &r, dir)
	} else {
		rec.Entries, err = base.writeDelta(ctx, &r, DeltaRequest{
			Dir: filepath.Join(dir, treeName), Index: filepath.Join(dir, indexName), Tree: m.Tree, SkipLFS: m.SkipLFS,
		})
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), append(text, '\n'), 0o666); err != nil {
		return err
	}
	// Unlike a file of a worktree, one that a power failure truncates would be wrong for ever, for every sandbox.
	return durable.SyncFileSystem(dir)
}

// fillFull writes all files of the tree, and their index.
func (m *maker) fillFull(ctx context.Context, r *git.Repo, dir string) (entries int, err error) {
	at, indexPath := filepath.Join(dir, treeName), filepath.Join(dir, indexName)
	began := time.Now()
	source := m.Source
	source.Hashes = checkout.HashCache{} // a wrong file would be wrong in every sandbox
	gitDir, _, err := makeGitDir(r, indexPath, m.Tree, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(gitDir)) }()
	if err := checkout.Fill(ctx, r, checkout.Request{
		Worktree: worktree.Registration{Tree: at}, GitDir: gitDir, Commit: m.Tree, Tree: m.Tree, Source: source, SkipLFS: m.SkipLFS,
	}); err != nil {
		return 0, err
	}
	x, err := r.ReadEditableIndex(ctx, gitDir, object.FormatOf(m.Tree))
	if err != nil {
		return 0, err
	}
	return x.Count, writeIndex(x, slices.Collect(x.AllEntries()), at, indexPath, began)
}

// sparseRules is the file of a git directory with the patterns of a sparse checkout.
const sparseRules = "info/sparse-checkout"

// makeGitDir makes a git directory for a checkout beside the index that is to be made: no part of a layer may be a .git, and git
// must not know the layer as a worktree. Like that of a new worktree it has the sparse checkout of the common directory. Gits
// need the returned environment.
func makeGitDir(r *git.Repo, indexPath, tree string, trusted bool) (gitDir string, env []string, err error) {
	gitDir = indexPath + ".git"
	if err := os.MkdirAll(filepath.Join(gitDir, filepath.Dir(sparseRules)), 0o700); err != nil {
		return "", nil, err
	}
	if env, err = r.FillScratchGitDir(git.WorktreeSpec{TrustConfig: trusted}, tree, gitDir); err != nil || !trusted {
		return gitDir, env, err
	}
	for _, name := range []string{sparseRules, git.WorktreeConfigFile} {
		err := git.CopySmallFile(filepath.Join(r.CommonDir, name), filepath.Join(gitDir, name))
		if err != nil && !git.IsNotExist(err) {
			return "", nil, err
		}
	}
	return gitDir, nil, nil // replaced objects count, as for every checkout
}

// minAge is the age that files of a layer have at least. A git that compares whole seconds, as most do, reads all files again
// that have the mtime of the index or a later one (racy git), in each new sandbox.
const minAge = 2 * time.Second

// writeIndex writes an index, in the default format, after it gave a past mtime to the files of the fresh entries, which are
// entries of x. The files are below dir, and were written after began.
func writeIndex(x *index.Editable, fresh []index.Entry, dir, path string, began time.Time) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	past := unix.NsecToTimespec(began.Add(-minAge).UnixNano())
	for _, e := range fresh {
		const mtimeOffset = 8
		if e.Mode == object.ModeGitlink || e.SkipWorktree || int64(binary.BigEndian.Uint32(e.Stat[mtimeOffset:])) < past.Sec {
			continue
		}
		name := string(e.Name)
		var st unix.Stat_t
		err := unix.UtimesNanoAt(top, name, []unix.Timespec{past, past}, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			err = unix.Fstatat(top, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil {
			return &fs.PathError{Op: "set the time of", Path: filepath.Join(dir, name), Err: err}
		}
		copy(e.Stat, index.EncodeStat(&st, e.Mode))
	}
	data := x.Encode()
	if trees := x.CacheTree(); trees != nil {
		data = x.EncodeWithCacheTree(trees)
	}
	return os.WriteFile(path, data, 0o666)
}

// removeRemains removes what killed processes left: layers that were being made, and those that were being removed.
func removeRemains(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), oldPrefix):
			failed = append(failed, durable.RemoveTree(path))
		case strings.HasPrefix(e.Name(), newPrefix):
			held, err := lock.AcquireDirExclusive(ctx, path, 0)
			if err != nil { // in use, or removed by another process
				if !errors.As(err, new(*lock.TimeoutError)) && !errors.Is(err, fs.ErrNotExist) {
					failed = append(failed, err)
				}
				continue
			}
			failed = append(failed, withdraw(path), held.Close(), durable.RemoveTree(withdrawnPath(path)))
		}
	}
	return errors.Join(failed...)
}

// withdraw renames a directory that is exclusively locked, so that its removal, if it is killed, leaves no part of a layer under
// its own name.
func withdraw(path string) error {
	aside := withdrawnPath(path)
	if err := durable.RemoveTree(aside); err != nil { // left by a killed process
		return err
	}
	return os.Rename(path, aside)
}

func withdrawnPath(path string) string {
	return filepath.Join(filepath.Dir(path), oldPrefix+filepath.Base(path))
}
