package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ReceivedPack names the pack in the error of a limit that it exceeds.
const ReceivedPack = "the pack of its new commits"

// quarantine is an object directory for received objects that were not checked yet. Its lock, which the git that writes
// to it inherits, tells a quarantine in use from one that a killed process left. A git directory of its own is in it, for
// a git that can read nothing of the repository but its objects and refs.
type quarantine struct {
	dir  string
	lock *os.File
}

// openQuarantine creates a quarantine for a ref, and removes those that killed processes left for it.
func openQuarantine(ctx context.Context, r *git.Repo, ref string, format object.Format) (*quarantine, error) {
	if err := os.MkdirAll(r.AgencyDir(), 0o777); err != nil {
		return nil, err
	}
	if err := removeAbandoned(ctx, r.AgencyDir(), path.Base(ref)); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.AgencyDir(), git.QuarantinePrefix+"*-"+path.Base(ref))
	if err != nil {
		return nil, err
	}
	held, err := lock.AcquireDirExclusive(ctx, dir, 0)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "pack"), 0o777)
	}
	q := &quarantine{dir, held}
	if err == nil {
		err = q.fillGitDir(r, format)
	}
	if err != nil {
		return nil, errors.Join(err, q.remove())
	}
	return q, nil
}

func (q *quarantine) gitDir() string { return filepath.Join(q.dir, "git") }

// fillGitDir makes the git directory of the quarantine. It shows the refs of the repository: loose ones as they are now,
// packed ones as they were at the beginning, because walls allow a file and not what replaces it.
func (q *quarantine) fillGitDir(r *git.Repo, format object.Format) error {
	dir := q.gitDir()
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	if err := git.InitBareAs(dir, format); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "refs")); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(r.CommonDir, "refs"), filepath.Join(dir, "refs")); err != nil {
		return err
	}
	for _, name := range []string{"packed-refs", "shallow"} {
		if err := git.CopyFileWithMtime(filepath.Join(r.CommonDir, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeAbandoned removes the quarantines of a name that no process uses.
func removeAbandoned(ctx context.Context, agencyDir, name string) error {
	entries, err := os.ReadDir(agencyDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), git.QuarantinePrefix) || !strings.HasSuffix(e.Name(), "-"+name) {
			continue
		}
		dir := filepath.Join(agencyDir, e.Name())
		held, err := lock.AcquireDirExclusive(ctx, dir, 0)
		var used *lock.TimeoutError
		switch {
		case errors.As(err, &used) || errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		if err := (&quarantine{dir, held}).remove(); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the quarantine with all that is left in it.
func (q *quarantine) remove() error {
	err := durable.RemoveTree(q.dir)
	if q.lock != nil {
		err = errors.Join(err, q.lock.Close())
	}
	return err
}

// options returns the options of a git that uses the objects in quarantine and those of the repository.
func (q *quarantine) options(r *git.Repo) git.RunOptions {
	p := r.ReaderOptions(ReceivedPack, filepath.Join(q.dir, "pack"), q.gitDir(), false, q.dir, filepath.Join(r.CommonDir, "refs"))
	p.Env = slices.Concat(p.Env, r.ObjectsInto(q.dir), []string{
		"GIT_GRAFT_FILE=" + os.DevNull, // the real history
		"GIT_ALLOC_LIMIT=1g",           // per object; a delta of a few bytes can ask for any size
	})
	// Fsync the .idx of the pack as well: without it the objects are lost.
	p.Config = append(p.Config, "-c", "core.fsync=committed,reference,pack-metadata")
	return p
}

// indexPack has git write the pack into quarantine. A pack without objects leaves nothing there.
func indexPack(ctx context.Context, r *git.Repo, quarantine *quarantine, in ReceiveRequest) error {
	if in.Pack == nil {
		return nil
	}
	head := make([]byte, 12) // "PACK", version, number of objects
	n, err := io.ReadFull(in.Pack, head)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF): // git reports a pack that is too short
		return fmt.Errorf("read pack: %w", err)
	case err == nil && string(head[:4]) == "PACK" && binary.BigEndian.Uint32(head[8:]) == 0:
		_, err := io.Copy(io.Discard, io.LimitReader(in.Pack, 1<<16)) // drain the checksum, so that the writer does not fail
		return err
	}
	in.Pack = io.MultiReader(bytes.NewReader(head[:n]), in.Pack)
	return runIndexPack(ctx, r, quarantine, in)
}

// runIndexPack runs git index-pack on a pack, and counts the objects on the way. Git applies deltas when it has got all
// of the pack, so that it does not begin with those of a pack whose objects are too large.
func runIndexPack(ctx context.Context, r *git.Repo, quarantine *quarantine, in ReceiveRequest) error {
	q := quarantine.options(r)
	q.Config = slices.Concat(git.FsyncArgs, q.Config)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stdin, feed := io.Pipe()
	copied := proc.Async(func() (object.PackSize, error) {
		size, err := object.CopyPack(feed, in.Pack, object.FormatOf(in.New), r.ReadLimits.Inflated)
		if errors.Is(err, object.ErrPackTooLarge) {
			cancel()
		}
		return size, errors.Join(err, feed.Close())
	})
	run, args := r.RunnerFor(q, []*os.File{quarantine.lock}), []string{"index-pack", "--stdin", "--fix-thin", "--strict"}
	res, err := q.Reading.Run(ctx, proc.Command{
		Argv: slices.Concat([]string{"git"}, r.GlobalArgs(q), args),
		Dir:  run.Dir, Env: run.Env, Inherit: run.Inherit, Stdin: stdin,
	})
	_ = stdin.Close() // so that the copy ends if git did before
	size, copyErr := copied()
	var invalid *object.InvalidPackError // which git reports itself
	switch {
	case errors.Is(copyErr, object.ErrPackTooLarge):
		return q.Reading.Exceeded(q.Reading.What, readlimit.Inflated)
	case err != nil:
		return fmt.Errorf("git index-pack: %w", err)
	case copyErr != nil && !errors.As(copyErr, &invalid) && !errors.Is(copyErr, io.ErrClosedPipe):
		return fmt.Errorf("read pack: %w", copyErr)
	case res.ExitCode != 0 && r.ReadLimits.Memory > 0 && size.Largest >= r.ReadLimits.Memory/4:
		// Git needs an object, its base and the delta in memory at once. Of an allocation that fails there is no other sign.
		return q.Reading.Exceeded(q.Reading.What, readlimit.Memory)
	case res.ExitCode != 0:
		return &git.Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return copyErr
}
