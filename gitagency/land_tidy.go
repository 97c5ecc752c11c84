package gitagency

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// TidiesLater reports whether what is left to remove after a landing may be removed in the background: agency.autoDetach.
func (r *Repository) TidiesLater() (bool, error) { return r.truth(autoDetachKey, true) }

// TidyLater starts this program again, in the same environment, as one that goes on when it has ended: to tidy up what
// landings with LandRequest.Later have left. argv begins with what the program is called. It is in the same place, unless
// that was a sandbox which has landed.
func (r *Repository) TidyLater(argv []string) error {
	dir := r.opts.Dir
	if r.Stranded() {
		dir = r.CommonDir
	}
	return proc.DetachSelf(proc.Command{Argv: argv, Dir: dir, Env: r.opts.Env})
}

// Stranded reports that the directory in which the caller stands is gone, as that of a sandbox is which has landed.
func (r *Repository) Stranded() bool { return !store.IsDir(r.opts.Dir) }

// setAside puts the tree of a sandbox that has landed where nobody looks for it.
func setAside(tree string) error {
	if _, there := store.Taken(store.Aside(tree)); there || !store.IsDir(tree) {
		return nil
	}
	return os.Rename(tree, store.Aside(tree))
}

// tidy removes the tree of a sandbox that has landed, which can take longer than all the rest: nobody is kept from the
// repository meanwhile. What was written to it after we had looked is kept first, and for that somebody is.
func (r *Repository) tidy(ctx context.Context, id string) error {
	around := r.store.SandboxDir(r.ID, id)
	held, err := lock.Clear(ctx, around, 0)
	if errors.Is(err, fs.ErrNotExist) || is[*LockTimeoutError](err) {
		return nil // there is nothing left, or somebody else is at it
	}
	if err != nil {
		return err
	}
	defer func() {
		if held != nil {
			_ = held.Close()
		}
	}()
	tree := r.store.SandboxTreePath(r.ID, id)
	entry := r.store.Invocation(r.ID, id, nil)
	late := store.IsDir(tree)
	if aside := store.Aside(tree); store.IsDir(aside) && !late {
		if late, err = touchedSince(aside, whenever(entry.Record.LookedAt)); err != nil {
			return err
		}
		if !late {
			if err := errors.Join(durable.RemoveTree(store.Done(tree)), os.Rename(aside, store.Done(tree))); err != nil {
				return err
			}
		}
	}
	if late {
		_ = held.Close() // whoever has the repository lock may be waiting for it
		held = nil
		return r.tidyLocked(ctx, id)
	}
	// The sandbox goes last: while there is anything of it, whoever looks takes the rest away too.
	if err := errors.Join(backend(r.git).RemoveWithdrawn(r.sandboxSpec(id)), durable.RemoveTree(store.Done(tree))); err != nil {
		return err
	}
	return r.store.RemoveSandboxTree(r.ID, id)
}

// tidyLocked is tidy where something may have to be kept.
func (r *Repository) tidyLocked(ctx context.Context, id string) error {
	repo, unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.endLanded(ctx, repo, id)
}

// endLanded takes away whatever is left of a sandbox that has landed.
func (r *Repository) endLanded(ctx context.Context, repo *git.Repo, id string) error {
	entry := r.store.Invocation(r.ID, id, nil)
	// Who was killed in between may have left git's entry of it alone.
	if _, left := store.Taken(r.store.SandboxDir(r.ID, id), repo.AdminDir(id)); !left || entry.Broken != store.Whole || entry.Record.Landing != store.Landed {
		return nil
	}
	_, err := r.end(ctx, repo, entry)
	return err
}

// scraps lists what killed processes left in the repository, but for what goes with a sandbox that has landed.
func (r *Repository) scraps(repo *git.Repo) ([]string, error) {
	scraps, err := repo.Scraps()
	return slices.DeleteFunc(scraps, func(path string) bool {
		id := idIn(path)
		if id == "" || path != repo.Withdrawn(id) || !store.IsDir(r.store.SandboxDir(r.ID, id)) {
			return false
		}
		return r.store.Invocation(r.ID, id, nil).Record.Landing == store.Landed
	}), err
}

// beingTidied reports whether somebody removes what is left of a sandbox just now.
func (r *Repository) beingTidied(id string) bool {
	held, err := lock.Occupy(context.Background(), r.store.SandboxDir(r.ID, id), 0)
	if err == nil {
		_ = held.Close()
	}
	return is[*LockTimeoutError](err)
}
