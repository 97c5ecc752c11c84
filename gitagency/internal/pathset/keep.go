package pathset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Keep keeps the work of a sandbox as a snapshot of it, whose directory <n> has the files of the directory n. It makes files readable for
// that whose permissions a command has removed. It returns the last snapshot if nothing has changed since. The caller holds the lock of r,
// and no command runs in the sandbox.
func Keep(ctx context.Context, r *core.Repository, id string, m store.PathsFields) (s snapshots.Snapshot, w Work, err error) {
	states := States(r)
	if w, err = readAllWork(ctx, r, states.Git, id, m); err != nil {
		return s, w, err
	}
	all, err := snapshots.List(ctx, states.Git, id)
	if err != nil {
		return s, w, err
	}
	parent := m.PathsBase
	if len(all) == 0 && len(w.Changed()) == 0 {
		return snapshots.Snapshot{Invocation: id, ID: m.PathsBase}, w, nil
	}
	if len(all) > 0 {
		s = all[len(all)-1]
		if found, err := states.Git.Lookup(ctx, s.ID+"^{tree}"); err != nil || found[0].OID == w.TreeID {
			return s, w, err
		}
		parent = s.ID
	}
	s = snapshots.Snapshot{Invocation: id, Number: s.Number + 1, Created: true}
	s.Ref = core.SnapshotRef(id, s.Number)
	var names strings.Builder
	for n, p := range m.Paths {
		fmt.Fprintf(&names, "%d/ is %s\n", n, p.Path)
	}
	message := fmt.Sprintf("agency: work of sandbox %s\n\n%s\nAgency-Invocation: %s", id, names.String(), id)
	if s.ID, err = states.Git.CommitTree(ctx, git.WorktreeSpec{Author: core.ToolIdentity}, w.TreeID, []string{parent}, message); err != nil {
		return s, w, err
	}
	tx := states.BeginTx("keep")
	if err := tx.Step(ctx, "ref", func() error { return snapshots.Keep(ctx, tx, states.Git, s) }); err != nil {
		core.RollbackTx(ctx, tx)
		return s, w, err
	}
	return s, w, nil
}

// Sweep deletes the states of sandboxes that no longer exist: those of pruned ones, and of creations that were killed, with their copies
// of directories. The caller holds the lock of r.
func Sweep(ctx context.Context, r *core.Repository) error {
	left, err := LeftoverCopies(r)
	for _, dir := range left {
		err = errors.Join(err, durable.RemoveTree(dir))
	}
	if err != nil {
		return err
	}
	states, bases := States(r).Git, changeset.BaseRef("")
	if _, err := os.Lstat(states.CommonDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, err := states.RunRead(ctx, git.RunOptions{}, "for-each-ref", "--format=%(refname)", bases, core.AllSnapshotsPrefix)
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(string(out)) {
		id, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(ref, bases), core.AllSnapshotsPrefix), "/")
		if _, known := store.FirstExisting(r.Store.InvocationDir(r.ID, id), r.Store.SandboxDir(r.ID, id)); known || !ids.Valid(id) {
			continue
		}
		if err := changeset.RemoveRef(ctx, states, ref); err != nil {
			return err
		}
	}
	return nil
}

// DirsToArchive returns the parts of the upper directories of a sandbox that its snapshots and a landing leave out, with their sections of
// the archive. Files that were there at the start and did not change are not in them.
func DirsToArchive(r *core.Repository, id string, m store.PathsFields, left []LeftOut) (dirs []core.ArchivedDir) {
	parts := make([][]string, len(m.Paths))
	for _, l := range left {
		n, path, err := Split(m.Paths, l.Path)
		if err == nil && WhyNotKept(l.Reason) != "" {
			parts[n] = append(parts[n], path)
		}
	}
	for n, p := range m.Paths {
		if len(parts[n]) > 0 {
			dirs = append(dirs, core.ArchivedDir{Section: fmt.Sprintf("directory-%d", n), Dir: UpperDir(r, id, p.Path), Parts: parts[n]})
		}
	}
	return dirs
}
